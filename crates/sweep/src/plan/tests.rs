use buddy_sim::Mode;

use super::*;

const PLAN: &str = r#"
name = "links"

[axes]
program = ["cg", "lulesh"]
network = "resnet50"
mode = ["ideal", "buddy"]
link = "50..200 step 50"
gpu = ["h200", "wide"]
scale = "4MB"
l2.bytes = ["32MiB", "64MiB"]

[[zip]]
core.sms = [66, 132]
core.clock_mhz = [1980, 990.0]

[gpu.wide]
base = "h200"
dram.bytes_per_clock = 64

[[skip]]
mode = "ideal"
link = "> 50"
"#;

fn cases(plan: &Plan) -> Vec<Case> {
    plan.cases().collect()
}

#[test]
fn a_plan_crosses_zips_filters_and_derives() {
    let plan = Plan::parse(PLAN).unwrap();
    assert_eq!((plan.name.as_str(), plan.size()), ("links", 3 * 2 * 2 * 2 * 2 * 4));
    assert!(plan.shape().starts_with("program 3 × "), "{}", plan.shape());
    assert!(
        plan.shape().contains("core.clock_mhz with core.sms 2 × ")
            && plan.shape().ends_with("filters leave out")
    );
    let cases = cases(&plan);
    // Three of eight pairs of mode and link are skipped.
    assert_eq!(cases.len(), 3 * 2 * 2 * 2 * 5);
    assert!(cases.iter().all(|case| case.point.mode != Mode::Ideal || case.point.link == "50"));
    let sms =
        |case: &Case| (case.point.fields["core.sms"].clone(), case.point.fields["core.clock_mhz"].clone());
    let pairs: std::collections::BTreeSet<_> = cases.iter().map(sms).collect();
    assert_eq!(pairs.len(), 2);
    let wide = cases.iter().rev().find(|case| case.point.fields.contains_key("name")).unwrap();
    let gpu = wide.point.config().unwrap().gpu;
    assert_eq!((gpu.name.as_str(), gpu.dram.bytes_per_clock, gpu.l2.bytes), ("wide", 64.0, 64 << 20));
    let programs: Vec<&str> = cases.iter().map(|case| case.input.program.as_str()).collect();
    assert!(
        programs.is_sorted_by_key(|name| ["resnet50", "cg", "lulesh"].iter().position(|other| other == name))
    );
    assert!(cases.iter().all(|case| case.check().is_ok()));
}

#[test]
fn every_combination_occurs_once() {
    let plan = Plan::parse("[axes]\nprogram = 'stream'\nseed = '1..3'\nlink = '1..5'").unwrap();
    let mut all: Vec<(u64, String)> =
        cases(&plan).into_iter().map(|case| (case.input.seed, case.point.link)).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 15);
}

#[test]
fn a_program_s_axis_varies_slowest_on_the_command_line_too() {
    let axes = ["link=50,100", "codec=bpc,bdi"].map(|text| Axis::parse(text).unwrap());
    let mut base = Case::default();
    base.set("program", "cg").unwrap();
    let plan = Plan::of(base, axes.into()).unwrap();
    let links: Vec<String> = cases(&plan).into_iter().map(|case| case.point.link).collect();
    assert_eq!(links, ["50", "100", "50", "100"]);
}

#[test]
fn errors_name_their_line_and_table() {
    for (text, why) in [
        ("[axes]\ncolour = 'red'", "line 2, [axes]: unknown setting 'colour'"),
        ("[axes]\nlink = 50\nprogram = []", "line 3, [axes]: program: a list needs at least one value"),
        ("[axes]\nprogram = 'cg'\nmode = 'x'", "line 3, [axes]: mode: unknown mode 'x'"),
        ("[axes]\nprogram = 'cg'\ngpu = 'h300'", "line 3, [axes]: spec: unknown GPU 'h300'"),
        ("[axes]\nprogram = 'cg'\nlink = [50, 'fast']", "line 3, [axes]: unknown link 'fast'"),
        ("[axes]\nprogram = 'nobody'", "line 2, [axes]: "),
        ("[axes]\nl2.colour = 1", "line 2, [axes]: unknown setting 'l2.colour'"),
        ("[axes]\nlink = 1\n[[zip]]\nlink = 2", "'link' is given twice"),
        ("[axes]\nlink = 1\n[[zip]]\nseed = [1,2]\nscale = 1", "[zip]: zipped settings"),
        ("[axes]\nlink = 1\n[[skip]]\nseed = 1", "line 4, [skip]: no axis has 'seed'"),
        ("[axes]\nlink = 1\n[gpu.x]\nl2.bytes = 1", "[gpu]: a GPU of a plan needs the GPU it changes"),
        (
            "[axes]\nlink = 1\n[gpu.x]\nbase = 'h200'\nl2.bytes = [1, 2]",
            "line 5, [gpu]: l2.bytes: several values",
        ),
        ("[axes]\nseed = '1..1000000'\nlink = '1..1000'", "1000000000 points are too many"),
        ("axis = 1\n[axes]\nlink = 1", "line 1, `axis = 1`: unknown field `axis`"),
        ("name = 'x'", "missing table [axes]"),
        ("[axes]\nprogram = 'cg'\nlink = 50..200 step 50", "line 3, `link = 50..200 step 50`: "),
        ("[axes]\nprogram = [cg, lulesh]", "names and ranges need quotes"),
    ] {
        let error = Plan::parse(text).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}
