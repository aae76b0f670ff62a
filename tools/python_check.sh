#!/usr/bin/env bash
# Builds the wheel of the Python package and tests it from a fresh environment.
#
#   tools/python_check.sh wheel    builds it, installs it beside nothing else, imports it, analyses a model
#   tools/python_check.sh fetch    installs PyTorch into a folder outside the clone, where the next run finds it
#   tools/python_check.sh torch    the tests, with that PyTorch
#
# Exits with 77 if something that is needed cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.15.0
environment=target/python

# Says what is missing, and that nothing ran.
not_run() {
    echo "NOT RUN: $*"
    exit 77
}

wheel() {
    rm -rf "$environment" target/wheels
    python3 -m venv "$environment" || not_run "python3 has no venv module here"
    # The compiler of wheels is not part of the environment that is tested.
    python3 -m venv --without-pip "$environment-tools"
    "$environment/bin/pip" install --quiet --target "$environment-tools/site" 'maturin>=1.7,<2' || not_run "maturin cannot be installed"
    (cd python && PYTHONPATH="../$environment-tools/site" "../$environment-tools/site/bin/maturin" build --release --quiet --out ../target/wheels)
    "$environment/bin/pip" install --quiet --no-index --no-deps target/wheels/*.whl
    cd "$environment"
    bin/python -c "import buddy, sys; print(buddy.analyze('../../examples/run/snapshot-2.safetensors')); assert 'torch' not in sys.modules"
    bin/buddy --version
}

# Where PyTorch lies.
torch_folder() {
    local python
    python=$(python3 -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/buddy-ci/torch-$torch_version-$python"
}

fetch() {
    local folder
    folder=$(torch_folder)
    mkdir -p "$(dirname "$folder")"
    # One at a time: whoever comes second finds it done.
    exec 9>"$folder.lock"
    flock 9
    [ ! -e "$folder" ] || return 0
    echo "PyTorch $torch_version goes to $folder, 5 GB, once"
    rm -rf "$folder.new"
    python3 -m venv "$environment-fetch" || not_run "python3 has no venv module here"
    "$environment-fetch/bin/pip" install --quiet --target "$folder.new" "torch==$torch_version" numpy pytest transformers ||
        { rm -rf "$folder.new"; not_run "PyTorch $torch_version cannot be installed"; }
    mv "$folder.new" "$folder"
}

torch() {
    [ -x "$environment/bin/buddy" ] || not_run "there is no wheel; the step before makes it"
    fetch
    PYTHONPATH=$(torch_folder) "$environment/bin/python" -m pytest -p no:cacheprovider python/tests
}

"$1"
