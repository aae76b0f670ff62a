//! Codecs as C names them: `bpc`, or with what one learned, `bf16:117`.

use std::ffi::{CStr, c_char};

use buddy_codec::{Bf16, Codec, CodecKind};

use crate::error::Failure;

/// Reads a codec's name.
///
/// # Safety
/// `name` is null or a string that ends in NUL.
pub(crate) unsafe fn codec(name: *const c_char) -> Result<Codec, Failure> {
    if name.is_null() {
        return Err(Failure::Value("the codec's name is null".to_owned()));
    }
    // SAFETY: the caller's promise, and not null.
    let name = unsafe { CStr::from_ptr(name) };
    parse(name.to_str().map_err(|_| Failure::Value("the codec's name is not UTF-8".to_owned()))?)
}

fn parse(text: &str) -> Result<Codec, Failure> {
    let wrong = |why: String| Failure::Codec(format!("'{text}' is no codec: {why}"));
    let (name, learned) = text.split_once(':').map_or((text, None), |(name, learned)| (name, Some(learned)));
    let kind: CodecKind = name.parse().map_err(|error: buddy_codec::Error| wrong(error.to_string()))?;
    match (kind, learned) {
        (_, None) => Ok(kind.train(&[])),
        (CodecKind::Bf16, Some(window)) => {
            let window = window.parse().map_err(|_| wrong("the window is a number up to 240".to_owned()))?;
            Ok(Codec::Bf16(Bf16::new(window).map_err(|error| wrong(error.to_string()))?))
        }
        (_, Some(_)) => Err(wrong(format!("{kind} has no parameters"))),
    }
}

/// The name that [`codec`] reads as this codec.
pub(crate) fn name(codec: &Codec) -> String {
    match codec {
        Codec::Bf16(bf16) => format!("bf16:{}", bf16.window()),
        _ => codec.kind().name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for text in ["bpc", "zeros32", "bf16:0", "bf16:117", "bf16:240"] {
            assert_eq!(name(&parse(text).unwrap()), text);
        }
        assert_eq!(name(&parse("bf16").unwrap()), "bf16:112");
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text| parse(text).unwrap_err().to_string();
        assert!(error("bcp").starts_with("'bcp' is no codec: unknown codec 'bcp'"));
        assert!(error("bpc:1").contains("bpc has no parameters"));
        assert!(error("bf16:x").contains("a number up to 240"));
        assert!(error("bf16:241").contains("above 240"));
    }
}
