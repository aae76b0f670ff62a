#!/usr/bin/env bash
# Builds the wheel of the Python package and tests it from a fresh environment.
#
#   tools/python_check.sh wheel    builds it, installs it beside nothing else, imports it, analyses a model
#   tools/python_check.sh fetch    installs PyTorch and what notebooks need into folders outside the clone, where the next run finds them
#   tools/python_check.sh torch    the tests, with that PyTorch
#   tools/python_check.sh journeys [OPTIONS]   first uses of the archive and the wheel (tools/journeys/run.py)
#
# Exits with 77 if something that is needed cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.15.0
environment=target/python

# Installs packages, and does not wait for ever for a server.
pip_install() { timeout --foreground --kill-after=10 1500 "$1" install --quiet --timeout 30 --retries 4 "${@:2}"; }

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
    pip_install "$environment/bin/pip" --target "$environment-tools/site" 'maturin>=1.7,<2' || not_run "maturin cannot be installed"
    # The licences of all that the wheel links go into the package, and are no part of the tree.
    trap "rm -f '$PWD/python/buddy/THIRD-PARTY-NOTICES'" EXIT
    tools/supply_check.py --notices python/buddy/THIRD-PARTY-NOTICES
    (cd python && PYTHONPATH="../$environment-tools/site" "../$environment-tools/site/bin/maturin" build --release --quiet --out ../target/wheels)
    pip_install "$environment/bin/pip" --no-index --no-deps target/wheels/*.whl
    cd "$environment"
    [ -s lib/python*/site-packages/buddy/THIRD-PARTY-NOTICES ] || { echo "the wheel has no notices"; exit 1; }
    bin/python -c "import buddy, sys; print(buddy.analyze('../../examples/run/snapshot-2.safetensors')); assert 'torch' not in sys.modules"
    bin/buddy --version
}

# Where packages of this name lie.
folder_of() {
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/buddy-ci/$1-$(python3 -c 'import sys; print("cp%d%d" % sys.version_info[:2])')"
}

# Installs packages under a name, once. In a shell of its own, which gives the lock back.
fetch_one() (
    local folder
    folder=$(folder_of "$1")
    mkdir -p "$(dirname "$folder")"
    # One at a time: whoever comes second finds it done.
    exec 9>"$folder.lock"
    flock --wait 1800 9 || not_run "another process fetches $1 and does not end"
    [ ! -e "$folder" ] || return 0
    echo "${*:2} go to $folder, once"
    rm -rf "$folder.new"
    [ -d "$environment-fetch" ] || python3 -m venv "$environment-fetch" || not_run "python3 has no venv module here"
    pip_install "$environment-fetch/bin/pip" --target "$folder.new" "${@:2}" ||
        { rm -rf "$folder.new"; not_run "$2 cannot be installed"; }
    mv "$folder.new" "$folder"
)

fetch_notebook() { fetch_one notebook-1 h5py nbclient ipykernel numpy; }

fetch_torch() { fetch_one "torch-$torch_version" "torch==$torch_version" numpy pytest transformers; }

fetch() {
    fetch_notebook
    fetch_torch
}

torch() {
    [ -x "$environment/bin/buddy" ] || not_run "there is no wheel; the step before makes it"
    fetch_torch
    PYTHONPATH=$(folder_of "torch-$torch_version") "$environment/bin/python" -m pytest -p no:cacheprovider python/tests
}

journeys() {
    [ -x "$environment/bin/buddy" ] || not_run "there is no wheel; an earlier step makes it"
    fetch_notebook
    fetch_torch
    PYTHONPATH=$(folder_of notebook-1):$(folder_of "torch-$torch_version") "$environment/bin/python" tools/journeys/run.py "$(tools/package.sh)" target/wheels/*.whl "$@"
}

"$@"
