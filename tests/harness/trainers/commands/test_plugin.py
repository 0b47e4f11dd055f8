"""A trainer of commands: what its event log counts, and who writes it."""

import pytest

from diloco_chaos.harness.trainers.commands.plugin import Commands
from diloco_chaos.harness.trainers.commands.settings import CommandSettings

NODES = {"w": {"run": "python3 -c 1", "worker": True, "count": 2}, "store": {"run": "python3 -c 1"}}


def commands(**settings):
    return Commands(CommandSettings.model_validate({"nodes": NODES, **settings}))


@pytest.mark.parametrize(("processed", "why"), [(0, "ended with round 0 of 9"), (8, "ended with round 8 of 9"),
                                                  (9, "")])
def test_a_baseline_is_whole_with_its_last_round(processed, why):
    assert commands(rounds=9).unfinished(processed) == why


def test_where_no_number_of_rounds_is_wanted_any_baseline_is_whole():
    assert commands().unfinished(0) == ""


def test_its_nodes_write_no_event_log_and_its_workers_number_their_rounds():
    trainer = commands()
    assert (list(trainer.writers), trainer.counting.unit) == ([], "rounds")
    assert trainer.settings.all_nodes == ["w-1", "w-2", "store"]


def test_a_node_may_be_called_as_a_coordinator_is_and_is_none():
    trainer = Commands(CommandSettings.model_validate({"nodes": NODES | {"syncer": {"run": "python3 -c 1"}}}))
    assert (trainer.coordinator, trainer.recorder, trainer.role_of("syncer")) == (None, "rounds", "learner")
