use buddy_core::PageMap;
use buddy_record::{AxisInfo, Heat, Mark, Record, SeriesInfo, Shape};

use super::*;

fn chart(shape: Shape) -> Chart {
    Chart {
        title: "<ratio>".to_owned(),
        shape,
        x: AxisInfo::new("size", Unit::Count),
        y: AxisInfo::new("ratio", Unit::Ratio).starting_at(0.0),
        groups: vec!["cg".to_owned(), "bt".to_owned()],
        series: vec![SeriesInfo::new("ours", vec![(0.0, 1.5), (1.0, 3.0)])],
        marks: vec![Mark { label: "paper".to_owned(), x: Some(1.0), series: Some(0), y: 1.9 }],
    }
}

fn quantity(ours: Option<f64>) -> Quantity {
    let (name, place) = ("Ratio".to_owned(), "section 3".to_owned());
    Quantity {
        name,
        unit: Unit::Ratio,
        paper: 1.9,
        ours,
        place,
        headline: true,
        deviation: Some(46),
        origin: None,
    }
}

fn record() -> Record<Figure> {
    let map = PageMap::from_digits(2, &["05", "50"]).unwrap();
    let heat = Heat { title: "cg".to_owned(), remark: String::new(), map };
    let rows = vec![vec![GridCell::from("a<b"), GridCell::from(0.5)]];
    let columns = vec![("name".to_owned(), Unit::Number), ("share".to_owned(), Unit::Percent)];
    Record::new(Figure {
        name: "fig7".to_owned(),
        title: "Design".to_owned(),
        quantities: vec![quantity(Some(1.1)), quantity(None)],
        panels: vec![
            Panel::Chart(chart(Shape::Bars)),
            Panel::Heat(heat),
            Panel::Table(Grid { title: String::new(), columns, rows }),
        ],
        missing: vec!["Not recorded: VGG16.".to_owned()],
        ..Figure::default()
    })
}

#[test]
fn every_mark_has_its_value_and_every_series_can_be_hidden() {
    let html = chart_html(&chart(Shape::Bars));
    assert_eq!(html.matches("<rect ").count(), 2);
    assert!(html.contains("data-v=\"cg, ours: 1.50x\"") && html.contains("data-v=\"paper: 1.90x\""));
    assert!(html.contains("<g class=\"k0\" data-s=\"0\">") && html.contains("<button data-s=\"0\""));
    assert!(html.contains("&lt;ratio&gt;") && !html.contains("<ratio>"));
    assert_eq!(chart_html(&chart(Shape::Lines)).matches("<circle ").count(), 2);
}

