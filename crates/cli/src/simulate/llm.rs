//! `buddy simulate llm`: time of a step of a language model, plain and packed.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use buddy_core::{Target, parse_share};
use buddy_dl::llm::{
    Ask, BuddyMemory, BuddySide, Estimate, Kind, Machine, ModelShape, Parameters, Row, Runtime, Side,
    Weights, estimate, estimate_buddy,
};
use buddy_record::{
    Record, Unit,
    spec::{Gpu, Link},
};
use buddy_report::{Align, Cell, Column, Table, count, number, share};
use clap::Args;
use serde_json::json;

use crate::{machine, output};

/// Estimate the time of a language model's decode step or prefill, plain and packed
///
/// A roofline model of the step, not the cycle simulator: each kernel takes the time of its bytes
/// and operations at the rates that such kernels reach on an H200, and a launch. Weights are bf16.
/// The other GPUs are not measured.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Llm {
    #[arg(long, value_name = "SHAPE", default_value = "llama-8b", help = shape_help())]
    shape: String,

    #[arg(long, value_name = "GPU", default_value = "h200", help = gpu_help())]
    spec: String,

    /// Sequences
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=65536))]
    batch: u64,

    /// Tokens of each sequence in the KV cache [default: 1024]
    #[arg(long, value_name = "N", conflicts_with = "prompt", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    context: Option<u64>,

    /// Estimate a prefill of prompts of this length instead of a decode step
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    prompt: Option<u64>,

    /// Runtime of the model: vllm, or loop (the decode loop of buddy.llm)
    #[arg(long, value_name = "NAME", default_value = "vllm", value_parser = Runtime::named)]
    runtime: Runtime,

    /// Pack the KV cache too, beside packed weights; the loop alone can
    #[arg(long)]
    packed_kv: bool,

    /// Assume Hopper's kernels for packed weights on another GPU, which would unpack each layer
    #[arg(long)]
    fused: bool,

    /// Also estimate plain weights in a Buddy memory in hardware with this target (4/3x, 2x, 4x, 16x);
    /// no GPU has one
    #[arg(long, value_name = "TARGET")]
    buddy: Option<Target>,

    /// Share of the entries of weights that overflow their target, 0 to 1 [default: 0]
    #[arg(long, value_name = "SHARE", requires = "buddy", value_parser = overflow)]
    overflow: Option<f64>,

    #[arg(long, value_name = "LINK", requires = "buddy", help = format!("{} [default: 150]", machine::link_help("Link to buddy memory")))]
    link: Option<String>,

    /// Write the record as JSON, with bytes and operations of each kind of kernel
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  buddy simulate llm --shape llama-8b --batch 8 --context 4096
  buddy simulate llm --shape llama-70b --spec b200 --fused
  buddy simulate llm --shape qwen3-30b-a3b --batch 32 --spec h100
  buddy simulate llm --shape llama-70b --buddy 4/3x --overflow 0.02 --link c2c
  buddy simulate llm --shape model/config.json --prompt 4096 --json step.json";

/// Parses a share from 0 to 1.
fn overflow(text: &str) -> Result<f64, String> {
    parse_share(text)
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or(format!("'{text}' is not a share from 0 to 1"))
}

fn shape_help() -> String {
    format!("Model: {}, a config.json, or its folder", ModelShape::NAMES.join(", "))
}

fn gpu_help() -> String {
    format!("GPU: {}, or a TOML file with a [tensor] table", Machine::names().join(", "))
}

impl Llm {
    /// Runs the verb.
    pub(crate) fn run(&self) -> Result<()> {
        output::check(&[("--json", self.json.as_ref())], &[PathBuf::from(&self.shape)])?;
        let gpu = Machine::new(&Gpu::named(&self.spec)?)?;
        let found = self.estimate(&gpu)?;
        if let Some(path) = &self.json {
            let mut record = Record::new(found.clone());
            record.spec = json!({ "machine": gpu, "constants": Parameters::default() });
            output::write(path, &record.to_json())?;
        }
        if self.json.as_deref().is_some_and(output::is_stdout) {
            return Ok(());
        }
        io::stdout().write_all(text(&found, &gpu, self.fused).as_bytes()).context("cannot write to stdout")
    }

    fn estimate(&self, machine: &Machine) -> Result<Estimate> {
        if self.packed_kv && self.runtime == Runtime::Vllm {
            bail!("vLLM has no packed KV cache; use --runtime loop with --packed-kv");
        }
        if self.fused && machine.fused {
            bail!("--fused has no effect: fused kernels run on {}", machine.name);
        }
        let ask = Ask {
            batch: self.batch,
            context: self.context.unwrap_or(1024),
            prompt: self.prompt,
            runtime: self.runtime,
            packed_kv: self.packed_kv,
        };
        let shape = ModelShape::named(&self.shape)?;
        let mut found = estimate(machine, &shape, &ask, self.fused);
        if let Some(target) = self.buddy {
            let link = Link::named(self.link.as_deref().unwrap_or(super::LINK))?;
            let memory = BuddyMemory::new(target, self.overflow.unwrap_or(0.0), &link);
            found.buddy = Some(estimate_buddy(machine, &shape, &ask, memory));
        }
        Ok(found)
    }
}

