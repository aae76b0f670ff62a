//! The case study: memory, speed and accuracy of training by batch size.

use buddy_core::{AxisInfo, Chart, Figure, Mark, Policy, SeriesInfo, Shape, Unit};
use buddy_dl::{Network, Projection, Spec, project, time};

use super::{charts, line_chart};
use crate::{
    About, Experiment, Findings,
    experiment::{Explained, headline, quantity},
    geometric,
};

/// Memory by batch size.
#[derive(Debug)]
pub struct Footprints;

/// Speed by batch size.
#[derive(Debug)]
pub struct Throughput;

/// Speed that a larger batch gives.
#[derive(Debug)]
pub struct Speedup;

/// Validation accuracy by batch size.
#[derive(Debug)]
pub struct Training;

/// The paper's card for training.
const GPU: &str = "titan-xp";
const BATCHES: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

fn batch_axis() -> AxisInfo {
    AxisInfo::new("batch size", Unit::Count).logarithmic()
}

impl Experiment for Footprints {
    fn about(&self) -> About {
        About {
            name: "fig13a",
            title: "Training: memory by batch size",
            place: "Figure 13a, section 4.4",
            text: "Weights, gradients, momentum, activations and workspace, up to what a Titan Xp holds. Memory hardly \
                   grows at first, and then with the batch; the paper sees AlexNet change over at a batch of 96 and \
                   the others at 32 or below.",
        }
    }

    fn needs_programs(&self) -> bool {
        false
    }

    fn draw(&self, _: &Findings) -> Figure {
        let memory = Spec::named(GPU).map_or(0, |spec| spec.gpu.device_bytes);
        let line = |network: &Network| {
            let sizes = BATCHES.map(|batch| (batch as f64, network.footprint(batch).total() as f64));
            let fitting = sizes.into_iter().filter(|(_, bytes)| *bytes <= memory as f64);
            SeriesInfo::new(network.title, fitting.collect())
        };
        let lines = Network::all().iter().map(line).collect();
        let y = AxisInfo::new("device memory", Unit::Bytes).starting_at(0.0);
        let mut chart = line_chart("Memory of training", batch_axis(), y, lines);
        chart.marks = vec![Mark { label: "Titan Xp".to_owned(), x: None, series: None, y: memory as f64 }];
        let alexnet = Network::named("alexnet").map(|network| network.transition_batch() as f64);
        let name = "AlexNet: batch from which memory grows";
        Figure {
            quantities: vec![quantity(name, Unit::Count, 96.0, alexnet.ok(), "section 4.4").explained(61)],
            panels: charts([chart]),
            ..self.about().figure()
        }
    }
}

impl Experiment for Throughput {
    fn about(&self) -> About {
        About {
            name: "fig13b",
            title: "Training: speed by batch size",
            place: "Figure 13b, section 4.4",
            text: "Images or words a second on a Titan Xp by an analytical model: tiles in waves, traffic at L2 and \
                   device memory, launches. Each network beside itself at a batch of 16. Below, the model beside \
                   published throughputs.",
        }
    }

    fn needs_programs(&self) -> bool {
        false
    }

    fn draw(&self, _: &Findings) -> Figure {
        let Ok(spec) = Spec::named(GPU) else { return self.about().figure() };
        let line = |network: &Network| {
            let base = time(&spec, network, 16).throughput;
            let speed = |batch: u64| (batch as f64, time(&spec, network, batch).throughput / base);
            SeriesInfo::new(network.title, BATCHES.map(speed).into())
        };
        let speeds = line_chart(
            "Speed by batch size, a batch of 16 = 1",
            batch_axis(),
            AxisInfo::new("speed", Unit::Ratio).starting_at(0.0),
            Network::all().iter().map(line).collect(),
        );
        Figure { panels: charts([speeds, validation()]), deviations: vec![62, 65], ..self.about().figure() }
    }
}

/// The model beside every published throughput.
fn validation() -> Chart {
    let tables = buddy_dl::validate(None).map(|validation| validation.tables).unwrap_or_default();
    let series = tables.iter().map(|table| SeriesInfo {
        name: format!("{} on {}, mean error {:.0}%", table.network, table.gpu, 100.0 * table.mean_error),
        points: table.points.iter().map(|point| (point.published, point.modelled)).collect(),
        labels: table.points.iter().map(|point| format!("batch {}", point.batch)).collect(),
    });
    let axis = |name| AxisInfo::new(name, Unit::Number).logarithmic();
    let chart = line_chart("", axis("published, per second"), axis("modelled"), series.collect());
    Chart { title: "The model beside published throughputs".to_owned(), shape: Shape::Points, ..chart }
}

impl Experiment for Speedup {
    fn about(&self) -> About {
        About {
            name: "fig13c",
            title: "Training: what a larger batch gives",
            place: "Figure 13c, section 4.4",
            text: "Compression fits a larger batch into the 12 GB of a Titan Xp, and a larger batch uses the GPU better. \
                   Shown with the paper's compression ratios and with those of our recorded runs; the overhead of \
                   compression is not in it.",
        }
    }

    fn needs_programs(&self) -> bool {
        false
    }

