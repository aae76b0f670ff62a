//! Codecs as one word: `bpc`, or with what one learned, `bf16:117`. C and Python name them so.

use std::{fmt, str::FromStr};

use crate::{Bf16, Codec, CodecKind, Error};

impl fmt::Display for Codec {
    /// The word that is read as this codec. A table is too long for a word, so one with a table stands for the codec untrained.
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
                let window = window
                    .parse()
                    .map_err(|_| Error::Parameters(format!("'{word}': the window is a number up to 240")))?;
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
    fn words_go_both_ways() {
        for word in ["bpc", "zeros32", "bf16:0", "bf16:117", "bf16:240"] {
            assert_eq!(word.parse::<Codec>().unwrap().to_string(), word);
        }
        assert_eq!("bf16".parse::<Codec>().unwrap().to_string(), "bf16:112");
    }

    #[test]
    fn mistakes_are_named() {
        let error = |word: &str| word.parse::<Codec>().unwrap_err().to_string();
        assert!(error("bcp").starts_with("unknown codec 'bcp'"));
        assert!(error("bpc:1").contains("bpc has no parameters"));
        assert!(error("bf16:x").contains("a number up to 240"));
        assert!(error("bf16:241").contains("above 240"));
    }
}
