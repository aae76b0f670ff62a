//! Tensors of recorded networks, and the codec and target that a rule gives each.

use buddy_core::{Dtype, ENTRY_BYTES, Histogram, SECTOR_BYTES, Target, conservative_target, worst_overflow};
use buddy_profile::{Place, candidates};
use buddy_record::{AllocationInfo, Profile};

/// GB/s of a copy on an H200, bytes read plus written (`docs/records`).
pub(crate) const H200_COPY_GB_PER_S: f64 = 4237.0;

/// Rule for a tensor's codec and target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rule {
    /// The paper's codec and its final design.
    Paper,
    /// The final design with the best codec for each tensor.
    Best,
    /// The best codec with the largest target at which a pass over the tensor takes the link, with
    /// this many GB/s, no longer than device memory takes for the plain bytes.
    Link(f64),
}

/// Rules of the tables with their names: PCIe 5 as measured by a copy, NVLink-C2C as specified.
pub(crate) const RULES: [(&str, Rule); 4] = [
    ("bpc, 30%", Rule::Paper),
    ("best codec, 30%", Rule::Best),
    ("best codec, PCIe 5", Rule::Link(55.0)),
    ("best codec, NVLink-C2C", Rule::Link(450.0)),
];

/// One tensor of a network.
#[derive(Debug, Clone)]
pub(crate) struct Tensor<'a> {
    pub(crate) info: &'a AllocationInfo,
    /// Its sizes with each codec in every snapshot; empty if not live.
    sizes: Vec<(&'a str, &'a [Histogram])>,
    auto: &'a str,
    threshold: f64,
}

/// Codec and target of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choice<'a> {
    pub(crate) codec: &'a str,
    pub(crate) target: Target,
    sizes: &'a [Histogram],
}

/// Combined result of a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    /// Largest footprint divided by its largest footprint in device memory.
    pub(crate) ratio: f64,
    /// Mean over snapshots of the share of live entries that overflow.
    pub(crate) overflow: f64,
}

/// Returns the tensors of a network.
pub(crate) fn tensors(profile: &Profile) -> Vec<Tensor<'_>> {
    let all = profile.run.allocations.iter().zip(&profile.allocations);
    all.map(|(info, found)| Tensor {
        info,
        sizes: found.histograms.iter().map(|(codec, sizes)| (codec.as_str(), sizes.as_slice())).collect(),
        auto: &found.auto,
        threshold: profile.threshold,
    })
    .collect()
}

impl<'a> Tensor<'a> {
    /// Returns its number of entries while live.
    pub(crate) fn entries(&self) -> u64 {
        self.sizes[0].1.iter().map(Histogram::entries).max().unwrap_or(0)
    }

    /// Returns whether it is live in a snapshot.
    pub(crate) fn alive(&self, snapshot: usize) -> bool {
        self.sizes[0].1[snapshot].entries() > 0
    }

    /// Applies a rule.
    pub(crate) fn choose(&self, rule: Rule) -> Choice<'a> {
        let with = |codec: &str| {
            let &(codec, sizes) = self.sizes.iter().find(|(name, _)| *name == codec).expect("measured above");
            Choice { codec, sizes, target: conservative_target(sizes, self.threshold, true) }
        };
        match rule {
            Rule::Paper => with("bpc"),
            Rule::Best => with(self.auto),
            Rule::Link(gb_per_s) => self.over_a_link(gb_per_s),
        }
    }

    fn over_a_link(&self, gb_per_s: f64) -> Choice<'a> {
        let eligible = |codec: &str| candidates(Place::Memory).iter().any(|kind| kind.name() == codec);
        let most = gb_per_s / H200_COPY_GB_PER_S;
        let codecs = self.sizes.iter().filter(|(codec, _)| eligible(codec));
        let offers = codecs.flat_map(|&(codec, sizes)| {
            let within = move |target: &Target| sizes.iter().all(|one| link_share(one, *target) <= most);
            Target::ALL.into_iter().filter(within).map(move |target| Choice { codec, target, sizes })
        });
        let order = |a: &Choice<'_>, b: &Choice<'_>| {
            let bytes = a.target.device_bytes().cmp(&b.target.device_bytes());
            bytes.then(a.worst_overflow().total_cmp(&b.worst_overflow()))
        };
        offers.min_by(order).expect("1x never uses the link")
    }
}

/// Returns link bytes per byte of entries when all are read once.
fn link_share(sizes: &Histogram, target: Target) -> f64 {
    let (_, sectors) = sizes.sectors(target);
    (sectors * SECTOR_BYTES as u64) as f64 / sizes.bytes().max(1) as f64
}

impl Choice<'_> {
    /// Returns the largest share of entries that overflow.
    pub(crate) fn worst_overflow(&self) -> f64 {
        worst_overflow(self.sizes, self.target)
    }

    /// Returns the entries of all snapshots by class.
    pub(crate) fn sizes(&self) -> Histogram {
        self.sizes.iter().copied().sum()
    }
}

