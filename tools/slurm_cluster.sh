#!/usr/bin/env bash
# A Slurm cluster on this machine, for tests: munge, a controller and a few virtual nodes of one processor each.
#
#   tools/slurm_cluster.sh start DIR [NODES]   starts it, or says what is missing and exits with 77
#   export SLURM_CONF=DIR/slurm.conf           lets sbatch, squeue and scancel find it
#   tools/slurm_cluster.sh controller DIR      restarts the controller, as after an update
#   tools/slurm_cluster.sh crash DIR           kills the controller without a word and starts it again
#   tools/slurm_cluster.sh stop DIR
#
# Needs root, as a container has it, and Debian's packages slurmctld, slurmd, slurm-client and munge, which it installs where
# they are missing. Everything it writes is in DIR.
set -euo pipefail

verb=${1:?start, controller, crash or stop} dir=$(realpath -m "${2:?a directory}") nodes=${3:-4}
export SLURM_CONF=$dir/slurm.conf
names=$(seq --format 'n%g' 1 "$nodes")

missing() { echo "NOT RUN: $*"; exit 77; }

install() {
    command -v slurmctld slurmd sbatch munged >/dev/null && return
    (apt-get update && apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge) >/dev/null 2>&1 ||
        missing "Slurm is not here and cannot be installed"
}

# Ports from a number of this directory, so that clusters beside each other do not meet.
configure() {
    local base=$((20000 + 0x$(echo "$dir" | md5sum | cut -c1-4) % 20000)) host
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

start_controller() { slurmctld; }

start() {
    [ "$(id -u)" = 0 ] || missing "a cluster is started by root"
    install
    mkdir -p "$dir/state"
    for name in $names; do mkdir -p "$dir/$name"; done
    configure
    chmod 700 "$dir"
    head -c 1024 /dev/urandom >"$dir/munge.key" && chmod 400 "$dir/munge.key"
    munged --force --socket="$dir/munge.socket" --key-file="$dir/munge.key" --pid-file="$dir/munge.pid" \
        --log-file="$dir/munge.log" --seed-file="$dir/munge.seed"
    start_controller
    for name in $names; do slurmd -N "$name"; done
    for _ in $(seq 100); do
        [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null | head -1)" = "$nodes" ] && return
        sleep 0.2
    done
    sinfo || true
    tail -5 "$dir"/*.log
    echo "the nodes did not come up"
    exit 1
}

# Ends the process of a file, and waits for that.
end() {
    local pid
    pid=$(cat "$1" 2>/dev/null) || return 0
    kill "$pid" 2>/dev/null || return 0
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
}

case $verb in
    start) start ;;
    controller) end "$dir/slurmctld.pid"; sleep 2; start_controller ;;
    crash) kill -9 "$(cat "$dir/slurmctld.pid")"; sleep 2; start_controller ;;
    stop) for name in slurmctld $names munge; do end "$dir/$name.pid"; done ;;
    *) echo "start, controller, crash or stop, not '$verb'"; exit 2 ;;
esac
