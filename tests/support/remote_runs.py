"""What tests of clusters on other machines share: a cluster that is driven by hand, and a run that is a process of its
own, to be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from diloco_chaos.harness.record.tape.events import Merge
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.undo_log import UndoLog, read, undo_logs_folder

TOKEN = "c0ffee" * 4
COMMAND = str(Path(sys.executable).with_name("diloco-chaos"))
SCENARIO = """
diloco_chaos: 1
name: small
deadline: 150s
cluster: {{model: micro, corpus: markov, fragments: 4, batch: 4, learners: 2, budget: {budget}, step_time: 80ms}}
faults: [{faults}]
checks: {{goodput: {{at_least: 50%}}, blast_radius: {{at_least: 50%}}, reintegration: {{within: {within}}}}}
"""
WITHIN_S = 90.0


def until(condition, what, within=WITHIN_S):
    """What it gives once it gives something."""
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end, f"{what}: not within {within:g} s"
        time.sleep(0.2)
    return found


class Ground:
    """A cluster, made by `cluster` of a subclass, and what it recorded."""

    def __init__(self, path, settings="{}"):
        self.path, self.run, self.events = path, path / "run", []
        (self.run / "tape").mkdir(parents=True)
        (self.run / "cluster.json").write_text(settings)
        self.undo_log = UndoLog(path / "undo_log.jsonl", TOKEN)
        self.epoch = time.monotonic()

    def record(self, event):
        self.events.append((event.event, dict(event.payload())))

    def until(self, condition, seconds=30):
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end, "it never happened"
            self.cluster.poll()
            time.sleep(0.01)
        return found

    def of(self, name, node="worker"):
        return [fields for event, fields in self.events if event == name and fields.get("target") == node]

    def tape(self):
        return Tape.read(self.run / "tape")

    def owed(self):
        return [undo.entry for undo in read(self.undo_log.path).undos]


class Begun:
    """A run of its own process on such a place, with state and folder of its own."""

    entry: str
    """What it owes."""

    def __init__(self, folder, on, where, budget=3000, faults="", within="10s"):
        """`within`: a worker that comes back counts again within this time of its start, a queue included."""
        (folder / "small.yaml").write_text(SCENARIO.format(budget=budget, faults=faults, within=within))
        (folder / "place.yaml").write_text(json.dumps(where))
        self.folder, self.runs, self.undo = folder, folder / "runs", undo_logs_folder()
        self.process = subprocess.Popen(
            [COMMAND, "run", str(folder / "small.yaml"), "--on", on, "--place", str(folder / "place.yaml"),
             "--runs-dir", str(self.runs), "--json", "--step-time", "auto"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def tape(self):
        return Tape.read(next(iter(self.runs.glob("*/tape")), self.runs))

    def trains(self):
        """Wait until it is in the middle; its label, as its undo log tells it."""
        until(lambda: self.process.poll() is not None or self.tape().of(Merge), "a merge")
        assert self.process.poll() is None, self.process.communicate()
        logs = self.undo.glob(f"*-{self.process.pid}-*.jsonl")
        found = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
        return next(entry["run"] for entry in found if entry["entry"] == self.entry)

    def reaper(self):
        wanted = f"diloco_chaos.harness.record.reaper .*-{self.process.pid}-"
        found = subprocess.run(["pgrep", "-f", wanted], capture_output=True, text=True)
        return int(found.stdout.split()[0])

    def report(self):
        """Every check's verdict, once it is over."""
        told, said = self.process.communicate(timeout=240)
        assert self.process.returncode in (0, 3), said  # a machine that others keep busy proves nothing, and is told
        return {check["name"]: check["verdict"] for check in json.loads(told)["checks"]}


def clean():
    return subprocess.run([COMMAND, "clean"], capture_output=True, text=True)
