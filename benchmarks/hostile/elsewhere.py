"""Kills harnesses whose runs are on other machines, and counts what is left there:
`python -m benchmarks.hostile.elsewhere --on kubernetes --kills 30 --away 10`.

Each run is killed at a random moment, from its first entry in the undo log on; every third together with its reaper,
after which `clean` is called as the next start would. `--away` of them are killed while what manages the place is
away, by the command in the settings. Afterwards nothing of the run may be there: no pod or other object, no namespace,
no job, no undo log. Progress on standard error, one JSON object on standard output; exits with 1 where anything was
left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.remote.settings import PlaceSettings
from diloco_chaos.harness.record.undo_log import undo_logs_folder
from diloco_chaos.harness.record.user_commands import begun as begin

SCENARIO = """diloco_chaos: 1
name: elsewhere
cluster: {model: micro, corpus: markov, fragments: 4, batch: 4, learners: 2, budget: 3000, step_time: 80ms}
"""
WITHIN_S = 120.0
_LOOK_S, _CLEAN_AFTER_S, _BEGIN_S = 0.2, 2.0, 60.0
_COMMAND = str(Path(sys.executable).with_name("diloco-chaos"))
Left = Callable[[str], list[str]]
"""Label of a run -> what is there of it."""


def on_kubernetes() -> tuple[PlaceSettings, Left]:
    """Of pods."""
    from diloco_chaos.harness.places.kubernetes.access import named
    from diloco_chaos.harness.places.kubernetes.api import KubernetesApi
    from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
    settings = KubernetesSettings.given()
    api = KubernetesApi(named(settings).context)

    def left(label: str) -> list[str]:
        spaces = api.namespaces(label)
        return [f"namespace {name}" for name in spaces] + [
            f"pod {pod.metadata.name}" for name in spaces for pod in api.pods(name, label)]
    return settings, left


def on_slurm() -> tuple[PlaceSettings, Left]:
    """Of jobs."""
    from diloco_chaos.harness.places.slurm.queue import SlurmQueue
    from diloco_chaos.harness.places.slurm.settings import SlurmSettings
    settings, slurm = SlurmSettings.given(), SlurmQueue()

    def left(label: str) -> list[str]:
        return [f"job {job.number} ({job.state})" for job in slurm.jobs(label).values() if not job.over] + [
            str(path) for path in Path(settings.folder).glob(f"diloco-chaos.{label}.*")]
    return settings, left


def _begun(home: Path, on: str, number: int) -> tuple[subprocess.Popen[bytes], str]:
    """A run, once it owes something; and its label.

    Raises:
        ClusterError: it ended before.
    """
    with open(home / f"{number}.output", "wb") as output:
        process = subprocess.Popen([_COMMAND, "run", str(home / "elsewhere.yaml"), "--on", on, "--runs-dir",
                                    str(home / "runs")], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    until = time.monotonic() + _BEGIN_S
    while process.poll() is None and time.monotonic() < until:
        for log in undo_logs_folder().glob(f"*-{process.pid}-*.jsonl"):
            entries = [json.loads(line) for line in log.read_text().splitlines()]
            if label := next((entry["run"] for entry in entries if "run" in entry), ""):
                return process, label
        time.sleep(_LOOK_S / 10)
    raise _ended(home, number)


def _ended(home: Path, number: int) -> ClusterError:
    return ClusterError(f"run {number} ended on its own: {(home / f'{number}.output').read_text()[-500:]}")


def _wait_back(on: str) -> None:
    """Until the place takes runs again after what manages it was away."""
    until = time.monotonic() + WITHIN_S
    while subprocess.run([_COMMAND, "doctor", "--on", on], capture_output=True, check=False).returncode:
        if time.monotonic() > until:
            raise ClusterError(f"it takes no runs again within {WITHIN_S:g} s: see diloco-chaos doctor --on {on}")
        time.sleep(_LOOK_S)


def _kill(process: subprocess.Popen[bytes], *, reaper_too: bool) -> None:
    if reaper_too:
        process.send_signal(signal.SIGSTOP)  # so that it does not see its reaper's end
        reapers = _reapers(process.pid)
        assert reapers, "somebody watches over every run"
        for reaper in reapers:
            os.kill(reaper, signal.SIGKILL)
    process.kill()
    process.wait()


def _reapers(harness: int) -> list[int]:
    pids = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = entry.read_bytes().decode(errors="replace")
            if "diloco_chaos.harness.record.reaper" in words and f"-{harness}-" in words:
                pids.append(int(entry.parent.name))
    return pids


def _wait(left: Left, label: str, pid: int, *, clean: bool) -> list[str]:
    """Wait until nothing is left of a killed run, or `WITHIN_S` have passed; return what is left then, as strings."""
    began, cleaned = time.monotonic(), not clean
    while True:
        if not cleaned and time.monotonic() > began + _CLEAN_AFTER_S:
            cleaned = subprocess.run([_COMMAND, "clean"], capture_output=True, check=False).returncode == 0
        try:
            remaining = left(label) + [str(log) for log in undo_logs_folder().glob(f"*-{pid}-*.jsonl")]
        except ClusterError as error:
            remaining = [str(error)]
        if not remaining or time.monotonic() > began + WITHIN_S:
            return remaining
        time.sleep(_LOOK_S)


def killed(on: str, kills: int, away: int, seed: int, longest: float) -> dict[str, Any]:
    """All of them, one after the other."""
    chance, home = random.Random(seed), Path(tempfile.mkdtemp(prefix="diloco-chaos-elsewhere-"))
    (home / "elsewhere.yaml").write_text(SCENARIO)
    os.environ["XDG_STATE_HOME"] = str(home / "state")
    settings, left = {"kubernetes": on_kubernetes, "slurm": on_slurm}[on]()
    gone, leftovers = set(chance.sample(range(kills), away)), []
    took: dict[str, list[float]] = {"there": [], "away": []}
    for number in range(kills):
        process, label = _begun(home, on, number)
        time.sleep(moment := chance.uniform(0.0, longest))
        if number in gone:
            begin(settings.command("restart_control_plane"))
            time.sleep(1.0)
        both = number % 3 == 2
        if process.poll() is not None:
            raise _ended(home, number)
        _kill(process, reaper_too=both)
        began = time.monotonic()
        remaining = _wait(left, label, process.pid, clean=both)
        took["away" if number in gone else "there"].append(time.monotonic() - began)
        leftovers += [f"kill {number}: {words}" for words in remaining]
        print(f"kill {number:3d}  after {moment:4.1f} s  {'harness and reaper' if both else 'harness':18s}  "
              f"{'control plane away' if number in gone else '':18s}  "
              + (f"LEFT: {'; '.join(remaining)}" if remaining else
                 f"nothing left after {time.monotonic() - began:.1f} s"),
              file=sys.stderr, flush=True)
        if number in gone:
            _wait_back(on)
    return {"on": on, "kills": kills, "seed": seed, "left": leftovers, **{
        f"{where}_{name}_s": round(of(seconds), 1) for where, seconds in took.items() if seconds
        for name, of in (("median", median), ("longest", max))}}


def main() -> int:
    """Kill as often as asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile.elsewhere", description=__doc__)
    parser.add_argument("--on", choices=["kubernetes", "slurm"], required=True)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--away", type=int, default=0, help="so many of them while the control plane is away")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=15.0, help="latest moment, seconds after the first entry")
    options = parser.parse_args()
    summary = killed(options.on, options.kills, options.away, options.seed, options.longest)
    print(json.dumps(summary, indent=2))
    return 1 if summary["left"] else 0


if __name__ == "__main__":
    sys.exit(main())
