fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or("arithmetic".into());
    let length: u32 = args.next().map_or(1, |a| a.parse().unwrap());
    let gpu = args.next().unwrap_or("paper".into());
    let mode = args.next().unwrap_or("ideal".into());
    let mut config = buddy_sim::Config::new(
        buddy_sim::presets::gpu(&gpu).unwrap(),
        buddy_sim::presets::link("150").unwrap(),
    );
    config.mode = buddy_sim::Mode::ALL.into_iter().find(|m| m.name() == mode).unwrap();
    if mode == "buddy" || mode == "bandwidth" {
        config.map = buddy_sim::ClassMap::new(
            (1..9)
                .map(|i: u64| buddy_sim::Allocation {
                    base: i << 34,
                    bytes: 1 << 32,
                    home: buddy_sim::Home::Compressed(buddy_core::Target::X2),
                    classes: buddy_sim::Classes::Shares { shares: [0., 0., 0.3, 0.6, 0., 0.1], seed: 1 },
                })
                .collect(),
        )
        .unwrap();
    }
    let mut sim = buddy_sim::Simulator::new(config);
    let start = std::time::Instant::now();
    for mut kernel in buddy_sim::bench::trace(&name, length) {
        sim.run(kernel.as_mut(), &mut |_| true).unwrap();
    }
    let s = start.elapsed().as_secs_f64();
    let r = sim.report();
    eprintln!(
        "{name}: {} instr {} cycles in {s:.2}s = {:.2} M/s; ipc {:.2} dram {:.0} GB/s ({:.3}) l1 {:.3} l2 {:.3} busy {:.3}",
        r.instructions,
        r.cycles,
        r.instructions as f64 / s / 1e6,
        r.ipc,
        r.dram.gb_per_s,
        r.dram.peak_share,
        r.l1.hit_rate,
        r.l2.hit_rate,
        r.dram.bus_busy_share
    );
    if std::env::var("V").is_ok() {
        eprintln!("{r:#?}");
    }
}
