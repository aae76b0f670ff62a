//! Codec names as used by C and Python: `bpc`, or with a parameter, `bf16:117`.

use std::{fmt, str::FromStr};

use crate::{Bf16, Codec, CodecKind, Error};

impl fmt::Display for Codec {
    /// Formats the name that parses to this codec. Tables are too long for a name, so a codec with
    /// a table is named without it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bf16(bf16) => write!(f, "bf16:{}", bf16.window()),
            _ => write!(f, "{}", self.kind()),
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
            assert_eq!(word.parse::<Codec>().unwrap().to_string(), word);
        }
        assert_eq!("bf16".parse::<Codec>().unwrap().to_string(), "bf16:112");
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
