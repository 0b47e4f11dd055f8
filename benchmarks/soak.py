"""Kills real runs at random moments and counts what is left of them: `python -m benchmarks.soak --kills 200`.

Two runs at a time, of the micro model with many faults at once. Half of the harnesses are killed between their start
and `--longest` seconds later, half of them within three seconds of their first fault: alone, after the reaper was
killed and replaced, or together with the reaper, after which `clean` is called as the next start would. Five seconds
later nothing may be left but the run's folder: no process, stopped or not, no listening port, no ledger, no temporary
file, no lock. Progress on standard error, one JSON object on standard output; exits with 1 where anything was left, or
where a run ended that nobody had killed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

import psutil

from chaos.custody import clean
from chaos.plan import freeze
from chaos.problems import ScenarioError
from chaos.scenario import parse
from harness import tape
from harness.ledger import LedgerError, ledgers_folder, read
from harness.processes import Identity, identity, state, with_token

WITHIN_S = 5.0
AT_ONCE = 2
_TICK_S = 0.03
_AFTER_FAULT_S = 3.0
_KERNEL_S = 2.0  # how long `clean` is not called, so that it is seen what the kernel ends
_MARK = "DILOCO_CHAOS_SOAK"
_TEMPORARY = {".work", ".partial", ".tmp"}

Mode = Literal["harness", "reaper first", "both"]
_MODES: tuple[Mode, ...] = ("harness",) * 6 + ("reaper first",) * 2 + ("both",) * 2

SCENARIO = """diloco_chaos: 1
name: soak
deadline: 100s
cluster: {{model: micro, corpus: markov, fragments: 4, batch: 4, learners: 3, budget: 3000, step_time: 60ms,
          snapshots: 4, silence: 2s{warm_start}}}
