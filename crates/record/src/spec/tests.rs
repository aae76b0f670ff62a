use super::*;

/// The measured latencies of docs/reference/specs.md.
#[test]
fn a_miss_takes_as_long_as_measured() {
    for (name, cycles) in [("v100", 375.0), ("h200", 596.0)] {
        let gpu = Gpu::named(name).unwrap();
        let found = gpu.miss_ns() * gpu.core.clock_mhz / 1000.0;
        assert!((found - cycles).abs() < 2.0, "{name}: {found}");
    }
}

#[test]
fn every_built_in_file_is_valid_and_has_its_name() {
    for name in Gpu::names() {
        assert_eq!(Gpu::named(name).unwrap().name, name);
    }
    for name in Link::names() {
        assert_eq!(Link::named(name).unwrap().name, name);
    }
    let h200 = Gpu::named("h200").unwrap();
    assert_eq!((h200.dram_gb_per_s(), h200.dram.capacity_bytes >> 30), (4800.0, 139));
}

#[test]
fn an_unknown_name_is_refused_with_the_known_ones() {
    let error = Gpu::named("k80").unwrap_err().to_string();
    assert!(error.starts_with("unknown GPU 'k80'; use one of paper, p100"), "{error}");
    assert!(Link::named("pcie9").unwrap_err().to_string().contains("nvlink5, c2c"));
    assert!(Gpu::named("/no/such.toml").unwrap_err().to_string().contains("No such file"));
}

#[test]
fn a_link_may_be_a_bandwidth() {
    let paper = Link::named("150").unwrap();
    assert_eq!(Link::named("80").unwrap(), Link { name: "80".to_owned(), gb_per_s: 80.0, ..paper });
    assert_eq!(
        Link::named("-1").unwrap_err().to_string(),
        "link -1: gb_per_s is -1; it must lie between 0.1 and 100000"
    );
    assert_eq!(Link::named("80 GB/s").unwrap().gb_per_s, 80.0);
    assert!(Link::named("nan").is_err());
}

#[test]
fn the_paper_gpu_matches_the_paper_s_table() {
    let gpu = Gpu::named("paper").unwrap();
    assert_eq!((gpu.core.clock_mhz, gpu.core.schedulers, gpu.core.max_warps), (1300.0, 2, 64));
    assert_eq!((gpu.l1.bytes, gpu.shared.bytes), (24 << 10, 64 << 10));
    assert_eq!((gpu.l2.bytes, gpu.l2.slices, gpu.l2.ways), (4 << 20, 32, 16));
    assert_eq!((gpu.dram.channels, gpu.dram.clock_mhz), (32, 875.0));
    assert_eq!(gpu.dram_gb_per_s().round(), 896.0, "rounded to 900 in the table");
    let buddy = &gpu.buddy;
    assert_eq!((buddy.metadata_bytes, buddy.metadata_line_bytes, buddy.metadata_ways), (4096, 128, 4));
    assert_eq!((buddy.codec_clocks, Link::named("150").unwrap().gb_per_s), (11, 150.0));
}

#[test]
fn a_wrong_field_is_named_on_one_line() {
    let paper = GPUS.built_in("paper").unwrap();
    let error = |from: &str, to: &str| {
        assert!(paper.contains(from));
        let error = Gpu::parse("x.toml", &paper.replacen(from, to, 1)).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1);
        error
    };
    assert_eq!(error("sms = 56", "sms = 0"), "x.toml: core.sms is 0; it must lie between 1 and 1024");
    assert!(error("sms = 56", "smms = 56").contains("unknown field `smms`"));
    assert!(error("sms = 56", "").contains("missing field `sms`"));
    assert!(error("sms = 56", "sms = ?").contains("line 6"));
    assert!(error("slices = 32", "slices = 48").contains("l2.slices is 48; it must be a multiple of 32"));
    assert!(error("bytes = 4194304", "bytes = 100000").contains(
        "l2.bytes is 100000, but whole sets of 65536 bytes (128 bytes x l2.ways x l2.slices) hold 65536 or 131072"
    ));
    assert!(error("metadata_bytes = 4096", "metadata_bytes = 1000").contains("hold 512 or 1024"));
    assert!(error("refresh_share = 0.067", "refresh_share = nan").contains("dram.refresh_share is NaN"));
    assert!(
        Gpu::parse("x.toml", "name = \"x\"\ngb_per_s = 1.0\n")
            .unwrap_err()
            .to_string()
            .contains("not a GPU spec")
    );
}

#[test]
fn a_file_may_extend_a_built_in_one() {
    let small = Gpu::parse("x.toml", "name = \"small\"\nbase = \"h200\"\n[l2]\nbytes = 4194304\n").unwrap();
    let mut expected = Gpu::named("h200").unwrap();
    expected.name = "small".to_owned();
    expected.l2.bytes = 4 << 20;
    assert_eq!(small, expected);
    let error = |text: &str| Gpu::parse("x.toml", text).unwrap_err().to_string();
    assert!(error("base = \"h200\"\n").contains("missing field `name`"));
    assert!(
        error("name = \"x\"\nbase = \"h300\"\n").starts_with("x.toml: unknown GPU 'h300'; use one of paper")
    );
    assert!(error("name = \"x\"\nbase = 1\n").contains("base must be the name"));
    assert!(error("name = \"x\"\nbase = \"h200\"\n[l3]\nbytes = 1\n").contains("unknown field `l3`"));
}

/// Simulations use the clock of the latency measurements, the training model that of the published
/// throughputs (`docs/reference/specs.md`).
#[test]
fn simulation_and_training_clocks_are_separate() {
    let clocks = |name: &str| {
        let gpu = Gpu::named(name).unwrap();
        (gpu.core.clock_mhz, gpu.training.map(|training| training.clock_mhz))
    };
    assert_eq!(clocks("p100"), (1328.0, Some(1480.0)));
    assert_eq!(clocks("v100"), (1380.0, Some(1530.0)));
    assert_eq!(clocks("h200"), (1980.0, None));
}
