//! Options that say what a terminal is shown of many arrays, and how wide it is.

use std::{
    env,
    io::{self, IsTerminal},
};

use buddy_report::{SortBy, View};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

/// What is shown of many arrays.
#[derive(Args)]
#[command(next_help_heading = "Showing")]
pub(crate) struct Showing {
    /// Sort the rows: by name, or the largest first by size, saved, ratio or overflow
    #[arg(long, value_name = "KEY", hide_possible_values = true, value_parser = sort_parser())]
    sort: Option<SortBy>,

    /// Show only the first N rows, the largest unless --sort says otherwise
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,

    /// Only arrays whose name holds TEXT, or fits it where it has * or ?
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,

    /// A row for each array; without it, layers that differ only in their numbers are one row, such as layers.[0-31].weight
    #[arg(long)]
    each: bool,
}

fn sort_parser() -> impl TypedValueParser<Value = SortBy> {
    let named = |name: String| SortBy::ALL.into_iter().find(|key| key.name() == name);
    PossibleValuesParser::new(SortBy::ALL.map(SortBy::name))
        .map(move |name| named(name).expect("a possible value"))
}

impl Showing {
    /// The view, as wide as the terminal is.
    pub(crate) fn view(&self) -> View {
        let (sort, top) = (self.sort, self.top.map(|top| top as usize));
        View { width: width(), sort, top, filter: self.filter.clone(), each: self.each, codecs: false }
    }

    /// What a filter that lets nothing through is told; nothing if some name passes.
    pub(crate) fn complaint<'a>(&self, names: impl ExactSizeIterator<Item = &'a str>) -> Option<String> {
        let (view, mut first, count) = (self.view(), None, names.len());
        for name in names {
            if view.shows(name) {
                return None;
            }
            first.get_or_insert(name);
        }
        let filter = &self.filter;
        Some(format!(
            "--filter {filter}: none of {count} names fits it; the first is {:?}",
            first.unwrap_or("none")
        ))
    }
}

/// Columns of the terminal that stdout is, or what COLUMNS says of another reader; none where nothing is known.
pub fn width() -> Option<usize> {
    let terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let columns = || env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns >= 20);
    if io::stdout().is_terminal() { terminal().or_else(columns) } else { columns() }
}
