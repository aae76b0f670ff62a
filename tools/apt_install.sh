#!/usr/bin/env bash
# Installs Debian packages with timeouts: never waits for ever for a prompt, a lock or a server.
#
#   tools/apt_install.sh PACKAGE...   options of apt-get install are passed on
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

apt() {
    timeout --foreground --kill-after=10 "$1" apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 \
        -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 "${@:2}" </dev/null
}

# One at a time: apt-get fails at once on some of its locks.
exec 9>"${TMPDIR:-/tmp}/buddy-apt.lock"
flock --wait 600 9 || { echo "timeout: another installation is still running"; exit 1; }
apt 120 update 9>&-
apt 400 install --yes "$@" 9>&-
