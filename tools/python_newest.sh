#!/usr/bin/env bash
# Runs the Python tests with the newest packages that the registry has today, for an update of the
# locked versions. Not a step of CI.
#
#   tools/python_newest.sh           needs the wheel of `tools/python_check.sh wheel`
#   tools/python_newest.sh --lock    also writes their versions to python/requirements-test.txt if
#                                    the tests pass
set -euo pipefail
cd "$(dirname "$0")/.."

environment=target/python-newest lock=python/requirements-test.txt
wheel=$(ls target/wheels/*.whl) || { echo "there is no wheel: run tools/python_check.sh wheel first"; exit 1; }

rm -rf "$environment"
python3 -m venv "$environment"
"$environment/bin/pip" install --quiet torch transformers peft numpy pytest h5py nbclient ipykernel
versions=$("$environment/bin/pip" freeze)
diff <(grep -v '^#' "$lock") <(echo "$versions") && echo "the lock has the newest versions"
"$environment/bin/pip" install --quiet --no-index --no-deps "$wheel"
"$environment/bin/python" -m pytest -p no:cacheprovider python/tests
if [ "${1:-}" = --lock ]; then
    { grep '^#' "$lock"; echo "$versions"; } >"$lock.new"
    mv "$lock.new" "$lock"
fi
