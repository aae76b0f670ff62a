//! Display options for tables of many arrays, and the width of the terminal.

use std::{
    env,
    io::{self, IsTerminal},
};

use buddy_report::{SortBy, View};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

/// Selection and order of the rows of a table.
#[derive(Args)]
#[command(next_help_heading = "Display")]
pub(crate) struct DisplayOptions {
    /// Sort by name, or by size, saved, ratio or overflow with the largest first
    #[arg(long, value_name = "KEY", hide_possible_values = true, value_parser = sort_parser())]
    sort: Option<SortBy>,

    /// Show only the first N rows; without --sort, the largest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,

    /// Show only arrays whose name contains TEXT; with * or ?, whose name matches it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,

    /// Show each array in its own row instead of merging layers that differ only in their numbers
    /// (layers.[0-31].weight)
    #[arg(long)]
    each: bool,
}

fn sort_parser() -> impl TypedValueParser<Value = SortBy> {
    let named = |name: String| SortBy::ALL.into_iter().find(|key| key.name() == name);
    PossibleValuesParser::new(SortBy::ALL.map(SortBy::name))
        .map(move |name| named(name).expect("a possible value"))
}

impl DisplayOptions {
    /// Returns the view, as wide as the terminal.
    pub(crate) fn view(&self) -> View {
        let (sort, top) = (self.sort, self.top.map(|top| top as usize));
        View { width: width(), sort, top, filter: self.filter.clone(), each: self.each, codecs: false }
    }

    /// Returns an error message if the filter matches no name.
    pub(crate) fn filter_error<'a>(&self, names: impl ExactSizeIterator<Item = &'a str>) -> Option<String> {
        let (view, mut first, count) = (self.view(), None, names.len());
        for name in names {
            if view.shows(name) {
                return None;
            }
            first.get_or_insert(name);
        }
        let filter = &self.filter;
        Some(format!(
            "--filter {filter}: matches none of {count} names; the first is {:?}",
            first.unwrap_or("none")
        ))
    }
}

/// Returns the columns of the terminal on stdout, else `COLUMNS`; `None` if unknown.
pub fn width() -> Option<usize> {
    let terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let columns = || env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns >= 20);
    if io::stdout().is_terminal() { terminal().or_else(columns) } else { columns() }
}
