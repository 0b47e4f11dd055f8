"""A small real cluster: the micro model on the Markov corpus, so that a whole run takes seconds."""

import pytest

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze

collect_ignore_glob = ["exploration/found/*.yaml"]  # test_found.py runs them, under virtual time

SMALL = """diloco_chaos: 1
name: small
deadline: {deadline}
cluster: {{model: micro, corpus: markov, fragments: 4, batch: 4, learners: {learners}, budget: {budget},
          step_time: 60ms, snapshots: 4, heartbeat_timeout: 2s}}
{more}
faults:
{faults}
"""


def small(*faults, budget=100, learners=3, deadline="60s", more=""):
    """Text of a small scenario."""
    return SMALL.format(faults="".join(f"  - {fault}\n" for fault in faults), budget=budget, learners=learners,
                        deadline=deadline, more=more)


@pytest.fixture
def scenario_text():
    return small


@pytest.fixture
def run_small(tmp_path):
    """run_small(*faults) -> Result of a real run on this machine."""
    def run(*faults, audience=None, **settings):
        return run_plan(freeze(parse(small(*faults, **settings)), 0), tmp_path, audience or NullAudience())
    return run
