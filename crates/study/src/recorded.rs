//! The deep-learning runs: recorded once on a GPU during real training, and profiled here from their records.

use std::{borrow::Cow, fs, io, path::Path};

use buddy_codec::CodecKind;
use buddy_core::{Profile, Record, RecordKind, RunRecord};
use buddy_dl::Accuracy;
use buddy_profile::{DEFAULT_THRESHOLD, Measured, Settings as Ask, Tried, profile};

use crate::Error;

/// A network whose training was recorded.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    /// Its name, which is that of its record's file.
    pub name: &'static str,
    /// Its name in figures.
    pub label: &'static str,
    /// The footprint in the paper's workload table, in bytes; 0 where the paper does not have it.
    pub paper_bytes: u64,
}

/// The paper's six, in its order.
pub const NETWORKS: [Network; 6] = [
    Network { name: "biglstm", label: "BigLSTM", paper_bytes: 2_710_000_000 },
    Network { name: "alexnet", label: "AlexNet", paper_bytes: 8_850_000_000 },
    Network { name: "inception_v2", label: "Inception_V2", paper_bytes: 3_210_000_000 },
    Network { name: "squeezenet", label: "SqueezeNetv1.1", paper_bytes: 2_030_000_000 },
    Network { name: "vgg16", label: "VGG16", paper_bytes: 11_080_000_000 },
    Network { name: "resnet50", label: "ResNet50", paper_bytes: 4_500_000_000 },
];

/// Today's training in bf16, which the paper does not have.
pub const TODAY: [Network; 4] = [
    Network { name: "resnet50_bf16", label: "ResNet50, bf16", paper_bytes: 0 },
    Network { name: "vgg16_bf16", label: "VGG16, bf16", paper_bytes: 0 },
    Network { name: "vit_b16_bf16", label: "ViT-B/16, bf16", paper_bytes: 0 },
    Network { name: "gpt12_bf16", label: "GPT, 12 layers, bf16", paper_bytes: 0 },
];

/// A recorded run and what targets make of it.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Sizes and pages of its tensors, as they were recorded.
    pub record: RunRecord,
    /// What it was measured as.
    pub measured: Measured,
    /// Its profile, with the paper's codec and policy.
    pub profile: Profile,
}

impl Recorded {
    /// Reads the record of a network from a directory, or the one that is built in; none if there is none.
    ///
    /// # Errors
    /// If the file is not the record of a run.
    pub fn read(dir: Option<&Path>, network: &Network) -> Result<Option<Self>, Error> {
        recorded_run(dir, network.name)?.map(Self::new).transpose()
    }

    /// Profiles a record with the paper's codec and policy.
    ///
    /// # Errors
    /// If the record contradicts itself.
    pub fn new(record: RunRecord) -> Result<Self, Error> {
        let wrong = |source| Error::Profile { program: record.run.program.clone(), source };
        let tried = Tried { kinds: vec![CodecKind::Bpc], auto: true, threshold: DEFAULT_THRESHOLD };
        let measured = Measured::from_record(&record, &tried).map_err(wrong)?;
        let (profile, _) = profile(&measured, &Ask::final_design(CodecKind::Bpc)).map_err(wrong)?;
        Ok(Self { record, measured, profile })
    }
}

/// The record of a network's training by its name, from a directory or from what is built in; none if there is none.
///
/// # Errors
/// If there is no such directory, or its file is not the record of a run, or contradicts itself.
pub fn recorded_run(dir: Option<&Path>, name: &str) -> Result<Option<RunRecord>, Error> {
    let found: Option<RunRecord> = record(dir, name)?;
    if let Some(run) = &found {
        run.validate().map_err(|source| Error::Run { name: name.to_owned(), source })?;
    }
    Ok(found)
}

/// The record of accuracy by batch size; none if there is none.
///
/// # Errors
/// If there is no such directory, or its file is not such a record.
pub(crate) fn accuracy(dir: Option<&Path>) -> Result<Option<Accuracy>, Error> {
    record(dir, "accuracy")
}

fn record<T: RecordKind>(dir: Option<&Path>, name: &str) -> Result<Option<T>, Error> {
    let Some(text) = text(dir, name)? else { return Ok(None) };
    let wrong = |source| Error::Recorded { name: name.to_owned(), source };
    Ok(Some(Record::from_json(&text).map_err(wrong)?.data))
}

/// The text of a record: a file of a directory, or what is built in.
fn text(dir: Option<&Path>, name: &str) -> Result<Option<Cow<'static, str>>, Error> {
    let Some(dir) = dir else {
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        return Ok(found.map(|(_, text)| Cow::Borrowed(*text)));
    };
    let path = dir.join(format!("{name}.json"));
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(Cow::Owned(text))),
        // A directory need not have every record.
        Err(source) if source.kind() == io::ErrorKind::NotFound && dir.is_dir() => Ok(None),
        Err(source) => Err(Error::Read { path, source }),
    }
}

/// Names and texts of `data/recorded`: they travel with the program.
const BUILT_IN: &[(&str, &str)] = &[
    ("accuracy", include_str!("../../../data/recorded/accuracy.json")),
    ("biglstm", include_str!("../../../data/recorded/biglstm.json")),
    ("alexnet", include_str!("../../../data/recorded/alexnet.json")),
    ("inception_v2", include_str!("../../../data/recorded/inception_v2.json")),
    ("squeezenet", include_str!("../../../data/recorded/squeezenet.json")),
    ("vgg16", include_str!("../../../data/recorded/vgg16.json")),
    ("resnet50", include_str!("../../../data/recorded/resnet50.json")),
    ("resnet50_bf16", include_str!("../../../data/recorded/resnet50_bf16.json")),
    ("vgg16_bf16", include_str!("../../../data/recorded/vgg16_bf16.json")),
    ("vit_b16_bf16", include_str!("../../../data/recorded/vit_b16_bf16.json")),
    ("gpt12_bf16", include_str!("../../../data/recorded/gpt12_bf16.json")),
];
