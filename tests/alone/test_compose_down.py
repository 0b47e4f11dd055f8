"""Somebody types `docker compose down` in the middle of a run."""

import subprocess
import sys
import time

from diloco_chaos.harness.places.compose.compose_file import find
from diloco_chaos.harness.places.compose.engine import DockerEngine
from diloco_chaos.harness.record.tape.events import Steady
from diloco_chaos.harness.record.tape.reading import Tape

WITHIN_S = 90

SCENARIO = """diloco_chaos: 1
name: down
deadline: 80s
cluster: {model: quadratic, fragments: 4, learners: 2, budget: 2000, step_time: 60ms, snapshots: 4, heartbeat_timeout:
2s}
"""


def until(holds):
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {WITHIN_S} s")


def test_compose_shows_a_run_and_down_in_the_middle_of_it_is_said_and_leaves_nothing(compose, tmp_path):
    scenario, runs = tmp_path / "down.yaml", tmp_path / "runs"
    scenario.write_text(SCENARIO)
    harness = subprocess.Popen([sys.executable, "-m", "diloco_chaos", "run", str(scenario), "--on", "compose",
                                "--runs-dir", str(runs)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        steady = until(lambda: [path.parent for path in runs.glob("*/tape") if Tape.read(path).of(Steady)])
        by_hand = [*compose, "-p", steady[0].name, "-f", str(find())]
        shown = subprocess.run([*by_hand, "ps"], capture_output=True, text=True, check=True).stdout
        assert "learner-1" in shown
        assert "learner-2" in shown
        subprocess.run([*by_hand, "down", "--timeout", "2"], capture_output=True, check=False)
        said, _ = harness.communicate(timeout=WITHIN_S)
    finally:
        harness.kill()
        harness.wait()
    assert harness.returncode == 3
    assert "from outside" in said
    engine = DockerEngine()
    assert until(lambda: engine.labelled() == [])
    engine.close()
