//! Reference of rank32 and rank64, written from the format page: codes as text, numbers in `i128`.

use buddy_codec::Codec;
use buddy_core::{Entry, Layout};

use super::{own, prefix::codes};

/// Symbol of a word that is not in the table.
const ABSENT: usize = 16;

/// A codec as the format page specifies it.
pub(crate) struct Page {
    bits: usize,
    values: Vec<i128>,
    /// The code of each index length and of the escape, as bits in stream order; empty if unused.
    codes: Vec<String>,
}

impl Page {
    pub(crate) fn of(codec: &Codec) -> Self {
        let parameters = serde_json::to_value(codec).unwrap();
        let bits = if codec.kind().name().ends_with("32") { 32 } else { 64 };
        let digits = parameters["values"].as_str().unwrap();
        let value = |at: usize| i128::from_str_radix(&digits[at..at + bits / 4], 16).unwrap();
        let values = (0..digits.len()).step_by(bits / 4).map(value).collect();
        Self { bits, values, codes: codes(parameters["code"].as_str().unwrap()) }
    }

    /// Returns the stream in layout A, if it exists.
    fn text(&self, entry: &Entry) -> Option<String> {
        let mut text = String::new();
        for word in own::numbers(entry, self.bits) {
            let place = self.values.iter().position(|&value| value == word);
            let length = place.map_or(ABSENT, |place| (0..).find(|&length| place >> length == 0).unwrap());
            if self.codes[length].is_empty() {
                return None;
            }
            text += &self.codes[length];
            text += &match place {
                Some(place) => own::field(place as i128, length.saturating_sub(1)),
                None => own::field(word, self.bits),
            };
        }
        (text.len() <= 768).then_some(text)
    }

    fn entry(&self, stream: &[u8]) -> Option<Entry> {
        let mut rest = own::Rest::of(stream);
        let mut words = Vec::new();
        for _ in 0..1024 / self.bits {
            let found = |code: &String| !code.is_empty() && rest.0.starts_with(code);
            let length = self.codes.iter().position(found)?;
            rest.text(self.codes[length].len())?;
            let place = match length {
                ABSENT => {
                    words.push(rest.number(self.bits)?);
                    continue;
                }
                0 => 0,
                _ => rest.number(length - 1)? | 1 << (length - 1),
            };
            // An index past the table is an error, but only if the stream is complete.
            words.push(self.values.get(place as usize).copied().unwrap_or(-1));
        }
        (!words.contains(&-1)).then(|| own::joined(&words, self.bits))
    }
}

/// Layout B is the raw entry.
impl own::Page for Page {
    fn write(&self, entry: &Entry) -> (Layout, String) {
        match self.text(entry) {
            Some(text) => (Layout::A, text),
            None => (Layout::B, own::numbers(entry, 64).iter().map(|&word| own::field(word, 64)).collect()),
        }
    }

    fn read(&self, stream: &[u8], layout: Layout) -> Option<Entry> {
        match layout {
            Layout::A => self.entry(stream),
            Layout::B => stream.first_chunk().copied(),
            Layout::C => None,
        }
    }
}
