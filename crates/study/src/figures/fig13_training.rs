//! The case study: memory, speed and accuracy of training by batch size.

use buddy_dl::{Network, Projection, Spec, project, time};
use buddy_record::{AxisInfo, Chart, Figure, Mark, Origin, Policy, Quantity, SeriesInfo, Shape, Unit};

use super::{charts, line_chart};
use crate::{
    About, Experiment, Findings, arithmetic,
    experiment::{Explained, quantity},
    geometric,
};

/// Memory by batch size.
#[derive(Debug)]
pub struct Footprints;

/// Speed by batch size.
#[derive(Debug)]
pub struct Throughput;

/// Speedup from a larger batch.
#[derive(Debug)]
pub struct Speedup;

/// Validation accuracy by batch size.
#[derive(Debug)]
pub struct Training;

/// The paper's GPU for training.
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
        chart.marks =
            vec![Mark { label: "12 GB of a Titan Xp".to_owned(), x: None, series: None, y: memory as f64 }];
        let alexnet = Network::named("alexnet").map(|network| network.transition_batch() as f64);
        let name = "AlexNet: batch from which memory grows";
        Figure {
            quantities: vec![
                quantity(name, Unit::Count, 96.0, alexnet.ok(), "section 4.4")
                    .explained(61)
                    .made(Origin::Modelled),
            ],
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

/// Returns a chart of the model against published throughputs.
fn validation() -> Chart {
    let tables = buddy_dl::validate(None).map(|validation| validation.tables).unwrap_or_default();
    let mut networks: Vec<&str> = tables.iter().map(|table| table.network.as_str()).collect();
    networks.sort_unstable();
    networks.dedup();
    let series = networks.iter().map(|network| {
        let of = || tables.iter().filter(|table| table.network == *network);
        let error = arithmetic(of().map(|table| table.mean_error)).unwrap_or(f64::NAN);
        let labels = of().flat_map(|table| {
            table.points.iter().map(|point| format!("{}, batch {}", table.gpu, point.batch))
        });
        SeriesInfo {
            name: format!("{network}, mean error {:.0}%", 100.0 * error),
            points: of()
                .flat_map(|table| table.points.iter().map(|point| (point.published, point.modelled)))
                .collect(),
            labels: labels.collect(),
            guide: false,
        }
    });
    let all = || tables.iter().flat_map(|table| &table.points).map(|point| point.published);
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let equal = SeriesInfo {
        guide: true,
        ..SeriesInfo::new("model equal to published", vec![(least, least), (most, most)])
    };
    let series = series.chain([equal]);
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
        let of = |name: &str| paper.iter().flatten().find(|one| one.network == name).map(|one| one.speedup);
        let more = |name: &str, paper, speed: Option<f64>| {
            let name = format!("Gain of a larger batch, {name}");
            let ours = speed.map(|speed| speed - 1.0);
            quantity(&name, Unit::Percent, paper, ours, "section 4.4").explained(62).made(Origin::Modelled)
        };
        let none_recorded = ours.iter().all(Option::is_none);
        Figure {
            quantities: vec![
                Quantity { headline: true, ..more("mean, paper's ratios", 0.14, mean(&paper)) },
                more("mean, our ratios", 0.14, mean(&ours)),
                more("BigLSTM", 0.28, of("biglstm")),
                more("VGG16", 0.30, of("vgg16")),
            ],
            panels: charts([speedups(&networks, &paper, &ours)]),
            missing: if none_recorded { found.missing() } else { Vec::new() },
            deviations: vec![62, 65],
            ..self.about().figure()
        }
    }
}

/// Returns the mean of the known projections.
fn mean(all: &[Option<Projection>]) -> Option<f64> {
    geometric(all.iter().flatten().map(|one| one.speedup))
}

fn speedups(networks: &[Network], paper: &[Option<Projection>], ours: &[Option<Projection>]) -> Chart {
    let bars = |name: &str, all: &[Option<Projection>]| {
        let speedups = all.iter().map(|one| one.as_ref().map(|one| one.speedup));
        SeriesInfo::bars(name, speedups.chain([mean(all)]))
    };
    let names = networks.iter().map(|network| network.title.to_owned());
    let place = |name: &str| networks.iter().position(|network| network.name == name).map(|x| x as f64);
    let mark = |x, y| Mark { label: "the paper".to_owned(), x, series: Some(0), y };
    Chart {
        title: "Speed with the largest batch that fits, without compression = 1".to_owned(),
        shape: Shape::Bars,
        x: AxisInfo::new("", Unit::Number),
        y: AxisInfo::new("speed", Unit::Ratio).starting_at(1.0),
        groups: names.chain(["mean".to_owned()]).collect(),
        series: vec![bars("the paper's ratios", paper), bars("our ratios", ours)],
        marks: vec![
            mark(place("biglstm"), 1.28),
            mark(place("vgg16"), 1.30),
            mark(Some(networks.len() as f64), 1.14),
        ],
    }
}