/// Returns the result of a rule for a network.
pub(crate) fn outcome(tensors: &[Tensor<'_>], rule: Rule) -> Outcome {
    let chosen: Vec<_> = tensors.iter().map(|tensor| (tensor, tensor.choose(rule))).collect();
    let snapshots = tensors.first().map_or(0, |tensor| tensor.sizes[0].1.len());
    let (mut plain, mut device, mut overflow) = (0, 0, 0.0);
    for snapshot in 0..snapshots {
        let alive = || chosen.iter().filter(|(tensor, _)| tensor.alive(snapshot));
        let entries: u64 = alive().map(|(tensor, _)| tensor.entries()).sum();
        let over: u64 = alive().map(|(_, one)| one.sizes[snapshot].overflowing(one.target)).sum();
        let bytes =
            |(tensor, one): &(&Tensor<'_>, Choice<'_>)| tensor.entries() * one.target.device_bytes() as u64;
        plain = plain.max(entries * ENTRY_BYTES as u64);
        device = device.max(alive().map(bytes).sum());
        overflow += over as f64 / entries.max(1) as f64;
    }
    Outcome { ratio: plain as f64 / device.max(1) as f64, overflow: overflow / snapshots.max(1) as f64 }
}

/// Returns a tensor's role, finer than its kind. Frameworks name tensors after the layer that makes
/// them.
pub(crate) fn role(network: &str, tensor: &AllocationInfo) -> &'static str {
    let (name, dtype) = (tensor.name.as_str(), tensor.dtype);
    let leaf = name.rsplit(['.', '/']).next().unwrap_or(name);
    let normalised = network.starts_with("inception") || network.starts_with("resnet");
    match (tensor.call_site.as_str(), leaf) {
        ("weights", _) if dtype == Dtype::F32 => "weights",
        ("weights", _) => "weights, copied for a product",
        ("gradients", "output") => "gradients of activations",
        ("gradients", _) => "gradients of weights",
        ("optimizer", "momentum_buffer") => "momentum (SGD)",
        ("optimizer", "exp_avg") => "mean (AdamW)",
        ("optimizer", _) => "mean of squares (AdamW)",
        ("input", _) => "input",
        _ if dtype == Dtype::I64 => "indices of max pools",
        _ if dtype == Dtype::Bool => "masks of dropout",
        _ if name.contains("norm1") || name.contains("norm2") => "local response normalisation",
        (_, leaf) if ["bn", "relu"].contains(&leaf.trim_end_matches(|c: char| c.is_ascii_digit())) => {
            "after batch normalisation and ReLU"
        }
        _ if !name.contains(".saved") && has(name, &["conv", "expand", "squeeze", "downsample"]) => {
            if normalised {
                "before batch normalisation"
            } else {
                "after ReLU"
            }
        }
        _ if name.contains("lstm") => "LSTM gates and states",
        _ if has(name, &["block", ".ln", "/ln", "patch", "embedding"]) => "transformer layers",
        _ => "other activations",
    }
}

fn has(name: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use buddy_dl::{PAPER, TODAY};
    use buddy_record::Policy;
    use buddy_scenario::recorded_run;

    use super::*;
    use crate::Recorded;

    /// The sums equal those of a profile, on every built-in record.
    #[test]
    fn outcomes_are_those_of_the_profile() {
        for info in PAPER.iter().chain(&TODAY) {
            let record = recorded_run(None, info.name).unwrap().expect("it is built in");
            let profile = Recorded::new(record).unwrap().profile;
            for (rule, codec) in [(Rule::Paper, "bpc"), (Rule::Best, "auto")] {
                let ours = outcome(&tensors(&profile), rule);
                let theirs = profile.outcome(Policy::Allocation16x, codec).unwrap();
                assert!((ours.ratio - theirs.ratio).abs() < 1e-12, "{} {codec}", info.name);
                assert!((ours.overflow - theirs.mean_overflow).abs() < 1e-12, "{} {codec}", info.name);
            }
        }
    }

    #[test]
    fn roles_follow_names_and_types() {
        let role_of = |network: &str, kind: &str, name: &str, dtype| {
            let (name, call_site) = (format!("{kind}/{name}"), kind.to_owned());
            role(network, &AllocationInfo { name, call_site, base: 0, bytes: 0, dtype })
        };
        assert_eq!(role_of("vgg16", "activations", "conv1_1", Dtype::F32), "after ReLU");
        assert_eq!(
            role_of("resnet50", "activations", "layer1.conv1", Dtype::F32),
            "before batch normalisation"
        );
        assert_eq!(
            role_of("resnet50", "activations", "layer1.bn1", Dtype::F32),
            "after batch normalisation and ReLU"
        );
        assert_eq!(role_of("alexnet", "activations", "pool1.saved", Dtype::I64), "indices of max pools");
        assert_eq!(role_of("gpt12_bf16", "weights", "fc", Dtype::Bf16), "weights, copied for a product");
        assert_eq!(
            role_of("gpt12_bf16", "optimizer", "fc.exp_avg_sq", Dtype::F32),
            "mean of squares (AdamW)"
        );
        assert_eq!(role_of("alexnet", "gradients", "conv1.output", Dtype::F32), "gradients of activations");
    }
}
