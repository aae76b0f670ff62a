//! The texts that we are given, records, specs and targets: read, and shown.

use std::{borrow::Cow, fs, io, path::Path};

/// The longest text that is read, 1 GiB: a thousand times the largest record.
const MOST_BYTES: u64 = 1 << 30;

/// Reads a file of text. A pipe or a device is refused: it may never end, or never begin.
///
/// # Errors
/// If it cannot be read, is no regular file or no UTF-8, or is longer than 1 GiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    let about = fs::metadata(path)?;
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
    if about.is_dir() {
        return Err(wrong("this is a directory; give a file"));
    }
    if !about.is_file() {
        return Err(wrong("this is no regular file; copy what it gives to one"));
    }
    if about.len() > MOST_BYTES {
        return Err(wrong("this is longer than 1 GiB, which no text that is read here is"));
    }
    fs::read_to_string(path)
}

/// A text from a file as a terminal may show it: characters that would move the cursor, change colours or turn the
/// direction are spelled out.
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_hidden =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let spell = |c: char| if is_hidden(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(spell).collect())
}

/// A size in binary units: `86.7 MiB`.
pub fn binary_size(bytes: u64) -> String {
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

/// A share as people give it, `0.05` or `5%`; none for what is no number.
pub fn parse_share(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => Some(percent.trim_end().parse::<f64>().ok()? / 100.0),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_may_be_a_percentage() {
        assert_eq!(["0.05", "5%", "12.5 %", "-1"].map(parse_share), [0.05, 0.05, 0.125, -1.0].map(Some));
        assert_eq!(["", "%", "five", "5%%"].map(parse_share), [None; 4]);
    }

    #[test]
    fn what_would_act_on_a_terminal_is_spelled_out() {
        assert_eq!(visible("gr\u{fc}n 1\u{202f}000"), "gr\u{fc}n 1\u{202f}000");
        assert_eq!(visible("a\x1b[31mb\n\u{202e}"), "a\\u{1b}[31mb\\n\\u{202e}");
    }

    #[test]
    fn devices_directories_and_endless_files_are_refused() {
        let error = |path: &str| read_text(Path::new(path)).unwrap_err().to_string();
        assert!(error("/dev/zero").contains("no regular file"));
        assert!(error("/").contains("directory"));
        let path = std::env::temp_dir().join(format!("buddy-text-{}", std::process::id()));
        fs::write(&path, "text").unwrap();
        assert_eq!(read_text(&path).unwrap(), "text");
        fs::File::options().write(true).open(&path).unwrap().set_len(MOST_BYTES + 1).unwrap();
        let long = read_text(&path).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(long.contains("longer than 1 GiB"), "{long}");
    }
}
