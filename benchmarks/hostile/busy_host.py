"""Runs the scenarios of tier ci while others want the machine: `python -m benchmarks.hostile.busy_host --runs 40`.

With `--suite` it is the whole of `make test` that is run so often, each time from its start to its end.

From a random moment of each run on, a process that is no part of it keeps one processor busy. A run may be
inconclusive then, and is repeated once as in CI; it must not fail, for nobody has done anything wrong. With `--stalls`
somebody has: runs whose syncer sleeps, burns a processor or keeps the disk busy, or all of whose learners burn theirs,
for some seconds, must fail on a quiet machine, and must not pass on a busy one. With `--idle` the others want the
machine from the beginning of each run, and get what the run leaves them: stalls must fail there, too.
Progress on standard error, one JSON object on standard output; exits with 1 where a verdict is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.scenarios import find

if TYPE_CHECKING:
    from collections.abc import Iterator

_FROM_S, _TO_S = 2.0, 60.0
"""When the other process begins, after the command was given."""
_SUITE_TO_S = 900.0
"""The same for a whole `make test`, which takes about so long on two quiet processors."""
_LAST = """import os
os.nice(19)
os.setsid()
if os.path.exists("/proc/self/autogroup"):
    with open("/proc/self/autogroup", "w") as group:
        group.write("19")
"""
"""Where sessions share processors equally, a nice process of a session of its own has as much as all others."""
_LOAD = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100000))"
SCENARIO = """diloco_chaos: 1
name: {name}
deadline: 90s
cluster: {{model: micro, corpus: markov, fragments: 4, batch: 4, learners: 3, budget: 300, step_time: 60ms}}
"""
STALLS = {"syncer-asleep": ("syncer", "time.sleep(4)"),
          "syncer-writing": ("syncer", "write(end)"),
          "syncer-burning": ("syncer", "while time.monotonic() < end: pass"),
          "learners-burning": ("learner", "while time.monotonic() < end: pass")}
"""Whose main thread does what, in the middle of training."""
_STALL_AFTER_S = 14
_STALLED = """import os, signal, sys, tempfile, time
def write(end):
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < end:
            os.pwrite(file.fileno(), bytes(1 << 24), 0)
            os.fsync(file.fileno())
def stall(*_):
    end = time.monotonic() + 4
    {stall}
if "--role" in sys.orig_argv and sys.orig_argv[sys.orig_argv.index("--role") + 1] == "{role}":
    signal.signal(signal.SIGALRM, stall)
    signal.setitimer(signal.ITIMER_REAL, {after})
