//! Tests of the allocation table, driven by recorded calls, and of logs read to records.

#[path = "../inject/book.rs"]
#[allow(dead_code)]
mod book;
#[path = "../inject/frames.rs"]
mod frames;
#[path = "../inject/lines.rs"]
mod lines;
#[path = "../inject/settings.rs"]
#[allow(dead_code)]
mod settings;
#[path = "../inject/spacing.rs"]
mod spacing;
#[path = "../inject/spans.rs"]
#[allow(dead_code)]
mod spans;
#[path = "../inject/training.rs"]
#[allow(dead_code)]
mod training;

mod books;
mod logs;
mod places;
mod times;
