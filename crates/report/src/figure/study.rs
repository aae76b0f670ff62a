//! The page of a whole study.

use std::collections::BTreeSet;

use buddy_record::{Figure, Record};

use super::{panels, quantity_table, summary};
use crate::{Page, escape};

/// An entry of the list of deviations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deviation {
    /// Its number in docs/explain/deviations.md, the 46 of D46.
    pub number: u32,
    /// Its title, without Markdown.
    pub title: String,
    /// Text in paragraphs.
    pub paragraphs: Vec<String>,
}

const LEAD: &str = "Buddy Compression: Enabling Larger Memory for Deep Learning and HPC Workloads on GPUs (Choukse et \
    al., ISCA 2020), reproduced. Every number of ours was computed in this run or read from a record of an earlier \
    measurement or simulation. Numbers stated by the paper are shown for comparison.";
const SUMMARY_REMARK: &str = "Every number that the paper's text states and that is studied here. A ratio in red differs \
    by more than 15%; the last column links to the reason. Click a column to sort.";

/// Renders the page: summary, every figure, and the deviations that they name. An interruption is
/// reported first, with the figures not drawn and the missing parts of others. The lead states the
/// scale; a caution is above all figures, unless it is empty.
pub fn study_page(
    figures: &[Record<Figure>],
    undrawn: &[String],
    deviations: &[Deviation],
    (scale, caution): (&str, &str),
) -> String {
    let named = named(figures);
    let known = |number: u32| deviations.iter().any(|one| one.number == number);
    let tool = figures.first().map_or("buddy", |record| record.tool.as_str());
    let table = summary::summary_table(figures, &known);
    let mut page = Page::new("Buddy Compression, reproduced", &format!("{LEAD} Scale: {scale}."));
    if !caution.is_empty() {
        page = page.part("caution", "", "", &format!("<p class=\"caution\">{}</p>\n", escape(caution)));
    }
    if let Some(html) = partial(figures, undrawn) {
        page = page.part("partial", "", "", &html);
    }
    page = page.part("contents", "", "", &contents(figures)).part(
        "summary",
        "Ours and the paper's",
        SUMMARY_REMARK,
        &(summary::picture_html(figures) + &table),
    );
    for record in figures {
        let figure = &record.data;
        page = page.part(&figure.name, &figure.title, "", &part(record, &known));
    }
    let shown: String = deviations.iter().filter(|one| named.contains(&one.number)).map(deviation).collect();
    page.part(
        "deviations",
        "Where we differ, and why",
        "The entries of docs/explain/deviations.md that this page names.",
        &shown,
    )
    .data("figures.json", &format!("[{}]", figures.iter().map(Record::to_json).collect::<Vec<_>>().join(",")))
    .render(tool)
}

/// Describes the missing parts of an interrupted study; `None` if complete.
fn partial(figures: &[Record<Figure>], undrawn: &[String]) -> Option<String> {
    let unfinished = figures.iter().map(|record| &record.data).filter(|figure| !figure.unfinished.is_empty());
    let item = |name: &str, what: &str| format!("<li><b>{}</b> {}</li>", escape(name), escape(what));
    let mut items: Vec<String> =
        unfinished.map(|figure| item(&figure.title, &figure.unfinished.join(" "))).collect();
    items.extend(undrawn.iter().map(|name| item(name, "Not drawn at all.")));
    let list = items.concat();
    (!items.is_empty()).then(|| {
        format!(
            "<div class=\"partial\"><p>PARTIAL: the study was interrupted. Numbers marked partial cover only the \
             finished part. Missing:</p><ul>{list}</ul></div>\n"
        )
    })
}

/// Returns the numbers of all deviations that figures name.
fn named(figures: &[Record<Figure>]) -> BTreeSet<u32> {
    let of = |record: &Record<Figure>| -> Vec<u32> {
        let figure = &record.data;
        let why = figure.quantities.iter().filter_map(|quantity| quantity.deviation);
        figure.deviations.iter().copied().chain(why).collect()
    };
    figures.iter().flat_map(of).collect()
}

fn contents(figures: &[Record<Figure>]) -> String {
    let item = |record: &Record<Figure>| {
        let Figure { name, title, .. } = &record.data;
        format!("<li><a href=\"#{}\">{}</a></li>", escape(name), escape(title))
    };
    let items: String = figures.iter().map(item).collect();
    format!("<nav><ul>{items}<li><a href=\"#deviations\">Where we differ</a></li></ul></nav>\n")
}

fn part(record: &Record<Figure>, known: &dyn Fn(u32) -> bool) -> String {
    let figure = &record.data;
    let links: Vec<String> = figure
        .deviations
        .iter()
        .filter(|number| known(**number))
        .map(|number| format!("<a href=\"#D{number}\">D{number}</a>"))
        .collect();
    let differ = if links.is_empty() { String::new() } else { format!(" See {}.", links.join(", ")) };
    let unfinished = match figure.unfinished.is_empty() {
        true => String::new(),
        false => format!(
            "<p class=\"partial\">PARTIAL, interrupted. Missing: {}</p>\n",
            escape(&figure.unfinished.join(" "))
        ),
    };
    let missing: String =
        figure.missing.iter().map(|text| format!("<p class=\"missing\">{}</p>\n", escape(text))).collect();
    let quantities: Vec<_> = figure.quantities.iter().collect();
    format!(
        "{unfinished}<p class=\"remark\"><span class=\"place\">{}</span> {}{differ}</p>\n{missing}{}{}{}",
        escape(&figure.place),
        escape(&figure.text),
        panels(figure),
        quantity_table(&quantities, known),
        made(record)
    )
}

/// Renders the inputs of a figure.
fn made(record: &Record<Figure>) -> String {
    let spec = serde_json::to_string_pretty(&record.spec).unwrap_or_default();
    format!(
        "<details class=\"made\"><summary>How it was made</summary><p>{}, record {} version {}</p><pre>{}</pre></details>\n",
        escape(&record.tool),
        escape(&record.kind),
        record.version,
        spec.lines().map(escape).collect::<Vec<_>>().join("\n")
    )
}

fn deviation(one: &Deviation) -> String {
    let paragraphs: String = one.paragraphs.iter().map(|text| format!("<p>{}</p>", escape(text))).collect();
    format!(
        "<details class=\"deviation\" id=\"D{number}\"><summary><b>D{number}</b> {}</summary>{paragraphs}</details>\n",
        escape(&one.title),
        number = one.number
    )
}
