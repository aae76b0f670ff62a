#!/usr/bin/env bash
# Installs Debian packages, and never waits for ever: for a question, for a lock, or for a server.
#
#   tools/apt_install.sh PACKAGE...   options of apt-get install may stand among them
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

apt() {
    timeout --foreground --kill-after=10 "$1" apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 \
        -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 "${@:2}" </dev/null
}

# One at a time: apt-get gives up at once on some of its locks.
exec 9>"${TMPDIR:-/tmp}/buddy-apt.lock"
flock --wait 600 9 || { echo "another installation does not end"; exit 1; }
apt 120 update 9>&-
apt 400 install --yes "$@" 9>&-
