"""The planted bugs have their place in the trainer, and what is searched is a scenario."""

from pathlib import Path

import pytest

from benchmarks.searching import bugs
from diloco_chaos.chaos.scenario.loading import load

TRAINER = Path(bugs.__file__).with_name("trainer.py").read_text()


@pytest.mark.parametrize("bug", bugs.BUGS)
def test_each_has_its_place_in_the_trainer(bug):
    changed = bugs.planted(TRAINER, bug)
    assert changed != TRAINER
    compile(changed, bug, "exec")


def test_a_trainer_that_has_changed_is_told():
    with pytest.raises(ValueError, match="is 0 times in the trainer"):
        bugs.planted("print()", next(iter(bugs.BUGS)))


@pytest.mark.parametrize("bug", ["", next(iter(bugs.BUGS))])
def test_it_is_written_as_a_scenario_that_starts_it(bug, tmp_path):
    scenario, _ = load(str(bugs.plant(bug, tmp_path)))
    assert scenario.trainer.programs()
    assert ((tmp_path / "trainer.py").read_text() == TRAINER) == (bug == "")
