"""Kills real runs at random moments and counts what is left of them: `python -m benchmarks.hostile.soak --kills 200`.

Two runs at a time, of the micro model with many faults at once. Half of the harnesses are killed between their start
and `--longest` seconds later, half of them within three seconds of their first fault: alone, after the reaper was
killed and replaced, or together with the reaper, after which `clean` is called as the next start would. Five seconds
later nothing may be left but the run's folder: no process, stopped or not, no listening port, no undo log, no temporary
file, no lock. `--scenarios FILE...` kills runs of these instead, from where it is called: of a trainer of commands,
say. Progress on standard error, one JSON object on standard output; exits with 1 where anything was left, or
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
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.hostile.host_faults import drawn
from benchmarks.hostile.soak_victim import MARK, Mode, SoakVictim, kill, listening, marked
from diloco_chaos.chaos.runner.cleanup import clean
from diloco_chaos.harness.base.processes import identity
from diloco_chaos.harness.record.tape.events import Healed, Injecting, Steady
from diloco_chaos.harness.record.tape.reading import Tape

WITHIN_S = 5.0
AT_ONCE = 2
_TICK_S = 0.03
_AFTER_FAULT_S = 3.0
_KERNEL_S = 2.0  # how long `clean` is not called, so that it is seen what the kernel ends
_TEMPORARY = {".work", ".partial", ".tmp"}
_MODES: tuple[Mode, ...] = ("harness",) * 6 + ("reaper first",) * 2 + ("both",) * 2


class Soak:
    """All kills, and what came of them."""

    def __init__(self, home: Path, kills: int, seed: int, longest: float, scenarios: Sequence[Path],
                 say: Callable[[str], None]) -> None:
        self._home, self._kills, self._seed, self._longest, self._say = home, kills, seed, longest, say
        self._scenarios = scenarios
        self.ended: list[SoakVictim] = []
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
                for process in (process for prey in preys for process in marked(prey.mark)):
                    kill(process)
                for prey in preys:
                    prey.process.wait()
                    self._forget(prey)

    def summary(self) -> dict[str, Any]:
        """What came of it."""
        left: Counter[str] = Counter(dict.fromkeys(("processes", "stopped", "listening", "undo-logs"), 0))
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

    def _start(self, number: int) -> SoakVictim:
        """Both of a round train the same reference where they need one: one of them waits for the other's lock."""
        chance = random.Random(f"{self._seed}/{number}")
        folder = self._home / f"kill-{number:04d}"
        folder.mkdir()
        file = folder / "soak.yaml"
        mode, from_fault = chance.choice(_MODES), chance.random() < 0.5
        reference = not from_fault and not self._scenarios and chance.random() < 0.4
        moment = chance.uniform(0.0, _AFTER_FAULT_S if from_fault else self._longest)
        if self._scenarios:
            file = chance.choice(self._scenarios)
        else:
            file.write_text(drawn(chance, reference))
        with open(folder / "output", "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "diloco_chaos", "run", str(file), "--seed", str(number // AT_ONCE), "--runs-dir",
                 str(folder / "runs")], env=os.environ | {MARK: str(folder)}, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True)
        return SoakVictim(number, mode, moment, from_fault, reference, folder, process)

    def _step(self, prey: SoakVictim, others: Sequence[SoakVictim]) -> None:
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

    def _strike(self, prey: SoakVictim, now: float) -> None:
        """Kill it in its way; after a reaper, its harness follows as soon as there is another one."""
        reapers = prey.reapers()
        if prey.mode == "reaper first" and reapers and prey.reaper is None:
            prey.reaper = reapers[0]
            kill(prey.reaper)
            return
        if prey.reaper is not None and all(process == prey.reaper for process in reapers) \
                and prey.due is not None and now < prey.due + 1.0:
            return
        harness = identity(prey.process.pid)
        if harness is None:
            return  # it has just ended: that is seen next time
        ours = {process.pid for process in marked(prey.mark)}
        prey.ports = {port for port, pid in listening() if pid in ours}
        prey.phase, prey.kinds = self._phase(prey)
        if prey.mode == "both":
            kill(harness, signal.SIGSTOP)  # so that it does not see its reaper's end
            for process in prey.reapers():
                kill(process)
        kill(harness)
        prey.killed = time.monotonic()
        prey.process.wait()
        prey.look()

    def _phase(self, prey: SoakVictim) -> tuple[str, tuple[str, ...]]:
        path = prey.tape()
        if path is None:
            return ("not begun" if prey.undo_log is None else "reference" if prey.reference else "begun"), ()
        written = Tape.read(path.parent)
        over = {event.fault for event in written.of(Healed)}
        kinds = tuple(event.kind for event in written.of(Injecting) if event.fault not in over)
        if kinds:
            return "faults", kinds
        return ("steady" if written.of(Steady) else "start-up"), ()

    def _tell(self, prey: SoakVictim) -> None:
        assert prey.settled is not None
        assert prey.killed is not None
        words = f"LEFT BEHIND: {prey.left}" if prey.left else f"nothing left after {prey.settled - prey.killed:.2f} s"
        self._say(f"kill {prey.number:4d}  {prey.mode:12s} after {prey.killed - prey.started:4.1f} s  {prey.phase:9s} "
                  f"{','.join(prey.kinds) or '-'}: {words}")

    def _look_round(self) -> None:
        """When both are dead and settled, nothing but the folders of runs may be there."""
        leftovers = [path for path in (*self._home.glob("state/**/*"), *self._home.glob("cache/**/*"))
                     if path.suffix in _TEMPORARY or (path.is_file() and path.suffix == ".jsonl"
                                                      and path.parent.name == "undo-logs")]
        leftovers += self._home.glob("tmp/*")
        for path in leftovers:
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

    def _forget(self, prey: SoakVictim) -> None:
        output = (prey.folder / "output").read_text(errors="replace")
        self.healed_by_next += "left behind by an earlier run" in output
        if prey.undo_log is not None:
            prey.undo_log.unlink(missing_ok=True)
        if not prey.left and prey.killed is not None:
            shutil.rmtree(prey.folder)


def main() -> int:
    """Kill as often as asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the scenarios and of the moments")
    parser.add_argument("--longest", type=float, default=9.0, help="latest moment, seconds after a run's start")
    parser.add_argument("--scenarios", type=Path, nargs="+", default=(), help="of which each run is one, by chance")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="diloco-chaos-soak-"))
    for name, variable in (("state", "XDG_STATE_HOME"), ("cache", "XDG_CACHE_HOME"), ("tmp", "TMPDIR"),
                           ("torch", "TORCHINDUCTOR_CACHE_DIR")):  # which torch makes among temporary files else
        (home / name).mkdir()
        os.environ[variable] = str(home / name)
    print(f"{options.kills} kills, seed {options.seed}, in {home}", file=sys.stderr)
    soak = Soak(home, options.kills, options.seed, options.longest, options.scenarios,
                lambda text: print(text, file=sys.stderr))
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
