//! Reference of the codecs with fields, written from the format page: numbers in `i128`, bits as
//! text in stream order.

use buddy_codec::Codec;
use buddy_core::{Entry, Layout};
use serde_json::Value;

use super::own;

/// Stream bits and exceptions of forms 0 to 14.
const FORMS: [(usize, usize); 15] = [
    (64, 0),
    (256, 0),
    (256, 1),
    (256, 2),
    (256, 3),
    (512, 0),
    (512, 1),
    (512, 2),
    (512, 4),
    (512, 6),
    (768, 0),
    (768, 1),
    (768, 2),
    (768, 4),
    (768, 6),
];

/// A codec as the format page specifies it.
pub(crate) struct Page {
    bits: usize,
    parameters: Value,
    table: Option<Vec<i128>>,
}

impl Page {
    pub(crate) fn of(codec: &Codec) -> Self {
        let bits = if codec.kind().name().ends_with("32") { 32 } else { 64 };
        let parameters = serde_json::to_value(codec).unwrap();
        let hex = |text: &[u8]| i128::from_str_radix(std::str::from_utf8(text).unwrap(), 16).unwrap();
        let table =
            parameters["values"].as_str().map(|text| text.as_bytes().chunks(bits / 4).map(hex).collect());
        Self { bits, parameters, table }
    }

    fn number(&self, name: &str) -> i128 {
        self.parameters[name].as_i64().unwrap().into()
    }

    fn words(&self) -> usize {
        1024 / self.bits
    }

    fn stride(&self) -> Option<(usize, usize)> {
        self.parameters.get("stride").map(|_| (self.number("stride") as usize, self.number("order") as usize))
    }

    /// Returns field widths, payload bits of an exception, and total bits of a form; `None` if it
    /// does not exist.
    fn form(&self, form: usize) -> Option<(Vec<usize>, usize, usize)> {
        let (room, exceptions) = FORMS[form];
        let most = match &self.table {
            Some(table) => (0..).find(|&bits| table.len() <= 1 << bits).unwrap(),
            None if self.stride().is_some() => self.bits,
            None => 51,
        };
        (0..=most).rev().find_map(|width| {
            let widths: Vec<usize> = (0..self.words()).map(|i| self.width(form, i, width)).collect();
            let narrowest = if self.stride().is_some() { *widths.iter().min().unwrap() } else { 0 };
            let place = if self.bits == 32 { 5 } else { 4 };
            let all = 4 + widths.iter().sum::<usize>() + exceptions * (place + self.bits - narrowest);
            (all <= room).then_some((widths, self.bits - narrowest, all))
        })
    }

    fn width(&self, form: usize, word: usize, free: usize) -> usize {
        match self.stride() {
            Some(_) if word == 0 => self.bits,
            Some((stride, order)) if word < stride * order => {
                self.parameters["first"][FORMS[form].0.div_ceil(256) - 1].as_u64().unwrap() as usize
            }
            _ => free,
        }
    }

    /// Returns the number of every word; `None` for words without one.
    fn numbers(&self, words: &[i128]) -> Vec<Option<i128>> {
        if let Some(table) = &self.table {
            return words
                .iter()
                .map(|word| table.iter().position(|value| value == word).map(|at| at as i128))
                .collect();
        }
        if self.stride().is_none() {
            return words.iter().map(|&word| self.count(word as u64)).collect();
        }
        let shift = self.number("shift") as usize;
        let turn = |word: &i128| (word >> shift | word << (self.bits - shift)) & ((1 << self.bits) - 1);
        let words: Vec<i128> = words.iter().map(turn).collect();
        let folded = |i: usize| {
            let difference = (words[i] - self.guess(&words, i)) & ((1 << self.bits) - 1);
            let negative = difference >> (self.bits - 1) == 1;
            if negative { 2 * ((1 << self.bits) - difference) - 1 } else { 2 * difference }
        };
        (0..words.len()).map(|i| Some(if i == 0 { words[0] } else { folded(i) })).collect()
    }

    /// Returns the prediction of a word from earlier words.
    fn guess(&self, words: &[i128], i: usize) -> i128 {
        let (stride, order) = self.stride().unwrap();
        match i {
            _ if i < stride => words[i - 1],
            _ if order == 2 && i >= 2 * stride => 2 * words[i - stride] - words[i - 2 * stride],
            _ => words[i - stride],
        }
    }

    fn divisor(&self) -> f64 {
        self.number("divisor") as f64 * 2f64.powi(self.number("exponent") as i32)
    }

