//! Names of codecs in C: `bpc`, or with trained parameters `bf16:117`.

use std::ffi::{CStr, c_char};

use buddy_codec::Codec;

use crate::error::Failure;

/// Parses a codec's name.
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
    text.parse().map_err(|error| Failure::Codec(format!("'{text}' is no codec: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let error = |text| parse(text).unwrap_err().to_string();
        assert!(error("bcp").starts_with("'bcp' is no codec: unknown codec 'bcp'"));
        assert!(error("bpc:1").contains("bpc has no parameters"));
        assert!(error("bf16:x").contains("a number up to 240"));
        assert!(error("bf16:241").contains("above 240"));
    }
}
