//! Renders records as tables, pictures and one self-contained HTML page.
//!
//! A page is a [`Page`] of sections, and a section is HTML from the pieces: [`cards`], [`Table`],
//! [`bar_chart`], [`line_chart`], [`class_bar`] and [`heat_map`]. Every piece is a function of its
//! data alone. One hand-written style sheet and script are part of every page. [`study_page`]
//! combines [figures](buddy_record::Figure), and [`figure_files`] draws them as SVG.

#![forbid(unsafe_code)]

mod analysis;
mod cards;
mod chart;
mod classes;
mod csv;
mod figure;
mod fit;
mod format;
mod heat;
mod names;
mod page;
mod profile;
mod scale;
mod skipped;
mod sweep;
mod table;
mod view;

pub use analysis::{analysis_csv, analysis_page, analysis_text};
pub use cards::{Card, cards};
pub use chart::{Axis, Line, Series, bar_chart, line_chart};
pub use classes::{class_bar, class_legend};
pub use csv::csv_text;
pub use figure::{
    Deviation, figure_files, grid_markdown, grid_text_within, run_picture, study_page, summary_picture,
    summary_table, summary_table_text, summary_text,
};
pub use fit::wrap;
pub use format::{bytes, count, escape, number, ratio, share};
pub use heat::{heat_map, stack_maps};
pub use page::Page;
pub use profile::{profile_csv, profile_page, profile_text};
pub use sweep::{SweepData, sweep_page};
pub use table::{Align, Cell, Column, Table};
pub use view::{SortBy, View};