    fn count(&self, word: u64) -> Option<i128> {
        if f64::from_bits(word).is_subnormal() {
            return None;
        }
        let product = f64::from_bits(word) * self.divisor();
        let count = product.round_ties_even();
        // A count of 0 has no sign.
        let whole = ((count + 0.0) / self.divisor()).to_bits() == word;
        let inside = count >= -2f64.powi(51) && count < 2f64.powi(51);
        (whole && inside).then(|| (count as i128 - self.number("least")) & ((1 << 64) - 1))
    }

    fn text(&self, entry: &Entry) -> String {
        let words = own::numbers(entry, self.bits);
        let numbers = self.numbers(&words);
        let over = |widths: &[usize]| -> Vec<usize> {
            let fits = |i: usize| numbers[i].is_some_and(|number| number >> widths[i] == 0);
            (0..words.len()).filter(|&i| !fits(i)).collect()
        };
        let forms = (0..15).filter_map(|form| Some((form, self.form(form)?)));
        let Some((form, (widths, rest_bits, _))) =
            forms.into_iter().find(|(form, (widths, ..))| over(widths).len() <= FORMS[*form].1)
        else {
            return own::field(15, 4)
                + &words.iter().map(|&word| own::field(word, self.bits)).collect::<String>();
        };
        let mut text = own::field(form as i128, 4);
        for (number, width) in numbers.iter().zip(&widths) {
            text += &own::field(number.unwrap_or(self.absent()), *width);
        }
        let mut places = over(&widths);
        places.resize(FORMS[form].1, places.last().copied().unwrap_or(0));
        for place in places {
            let rest =
                if self.stride().is_some() { numbers[place].unwrap() >> widths[place] } else { words[place] };
            text += &own::field(place as i128, self.words().ilog2() as usize);
            text += &own::field(rest, rest_bits);
        }
        text
    }

    /// Returns the field value of a word without a number.
    fn absent(&self) -> i128 {
        0
    }

    fn entry(&self, stream: &[u8]) -> Option<Entry> {
        let mut rest = own::Rest::of(stream);
        let form = rest.number(4)? as usize;
        if form == 15 {
            let words: Option<Vec<i128>> = (0..16).map(|_| rest.number(64)).collect();
            return Some(own::joined(&words?, 64));
        }
        let (widths, rest_bits, all) = self.form(form)?;
        if 8 * stream.len() < all {
            return None;
        }
        let mut numbers: Vec<i128> = widths.iter().map(|&width| rest.number(width)).collect::<Option<_>>()?;
        let mut replaced = Vec::new();
        for _ in 0..FORMS[form].1 {
            let place = rest.number(self.words().ilog2() as usize)? as usize;
            let more = rest.number(rest_bits)?;
            match self.stride() {
                Some(_) => {
                    let low = numbers[place] & ((1 << widths[place]) - 1);
                    numbers[place] = (low | more << widths[place]) & ((1 << self.bits) - 1);
                }
                None => replaced.push((place, more)),
            }
        }
        let mut words = self.restored(&numbers)?;
        replaced.into_iter().for_each(|(place, word)| words[place] = word);
        Some(own::joined(&words, self.bits))
    }

    fn restored(&self, numbers: &[i128]) -> Option<Vec<i128>> {
        if let Some(table) = &self.table {
            return numbers.iter().map(|&number| table.get(number as usize).copied()).collect();
        }
        if self.stride().is_none() {
            let word =
                |&number: &i128| ((number + self.number("least")) as f64 / self.divisor()).to_bits().into();
            return Some(numbers.iter().map(word).collect());
        }
        let mut words = vec![numbers[0]];
        for (i, number) in numbers.iter().enumerate().skip(1) {
            let difference = if number % 2 == 1 { -(number + 1) / 2 } else { number / 2 };
            words.push((self.guess(&words, i) + difference) & ((1 << self.bits) - 1));
        }
        let shift = self.number("shift") as usize;
        let turn = |word: &i128| (word << shift | word >> (self.bits - shift)) & ((1 << self.bits) - 1);
        Some(words.iter().map(turn).collect())
    }
}

/// These codecs have only layout A.
impl own::Page for Page {
    fn write(&self, entry: &Entry) -> (Layout, String) {
        (Layout::A, self.text(entry))
    }

    fn read(&self, stream: &[u8], layout: Layout) -> Option<Entry> {
        if layout == Layout::A { self.entry(stream) } else { None }
    }
}
