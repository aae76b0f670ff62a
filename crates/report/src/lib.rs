//! Records to tables, pictures and one self-contained HTML page. It runs nothing and needs no network.
//!
//! A page is a [`Page`] of sections, and a section is HTML from the pieces: [`cards`], [`Table`], [`bar_chart`],
//! [`line_chart`], [`class_bar`] and [`heat_map`]. Every piece is a function of its data alone. One style sheet
//! and one script, both written by hand, are part of every page.

#![forbid(unsafe_code)]

mod analysis;
mod cards;
mod chart;
mod classes;
mod format;
mod heat;
mod page;
mod table;

pub use analysis::{analysis_page, analysis_text};
pub use cards::{Card, cards};
pub use chart::{Axis, Line, Series, bar_chart, line_chart};
pub use classes::{class_bar, class_legend};
pub use format::{bytes, count, escape, ratio, share};
pub use heat::{heat_map, stack_maps};
pub use page::Page;
pub use table::{Align, Cell, Column, Table};
