//! Codec names as used by C and Python: `bpc`, or with a parameter, `bf16:117`.

use std::str::FromStr;

use crate::{Bf16, Codec, CodecKind, EntryCodec, Error};

impl Codec {
    /// Returns the name that parses to this codec.
    ///
    /// # Errors
    /// [`Error::Parameters`] for a codec whose parameters are too long for a name; those
    /// serialise, like every codec.
    pub fn word(&self) -> Result<String, Error> {
        match self {
            Self::Bf16(bf16) => Ok(format!("bf16:{}", bf16.window())),
            _ if self.parameter_bytes() == 0 => Ok(self.kind().to_string()),
            _ => Err(Error::Parameters(format!("what {} learned is too long for a name", self.kind()))),
        }
    }
}

impl FromStr for Codec {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self, Error> {
        let (name, learned) =
            word.split_once(':').map_or((word, None), |(name, learned)| (name, Some(learned)));
        let kind: CodecKind = name.parse()?;
        match (kind, learned) {
            (_, None) => Ok(kind.train(&[])),
            (CodecKind::Bf16, Some(window)) => {
                let window = window.parse().map_err(|_| {
                    Error::Parameters(format!("'{word}': the window must be a number up to 240"))
                })?;
                Ok(Self::Bf16(Bf16::new(window)?))
            }
            (_, Some(_)) => Err(Error::Parameters(format!("'{word}': {kind} has no parameters"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for word in ["bpc", "zeros32", "bf16:0", "bf16:117", "bf16:240"] {
            assert_eq!(word.parse::<Codec>().unwrap().word().unwrap(), word);
        }
        assert_eq!("bf16".parse::<Codec>().unwrap().word().unwrap(), "bf16:112");
    }

    #[test]
    fn no_name_loses_what_a_codec_learned() {
        for kind in CodecKind::EVERY {
            let codec = kind.train(&crate::samples::samples());
            match codec.word() {
                Ok(word) => assert_eq!(word.parse::<Codec>().unwrap(), codec),
                Err(error) => assert!(kind.has_parameters() && error.to_string().contains(kind.name())),
            }
        }
    }

    #[test]
    fn invalid_names_are_errors() {
        let error = |word: &str| word.parse::<Codec>().unwrap_err().to_string();
        assert!(error("bcp").starts_with("unknown codec 'bcp'"));
        assert!(error("bpc:1").contains("bpc has no parameters"));
        assert!(error("bf16:x").contains("a number up to 240"));
        assert!(error("bf16:241").contains("above 240"));
    }
}
