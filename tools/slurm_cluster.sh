#!/usr/bin/env bash
# Starts a Slurm cluster on this machine for tests: munge, a controller and a few virtual one-CPU
# nodes.
#
#   tools/slurm_cluster.sh start DIR [NODES]   starts it; exit 77 if something is missing
#   export SLURM_CONF=DIR/slurm.conf           lets sbatch, squeue and scancel find it
#   tools/slurm_cluster.sh controller DIR      restarts the controller, as after an update
#   tools/slurm_cluster.sh crash DIR           kills the controller and starts it again
#   tools/slurm_cluster.sh stop DIR
#
# Needs root and the Debian packages slurmctld, slurmd, slurm-client and munge, which it installs if
# missing. Everything it writes is in DIR.
set -euo pipefail

verb=${1:?start, controller, crash or stop} dir=$(realpath -m "${2:?a directory}") nodes=${3:-4}
export SLURM_CONF=$dir/slurm.conf
names=$(seq --format 'n%g' 1 "$nodes")

missing() { echo "NOT RUN: $*"; exit 77; }

install() {
    type slurmctld slurmd sbatch munged >/dev/null 2>&1 && return
    "$(dirname "$0")/apt_install.sh" --no-install-recommends slurmctld slurmd slurm-client munge >/dev/null 2>&1 ||
        missing "Slurm is missing and cannot be installed"
}

# Ports derived from the directory, so that clusters do not collide; below the ephemeral ports.
configure() {
    local base=$((12000 + 0x$(echo "$dir" | md5sum | cut -c1-4) % 20000)) host
    host=$(hostname)
    cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$base
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
KillWait=2
SlurmdTimeout=30
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/jobs.log
MinJobAge=30
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000
NodeName=n[1-$nodes] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((base + 1))-$((base + nodes))] CPUs=1 RealMemory=64000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
}

# Waits up to a number of seconds for a command to succeed, or reports the timeout.
await() {
    local end=$((SECONDS + $1))
    until "${@:3}"; do
        [ "$SECONDS" -lt "$end" ] || { echo "FAILED: $2 within $1 s"; tail -n 5 "$dir"/*.log; exit 1; }
        sleep 0.2
    done
}

# Runs a command with a timeout of half a minute.
limited() { timeout --foreground --kill-after=5 30 "$@"; }

# Starts the controller and waits until it answers. Retries while its port or files are still in
# use.
start_controller() {
    local last=-10
    answers() {
        if ! is_alive "$dir/slurmctld.pid" && [ $((SECONDS - last)) -ge 10 ]; then
            limited slurmctld || true
            last=$SECONDS
        fi
        limited scontrol ping 2>/dev/null | grep -q 'is UP'
    }
    await 120 "the controller did not answer" answers
}

start() {
    [ "$(id -u)" = 0 ] || missing "a cluster needs root"
    install
    mkdir -p "$dir/state"
    for name in $names; do mkdir -p "$dir/$name"; done
    configure
    chmod 700 "$dir"
    head -c 1024 /dev/urandom >"$dir/munge.key" && chmod 400 "$dir/munge.key"
    limited munged --force --socket="$dir/munge.socket" --key-file="$dir/munge.key" --pid-file="$dir/munge.pid" \
        --log-file="$dir/munge.log" --seed-file="$dir/munge.seed"
    start_controller
    for name in $names; do limited slurmd -N "$name"; done
    idle() { [ "$(limited sinfo --noheader --states=idle --format=%D 2>/dev/null | head -n 1)" = "$nodes" ]; }
    await 120 "the nodes did not come up" idle
}

is_alive() { kill -0 "$(cat "$1" 2>/dev/null)" 2>/dev/null; }

# Ends the process of a pid file, and waits for it.
end() {
    local pid signal
    pid=$(cat "$1" 2>/dev/null) || return 0
    rm -f "$1" # a later process may reuse the pid
    for signal in "${2:-TERM}" KILL; do
        kill -"$signal" "$pid" 2>/dev/null || return 0
        for _ in $(seq 150); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
    done
}

# Ends slurmstepd, which would try to reach the controller for hours.
end_steps() {
    local pid
    for pid in $(pgrep slurmstepd); do
        [[ $(readlink "/proc/$pid/cwd") != "$dir"* ]] || kill -9 "$pid" || true
    done
}

case $verb in
    start) start ;;
    controller) end "$dir/slurmctld.pid"; sleep 2; start_controller ;;
    crash) end "$dir/slurmctld.pid" KILL; sleep 2; start_controller ;;
    stop) for name in slurmctld $names munge; do end "$dir/$name.pid"; done; end_steps ;;
    *) echo "expected start, controller, crash or stop, not '$verb'"; exit 2 ;;
esac