fn projection(network: &Network, ratio: f64) -> Option<Projection> {
    project(&Spec::named(GPU).ok()?, network, ratio)
}

/// Returns the final design's ratio of the recorded run.
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

#[cfg(test)]
mod tests {
    use buddy_dl::{Accuracy, AccuracyRun};

    use super::*;
    use crate::figures::made::{bar, chart, findings, near, ours, points};

    /// AlexNet has 60965224 weights, stored with gradients and momentum, and 300 MiB are fixed:
    /// 1046155488 bytes, plus the part that grows with the batch.
    #[test]
    fn memory_is_fixed_and_growing() {
        let figure = Footprints.draw(&findings());
        let line = points(chart(&figure, 0), "AlexNet");
        let fixed = 3.0 * 4.0 * 60_965_224.0 + f64::from(300 << 20);
        let growing = line[0].1 - fixed;
        assert_eq!(line[5], (32.0, fixed + 32.0 * growing));
        assert_eq!(line.len(), BATCHES.len(), "all of AlexNet fits");
        assert!(points(chart(&figure, 0), "VGG16").len() < BATCHES.len(), "not all of VGG16 does");
        near(ours(&figure, "AlexNet: batch from which"), (fixed / growing).ceil());
    }

    #[test]
    fn speeds_are_relative_to_a_batch_of_sixteen() {
        let figure = Throughput.draw(&findings());
        for series in &chart(&figure, 0).series {
            assert_eq!(series.points[4], (16.0, 1.0), "{}", series.name);
            assert!(series.points[9].1 > series.points[0].1, "{} gains from its batch", series.name);
        }
    }

    /// The records are alexnet at 4x and resnet50 at 8/7; our mean is over these two.
    #[test]
    fn gains_follow_from_the_recorded_ratios() {
        let figure = Speedup.draw(&findings());
        let speedup = |name, ratio| projection(&Network::named(name).unwrap(), ratio).unwrap().speedup;
        let (alexnet, resnet50) = (speedup("alexnet", 4.0), speedup("resnet50", 8.0 / 7.0));
        near(bar(chart(&figure, 0), "our ratios", "AlexNet"), alexnet);
        near(bar(chart(&figure, 0), "our ratios", "ResNet50"), resnet50);
        assert_eq!(bar(chart(&figure, 0), "our ratios", "VGG16"), None);
        near(ours(&figure, "Gain of a larger batch, mean, our ratios"), (alexnet * resnet50).sqrt() - 1.0);
        near(ours(&figure, "Gain of a larger batch, VGG16"), speedup("vgg16", 1.5) - 1.0);
        near(bar(chart(&figure, 0), "the paper's ratios", "ResNet50"), speedup("resnet50", 1.64));
    }

    /// Two seeds at a batch of 16. Jitter is over the second and third of six epochs: 0.1 and 0.3.
    #[test]
    fn accuracy_is_the_mean_of_seeds() {
        let run = |seed, validation: [f64; 6]| AccuracyRun {
            batch: 16,
            seed,
            learning_rate: 0.1,
            validation: validation.to_vec(),
            training_loss: vec![0.0; 6],
        };
        let accuracy = Accuracy {
            dataset: String::new(),
            network: String::new(),
            training_images: 1,
            validation_images: 1,
            epochs: 6,
            runs: vec![run(1, [0.1, 0.2, 0.3, 0.5, 0.5, 0.7]), run(2, [0.3, 0.6, 0.3, 0.5, 0.5, 0.9])],
        };
        let figure = Training.draw(&Findings { accuracy: Some(accuracy), ..findings() });
        let curve = points(chart(&figure, 0), "batch 16");
        near(Some(curve[1].1), 0.4);
        near(Some(points(chart(&figure, 1), "accuracy after the last epoch")[0].1), 0.8);
        near(Some(points(chart(&figure, 1), "mean change between epochs")[0].1), 0.2);
        assert_eq!(Training.draw(&findings()).missing, ["Not recorded."]);
    }
}
