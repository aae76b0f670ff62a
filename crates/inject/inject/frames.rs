//! Parses the text of a backtrace into frames.

use std::path::Path;

/// Returns the last component of a path.
pub(crate) fn file_name(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// One frame of a backtrace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) address: usize,
    pub(crate) symbols: Vec<String>,
    /// File and line of the innermost code outside CUDA's headers.
    pub(crate) place: Option<String>,
}

impl Frame {
    /// Returns true if the frame is in CUDA's runtime, which may be linked statically.
    pub(crate) fn is_runtime(&self) -> bool {
        let of_runtime = |symbol: &String| {
            symbol.starts_with("cuda") || symbol.starts_with("__cuda") || symbol.contains("cudaMalloc")
        };
        self.symbols.iter().all(of_runtime) && !self.symbols.is_empty()
    }
}

/// Parses the text of a backtrace: a line `N: ADDRESS - SYMBOL` begins a frame, `at
/// FILE:LINE:COLUMN` locates the symbol before it, and a further symbol was inlined into the next.
pub(crate) fn parse(text: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for line in text.lines().map(str::trim) {
        let numbered = line.split_once(':').filter(|(number, _)| number.parse::<u32>().is_ok());
        let begins = numbered.and_then(|(_, rest)| {
            let (address, symbol) = rest.trim().split_once(" - ")?;
            let address = usize::from_str_radix(address.trim().strip_prefix("0x")?, 16).ok()?;
            Some(Frame { address, symbols: vec![symbol.to_owned()], place: None })
        });
        let last = frames.last_mut();
        match (begins, last, line.strip_prefix("at ")) {
            (Some(frame), ..) => frames.push(frame),
            (None, Some(frame), Some(at)) if !at.contains("cuda_runtime") => {
                frame.place = frame.place.take().or_else(|| file_and_line(at));
            }
            (None, Some(frame), None) => frame.symbols.push(line.to_owned()),
            _ => {}
        }
    }
    frames
}

/// Returns the file's name and the line, without the column.
fn file_and_line(at: &str) -> Option<String> {
    let name = file_name(at);
    let mut parts = name.splitn(3, ':');
    Some(format!("{}:{}", parts.next()?, parts.next()?))
}
