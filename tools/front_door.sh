#!/usr/bin/env bash
# Builds and runs a crate outside the tree that depends on crates/buddy, and the crate's
# documentation examples with all features. Needs no network.
#
#   tools/front_door.sh
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
cargo test --quiet --offline -p buddy --all-features

crate=$(mktemp -d)
trap 'rm -rf "$crate"' EXIT
mkdir "$crate/src"
# The same versions and profile as the workspace, so that nothing is downloaded.
cp Cargo.lock "$crate"
cat >"$crate/Cargo.toml" <<TOML
[package]
name = "front-door"
edition = "2024"
[dependencies]
buddy = { path = "$root/crates/buddy" }
[profile.dev]
opt-level = 1
lto = "off"
TOML
cat >"$crate/src/main.rs" <<'RUST'
fn main() -> Result<(), buddy::Error> {
    let data: Vec<u8> = (0..100_000_u32).flat_map(|i| (7 * i).to_le_bytes()).collect();
    let packed = buddy::compress(&data, buddy::Options::default())?;
    assert!(packed.ratio() > 2.0);
    assert_eq!(packed.entry(100)?[..], data[12_800..12_928]);
    assert_eq!(packed.decompress()?, data);
    println!("{} to {} bytes, restored", packed.data_bytes(), packed.packed_bytes());
    Ok(())
}
RUST
cd "$crate"
cargo run --quiet --offline
