#!/usr/bin/env bash
# Packages every crate as for publishing and builds from the packages alone: a program that uses
# `buddy` is run outside the tree, the command and the C library are checked. Needs no network.
#
#   tools/crates_check.sh [DIR]      DIR keeps the packages (target/package)
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
out=${1:-$CARGO_TARGET_DIR/package}
mkdir -p "$out"
rm -f "$out"/*.crate
# Without cargo's own build, which compiles every dependency again; the builds below share target/.
cargo package --quiet --offline --allow-dirty --no-verify --workspace --exclude buddy-python
[ "$out" -ef "$CARGO_TARGET_DIR/package" ] || cp "$CARGO_TARGET_DIR"/package/*.crate "$out"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/program/src"
for package in "$out"/*.crate; do tar --extract --gzip --file "$package" --directory "$work"; done
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
cd "$work/program"
cp "$root/Cargo.lock" .
cat >Cargo.toml <<TOML
[package]
name = "program"
edition = "2024"
[dependencies]
buddy = "$version"
[dev-dependencies]
buddy-c-library = { package = "buddy-c", version = "$version" }
buddy-cli = "$version"
[profile.dev]
opt-level = 1
lto = "off"
[patch.crates-io]
TOML
for folder in "$work"/buddy*-"$version"; do
    name=$(basename "$folder" "-$version")
    echo "$name = { path = \"$folder\" }" >>Cargo.toml
done
sed -n "/^fn main/,/^RUST/p" "$root/tools/front_door.sh" | sed '$d' >src/main.rs
cargo run --quiet --offline
# A test target, so that its dependencies are checked too.
mkdir tests
echo "use buddy_cli as _;" >tests/command.rs
cargo check --quiet --offline --tests
echo "$(ls "$out"/*.crate | wc -l) packages build outside the tree"