faults:
{faults}
"""
_LEARNERS = ("learner-1", "learner-2", "learner-3")
_FAULTS: tuple[tuple[str, Sequence[str]], ...] = (
    ("pause: {target}, for: {length}s", (*_LEARNERS, "syncer")),
    ("zombie: {target}, for: {length}s", _LEARNERS),
    ("straggler: {target}, factor: 0.3, spread: 0.2, for: {length}s", _LEARNERS),
    ("kill: {target}, restart_after: {short}s", (*_LEARNERS, "syncer")),
    ("terminate: {target}, restart_after: {short}s", _LEARNERS),
    ("restart: {target}", (*_LEARNERS, "syncer")),
    ("crash_loop: {target}", _LEARNERS),
    ("corrupt: syncer", ("syncer",)),
    ("truncate: syncer", ("syncer",)),
    ("write_limit: syncer, for: {length}s", ("syncer",)),
    ("poison: {target}", _LEARNERS),
    ("latency: {target}, profile: transatlantic, for: {length}s", (*_LEARNERS, "syncer")),
    ("bandwidth: {target}, rate: 2MB/s, for: {length}s", _LEARNERS),
    ("slow_close: {target}, for: {length}s", _LEARNERS),
    ("timeout: {target}, toxicity: 0.5, for: {length}s", _LEARNERS),
    ("reset: {target}, toxicity: 0.3, for: {length}s", _LEARNERS),
    ("slicer: {target}, for: {length}s", _LEARNERS),
    ("limit_data: {target}, toxicity: 0.3, for: {length}s", _LEARNERS),
    ("partition: {target}, for: {length}s", (*_LEARNERS, "syncer")),
    ("flapping: {target}, for: {length}s", _LEARNERS),
)
_COUNT = 6  # faults of a run


def scenario(chance: random.Random, reference: bool) -> str:
    """A scenario that may be run, with faults from the steady state on; before it comes a reference, if asked for."""
    warm_start = ", warm_start: 150" if reference else ""
    while True:
        drawn = [(template.format(target=chance.choice(targets), length=round(chance.uniform(0.5, 20.0), 2),
                                  short=round(chance.uniform(0.1, 1.0), 2)), round(chance.uniform(0.0, 2.0), 2))
                 for template, targets in chance.sample(_FAULTS, _COUNT)]
        text = SCENARIO.format(warm_start=warm_start,
                               faults="\n".join(f"  - {{{fault}, at: {at}s}}" for fault, at in drawn))
        try:
            freeze(parse(text), 0)
        except ScenarioError:
            continue  # two of them don't go together: draw again
        return text


@dataclass
class Prey:
    """A run that is to be killed, and what is known of it."""

    number: int
    mode: Mode
    moment: float
    """Seconds from its start, or from its first fault, to its end."""
    from_fault: bool
    reference: bool
    """Whether it begins with training one."""
    folder: Path
    process: subprocess.Popen[bytes]
    started: float = field(default_factory=time.monotonic)
    due: float | None = None
    """When it is to be killed, once that is known."""
    token: str = ""
    ledger: Path | None = None
    ports: set[int] = field(default_factory=set)
    reaper: Identity | None = None
    """The one that was killed before the harness."""
    killed: float | None = None
    cleaned: bool = False
    settled: float | None = None
    phase: str = ""
    kinds: tuple[str, ...] = ()
    """Faults that were on when it was killed."""
    left: dict[str, list[str]] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """What everything that it starts carries in its environment."""
        return str(self.folder)

    def look(self) -> None:
        """Learn its ledger and token while they are there."""
        if self.ledger is None:
            self.ledger = next(ledgers_folder().glob(f"*-{self.process.pid}-*.jsonl"), None)
        if self.ledger is not None and not self.token:
            try:
                owed = read(self.ledger)
            except LedgerError:
                return
            self.token = owed.opened.token if owed else ""

    def is_due(self, now: float) -> bool:
        """Whether its moment has come."""
        if self.due is None and (not self.from_fault or self._has_fault()):
            self.due = (now if self.from_fault else self.started) + self.moment
        return self.due is not None and now >= self.due

    def tape(self) -> Path | None:
        """Where its harness writes, once the run itself has begun."""
        return next((self.folder / "runs").glob("*/tape/harness.0.jsonl"), None)

    def _has_fault(self) -> bool:
        path = self.tape()
        return path is not None and b'"injecting"' in path.read_bytes()

    def reapers(self) -> list[Identity]:
        """Those that watch over it."""
        return [who for who in marked(self.mark) if b"harness.reaper" in _command_line(who)]

    def still_there(self, others: Sequence[Prey]) -> dict[str, list[str]]:
        """What is left of it, by kind, in words."""
        alive = marked(self.mark)
        if self.token:
            alive = sorted({*alive, *with_token(self.token)})
        theirs = {who.pid for other in others for who in marked(other.mark)}
        found = {
            "processes": [f"{who.pid} {b' '.join(_command_line(who)[:4]).decode(errors='replace')}" for who in alive],
            "stopped": [str(who.pid) for who in alive if state(who.pid) == "T"],
            "listening": [str(port) for port, pid in listening() if port in self.ports and pid not in theirs],
            "ledgers": [str(self.ledger)] if self.ledger is not None and self.ledger.exists() else [],
        }
        return {kind: words for kind, words in found.items() if words}


def marked(mark: str) -> list[Identity]:
    """Every living process that descends from what was started under this mark."""
    found, entry = [], f"{_MARK}={mark}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") and (who := identity(int(pid))):
                found.append(who)
        except OSError:
            continue
    return found


def listening() -> list[tuple[int, int | None]]:
    """Ports on which somebody listens, and who."""
    return [(one.laddr.port, one.pid) for one in psutil.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and one.laddr]


def _command_line(who: Identity) -> list[bytes]:
    try:
        return Path(f"/proc/{who.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _kill(who: Identity, number: signal.Signals = signal.SIGKILL) -> None:
    if identity(who.pid) == who:
        try:
            os.kill(who.pid, number)
        except ProcessLookupError:
            pass


class Soak:
    """All kills, and what came of them."""

    def __init__(self, home: Path, kills: int, seed: int, longest: float, say: Callable[[str], None]) -> None:
        self._home, self._kills, self._seed, self._longest, self._say = home, kills, seed, longest, say
        self.ended: list[Prey] = []
        self.alone: list[str] = []
        """Runs that ended before they were killed."""
        self.files: list[str] = []
        self.locks: list[str] = []
        self.healed_by_next = 0

    def run(self) -> None:
        """Rounds of two until all are killed."""
        for first in range(0, self._kills, AT_ONCE):
            preys = [self._start(number) for number in range(first, min(first + AT_ONCE, self._kills))]
            try:
                while any(prey.settled is None for prey in preys):
                    for prey in preys:
                        self._step(prey, [other for other in preys if other is not prey])
                    time.sleep(_TICK_S)
                self._look_round()
            finally:
                for who in (who for prey in preys for who in marked(prey.mark)):
                    _kill(who)
                for prey in preys:
                    prey.process.wait()
                    self._forget(prey)

    def summary(self) -> dict[str, Any]:
        """What came of it."""
        left: Counter[str] = Counter(dict.fromkeys(("processes", "stopped", "listening", "ledgers"), 0))
        for prey in self.ended:
            left.update({kind: len(words) for kind, words in prey.left.items()})
        times = [prey.settled - prey.killed for prey in self.ended
                 if prey.settled is not None and prey.killed is not None and not prey.left]
        return {"kills": len(self.ended), "seed": self._seed,
                "left_behind": {**left, "files": len(self.files), "locks": len(self.locks)},
                "ended_alone": len(self.alone),
                "longest_s": round(max(times, default=0.0), 2), "median_s": round(median(times or [0.0]), 2),
                "modes": dict(Counter(prey.mode for prey in self.ended)),
                "phases": dict(Counter(prey.phase for prey in self.ended)),
                "faults": dict(Counter(kind for prey in self.ended for kind in prey.kinds).most_common()),
                "healed_by_the_next_start": self.healed_by_next,
                "details": [f"kill {prey.number}: {prey.left}" for prey in self.ended if prey.left]
                + self.files + self.locks + self.alone}

    def _start(self, number: int) -> Prey:
        """Both of a round train the same reference where they need one: one of them waits for the other's lock."""
        chance = random.Random(f"{self._seed}/{number}")
        folder = self._home / f"kill-{number:04d}"
        folder.mkdir()
        file = folder / "soak.yaml"
        mode, from_fault = chance.choice(_MODES), chance.random() < 0.5
        reference = not from_fault and chance.random() < 0.4
        moment = chance.uniform(0.0, _AFTER_FAULT_S if from_fault else self._longest)
        file.write_text(scenario(chance, reference))
        with open(folder / "output", "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "chaos.cli", "run", str(file), "--seed", str(number // AT_ONCE), "--runs-dir",
                 str(folder / "runs")], env=os.environ | {_MARK: str(folder)}, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True)
        return Prey(number, mode, moment, from_fault, reference, folder, process)

    def _step(self, prey: Prey, others: Sequence[Prey]) -> None:
        now = time.monotonic()
        if prey.settled is not None:
            return
        if prey.killed is None:
            prey.look()
            if prey.process.poll() is not None:
                prey.settled = now
                words = (prey.folder / "output").read_text(errors="replace")[-1500:]
                self.alone.append(f"kill {prey.number}: ended on its own after {now - prey.started:.1f} s: {words}")
                self._say(self.alone[-1])
            elif prey.is_due(now):
                self._strike(prey, now)
            return
        if prey.mode == "both" and not prey.cleaned and (not marked(prey.mark) or now >= prey.killed + _KERNEL_S):
            prey.cleaned = True
            clean()
        left = prey.still_there(others)
        if not left or now >= prey.killed + WITHIN_S:
            prey.left, prey.settled = left, now
            self.ended.append(prey)
            self._tell(prey)

    def _strike(self, prey: Prey, now: float) -> None:
        """Kill it in its way; after a reaper, its harness follows as soon as there is another one."""
        reapers = prey.reapers()
        if prey.mode == "reaper first" and reapers and prey.reaper is None:
            prey.reaper = reapers[0]
            _kill(prey.reaper)
            return
        if prey.reaper is not None and all(who == prey.reaper for who in reapers) \
                and prey.due is not None and now < prey.due + 1.0:
            return
        harness = identity(prey.process.pid)
        if harness is None:
            return  # it has just ended: that is seen next time
        ours = {who.pid for who in marked(prey.mark)}
        prey.ports = {port for port, pid in listening() if pid in ours}
        prey.phase, prey.kinds = self._phase(prey)
        if prey.mode == "both":
            _kill(harness, signal.SIGSTOP)  # so that it does not see its reaper's end
            for who in prey.reapers():
                _kill(who)
        _kill(harness)
        prey.killed = time.monotonic()
        prey.process.wait()
        prey.look()

    def _phase(self, prey: Prey) -> tuple[str, tuple[str, ...]]:
        path = prey.tape()
        if path is None:
            return ("not begun" if prey.ledger is None else "reference" if prey.reference else "begun"), ()
        written = tape.read(path.parent)
        over = {event["fault"] for event in written.of("healed")}
        kinds = tuple(event["kind"] for event in written.of("injecting") if event["fault"] not in over)
        if kinds:
            return "faults", kinds
        return ("steady" if any(written.of("steady")) else "start-up"), ()

    def _tell(self, prey: Prey) -> None:
        assert prey.settled is not None
        assert prey.killed is not None
        words = f"LEFT BEHIND: {prey.left}" if prey.left else f"nothing left after {prey.settled - prey.killed:.2f} s"
        self._say(f"kill {prey.number:4d}  {prey.mode:12s} after {prey.killed - prey.started:4.1f} s  {prey.phase:9s} "
                  f"{','.join(prey.kinds) or '-'}: {words}")

    def _look_round(self) -> None:
        """When both are dead and settled, nothing but the folders of runs may be there."""
        found = [path for path in (*self._home.glob("state/**/*"), *self._home.glob("cache/**/*"))
                 if path.suffix in _TEMPORARY or (path.is_file() and path.suffix == ".jsonl"
                                                  and path.parent.name == "ledgers")]
        found += self._home.glob("tmp/*")
        for path in found:
            self.files.append(f"file left: {path}")
            self._say(self.files[-1])
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        for path in self._home.glob("cache/**/*.lock"):
            with open(path) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self.locks.append(f"lock held: {path}")
                    self._say(self.locks[-1])

    def _forget(self, prey: Prey) -> None:
        output = (prey.folder / "output").read_text(errors="replace")
        self.healed_by_next += "left behind by an earlier run" in output
        if prey.ledger is not None:
            prey.ledger.unlink(missing_ok=True)
        if not prey.left and prey.killed is not None:
            shutil.rmtree(prey.folder)


def main() -> int:
    """Kill as often as asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the scenarios and of the moments")
    parser.add_argument("--longest", type=float, default=9.0, help="latest moment, seconds after a run's start")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="diloco-chaos-soak-"))
    for name, variable in (("state", "XDG_STATE_HOME"), ("cache", "XDG_CACHE_HOME"), ("tmp", "TMPDIR")):
        (home / name).mkdir()
        os.environ[variable] = str(home / name)
    print(f"{options.kills} kills, seed {options.seed}, in {home}", file=sys.stderr)
    soak = Soak(home, options.kills, options.seed, options.longest, lambda text: print(text, file=sys.stderr))
    began = time.monotonic()
    try:
        soak.run()
    except KeyboardInterrupt:
        print("interrupted; this is what came of it so far", file=sys.stderr)
    summary = soak.summary()
    print(json.dumps(summary | {"wall_s": round(time.monotonic() - began)}, indent=2))
    failed = any(summary["left_behind"].values()) or bool(soak.alone)
    if failed:
        print(f"what was left can be seen in {home}", file=sys.stderr)
    else:
        shutil.rmtree(home)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
