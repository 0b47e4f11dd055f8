"""The smallest schedules that once broke something: found by exploration, kept for ever."""

from pathlib import Path

import pytest

from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.plan import freeze

FOUND = sorted((Path(__file__).parent / "found").glob("*.yaml"))


@pytest.mark.parametrize("file", FOUND, ids=lambda file: file.stem)
def test_what_was_found_once_holds(file):
    result = simulate(freeze(load(str(file))[0], 0))
    assert result.outcome.kind == "finished", result.outcome
    assert {verdict.name: verdict.evidence for verdict in result.judgement.checks if verdict.verdict == "failed"} == {}
