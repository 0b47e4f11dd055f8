"""Runs that checks are tried on, each made once; `forged_runs` says how they can be altered."""

from collections.abc import Callable

import pytest

from forged_runs import CALM, Story, calmly, losing, stormy, with_a_syncer_born_again


@pytest.fixture(scope="session")
def calm() -> Story:
    """Nothing was broken."""
    return calmly(CALM)


@pytest.fixture(scope="session")
def brief() -> Story:
    """Nothing was broken, and it was over soon: for what is judged many times."""
    return calmly(CALM, budget=40)


@pytest.fixture(scope="session")
def paper() -> Story:
    """Nothing was broken; a received value overwrites what was learned during the exchange, as in the paper."""
    return calmly(CALM, on_receipt="overwrite")


@pytest.fixture(scope="session")
def storm() -> Story:
    """A learner was killed and came back, one limped, one was far away, one was partitioned; all healed."""
    return stormy()


@pytest.fixture(scope="session")
def reborn() -> Story:
    """The syncer was killed and went on from what it had committed."""
    return with_a_syncer_born_again()


@pytest.fixture(scope="session")
def perform() -> Callable[..., Story]:
    """perform(lose, setting=...) -> the story of a short run that loses messages as told."""
    return losing