fn text(found: &Estimate, machine: &Machine, assumed: bool) -> String {
    let Estimate { gpu, shape, ask, .. } = found;
    let what = match ask.prompt {
        Some(prompt) => format!("prefill of {} x {prompt} tokens", ask.batch),
        None => format!("decode step of {} x {} tokens of context", ask.batch, ask.context),
    };
    let head = format!("{} on {gpu}: {what}, {}\n", shape.name, ask.runtime.name());
    head + &table(found).to_text() + "\n" + &totals(found).to_text() + &remarks(found, machine, assumed)
}

fn column(name: &'static str, align: Align) -> Column {
    Column { name, group: "", align }
}

/// Returns the kernels of both sides by kind, in the order of the plain side.
fn table(found: &Estimate) -> Table {
    let sides = [&found.plain, &found.packed];
    let mut kinds: Vec<Kind> = found.plain.rows.iter().map(|row| row.kernel).collect();
    kinds.extend(
        found.packed.rows.iter().map(|row| row.kernel).filter(|kind| found.plain.row(*kind).is_none()),
    );
    let row = |kind: &Kind| {
        let cells = sides.iter().flat_map(|side| cells(side.row(*kind)));
        std::iter::once(Cell::text(kind.name())).chain(cells).collect()
    };
    let own = |names: [&'static str; 4]| {
        let [launches, us, share, limit] = names;
        [
            column(launches, Align::Right),
            column(us, Align::Right),
            column(share, Align::Right),
            column(limit, Align::Left),
        ]
    };
    let columns = std::iter::once(column("kernel", Align::Left))
        .chain(own(["launches", "plain µs", "share", "limit"]))
        .chain(own(["launches", "packed µs", "share", "limit"]));
    Table { columns: columns.collect(), rows: kinds.iter().map(row).collect(), total: Vec::new() }
}

fn cells(row: Option<&Row>) -> [Cell; 4] {
    let Some(row) = row else { return ["-", "-", "-", "-"].map(Cell::text) };
    [
        // The host's work is a sum over sequences, not launches.
        match row.kernel {
            Kind::Host => Cell::text("-"),
            _ => Cell::number(row.launches as f64, row.launches.to_string()),
        },
        Cell::number(row.us, format!("{:.0}", row.us)),
        Cell::number(row.share, share(row.share)),
        Cell::text(row.limiter.name()),
    ]
}

/// Returns time, speed and memory of both sides.
fn totals(found: &Estimate) -> Table {
    let names = [
        ("", Align::Left),
        ("ms", Align::Right),
        ("tokens/s", Align::Right),
        ("weights", Align::Right),
        ("KV cache", Align::Right),
        ("fits", Align::Left),
        ("sequences that fit", Align::Right),
    ];
    let row = |name: &str, side: &Side| {
        let memory = |bytes| Cell::number(bytes, number(Unit::Bytes, bytes));
        vec![
            Cell::text(name),
            Cell::number(side.us, format!("{:.3}", side.us / 1e3)),
            Cell::number(side.tokens_per_s, count(side.tokens_per_s.round() as u64)),
            memory(side.weight_bytes),
            memory(side.kv_bytes),
            Cell::text(if side.fits { "yes" } else { "no" }),
            Cell::number(side.most_sequences as f64, count(side.most_sequences)),
        ]
    };
    Table {
        columns: names.map(|(name, align)| column(name, align)).into(),
        rows: [("plain", &found.plain), ("packed", &found.packed)]
            .into_iter()
            .chain(found.buddy.iter().map(|buddy| ("buddy", &buddy.side)))
            .map(|(name, side)| row(name, side))
            .collect(),
        total: Vec::new(),
    }
}

/// Returns the ratio of both sides, and what the reader must know of the packed one.
fn remarks(found: &Estimate, machine: &Machine, assumed: bool) -> String {
    let mut text = format!(
        "\npacked / plain: {:.2}x the speed. A roofline model fitted on an H200, not the cycle simulator;\n\
         memory is that of weights and KV cache alone.\n",
        found.plain.us / found.packed.us
    );
    if machine.fp16_only {
        text += "Its tensor cores multiply fp16 alone: bf16 products are assumed as fast, and no kernel for packed\n\
                 weights runs on it.\n";
    } else if found.packed.weights == Weights::Unpacked {
        text += "Modelled without fused kernels, which need Hopper: each layer is unpacked first. The portable\n\
                 kernel for up to 32 tokens is not modelled. --fused assumes Hopper's kernels.\n";
    }
    if assumed {
        text += "Assumed: fused kernels as efficient as on an H200; those do not run on this GPU.\n";
    }
    if found.shape.experts.is_some() {
        text += "Experts are chosen evenly, and plain ones are assumed as efficient as plain layers.\n";
    }
    if let Some(BuddySide { memory, side }) = &found.buddy {
        text += &format!(
            "buddy / plain: {:.2}x the speed. Not validated, no GPU has it: weights at {:.2}x, {} of their entries\n\
             overflow over a link of {} GB/s; plain kernels; latency, codec and metadata misses take no time.\n",
            found.plain.us / side.us,
            memory.ratio,
            share(memory.overflow),
            memory.link_gb_per_s
        );
    }
    text
}
