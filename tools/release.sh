#!/usr/bin/env bash
# Makes everything that a release publishes.
#
#   tools/release.sh [DIR]      wheels, crates, archive, NOTES.md, SHA256SUMS (target/release-VERSION)
#
# The version is the workspace's. NOTES.md is the version's section of CHANGELOG.md; without one the
# unreleased changes, and the last line says that this is a draft. Nothing is uploaded.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
out=$(realpath -m "${1:-target/release-$version}")
rm -rf "$out"
mkdir -p "$out/crates"

# The changelog between the heading of a version and the next one.
section() { awk -v heading="## $1" '$0 == heading { on = 1; next } /^## / { on = 0 } on' CHANGELOG.md | sed '/./,$!d'; }
draft=
unreleased=$(section Unreleased)
if [ -n "$unreleased" ]; then
    draft="a draft: CHANGELOG.md has changes under Unreleased"
    echo "$unreleased" >"$out/NOTES.md"
else
    section "$version" >"$out/NOTES.md"
fi
[ -s "$out/NOTES.md" ] || { echo "CHANGELOG.md has nothing about $version"; exit 1; }

status=0
tools/wheels.sh "$out" || status=$?
[ "$status" -eq 0 ] || [ "$status" -eq 77 ] || exit "$status"
tools/crates_check.sh "$out/crates"
archive=$(tools/package.sh "$out")
tools/c_check.sh "$archive" || { code=$?; [ "$code" -eq 77 ] && status=77 || exit "$code"; }
(cd "$out" && find . -type f ! -name SHA256SUMS ! -name '*.sha256' -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
echo "$out: $(wc -l <"$out/SHA256SUMS") files${draft:+; $draft}"
exit "$status"
