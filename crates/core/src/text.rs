//! Reading and displaying text: file input, terminal-safe output, sizes and shares.

use std::{borrow::Cow, fs, io, path::Path};

/// Largest text file accepted, 1 GiB: a thousand times the largest record.
const MOST_BYTES: u64 = 1 << 30;

/// Reads a text file. Pipes and devices are refused, because they may block or never end.
///
/// # Errors
/// If the file is unreadable, not regular, not UTF-8, or longer than 1 GiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    let about = fs::metadata(path)?;
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
    if about.is_dir() {
        return Err(wrong("is a directory, not a file"));
    }
    if !about.is_file() {
        return Err(wrong("not a regular file; copy its contents to one"));
    }
    if about.len() > MOST_BYTES {
        return Err(wrong("longer than the limit of 1 GiB"));
    }
    fs::read_to_string(path)
}

/// Escapes control and bidirectional characters, so that text from a file is safe on a terminal.
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_hidden =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let spell = |c: char| if is_hidden(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(spell).collect())
}

/// Formats a size in binary units: `86.7 MiB`.
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

/// Parses a share, `0.05` or `5%`; `None` if it is not a number.
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
    fn control_characters_are_escaped() {
        assert_eq!(visible("gr\u{fc}n 1\u{202f}000"), "gr\u{fc}n 1\u{202f}000");
        assert_eq!(visible("a\x1b[31mb\n\u{202e}"), "a\\u{1b}[31mb\\n\\u{202e}");
    }

    #[test]
    fn devices_directories_and_huge_files_are_refused() {
        let error = |path: &str| read_text(Path::new(path)).unwrap_err().to_string();
        assert!(error("/dev/zero").contains("not a regular file"));
        assert!(error("/").contains("directory"));
        let path = std::env::temp_dir().join(format!("buddy-text-{}", std::process::id()));
        fs::write(&path, "text").unwrap();
        assert_eq!(read_text(&path).unwrap(), "text");
        fs::File::options().write(true).open(&path).unwrap().set_len(MOST_BYTES + 1).unwrap();
        let long = read_text(&path).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(long.contains("limit of 1 GiB"), "{long}");
    }
}
