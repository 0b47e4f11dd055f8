"""The bench of phases reads the tape by its own rules, and sees where they are not those of the report."""

from benchmarks.measure import phases
from diloco_chaos.chaos.evidence.phases import NOTICED


def test_phases_of_kills_are_those_of_the_tape_s_own_events():
    told = phases.measure(1, lambda _: None)
    assert (told["recoveries"], told["met"], told["told_by_one_side"]) == (2, True, 0)
    assert set(told["largest_s"]) == {"noticed", "excluded", "restarted", "ready", "first round", "work made good"}


def test_a_phase_that_is_late_or_missing_does_not_meet_the_bar(monkeypatch):
    real = phases.by_events
    for wrong in (lambda t: t - 0.03, lambda _: None):
        monkeypatch.setattr(phases, "by_events", lambda events, recovery, wrong=wrong: {
            name: wrong(t) if name == NOTICED else t for name, t in real(events, recovery).items()})
        assert phases.measure(1, lambda _: None)["met"] is False
