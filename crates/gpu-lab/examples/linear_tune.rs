//! Times kernel shapes of linear layers on this GPU, alternating with the library's own choice and
//! cuBLASLt's fastest algorithm.
//!
//!     cargo run --release -p buddy-gpu-lab --example linear_tune FILE [ROWSxCOLUMNS...]
//!
//! Each line of the file is a number of tokens and a way: `8 w:8,4,4,4,6,1` (`buddy_cuda::Trial`
//! explains the numbers). With `--compile` before it, its kernels are compiled into the cache,
//! which needs no GPU; further names are prefixes of other programs to compile.

use std::{error::Error, fs};

use buddy_codec::CodecKind;
use buddy_cuda::{Gpu, Source, Trial};
use buddy_gpu_lab::{LLAMA, Lab, LinearTrials, sources};

fn main() -> Result<(), Box<dyn Error>> {
    let mut asked: Vec<String> = std::env::args().skip(1).collect();
    let compiles = asked.first().is_some_and(|first| first == "--compile");
    asked.drain(..usize::from(compiles));
    let (file, sizes) = asked.split_first().ok_or("say which file has the ways")?;
    let lines = ways(&fs::read_to_string(file)?)?;
    if compiles {
        return compile(&lines, sizes);
    }
    let lab = Lab::new(&Gpu::open(0)?)?;
    let mut tokens: Vec<u32> = lines.iter().map(|line| line.0).collect();
    tokens.sort_unstable();
    tokens.dedup();
    for size in LLAMA {
        let name = format!("{}x{}", size.0, size.1);
        if !sizes.is_empty() && !sizes.contains(&name) {
            continue;
        }
        let mut trials = LinearTrials::new(&lab, size, tokens.last().copied().unwrap_or(1))?;
        for &tokens in &tokens {
            let of = lines.iter().filter(|line| line.0 == tokens).map(|line| (line.1.clone(), line.2));
            let (times, vendor) = trials.time(tokens, &of.collect::<Vec<_>>())?;
            for time in times {
                match (time.us, vendor) {
                    (Err(why), _) => println!("{name} {tokens} {} WRONG {why}", time.way),
                    (Ok(us), None) => println!("{name} {tokens} {} {us:.2}", time.way),
                    (Ok(us), Some(vendor)) => {
                        println!("{name} {tokens} {} {us:.2} {vendor:.2} {:.3}", time.way, vendor / us);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Tokens, the way as text, and the way.
type Line = (u32, String, Trial);

fn ways(text: &str) -> Result<Vec<Line>, Box<dyn Error>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (tokens, way) = line.split_once(' ').ok_or_else(|| format!("{line}: no tokens and way"))?;
            Ok((tokens.parse()?, way.to_owned(), way.parse()?))
        })
        .collect()
}

/// Compiles the kernels of the trials, and the programs whose names have these prefixes.
fn compile(lines: &[Line], names: &[String]) -> Result<(), Box<dyn Error>> {
    let kind = CodecKind::Bf16;
    let bf16 = [Source::codec(kind), Source::survey(&[kind]), Source::frozen(kind)];
    let needed: Vec<&str> =
        ["lab.cu", "linear_data", "external"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let is_needed = |source: &Source| needed.iter().any(|name| source.name.starts_with(name));
    let own = sources().into_iter().chain(Source::all()).filter(is_needed);
    let all = own.chain(Trial::all_forms()).chain(lines.iter().filter_map(|line| line.2.source()));
    for source in all.chain(bf16.into_iter().flatten()).filter(|source| source.is_for(90)) {
        source.cached(90).map_err(|error| format!("{}: {error}", source.name))?;
    }
    Ok(())
}