"""
_WORDS = {0: "passed", 1: "failed", 3: "inconclusive"}


@contextmanager
def busy(after: float, processors: int, idle: bool = False) -> Iterator[None]:
    """From `after` seconds on, so many processors are used by others, as long as the block lasts. `idle`: by what
    nobody else wants of them."""
    load = _LAST * idle + _LOAD
    others: list[subprocess.Popen[bytes]] = []
    timer = Timer(after, lambda: others.extend(subprocess.Popen([sys.executable, "-c", load])
                                               for _ in range(processors)))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        for process in others:
            process.kill()
            process.wait()


def once(scenario: str, seed: int, runs: Path, after: float | None, processors: int = 1, *more: str,
         idle: bool = False, patch: str = "") -> dict[str, Any]:
    """One run in such weather; `after` None: in none. `patch`: folder from which its processes take `sitecustomize`."""
    began = time.monotonic()
    path = {"PYTHONPATH": os.pathsep.join(filter(None, (patch, os.environ.get("PYTHONPATH"))))} if patch else {}
    with busy(after, processors, idle) if after is not None else nullcontext():
        done = subprocess.run(
            [str(Path(sys.executable).with_name("diloco-chaos")), "run", scenario, "--runs-dir", str(runs), "--json",
             "--seed", str(seed), *more], capture_output=True, text=True, env=os.environ | path)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = {"inconclusive": (done.stderr.splitlines() or ["it said nothing"])[-1], "checks": []}
    return {"scenario": Path(scenario).stem, "seed": seed, "busy_from_s": after,
            "verdict": _WORDS.get(done.returncode, f"exit code {done.returncode}"),
            "again": "runs again" in done.stderr, "why": report["inconclusive"],
            "failed": [check["name"] for check in report["checks"] if check["verdict"] == "failed"],
            "seconds": round(time.monotonic() - began)}


def tier_ci() -> list[str]:
    """The scenarios that `make test` runs."""
    return [name for name, path in find().items() if load(str(path))[0].tier == "ci"]


def _in_ci(home: Path, runs: int, processors: int, seed: int, idle: bool) -> list[dict[str, Any]]:
    """So many of them, in turn; wrong where one failed."""
    rng, names, done = random.Random(seed), tier_ci(), []
    for number in range(runs):
        after = 0.0 if idle else round(rng.uniform(_FROM_S, _TO_S), 1)
        done.append(once(names[number % len(names)], seed, home, after, processors, "--step-time", "auto",
                         "--retries-inconclusive", "1", idle=idle))
        done[-1]["wrong"] = done[-1]["verdict"] not in ("passed", "inconclusive")
        print(json.dumps(done[-1]), file=sys.stderr, flush=True)
    return done


def _suites(runs: int, processors: int, seed: int) -> list[dict[str, Any]]:
    """Run `make test` so many times in turn; return a row for each, `wrong` where it did not exit with 0."""
    rng, done = random.Random(seed), list[dict[str, Any]]()
    for _ in range(runs):
        after, began = round(rng.uniform(_FROM_S, _SUITE_TO_S), 1), time.monotonic()
        with busy(after, processors):
            suite = subprocess.run([shutil.which("make") or "make", "test"], capture_output=True, text=True)
        lines = suite.stdout.splitlines()
        summary = [line for line in lines if re.search(r"^(FAILED|ERROR)|\d (passed|failed).* in ", line)]
        done.append({"command": "make test", "busy_from_s": after, "told": summary,
                     "verdict": _WORDS[0] if suite.returncode == 0 else f"exit code {suite.returncode}",
                     "again": [line for line in lines if line.startswith("diloco-chaos: ")],
                     "wrong": suite.returncode != 0, "seconds": round(time.monotonic() - began)})
        print(json.dumps(done[-1]), file=sys.stderr, flush=True)
    return done


def _stalled(home: Path, runs: int, processors: int, idle: bool) -> list[dict[str, Any]]:
    """Every stall, in no weather and in this one, or so often beside what wants the rest; wrong where it is not
    found."""
    done = []
    for name, (role, stall) in STALLS.items():
        patch = home / name
        patch.mkdir()
        (patch / "sitecustomize.py").write_text(_STALLED.format(role=role, stall=stall, after=_STALL_AFTER_S))
        (patch / f"{name}.yaml").write_text(SCENARIO.format(name=name))
        for after in [0.0] * runs if idle else (None, 0.0):
            done.append(once(str(patch / f"{name}.yaml"), 0, home, after, processors, "--start-method", "spawn",
                             idle=idle, patch=str(patch)))  # a fork would not run it
            done[-1]["wrong"] = done[-1]["verdict"] not in ["failed"] + ["inconclusive"] * (after == 0.0 and not idle)
            print(json.dumps(done[-1]), file=sys.stderr, flush=True)
    return done


def main() -> int:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--processors", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stalls", action="store_true", help="bugs that must be found in any weather")
    parser.add_argument("--idle", action="store_true", help="others get what the run leaves them, all the time")
    parser.add_argument("--suite", action="store_true", help="the whole of `make test`, as often as --runs says")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="diloco-chaos-weather-") as home:
        runs = (_stalled(Path(home), given.runs, given.processors, given.idle) if given.stalls
                else _suites(given.runs, given.processors, given.seed) if given.suite
                else _in_ci(Path(home), given.runs, given.processors, given.seed, given.idle))
    print(json.dumps({"runs": len(runs), "processors": given.processors,
                      "verdicts": Counter(run["verdict"] for run in runs),
                      "again": sum(bool(run["again"]) for run in runs),
                      "not_passed": [run for run in runs if run["verdict"] != "passed"]}))
    return 1 if any(run["wrong"] for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
