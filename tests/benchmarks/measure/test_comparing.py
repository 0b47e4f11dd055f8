"""The bench of `compare` finds intervals that are too narrow, and calls where there is nothing to call."""

import pytest

from benchmarks.measure import comparing
from two_ways import run


@pytest.fixture
def told(monkeypatch):
    """What the bench tells of made-up runs: a phase that is half a second longer with quorum 3, and the same noise."""
    def made_up(quorum, seed):
        return run(seed, {"noticed": (1.5 if quorum == 3 else 1.0) + 0.1 * ((seed * (quorum + 6) * 7) % 11)})
    monkeypatch.setattr(comparing, "_run", made_up)
    return lambda: comparing.measure(40, lambda _: None)


def test_intervals_hold_what_all_pairs_together_show(told):
    figures = told()
    assert figures["true"]["noticed"] == pytest.approx(-0.5, abs=0.1)
    assert figures["covered"]["noticed"] >= 0.95
    assert (figures["quiet"] >= 0.95, figures["met"]) == (True, True)


def test_intervals_that_are_too_narrow_do_not_meet_the_bar(told, monkeypatch):
    real = comparing.paired

    def narrow(ways):
        return [pairing.__class__(pairing.first, pairing.second, pairing.seeds, tuple(
            row.__class__(**vars(row) | {"difference": row.difference._replace(
                estimate=row.difference.estimate and row.difference.estimate._replace(
                    low=row.difference.estimate.mean, high=row.difference.estimate.mean))}) for row in pairing.rows),
            pairing.not_told) for pairing in real(ways)]
    monkeypatch.setattr(comparing, "paired", narrow)
    assert told()["met"] is False