#[test]
fn bars_are_proportional() {
    let inner = plot(&chart(Shape::Bars)).inner;
    let heights: Vec<f64> = inner
        .split("height=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
        .collect();
    assert!((heights[1] / heights[0] - 2.0).abs() < 0.01, "{heights:?}");
}

/// Returns the top and height of every bar.
fn bars(chart: &Chart) -> Vec<(f64, f64)> {
    let field = |bar: &str, name: &str| -> f64 {
        let (_, rest) = bar.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let inner = plot(chart).inner;
    inner.split("<rect").skip(1).map(|bar| (field(bar, "y"), field(bar, "height"))).collect()
}

#[test]
fn bars_start_at_the_base_up_or_down() {
    let with = |from: Option<f64>, values: [f64; 2]| {
        let points = vec![(0.0, values[0]), (1.0, values[1])];
        let y = AxisInfo { from, ..AxisInfo::new("speed", Unit::Percent) };
        Chart { y, series: vec![SeriesInfo::new("s", points)], marks: Vec::new(), ..chart(Shape::Bars) }
    };
    let plain = bars(&with(None, [0.5, 1.0]));
    assert!((plain[1].1 / plain[0].1 - 2.0).abs() < 0.01, "in proportion from zero: {plain:?}");
    for (from, values) in [(None, [-0.1, 0.2]), (Some(1.0), [0.9, 1.2])] {
        let [down, up] = bars(&with(from, values))[..] else { panic!() };
        assert!((down.0 - (up.0 + up.1)).abs() < 0.2, "one line: {down:?} {up:?}");
        assert!((up.1 / down.1 - 2.0).abs() < 0.05, "{down:?} {up:?}");
    }
    let mut factors = with(None, [0.01, 10.0]);
    factors.y.log = true;
    let inner = plot(&factors).inner;
    assert!(!inner.contains("<rect") && inner.matches("<circle").count() == 2, "factors have no zero");
}

#[test]
fn guides_are_uncoloured_lines_behind_the_points() {
    let guide = SeriesInfo { guide: true, ..SeriesInfo::new("equal", vec![(0.0, 1.0), (1.0, 2.0)]) };
    let mut chart = chart(Shape::Points);
    chart.series.insert(0, guide);
    let html = chart_html(&chart);
    let (line, point) =
        (html.find("<g class=\"guide g0\" data-s=\"0\"><polyline"), html.find("<g class=\"k0\""));
    assert!(line.is_some() && line < point, "{html}");
    assert_eq!(html.matches("<circle").count(), 2, "the guide has no marks");
}

#[test]
fn a_loss_where_the_paper_gains_ends_in_an_arrow() {
    let mut record = record();
    record.data.quantities[0].ours = Some(-0.2);
    assert!(summary_picture(&[record]).contains("l10 -7v14z"));
    assert!(!summary_picture(&[super::tests::record()]).contains("l10 -7v14z"));
}

#[test]
fn empty_charts_are_drawn() {
    for shape in [Shape::Bars, Shape::Lines, Shape::Points] {
        let empty = Chart { series: Vec::new(), groups: Vec::new(), marks: Vec::new(), ..chart(shape) };
        assert!(!chart_html(&empty).contains("NaN"));
    }
}

#[test]
fn differences_are_marked_and_explained() {
    let page = study_page(
        &[record()],
        &[],
        &[Deviation { number: 46, title: "Less".to_owned(), paragraphs: vec!["<why>".to_owned()] }],
        ("quick", "TOY <SIZE>"),
    );
    assert!(page.contains("class=\"n far\" data-key=\"0.57") && page.contains("<a href=\"#D46\">D46</a>"));
    assert!(page.contains("id=\"D46\"") && page.contains("&lt;why&gt;") && page.contains("not measured"));
    assert!(page.contains("Not recorded: VGG16.") && page.contains("id=\"fig7\""));
    assert!(!page.contains("PARTIAL"));
    let (caution, summary) = (page.find("TOY &lt;SIZE&gt;"), page.find("id=\"summary\""));
    assert!(caution.is_some() && caution < summary, "a caution stands above all figures");
}

#[test]
fn an_interrupted_study_is_reported_first() {
    let mut record = record();
    record.data.unfinished = vec!["2 of 9 simulations: cg (2).".to_owned()];
    let page = study_page(&[record], &["fig11".to_owned()], &[], ("quick", ""));
    let (banner, summary) = (page.find("PARTIAL: the study was interrupted"), page.find("id=\"summary\""));
    assert!(banner.is_some() && banner < summary);
    let (shown, _) = page.split_once("id=\"record\"").unwrap();
    assert_eq!(shown.matches("2 of 9 simulations: cg (2).").count(), 2, "in the banner and at the figure");
    assert!(page.contains("<b>fig11</b> Not drawn at all.") && !page.contains("id=\"caution\""));
}

#[test]
fn files_need_no_script() {
    let files = figure_files(&record().data);
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["fig7.svg", "fig7.svg"]);
    assert!(files[0].1.contains("<title>cg, ours: 1.50x</title></rect>"), "{}", files[0].1);
    assert!(!files[0].1.contains("data-v"));
    assert!(files[1].1.contains("class=\"c5\""));
    assert!(summary_picture(&[record()]).contains("paper 1.90x"));
    assert!(summary_text(&[record()]).contains("| Ratio | 1.90x | 1.10x |  | D46 |"));
}
