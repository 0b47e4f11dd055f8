"""After everything was killed a run goes on from its last cut, in processes and in containers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.runner.resume import origin_of
from diloco_chaos.harness.record.tape.events import CheckpointComplete
from diloco_chaos.harness.record.tape.reading import Tape
from forged_runs import ALWAYS
from small_cluster import OF_PACE
from typed import typed

PLAN = """diloco_chaos: 1
name: interrupted
deadline: 90s
cluster: {model: micro, corpus: markov, fragments: 4, batch: 4, learners: 3, budget: 240, step_time: 60ms,
          snapshots: 4, heartbeat_timeout: 2s, checkpoint_interval: 40}
faults:
  - {kill: learner-1, at: 2s, restart_after: 1s}
  - {pause: learner-2, at: 9s, for: 1s}
checks: {reintegration: {within: 9s}, self_healing: {within: 8s}, goodput: {at_least: 60%}}
"""

AVERAGED = """diloco_chaos: 1
name: interrupted
deadline: 90s
cluster: {mode: MODE, model: micro, corpus: markov, batch: 4, learners: 3, budget: 240, step_time: 60ms, snapshots: 4,
          heartbeat_timeout: 2s, checkpoint_interval: 40}
"""


def command(*arguments):
    return typed(*arguments, timeout=180)


def begun(*arguments):
    return subprocess.Popen([sys.executable, "-m", "diloco_chaos", *arguments], stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.STDOUT)


def killed(folder, place, cuts, plan=PLAN):
    """The folder of a run whose harness was killed when so many cuts were whole; the reaper has ended the rest."""
    (folder / "interrupted.yaml").write_text(plan)
    process = begun("run", str(folder / "interrupted.yaml"), "--on", place, "--runs-dir", str(folder / "runs"))
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for run in (folder / "runs").glob("2*"):
            if len(Tape.read(run / "tape").of(CheckpointComplete)) >= cuts:
                process.send_signal(signal.SIGKILL)
                process.wait()
                return run
        time.sleep(0.05)
    process.kill()
    pytest.fail("no global checkpoint was made")


def resumed(run, *options):
    """Go on, and the folder in which it did."""
    before = set(run.parent.iterdir())
    done = command("resume", str(run), *options)
    new = [path for path in set(run.parent.iterdir()) - before if path.is_dir()]
    assert len(new) <= 1
    return done, new[0] if new else None


def assert_whole(resumed, run):
    """Every check holds of the run as one, and it is the same again from its beginning, with no end in between. Where
    others had the machine, what depends on time may prove nothing; the protocol's promises hold all the same."""
    report = json.loads((run / "report.json").read_text())
    verdicts = {check["name"]: check["verdict"] for check in report["checks"]}
    untold = {name for name, verdict in verdicts.items() if verdict == "unknown"}
    assert resumed.returncode == (3 if untold or report["inconclusive"] else 0), resumed.stdout + resumed.stderr
    assert untold <= OF_PACE or report["inconclusive"].startswith("this machine"), resumed.stdout
    assert {verdict for name, verdict in verdicts.items() if name not in untold} == {"passed"}
    assert {verdicts[name] for name in ALWAYS & verdicts.keys()} == {"passed"}
    done = command("replay", str(run))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("all the same, bit for bit\n")


@pytest.mark.parametrize("place", ["local", "compose"])
def test_a_run_that_was_killed_goes_on_and_holds_all_that_it_promised(place, request, tmp_path):
    if place == "compose":
        request.getfixturevalue("engine_there")
    run = killed(tmp_path, place, cuts=3)
    origin, _ = origin_of(RunFolder.open(run))
    done, new = resumed(run)
    assert f"resuming from global checkpoint {origin.checkpoint} of {run.name}" in done.stdout
    for (name, number), (begin, end) in origin.lost.steps.items():
        span = f"steps {begin} to {end}" if begin < end else f"step {begin}"
        assert f"void: {span} of {name}.{number}" in done.stdout
    assert_whole(done, new)
    assert not (new / "checkpoints").exists()
    void = json.loads((new / "manifest.json").read_text())["resumed"]["void"]
    assert json.loads((new / "report.json").read_text())["resumed"]["void"] == void
    assert void["steps"] == {f"{name}.{number}": [*span] for (name, number), span in origin.lost.steps.items()}
    assert (f"void: {void['tokens']:,} tokens" in done.stdout) == bool(void["tokens"])  # or killed at once
    assert f"from global checkpoint {origin.checkpoint} of {run.name}." in " ".join(done.stdout.split())


@pytest.mark.parametrize("mode", ["data_parallel", "elastic_data_parallel"])
def test_data_parallelism_goes_on_from_a_checkpoint_of_its_hub(mode, tmp_path):
    run = killed(tmp_path, "local", 2, AVERAGED.replace("MODE", mode))
    origin, _ = origin_of(RunFolder.open(run))
    done, new = resumed(run)
    assert f"resuming from global checkpoint {origin.checkpoint} of {run.name}" in done.stdout
    assert_whole(done, new)


def test_it_is_killed_again_and_a_cut_is_torn_and_it_goes_on_nevertheless(tmp_path):
    run = killed(tmp_path, "local", cuts=3)
    newest, before = sorted((run / "checkpoints").iterdir(), reverse=True)[:2]
    torn = newest / "learner-3.safetensors"
    torn.write_bytes(torn.read_bytes()[:1000])
    process = begun("resume", str(run))
    said = []
    for line in process.stdout:
        said.append(line)
        if "[the run]" in line:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert f"global checkpoint {int(newest.name)} can't be trusted" in "".join(said).replace("\n", " ")
    (second,) = set(run.parent.glob("2*")) - {run}
    done, third = resumed(second)
    assert f"resuming from global checkpoint {int(before.name)} of {second.name}" in done.stdout
    assert_whole(done, third)
    assert command("resume", str(third)).returncode == 2
    shutil.rmtree(run / "checkpoints")
    done = command("resume", str(run))
    assert done.returncode == 2
    said = done.stderr.replace("\n", " ")
    assert "there is no global checkpoint to resume from; begin again: diloco-chaos run --plan" in said
