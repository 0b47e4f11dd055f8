#!/usr/bin/env bash
# A real Slurm on one machine, for CI and for trying things: its controller and a few nodes, each a slurmd in a process namespace of
# its own and, where the kernel has such, with a clock of its own (the second's is 5 s ahead of the first's). From Debian's packages.
# Root only. Everything is kept under FOLDER, and listens on loopback.
#   docker/slurm.sh FOLDER deps | up [NODES] | down        packages; `up` prints the SLURM_CONF to export
#   docker/slurm.sh FOLDER off NODE | on NODE              power of a node (n1, n2, ...): all that runs on it is gone at once
#   docker/slurm.sh FOLDER restart-controller [SECONDS]    away for so long
set -euo pipefail
D=${1:?name a folder for everything}
D=$(mkdir -p "$D" && cd "$D" && pwd)
export SLURM_CONF=$D/slurm.conf

deps() {
  apt-get update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge >/dev/null
}

controller() {
  setsid slurmctld -D -f "$SLURM_CONF" >"$D/log/slurmctld.out" 2>&1 </dev/null &
  echo $! >"$D/run/slurmctld.pid0"
}

node() {
  local clock=()
  if unshare --time --fork --monotonic 1 true 2>/dev/null; then clock=(--time --monotonic $((5 * ${1#n}))); fi
  setsid unshare --pid --fork --kill-child --mount-proc "${clock[@]}" slurmd -D -f "$SLURM_CONF" -N "$1" >"$D/log/slurmd.$1.out" 2>&1 </dev/null &
  echo $! >"$D/run/slurmd.$1.pid0"
}

wait_idle() {   # until so many nodes can be used
  for _ in $(seq 300); do
    [ "$(sinfo -h -N -t idle,mixed,allocated -o %n 2>/dev/null | wc -l)" -ge "$1" ] && return 0
    sleep 0.1
  done
  echo "Slurm did not come up:" >&2; tail -n 5 "$D"/log/*.out >&2; exit 1
}

up() {
  local count=${1:-2} i
  mkdir -p "$D/state" "$D/log" "$D/run"; for i in $(seq "$count"); do mkdir -p "$D/spool/n$i"; done
  chmod 755 "$D"
  dd if=/dev/urandom of="$D/munge.key" bs=1 count=1024 status=none; chmod 600 "$D/munge.key"
  # A requeued job waits until its credential is over (cred_expire), two minutes if nobody says anything else.
  cat >"$SLURM_CONF" <<C
ClusterName=chaos
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=16817
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$D/run/munge.socket,cred_expire=5
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool/%n
SlurmctldPidFile=$D/run/slurmctld.pid
SlurmdPidFile=$D/run/slurmd.%n.pid
SlurmctldLogFile=$D/log/slurmctld.log
SlurmdLogFile=$D/log/slurmd.%n.log
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
InactiveLimit=0
KillWait=2
MinJobAge=300
WaitTime=0
MessageTimeout=10
JobRequeue=1
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
NodeName=n[1-$count] NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=[16821-$((16820 + count))] CPUs=8 RealMemory=8000 State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
C
  munged --key-file="$D/munge.key" --socket="$D/run/munge.socket" --pid-file="$D/run/munged.pid" --log-file="$D/log/munged.log" \
    --seed-file="$D/run/munge.seed" --num-threads=2 --force
  controller
  for i in $(seq "$count"); do node "n$i"; done
  wait_idle "$count"
  echo "export SLURM_CONF=$SLURM_CONF"
}

down() {
  local file
  for file in "$D"/run/slurmd.*.pid0; do kill -9 "$(cat "$file")" 2>/dev/null || true; done
  for file in "$D/run/slurmctld.pid0" "$D/run/munged.pid"; do kill "$(cat "$file" 2>/dev/null)" 2>/dev/null || true; done
  for _ in $(seq 100); do kill -0 "$(cat "$D/run/slurmctld.pid0" 2>/dev/null)" 2>/dev/null || break; sleep 0.1; done
  rm -rf "$D/state" "$D/spool" "$D/run"
}

case "${2:-}" in
  deps) deps ;;
  up) up "${3:-2}" ;;
  down) down ;;
  off) kill -9 "$(cat "$D/run/slurmd.$3.pid0")" ;;
  on) kill -0 "$(cat "$D/run/slurmd.$3.pid0")" 2>/dev/null || node "$3" ;;
  restart-controller)
    kill "$(cat "$D/run/slurmctld.pid0")"
    while kill -0 "$(cat "$D/run/slurmctld.pid0")" 2>/dev/null; do sleep 0.1; done
    sleep "${3:-1}"
    controller ;;
  *) sed -n 2,9p "$0"; exit 2 ;;
esac
