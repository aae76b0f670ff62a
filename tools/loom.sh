#!/usr/bin/env bash
# Explores every order in which a few threads can take the locks of the Buddy memory.
#
#   tools/loom.sh [TEST...]
#
# Builds crates/memory a second time, with loom's locks instead of the standard library's.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS="--cfg loom" exec cargo test --quiet --locked --manifest-path crates/memory/loom/Cargo.toml -- "$@"
