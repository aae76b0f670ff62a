#!/usr/bin/env bash
# Builds the wheels of the Python package that pip installs on any Linux with glibc 2.28 or later.
#
#   tools/wheels.sh [DIR] [ARCH...]   manylinux_2_28 wheels of x86_64 and aarch64 (target/wheels)
#
# zig links them, so that they need no newer C library than they say. Every wheel holds the notices of
# what it links. The wheel of this machine is imported; that of another architecture under qemu-ARCH,
# if there is one, with PYTHON_ARCH, an interpreter of that architecture, and QEMU_LD_PREFIX, the root
# of its libraries, such as unpacked Debian packages. An architecture whose Rust standard library is
# missing (`rustup target add`) is not built. What was not done is said at the end, and the exit status
# is then 77.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(realpath -m "${1:-target/wheels}")
shift || true
[ $# -gt 0 ] || set -- x86_64 aarch64
glibc=2.28 zig=ziglang==0.17.0
site=$PWD/target/wheel-tools

maturin=$(sed -n 's/^requires = \["\(maturin==[0-9.]*\)"\]$/\1/p' python/pyproject.toml)
if ! [ "$(cat "$site/versions" 2>/dev/null)" = "$maturin $zig" ]; then
    rm -rf "$site"
    python3 -m pip install --quiet --timeout 30 --retries 4 --target "$site" "$maturin" "$zig" ||
        { echo "NOT RUN: $maturin and $zig cannot be installed"; exit 77; }
    echo "$maturin $zig" >"$site/versions"
fi
export PYTHONPATH=$site CARGO_PROFILE_RELEASE_DEBUG=${CARGO_PROFILE_RELEASE_DEBUG:-0}

trap "rm -f '$PWD/python/buddy/THIRD-PARTY-NOTICES'" EXIT
tools/supply_check.py --notices python/buddy/THIRD-PARTY-NOTICES >/dev/null
mkdir -p "$out"

# Newest version of the C library that an ELF file asks for.
newest_glibc() { objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1 | cut -d_ -f2; }

# Builds and checks the wheel of one architecture.
build() {
    local arch=$1 target=$1-unknown-linux-gnu wheel inside library
    if ! [ -d "$(rustc --print target-libdir --target "$target")" ]; then
        missing+=("$arch: no Rust standard library here; rustup target add $target")
        return
    fi
    rm -f "$out"/*"$arch.whl"
    (cd python && "$site/bin/maturin" build --release --quiet --locked --zig --target "$target" \
        --compatibility "manylinux_${glibc/./_}" --out "$out")
    wheel=$(ls "$out"/*"$arch.whl")
    inside=$(mktemp -d)
    python3 -m zipfile -e "$wheel" "$inside"
    [ -s "$inside/buddy/THIRD-PARTY-NOTICES" ] || { echo "$wheel has no notices"; return 1; }
    # The libraries that watched and traced programs load are inside the module, where maturin does not look.
    for library in "$inside"/buddy/*.so target/"$target"/release/build/buddy-{inject,tracer}-*/out/*.so; do
        [ "$(printf '%s\n' "$(newest_glibc "$library")" "$glibc" | sort -V | tail -1)" = "$glibc" ] ||
            { echo "$library needs glibc $(newest_glibc "$library")"; return 1; }
    done
    rm -rf "$inside"
    import "$arch" "$wheel"
    echo "$wheel"
}

# Imports a wheel, on this machine or under qemu.
import() {
    local arch=$1 folder
    folder=$(mktemp -d)
    python3 -m zipfile -e "$2" "$folder"
    local run="import buddy, sys; print(buddy.__version__); assert 'torch' not in sys.modules"
    if [ "$arch" = "$(uname -m)" ]; then
        PYTHONPATH=$folder python3 -c "$run" >/dev/null
    elif type "qemu-$arch" >/dev/null 2>&1 && [ -n "${PYTHON_ARCH:-}" ]; then
        PYTHONPATH=$folder "qemu-$arch" "$PYTHON_ARCH" -c "$run" >/dev/null
    else
        missing+=("$arch: built, not imported; there is no qemu-$arch with an interpreter (PYTHON_ARCH)")
    fi
    rm -rf "$folder"
}

missing=()
for arch in "$@"; do build "$arch"; done
[ ${#missing[@]} -eq 0 ] || { printf 'NOT DONE: %s\n' "${missing[@]}"; exit 77; }
