//! Sampled iterations run on the model GPU in every mode.

use buddy_core::{SizeClass, Target};
use buddy_dl::Network;
use buddy_record::TargetTable;
use buddy_sim::{
    ClassMap, Classes, Config, Mode, Report, Simulator,
    spec::{Gpu, Link},
};
use buddy_trace::Application;

fn run(application: &Application, mode: Mode, class: SizeClass) -> Report {
    let table = TargetTable::uniform(&application.name, &application.allocations, Target::X2, "bpc");
    let mut config = Config::new(Gpu::named("paper").unwrap(), Link::named("50").unwrap());
    config.mode = mode;
    config.map = ClassMap::bind(application, Some(&table), &mut |_, _| Classes::Uniform(class)).unwrap();
    let mut simulator = Simulator::new(config);
    assert!(simulator.run_application(application, &mut |_| true).unwrap());
    simulator.report()
}

#[test]
fn iterations_run_and_overflow_slows_them() {
    let network = Network::named("squeezenet").unwrap();
    let application = network.application_sampled(4, 0.01);
    let ideal = run(&application, Mode::Ideal, SizeClass::Raw);
    let fits = run(&application, Mode::Buddy, SizeClass::S2);
    let overflows = run(&application, Mode::Buddy, SizeClass::Raw);
    assert_eq!([fits.instructions, overflows.instructions], [ideal.instructions; 2]);
    assert!(overflows.cycles > fits.cycles, "{} {}", overflows.cycles, fits.cycles);
    assert!(overflows.link_traffic.read_bytes > 0 && fits.link_traffic.read_bytes == 0);
    // The sample has the requested size.
    let share = ideal.instructions as f64 / network.warp_instructions(4) as f64;
    assert!((0.007..0.014).contains(&share), "{share}");
    assert_eq!(run(&application, Mode::Ideal, SizeClass::Raw), ideal);
}
