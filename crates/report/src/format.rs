//! Numbers and texts as people read them.

/// A size in binary units: `86.7 MiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A count with a thin gap between thousands: `1 234 567`.
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

/// A ratio: `1.33x`.
pub fn ratio(ratio: f64) -> String {
    format!("{ratio:.2}x")
}

/// A share in percent. Nothing is `-`, and neither end is reached by rounding.
pub fn share(share: f64) -> String {
    match share * 100.0 {
        0.0 => "-".to_owned(),
        percent if percent < 0.05 => "<0.1%".to_owned(),
        percent if (99.95..100.0).contains(&percent) => ">99.9%".to_owned(),
        percent => format!("{percent:.1}%"),
    }
}

/// Text that is safe anywhere in HTML, control characters made visible.
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
    fn sizes() {
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
    fn no_markup_gets_through() {
        assert_eq!(escape("<a href='x'>&\"\n\u{1b}["), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\\n\\u{1b}[");
    }
}