    fn draw(&self, found: &Findings) -> Figure {
        let networks = Network::all();
        let paper: Vec<_> = networks.iter().map(|network| projection(network, network.paper_ratio)).collect();
        let ours: Vec<_> =
            networks.iter().map(|network| projection(network, recorded_ratio(found, network)?)).collect();
        let gain = |all: &[Option<Projection>]| geometric(all.iter().flatten().map(|one| one.speedup));
        let of = |name: &str| paper.iter().flatten().find(|one| one.network == name).map(|one| one.speedup);
        let bars = |name: &str, all: &[Option<Projection>]| {
            let speedups = all.iter().map(|one| one.as_ref().map(|one| one.speedup));
            SeriesInfo::bars(name, speedups.chain([gain(all)]))
        };
        let names = networks.iter().map(|network| network.title.to_owned());
        let place = |name: &str| networks.iter().position(|network| network.name == name).map(|x| x as f64);
        let mark = |x, y| Mark { label: "the paper".to_owned(), x, series: Some(0), y };
        let chart = Chart {
            title: "Speed with the largest batch that fits, without compression = 1".to_owned(),
            shape: Shape::Bars,
            x: AxisInfo::new("", Unit::Number),
            y: AxisInfo::new("speed", Unit::Ratio).starting_at(0.9),
            groups: names.chain(["mean".to_owned()]).collect(),
            series: vec![bars("the paper's ratios", &paper), bars("our ratios", &ours)],
            marks: vec![
                mark(place("biglstm"), 1.28),
                mark(place("vgg16"), 1.30),
                mark(Some(networks.len() as f64), 1.14),
            ],
        };
        let section = "section 4.4";
        let more = |speed: Option<f64>| speed.map(|speed| speed - 1.0);
        let none_recorded = ours.iter().all(Option::is_none);
        Figure {
            quantities: vec![
                headline(
                    "Gain of a larger batch, mean, paper's ratios",
                    Unit::Percent,
                    0.14,
                    more(gain(&paper)),
                    section,
                )
                .explained(62),
                quantity(
                    "Gain of a larger batch, mean, our ratios",
                    Unit::Percent,
                    0.14,
                    more(gain(&ours)),
                    section,
                )
                .explained(62),
                quantity(
                    "Gain of a larger batch, BigLSTM",
                    Unit::Percent,
                    0.28,
                    more(of("biglstm")),
                    section,
                )
                .explained(62),
                quantity("Gain of a larger batch, VGG16", Unit::Percent, 0.30, more(of("vgg16")), section)
                    .explained(62),
            ],
            panels: charts([chart]),
            missing: if none_recorded { found.missing() } else { Vec::new() },
            deviations: vec![62, 65],
            ..self.about().figure()
        }
    }
}

fn projection(network: &Network, ratio: f64) -> Option<Projection> {
    project(&Spec::named(GPU).ok()?, network, ratio)
}

/// The ratio of the final design, of the recorded run.
fn recorded_ratio(found: &Findings, network: &Network) -> Option<f64> {
    let profile = &found.networks.get(network.name)?.profile;
    Some(profile.outcome(Policy::Allocation16x, "bpc")?.ratio)
}

impl Experiment for Training {
    fn about(&self) -> About {
        About {
            name: "fig13d",
            title: "Training: accuracy by batch size",
            place: "Figure 13d, section 4.4",
            text: "Validation accuracy after each epoch, the mean of several seeds. The paper trains ResNet50 on CIFAR100 \
                   for 100 epochs, and finds batches of 16 and 32 below the others, 64 slower to converge, and more \
                   jitter with small batches. Ours is a smaller residual network with batch normalisation on \
                   Fashion-MNIST, really trained and recorded.",
        }
    }

    fn needs_programs(&self) -> bool {
        false
    }

    fn draw(&self, found: &Findings) -> Figure {
        let Some(accuracy) = &found.accuracy else {
            return Figure { missing: vec!["Not recorded.".to_owned()], ..self.about().figure() };
        };
        let summaries = accuracy.summaries();
        let curve = |one: &buddy_dl::AccuracySummary| {
            let points = one.curve.iter().enumerate().map(|(epoch, share)| (epoch as f64 + 1.0, *share));
            SeriesInfo::new(&format!("batch {}", one.batch), points.collect())
        };
        let curves = line_chart(
            "Accuracy after each epoch",
            AxisInfo::new("epoch", Unit::Count),
            AxisInfo::new("validation accuracy", Unit::Percent),
            summaries.iter().map(curve).collect(),
        );
        let line = |name: &str, value: fn(&buddy_dl::AccuracySummary) -> f64| {
            SeriesInfo::new(name, summaries.iter().map(|one| (one.batch as f64, value(one))).collect())
        };
        let last = line_chart(
            "At the end, and jitter on the way",
            batch_axis(),
            AxisInfo::new("share of images", Unit::Percent).starting_at(0.0),
            vec![
                line("accuracy after the last epoch", |one| one.last),
                line("mean change between epochs", |one| one.jitter),
            ],
        );
        Figure { panels: charts([curves, last]), deviations: vec![63], ..self.about().figure() }
    }
}
