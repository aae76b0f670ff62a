//! Compares the model with published throughputs and memory.

use buddy_record::RecordKind;
use serde::{Deserialize, Serialize};

use crate::{Error, Network, Spec, time};

/// Published throughputs of one network on one GPU.
struct Table {
    source: &'static str,
    gpu: &'static str,
    network: &'static str,
    batches: &'static [u64],
    throughputs: &'static [f64],
}

const MXNET_V100: &str = "MXNet, cuDNN 7";
const MXNET_P100: &str = "MXNet, cuDNN 5.1";
const FINETUNER: &str = "mxnet-finetuner";

/// All published tables of these networks.
const TABLES: [Table; 14] = [
    table(
        MXNET_V100,
        "v100",
        "resnet50",
        &[1, 2, 4, 8, 16, 32, 64, 128],
        &[34.5, 65.0, 113.5, 174.8, 251.2, 298.5, 343.2, 363.7],
    ),
    table(
        MXNET_V100,
        "v100",
        "alexnet",
        &[16, 32, 64, 128, 256, 512, 1024],
        &[1630.0, 2360.0, 2688.0, 2919.0, 2994.0, 2586.0, 1984.0],
    ),
    table(MXNET_P100, "p100", "resnet50", &[1, 2, 4, 8, 16, 32], &[27.2, 49.6, 78.3, 122.5, 156.8, 181.5]),
    table(
        MXNET_P100,
        "p100",
        "alexnet",
        &[8, 16, 32, 64, 128, 256],
        &[810.0, 1203.0, 1631.0, 1883.0, 2012.0, 1870.0],
    ),
    table(FINETUNER, "titan-x", "alexnet", &[10, 20, 30, 40], &[756.0, 1054.0, 1019.0, 1078.0]),
    table(FINETUNER, "titan-x", "squeezenet", &[10, 20, 30, 40], &[458.0, 579.0, 535.0, 550.0]),
    table(FINETUNER, "titan-x", "inception_v2", &[10, 20, 30, 40], &[148.0, 184.0, 194.0, 204.0]),
    table(FINETUNER, "titan-x", "resnet50", &[10, 20, 30, 40], &[88.6, 102.4, 110.0, 111.0]),
    table(FINETUNER, "titan-x", "vgg16", &[10, 20, 30, 40], &[56.4, 58.0, 59.8, 59.4]),
    // Published as milliseconds: 72.7, 127.5, 233.6 and 450.6.
    table("Caffe2", "titan-x", "inception_v2", &[16, 32, 64, 128], &[220.1, 251.0, 274.0, 284.1]),
    // Published as milliseconds: 75.0, 108.3 and 22.8.
    table("PyTorch", "titan-xp", "resnet50", &[12], &[160.0]),
    table("PyTorch", "titan-xp", "vgg16", &[12], &[110.8]),
    table("PyTorch", "titan-xp", "squeezenet", &[12], &[526.3]),
    table("TensorFlow", "p100", "biglstm", &[128], &[4800.0]),
];

const fn table(
    source: &'static str,
    gpu: &'static str,
    network: &'static str,
    batches: &'static [u64],
    throughputs: &'static [f64],
) -> Table {
    Table { source, gpu, network, batches, throughputs }
}

/// Network, and MiB used by mxnet-finetuner at batches of 10 and 40 on a Titan X.
const MEMORY: [(&str, [f64; 2]); 5] = [
    ("alexnet", [430.0, 716.0]),
    ("squeezenet", [608.0, 1672.0]),
    ("inception_v2", [1007.0, 2772.0]),
    ("resnet50", [1875.0, 5483.0]),
    ("vgg16", [1738.0, 5977.0]),
];

/// Comparison of the model with published figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Validation {
    /// Throughput comparisons, one per table.
    pub tables: Vec<TableValidation>,
    /// Memory growth per sample.
    pub memory: Vec<MemoryValidation>,
    /// Mean absolute relative error over the tables, each weighted equally.
    pub mean_error: f64,
    /// Correlation of the logarithms of modelled and published throughput over all points.
    pub correlation: f64,
}

