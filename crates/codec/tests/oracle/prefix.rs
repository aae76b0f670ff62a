//! Reference of prefix32 and prefix64, written from the format page: codes as text, numbers in
//! `i128`.

use buddy_codec::Codec;
use buddy_core::{Entry, Layout};

use super::own;

/// A codec as the format page specifies it.
pub(crate) struct Page {
    bits: usize,
    stride: usize,
    order: usize,
    /// The code of each length, as bits in stream order.
    first: Vec<String>,
    rest: Vec<String>,
}

/// Returns the canonical codes of these lengths: counted up from zero, shorter first.
pub(super) fn codes(lengths: &str) -> Vec<String> {
    let lengths: Vec<usize> = lengths.chars().map(|digit| digit.to_digit(16).unwrap() as usize).collect();
    let mut codes = vec![String::new(); lengths.len()];
    let (mut next, mut before) = (0u32, 0);
    for length in 1..=10 {
        for symbol in (0..lengths.len()).filter(|&symbol| lengths[symbol] == length) {
            next <<= length - before;
            before = length;
            codes[symbol] = format!("{next:0length$b}");
            next += 1;
        }
    }
    codes
}

impl Page {
    pub(crate) fn of(codec: &Codec) -> Self {
        let parameters = serde_json::to_value(codec).unwrap();
        let number = |name: &str| parameters[name].as_u64().unwrap() as usize;
        let code = |name: &str| codes(parameters[name].as_str().unwrap());
        let bits = if codec.kind().name().ends_with("32") { 32 } else { 64 };
        Self {
            bits,
            stride: number("stride"),
            order: number("order"),
            first: code("first"),
            rest: code("rest"),
        }
    }

    fn code(&self, word: usize) -> &[String] {
        if word < self.stride * self.order { &self.first } else { &self.rest }
    }

    fn guess(&self, words: &[i128], i: usize) -> i128 {
        match i {
            _ if i < self.stride => words[i - 1],
            _ if self.order == 2 && i >= 2 * self.stride => {
                2 * words[i - self.stride] - words[i - 2 * self.stride]
            }
            _ => words[i - self.stride],
        }
    }

    fn text(&self, entry: &Entry) -> String {
        let words = own::numbers(entry, self.bits);
        let mut text = "0".to_owned();
        for (i, &word) in words.iter().enumerate() {
            if self.stride > 0 && i == 0 {
                text += &own::field(word, self.bits);
                continue;
            }
            let number = if self.stride == 0 {
                word
            } else {
                let difference = (word - self.guess(&words, i)) & ((1 << self.bits) - 1);
                let negative = difference >> (self.bits - 1) == 1;
                if negative { 2 * ((1 << self.bits) - difference) - 1 } else { 2 * difference }
            };
            let length = (0..).find(|&length| number >> length == 0).unwrap();
            text += &self.code(i)[length];
            text += &own::field(number, length.saturating_sub(1));
        }
        if text.len() < 1025 {
            return text;
        }
        "1".to_owned() + &words.iter().map(|&word| own::field(word, self.bits)).collect::<String>()
    }

    fn entry(&self, stream: &[u8]) -> Option<Entry> {
        let mut rest = own::Rest::of(stream);
        let count = 1024 / self.bits;
        if rest.number(1)? == 1 {
            let words: Option<Vec<i128>> = (0..count).map(|_| rest.number(self.bits)).collect();
            return Some(own::joined(&words?, self.bits));
        }
        let mut words = Vec::new();
        for i in 0..count {
            if self.stride > 0 && i == 0 {
                words.push(rest.number(self.bits)?);
                continue;
            }
            let length = self.code(i).iter().position(|code| rest.0.starts_with(code))?;
            rest.text(self.code(i)[length].len())?;
            let number = match length {
                0 => 0,
                _ => rest.number(length - 1)? | 1 << (length - 1),
            };
            if self.stride == 0 {
                words.push(number);
                continue;
            }
            let difference = if number % 2 == 1 { -(number + 1) / 2 } else { number / 2 };
            words.push((self.guess(&words, i) + difference) & ((1 << self.bits) - 1));
        }
        Some(own::joined(&words, self.bits))
    }
}

/// The codec has only layout A.
impl own::Page for Page {
    fn write(&self, entry: &Entry) -> (Layout, String) {
        (Layout::A, self.text(entry))
    }

    fn read(&self, stream: &[u8], layout: Layout) -> Option<Entry> {
        if layout == Layout::A { self.entry(stream) } else { None }
    }
}
