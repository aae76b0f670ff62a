#!/usr/bin/env bash
# Builds the wheel of the Python package and tests it in a fresh environment.
#
#   tools/python_check.sh wheel    builds the wheel, installs it alone, imports it, analyses a model
#   tools/python_check.sh fetch    installs the packages of python/requirements-test.txt outside the clone
#   tools/python_check.sh torch    runs the tests with the locked versions, then Transformers' with the
#                                  oldest Transformers
#   tools/python_check.sh oldest_torch   runs some with the oldest PyTorch too; not a step of CI
#   tools/python_check.sh vllm     runs the tests of buddy.vllm with the oldest and the newest vLLM, then
#                                  compares docs/reference/support.md with these results and those of `torch`
#   tools/python_check.sh journeys [OPTIONS]   first uses of the archive and the wheel (tools/journeys/run.py)
#
# Exits with 77 if a package cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

environment=target/python

# Runs pip install with timeouts.
pip_install() { timeout --foreground --kill-after=10 1500 "$1" install --quiet --timeout 30 --retries 4 "${@:2}"; }

# Says what is missing, and that nothing ran.
not_run() {
    echo "NOT RUN: $*"
    exit 77
}

wheel() {
    rm -rf "$environment" target/wheels
    python3 -m venv "$environment" || not_run "python3 has no venv module here"
    # The environment under test does not hold maturin. Its version is the one that pip takes for
    # `pip install ./python`.
    python3 -m venv --without-pip "$environment-tools"
    local maturin
    maturin=$(sed -n 's/^requires = \["\(maturin==[0-9.]*\)"\]$/\1/p' python/pyproject.toml)
    [ -n "$maturin" ] || { echo "python/pyproject.toml names no version of maturin"; exit 1; }
    pip_install "$environment/bin/pip" --target "$environment-tools/site" "$maturin" || not_run "$maturin cannot be installed"
    # The licences of everything that the wheel links go into the package; git does not track them.
    trap "rm -f '$PWD/python/buddy/THIRD-PARTY-NOTICES'" EXIT
    tools/supply_check.py --notices python/buddy/THIRD-PARTY-NOTICES
    (cd python && PYTHONPATH="../$environment-tools/site" "../$environment-tools/site/bin/maturin" build --release --quiet --out ../target/wheels)
    pip_install "$environment/bin/pip" --no-index --no-deps target/wheels/*.whl
    cd "$environment"
    [ -s lib/python*/site-packages/buddy/THIRD-PARTY-NOTICES ] || { echo "the wheel has no notices"; exit 1; }
    bin/python -c "import buddy, sys; print(buddy.analyze('../../examples/run/snapshot-2.safetensors')); assert 'torch' not in sys.modules"
    bin/buddy --version
}

# The folder of the packages in a requirements file: named by its hash, so that other versions have
# another folder.
folder_of() {
    local hash
    hash=$(sha256sum <"python/$1" | cut -c1-12)
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/buddy-ci/${1%.txt}-$hash-$(python3 -c 'import sys; print("cp%d%d" % sys.version_info[:2])')"
}

# Installs the packages of a requirements file, once. The subshell releases the lock.
fetch_one() (
    local folder
    folder=$(folder_of "$1")
    mkdir -p "$(dirname "$folder")"
    # One process at a time: the second finds the folder complete.
    exec 9>"$folder.lock"
    flock --wait 1800 9 || not_run "another process is still installing $1"
    [ ! -e "$folder" ] || return 0
    echo "installing python/$1 into $folder"
    rm -rf "$folder.new"
    [ -d "$environment-fetch" ] || python3 -m venv "$environment-fetch" || not_run "python3 has no venv module here"
    # Without dependencies: the file lists all of them.
    pip_install "$environment-fetch/bin/pip" --no-deps --target "$folder.new" --requirement "python/$1" ||
        { rm -rf "$folder.new"; not_run "the packages of python/$1 cannot be installed"; }
    mv "$folder.new" "$folder"
)

locked=requirements-test.txt oldest=requirements-oldest.txt vllm=requirements-vllm.txt
torch_lock=requirements-oldest-torch.txt
diffusers=requirements-diffusers.txt scipy=requirements-scipy.txt
# The ends of the range in python/pyproject.toml.
vllm_versions="0.26.0 0.33.0"

# The folder of a version of vLLM without its machine code, which is most of it and which the CPU cannot use.
vllm_folder() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/buddy-ci/vllm-$1"; }

fetch_vllm_version() (
    local folder
    folder=$(vllm_folder "$1")
    exec 9>"$folder.lock"
    flock --wait 1800 9 || not_run "another process is still fetching vLLM $1"
    [ ! -e "$folder" ] || return 0
    echo "fetching vLLM $1 into $folder"
    rm -rf "$folder.new" && mkdir -p "$folder.new"
    timeout --foreground 1500 "$environment-fetch/bin/pip" download --quiet --timeout 30 --retries 4 --no-deps --only-binary :all: \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_31_x86_64 --dest "$folder.new" "vllm==$1" &&
        python3 - "$folder.new" <<'P' && rm -f "$folder.new"/*.whl && mv "$folder.new" "$folder" ||
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(folder, [name for name in archive.namelist() if name.endswith((".py", ".json", "METADATA"))])
P
        { rm -rf "$folder.new"; not_run "vLLM $1 cannot be fetched"; }
)

fetch_vllm() {
    fetch_one "$vllm"
    for version in $vllm_versions; do fetch_vllm_version "$version"; done
}

fetch() {
    fetch_one "$locked"
    fetch_one "$oldest"
    fetch_one "$diffusers"
    fetch_one "$scipy"
}

results=target/python-results

# Runs tests; the first argument names the file of their results.
tests() { "$environment/bin/python" -m pytest -p no:cacheprovider --junitxml="$results/$1.xml" "${@:2}"; }

torch() {
    [ -x "$environment/bin/buddy" ] || not_run "there is no wheel; the step before makes it"
    fetch
    PYTHONPATH=$(folder_of "$locked"):$(folder_of "$diffusers"):$(folder_of "$scipy") tests newest python/tests
    PYTHONPATH=$(folder_of "$oldest"):$(folder_of "$locked") tests oldest \
        python/tests/test_{transformers,experts,derived,adapters,llm,loading_memory}.py
}

# Not a step of CI: PyTorch 2.8 brings another 5 GB of CUDA libraries.
oldest_torch() {
    [ -x "$environment/bin/buddy" ] || not_run "there is no wheel: tools/python_check.sh wheel"
    fetch
    fetch_one "$torch_lock"
    PYTHONPATH=$(folder_of "$torch_lock"):$(folder_of "$oldest"):$(folder_of "$locked") \
        tests oldest-torch python/tests/test_{activations,compress,pack,saved,transformers}.py
}

vllm() {
    [ -x "$environment/bin/buddy" ] || not_run "there is no wheel; an earlier step makes it"
    fetch_one "$locked"
    fetch_vllm
    for version in $vllm_versions; do
        echo "vLLM $version"
        PYTHONPATH=$(vllm_folder "$version"):$(folder_of "$locked"):$(folder_of "$vllm") tests "vllm-$version" python/tests/serving
    done
    # Needs the results of `torch`, too.
    python3 tools/support_matrix.py --check "$results"/{newest,oldest,vllm-*}.xml
}

journeys() {
    [ -x "$environment/bin/buddy" ] || not_run "there is no wheel; an earlier step makes it"
    fetch_one "$locked"
    PYTHONPATH=$(folder_of "$locked") "$environment/bin/python" tools/journeys/run.py "$(tools/package.sh)" target/wheels/*.whl "$@"
}

"$@"
