#!/usr/bin/env bash
# A Docker engine for machines that have none, CI's for example: `docker/engine.sh start FOLDER`, `restart FOLDER`, `stop`.
# Root only. Debian's packages are installed where dockerd is missing; FOLDER takes the engine's log. An engine that runs
# already is left alone: `start` then says so with exit status 3, and `restart` and `stop` are not for it.
set -euo pipefail
SOCKET=/var/run/docker.sock
PIDFILE=/var/run/docker.pid

fail() { printf 'engine: %s\n' "$*" >&2; exit 1; }
answers() { docker --host "unix://$SOCKET" version >/dev/null 2>&1; }

start() {
  setsid dockerd --host "unix://$SOCKET" --pidfile "$PIDFILE" >>"$1/dockerd.log" 2>&1 </dev/null &
  for _ in $(seq 300); do answers && return; sleep 0.2; done
  tail -n 20 "$1/dockerd.log" >&2
  fail "dockerd does not answer"
}

stop() {
  pid=$(cat "$PIDFILE" 2>/dev/null) || return 0
  kill "$pid" 2>/dev/null || return 0
  for _ in $(seq 300); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
  fail "dockerd (pid $pid) does not end"
}

case "${1:-}" in
  start)
    [ -d "${2:-}" ] || fail "name a folder for the log"
    if command -v docker >/dev/null && answers; then echo "engine: one runs already"; exit 3; fi
    [ "$(id -u)" = 0 ] || fail "only root can start one; or start Docker yourself"
    if ! command -v dockerd >/dev/null; then
      apt-get update -qq >/dev/null
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io docker-compose iptables >/dev/null
    fi
    start "$2" ;;
  restart) [ -d "${2:-}" ] || fail "name a folder for the log"; stop; start "$2" ;;
  stop) stop ;;
  *) fail "start FOLDER, restart FOLDER, or stop" ;;
esac