/// One network on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableValidation {
    /// Framework or project that published it.
    pub source: String,
    /// GPU name in `specs`.
    pub gpu: String,
    /// Name of the network.
    pub network: String,
    /// Every batch size of the table.
    pub points: Vec<Point>,
    /// Mean absolute relative error.
    pub mean_error: f64,
}

/// One batch size, published and modelled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Samples of a batch.
    pub batch: u64,
    /// Published images or words per second.
    pub published: f64,
    /// Modelled images or words per second.
    pub modelled: f64,
}

/// Bytes per additional sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryValidation {
    /// Name of the network.
    pub network: String,
    /// From the published memory at batches of 10 and 40.
    pub published_bytes: f64,
    /// Growth of the modelled footprint per sample.
    pub modelled_bytes: f64,
}

impl RecordKind for Validation {
    const KIND: &'static str = "training-validation";
    const VERSION: u32 = 1;
}

impl Point {
    /// Returns the model's relative error.
    pub fn error(&self) -> f64 {
        self.modelled / self.published - 1.0
    }
}

impl MemoryValidation {
    /// Returns the model's relative error.
    pub fn error(&self) -> f64 {
        self.modelled_bytes / self.published_bytes - 1.0
    }
}

/// Compares the model, with these constants instead of the defaults if given, with every published
/// table.
///
/// # Errors
/// Never with the built-in GPUs and networks.
pub fn validate(model: Option<&crate::Model>) -> Result<Validation, Error> {
    let tables: Vec<_> = TABLES.iter().map(|table| table.validate(model)).collect::<Result<_, _>>()?;
    let memory = MEMORY.iter().map(validate_memory).collect::<Result<_, _>>()?;
    let mean_error = mean(tables.iter().map(|table| table.mean_error));
    let points: Vec<_> = tables.iter().flat_map(|table| &table.points).copied().collect();
    Ok(Validation { correlation: correlation(&points), tables, memory, mean_error })
}

impl Table {
    fn validate(&self, model: Option<&crate::Model>) -> Result<TableValidation, Error> {
        let mut spec = Spec::named(self.gpu)?;
        if let Some(model) = model {
            spec.model = model.clone();
        }
        let network = Network::named(self.network)?;
        let point = |(&batch, &published)| Point {
            batch,
            published,
            modelled: time(&spec, &network, batch).throughput,
        };
        let points: Vec<Point> = self.batches.iter().zip(self.throughputs).map(point).collect();
        Ok(TableValidation {
            source: self.source.to_owned(),
            gpu: self.gpu.to_owned(),
            network: self.network.to_owned(),
            mean_error: mean(points.iter().map(|point| point.error().abs())),
            points,
        })
    }
}

fn validate_memory((name, mib): &(&str, [f64; 2])) -> Result<MemoryValidation, Error> {
    let network = Network::named(name)?;
    let published_bytes = (mib[1] - mib[0]) * f64::from(1 << 20) / 30.0;
    let modelled_bytes = network.footprint(1).growing() as f64;
    Ok(MemoryValidation { network: (*name).to_owned(), published_bytes, modelled_bytes })
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

fn correlation(points: &[Point]) -> f64 {
    let logs = points.iter().map(|point| (point.published.ln(), point.modelled.ln()));
    let (x, y): (Vec<f64>, Vec<f64>) = logs.unzip();
    let [mean_x, mean_y] = [&x, &y].map(|values| mean(values.iter().copied()));
    let product = |a: &[f64], mean_a: f64, b: &[f64], mean_b: f64| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum()
    };
    product(&x, mean_x, &y, mean_y)
        / (product(&x, mean_x, &x, mean_x) * product(&y, mean_y, &y, mean_y)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_matches_published_figures_within_bounds() {
        let validation = validate(None).unwrap();
        assert!(validation.mean_error < 0.15, "{}", validation.mean_error);
        assert!(validation.correlation > 0.98, "{}", validation.correlation);
        for table in &validation.tables {
            assert!(table.mean_error < 0.25, "{} on {}: {}", table.network, table.gpu, table.mean_error);
        }
        for memory in &validation.memory {
            assert!(memory.error().abs() < 0.3, "{memory:?}");
        }
    }

    #[test]
    fn tables_have_a_throughput_for_each_batch() {
        assert!(TABLES.iter().all(|table| table.batches.len() == table.throughputs.len()));
    }
}
