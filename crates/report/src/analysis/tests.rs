//! The page is complete, escaped and self-contained; the text is aligned.

use buddy_core::{Dtype, Histogram, conservative_target};

use super::*;
use crate::View;

fn outcome(codec: &str, classes: [u64; 6]) -> Outcome {
    let histogram = Histogram { classes, optimistic_bytes: 128 * classes[5] };
    let target = conservative_target(&[histogram], 0.3, true);
    let entries = histogram.entries();
    let pages = PageMap::from_pages(entries.div_ceil(64), vec![SizeClass::Raw; entries as usize]);
    Outcome { codec: codec.to_owned(), target, fit: Fit::at(histogram, target), pages: Some(pages) }
}

fn analysis() -> Analysis {
    let array = |name: &str, bpc: Outcome, auto: Outcome| ArrayAnalysis {
        file: "model.safetensors".to_owned(),
        name: name.to_owned(),
        dtype: Dtype::Bf16,
        shape: vec![64, 64],
        bytes: bpc.fit.histogram.bytes(),
        bpc,
        auto,
        peers: Default::default(),
    };
    let same = Outcome { pages: None, ..outcome("bpc", [64, 0, 0, 0, 0, 0]) };
    let arrays = vec![
        array(
            "layer.0.attention.<script>alert(1)</script>.weight",
            outcome("bpc", [0, 0, 0, 0, 0, 64]),
            outcome("float", [0, 0, 0, 0, 63, 1]),
        ),
        array("zeros\n", outcome("bpc", [64, 0, 0, 0, 0, 0]), same),
    ];
    let total =
        |part: fn(&ArrayAnalysis) -> &Outcome| Fit::total(arrays.iter().map(|array| &part(array).fit));
    let (bpc, auto) = (total(|array| &array.bpc), total(|array| &array.auto));
    Analysis { threshold: 0.3, arrays, skipped: vec![], bpc, auto, sweep: vec![] }
}

#[test]
fn text_is_aligned() {
    insta::assert_snapshot!(analysis_text(&analysis(), &View::default()));
}

/// Each array has its ratio with other compressors, and the total weighs them.
#[test]
fn peers_stand_beside_ours() {
    let mut analysis = analysis();
    for (array, bytes) in analysis.arrays.iter_mut().zip([8192, 64]) {
        array.peers = [("zstd".to_owned(), bytes)].into();
    }
    let text = analysis_text(&analysis, &View::default());
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    assert!(line("array").contains(" zstd  optimistic") && !line("array").contains("lz4"), "{text}");
    assert!(line("zeros").contains(" 128.00x ") && line("all 2").contains(" 1.98x "), "{text}");
    assert!(text.contains("64 KiB") && text.contains("saves no capacity"), "{text}");
    let page = analysis_page(&Record::new(analysis.clone()));
    for part in ["in blocks of 64 KiB", ">zstd<", ">128.00x<", ">1.98x<", "saves no capacity"] {
        assert!(page.contains(part), "{part}");
    }
    let csv = analysis_csv(&analysis, &View::default());
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].ends_with(",raw,lz4_bytes,zstd_bytes"), "{csv}");
    assert!(lines[1].ends_with(",,8192") && lines[2].ends_with(",,64"), "{csv}");
}

/// Nothing but the columns of before, if other compressors were not measured.
#[test]
fn no_column_without_peers() {
    let page = analysis_page(&Record::new(analysis()));
    assert!(!page.contains("in blocks of 64 KiB") && !page.contains("saves no capacity"));
    assert!(analysis_csv(&analysis(), &View::default()).lines().all(|line| line.split(',').count() >= 20));
    assert!(analysis_csv(&analysis(), &View::default()).lines().next().unwrap().ends_with(",raw"));
}

#[test]
fn the_page_is_self_contained() {
    let page = analysis_page(&Record::new(analysis()));
    for outside in ["http:", "https:", "src=", "<link", "@import", "url(", "fetch("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(!page.contains("<script>alert"), "names are escaped");
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn every_tag_is_closed() {
    let page = analysis_page(&Record::new(analysis()));
    let body = &page[page.find("<body>").unwrap()..page.find("<script>").unwrap()];
    for tag in
        ["section", "div", "table", "tr", "td", "th", "figure", "svg", "ul", "li", "p", "span", "button"]
    {
        let opened = body.matches(&format!("<{tag}>")).count() + body.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, body.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn a_map_for_each_codec_and_two_for_all() {
    let page = analysis_page(&Record::new(analysis()));
    // Two of all memory, two of the first array, one of the second, whose codecs agree.
    assert_eq!(page.matches("<canvas ").count(), 5);
}

#[test]
fn the_table_fits_eighty_columns() {
    let view = View { width: Some(80), ..View::default() };
    let text = analysis_text(&analysis(), &view);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("saved") && text.contains("no room for: zero"), "{text}");
}

#[test]
fn csv_has_a_line_per_array() {
    let text = analysis_csv(&analysis(), &View { filter: "zeros".to_owned(), ..View::default() });
    let mut lines = text.lines();
    let names = lines.next().unwrap().split(',').count();
    let line = lines.next().unwrap();
    assert!(line.starts_with("model.safetensors,zeros\\n,bf16,"), "{text}");
    assert_eq!(line.split(',').count(), names, "{text}");
    assert_eq!(lines.next(), None, "the filter holds");
}

#[test]
fn an_empty_analysis_is_a_page() {
    let empty = Fit::total([].iter());
    let analysis =
        Analysis { threshold: 0.3, arrays: vec![], skipped: vec![], bpc: empty, auto: empty, sweep: vec![] };
    assert!(analysis_page(&Record::new(analysis)).contains("nothing was read"));
}
