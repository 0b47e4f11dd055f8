"""Other work beside a run begins when it is to begin, and is over with the run."""

import os
import time

import psutil

from benchmarks.hostile.busy_host import busy, tier_ci


def others():
    return [child for child in psutil.Process().children() if child.is_running()]


def test_others_are_there_from_the_moment_on_and_gone_afterwards():
    before = len(others())
    with busy(0.05, 2):
        assert len(others()) == before
        until = time.monotonic() + 30
        while len(others()) < before + 2:
            assert time.monotonic() < until
    assert len(others()) == before


def test_others_that_get_what_is_left_are_nice_and_in_a_session_of_their_own():
    with busy(0.0, 1, idle=True):
        until = time.monotonic() + 30
        while not any(child.nice() == 19 and os.getsid(child.pid) == child.pid for child in others()):
            assert time.monotonic() < until


def test_a_run_that_is_over_before_has_no_others():
    before = len(others())
    with busy(30.0, 1):
        pass
    assert len(others()) == before


def test_the_scenarios_of_the_tier_are_those_that_the_tests_run():
    assert tier_ci() == ["corrupt-checkpoint", "flagship", "kill-syncer", "no-fault", "storm"]
