//! Formatting of numbers and texts for readers.

pub use buddy_core::binary_size as bytes;
use buddy_record::Unit;

/// Formats a count with thin spaces between thousands: `1 234 567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Formats a ratio with two decimals: `1.33x`.
pub fn ratio(ratio: f64) -> String {
    format!("{ratio:.2}x")
}

/// Formats a share in percent. Zero is `-`; rounding never gives 0% or 100%.
pub fn share(share: f64) -> String {
    match share * 100.0 {
        0.0 => "-".to_owned(),
        percent if percent < 0.05 => "<0.1%".to_owned(),
        percent if (99.95..100.0).contains(&percent) => ">99.9%".to_owned(),
        percent => format!("{percent:.1}%"),
    }
}

/// Formats a number in its unit.
pub fn number(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Ratio => ratio(value),
        Unit::Percent => percent(value),
        Unit::Bytes => decimal_bytes(value),
        Unit::GbPerS => format!("{} GB/s", plain(value)),
        Unit::Count if value.fract() == 0.0 && value >= 0.0 => count(value as u64),
        Unit::Count | Unit::Number => plain(value),
    }
}

/// Formats a number at the tick of an axis, as short as possible.
pub(crate) fn tick(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Ratio => format!("{}x", plain(value)),
        Unit::Percent => format!("{}%", plain(value * 100.0)),
        Unit::Bytes if value >= 1e9 => format!("{} GB", plain(value / 1e9)),
        _ => number(unit, value),
    }
}

/// Formats a share in percent with three significant digits and at most two decimals.
fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0%".to_owned(),
        percent if percent.abs() < 0.005 => "<0.01%".to_owned(),
        percent if percent.abs() < 10.0 => format!("{percent:.2}%"),
        percent => format!("{percent:.1}%"),
    }
}

fn decimal_bytes(bytes: f64) -> String {
    match bytes {
        size if size < 1e3 => format!("{size:.0} B"),
        size if size < 1e6 => format!("{} kB", plain(size / 1e3)),
        size if size < 1e9 => format!("{} MB", plain(size / 1e6)),
        size => format!("{:.2} GB", size / 1e9),
    }
}

/// Formats with three significant digits, without trailing zeros.
fn plain(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { "-".to_owned() };
    }
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Escapes text for HTML and makes control characters visible.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        let sizes = [0, 1023, 1024, 1536, (1 << 20) - 1, 4 << 30, u64::MAX].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "4.0 GiB", "16384.0 PiB"]);
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
    }

    #[test]
    fn a_share_never_rounds_to_nothing_or_all() {
        let shares = [0.0, 0.0001, 0.123_45, 0.999_99, 1.0].map(share);
        assert_eq!(shares, ["-", "<0.1%", "12.3%", ">99.9%", "100.0%"]);
    }

    #[test]
    fn numbers_have_their_units() {
        let shown = [
            (Unit::Ratio, 1.5),
            (Unit::Percent, 0.0008),
            (Unit::Percent, 0.00001),
            (Unit::Percent, 0.32),
            (Unit::Bytes, 2.89e9),
            (Unit::Bytes, 64e6),
            (Unit::GbPerS, 150.0),
            (Unit::Count, 12_345.0),
            (Unit::Number, 0.98912),
        ]
        .map(|(unit, value)| number(unit, value));
        let expected =
            ["1.50x", "0.08%", "<0.01%", "32.0%", "2.89 GB", "64 MB", "150 GB/s", "12\u{202f}345", "0.989"];
        assert_eq!(shown, expected);
        assert_eq!([tick(Unit::Ratio, 2.0), tick(Unit::Percent, 0.1)], ["2x", "10%"]);
        assert_eq!([tick(Unit::Bytes, 5e8), tick(Unit::Bytes, 1e10)], ["500 MB", "10 GB"]);
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("<a href='x'>&\"\n\u{1b}["), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\\n\\u{1b}[");
    }
}
