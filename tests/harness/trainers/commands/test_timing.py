"""When a round was, by its own word and by when it was read; and output that waits in a buffer."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from diloco_chaos.harness.trainers.commands.timing import Bursts, Stamps

WALL = 1_699_999_980.0


def moments(true, resolution, late=0.004):
    """What comes of rounds at these times, told in this resolution and read a little later."""
    stamps = Stamps(WALL)
    told = [stamps.moment(WALL + math.floor(round(at / resolution, 6)) * resolution, at + late, 0.0) for at in true]
    return told, stamps


@given(st.lists(st.floats(0.01, 2.0), min_size=5, max_size=60), st.sampled_from([1.0, 60.0, 0.1, 0.25]))
def test_a_coarse_stamp_takes_nothing_from_when_a_line_was_read(gaps, resolution):
    true = [1000.0 + sum(gaps[:count]) for count in range(len(gaps))]
    told, _ = moments(true, resolution)
    assert all(abs(one - at) < 0.01 for one, at in list(zip(told, true, strict=True))[3:])


@given(st.lists(st.integers(1, 2000), min_size=5, max_size=60))
@example([53, 53, 53, 1, 1])  # the first four are multiples of 53 ms: until then they may be told that coarsely
def test_a_stamp_that_is_known_to_be_exact_counts(gaps):
    stamps = Stamps(WALL)
    for count in range(len(gaps)):
        true = 1000.123 + sum(gaps[:count]) / 1000
        told = stamps.moment(WALL + round(true, 3), true + 0.5, 0.0)
        assert not stamps.exact or abs(told - true) < 0.002


@given(told=st.floats(0, 4e9), read=st.floats(0, 1e5), since=st.floats(0, 1e5))
def test_no_round_was_after_it_was_read_or_before_its_process_began(told, read, since):
    stamps = Stamps(WALL)
    for more in range(4):
        moment = stamps.moment(told + more * 0.0625, read + since + more, since)
        assert since <= moment <= read + since + more


def test_a_stamp_bounds_what_was_read_late():
    stamps = Stamps(WALL)
    for second in range(10, 14):
        stamps.moment(WALL + second, second + 0.5, 0.0)
    assert stamps.moment(WALL + 14.0, 17.0, 0.0) == 15.0, "at the latest, as the second was over then"


@pytest.mark.parametrize(("resolution", "words"), [(1.0, "in whole seconds"), (60.0, "in whole minutes"),
                                                   (0.1, "to 0.1 s only")])
def test_how_coarse_the_stamps_are_is_told_once_it_is_certain(resolution, words):
    _, stamps = moments([1000.0 + 0.37 * resolution * step for step in range(20)], resolution)
    assert stamps.problem.kind == "coarse"
    assert words in stamps.problem.text


def test_a_clock_that_is_another_one_is_not_believed_and_told():
    stamps = Stamps(WALL)
    assert [stamps.moment(WALL + 3600.123 + at, at, 0.0) for at in (1.0, 2.01, 3.0)] == [1.0, 2.01, 3.0]
    assert stamps.problem.kind == "clock"


def test_what_waited_in_a_buffer_was_when_it_says_since_the_buffer_was_written_last():
    stamps, rounds = Stamps(WALL), [number / 8 + 0.001 * (number % 7) for number in range(1, 300)]
    told = [stamps.moment(WALL + at, 12.0 * (1 + at // 12), 0.0) for at in rounds]
    assert told[120:] == pytest.approx(rounds[120:])
    assert stamps.exact


# -- bursts ----------------------------------------------------------------------------------------------------------

def looked(looks, every=0.02):
    """The problems of a log that is looked at so often and brings so many rounds each time."""
    bursts = Bursts()
    return [problem for number, rounds in enumerate(looks)
            if (problem := bursts.look(rounds, number * every)) is not None]


def test_rounds_that_come_many_at_once_after_silence_are_told_with_the_remedy():
    told = looked([*[0] * 100, 60, *[0] * 100, 55, *[0] * 100, 58])
    assert [problem.kind for problem in told] == ["buffered"] * 2
    assert "55 at once after 2.0 s" in told[0].text
    assert "PYTHONUNBUFFERED" in told[0].change


def test_all_at_once_when_the_process_ends_is_a_buffer_too():
    bursts = Bursts()
    assert not any(bursts.look(0, at / 50) for at in range(100))
    assert bursts.look(120, 2.0, last=True).kind == "buffered"


@pytest.mark.parametrize("looks", [
    [1, 0, 0, 0, 0] * 100, [20] * 300, [*[20] * 100, *[0] * 100, 20, *[20] * 100],
    [*[1, 0] * 200, *[0] * 100, 60, *[1, 0] * 200]])
def test_a_steady_or_a_quick_trainer_is_not_buffered_nor_one_that_stood(looks):
    assert looked(looks) == []


def test_a_harness_that_did_not_look_has_seen_no_silence():
    assert looked([60] * 20, every=2.0) == []
