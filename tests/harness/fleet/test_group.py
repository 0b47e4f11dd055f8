"""What becomes of a group's time, event by event."""

import numpy as np
import pytest

from diloco_chaos.harness.fleet.group import Events, GroupRules, trained

ELASTIC = GroupRules(needed=1, fixed=None, after_loss=10, after_return=5, again=20, checkpoint_every=0,
                     checkpoint_cost=0, pace=1.0, straggler=0.5)
RIGID = GroupRules(needed=0, fixed=4, after_loss=10, after_return=0, again=10, checkpoint_every=0, checkpoint_cost=0,
                   pace=1.0, straggler=0.5)


def accounts(rules, *events, slices=4, at_first=4, horizon=100.0):
    """Events: (time, -1 or 1), and (time, 0, -1 or 1) for stragglers."""
    times = np.array([event[0] for event in events], float)
    steps = np.array([event[1] for event in events], np.int8)
    slower = np.array([event[2] if len(event) > 2 else 0 for event in events], np.int8)
    done = trained(rules, slices, at_first, Events(times, steps, slower if slower.any() else None), horizon)
    shares = (done.useful, done.slow, done.shrinking, done.growing, done.checkpointing, done.lost, done.away)
    assert sum(shares) == pytest.approx(slices * horizon)
    return done


def pauses(done):
    return list(zip(*(moments.tolist() for moments in done.stood), strict=True))


def test_who_is_left_alone_trains_all_the_time():
    done = accounts(ELASTIC)
    assert (done.useful, pauses(done)) == (400, [])


def test_a_loss_makes_it_stand_and_go_on_with_those_who_are_left():
    done = accounts(ELASTIC, (50, -1))
    assert pauses(done) == [(50, 60)]
    assert (done.useful, done.shrinking, done.away) == (4 * 50 + 3 * 40, 3 * 10, 50)


def test_one_that_is_back_makes_it_stand_as_well():
    done = accounts(ELASTIC, (50, -1), (80, 1))
    assert pauses(done) == [(50, 60), (80, 85)]
    assert (done.useful, done.growing, done.away) == (4 * 50 + 3 * 20 + 4 * 15, 4 * 5, 30)


def test_several_that_are_back_together_make_it_stand_once():
    done = accounts(ELASTIC, (50, -1), (52, -1), (80, 2))
    assert pauses(done) == [(50, 60), (80, 85)]
    assert (done.useful, done.growing) == (4 * 50 + 2 * 20 + 4 * 15, 4 * 5)


def test_what_happens_while_it_stands_is_taken_along():
    done = accounts(ELASTIC, (50, -1), (53, -1), (58, 1), (60, -1))
    assert pauses(done) == [(50, 60), (60, 70)]
    assert done.away == 10 - 10 + 3 * 1 + 5 * 2 + 2 * 1 + 40 * 2


def test_a_pause_ends_with_the_time_that_is_looked_at():
    done = accounts(ELASTIC, (95, -1))
    assert pauses(done) == [(95, 100)]


def test_who_has_lost_all_stands_until_one_is_back_and_is_brought_up_to_date():
    done = accounts(ELASTIC, (20, -1), (40, 1), slices=1, at_first=1)
    assert pauses(done) == [(20, 60)]  # it is back at 40, and recovery takes 20 s
    assert (done.useful, done.shrinking, done.away) == (60, 20, 20)


def test_who_has_nothing_at_first_begins_with_the_first_that_comes():
    done = accounts(ELASTIC, (30, 1), slices=1, at_first=0)
    assert pauses(done) == [(0, 50)]


def test_a_rigid_job_goes_on_with_a_spare_and_as_many_as_before():
    done = accounts(RIGID, (50, -1), (52, -1))
    assert pauses(done) == [(50, 60)]
    assert (done.useful, done.shrinking, done.away) == (4 * 90, 40, 0)


def test_a_rigid_job_without_spares_waits_for_a_repair_and_begins_again():
    few = RIGID._replace(needed=4)
    done = accounts(few, (20, -1), (25, -1), (50, 1), (70, 1), at_first=5)
    assert pauses(done) == [(20, 60)]  # at 30 it had begun again, but there were three; at 50 there are four
    done = accounts(few, (20, -1), (50, 1), (52, -1), (70, 1))
    assert pauses(done) == [(20, 80)]  # what comes at 50 is lost at 52, while the job begins again


def test_who_never_has_enough_never_trains_and_that_takes_no_time_to_find_out():
    few = RIGID._replace(needed=4, again=999.5)
    events = [event for at in range(1, 200_000, 2) for event in ((at, -1), (at + 1, 1))]
    done = accounts(few, *events, horizon=200_000.0)
    assert pauses(done) == [(1, 200_000)]


def test_a_restart_of_its_own_length_begins_anew_with_a_loss_meanwhile():
    events = Events(np.array([20.0, 24.0, 60.0]), np.array([-1, -1, -1], np.int8), None, np.array([30.0, 7.0, 5.0]))
    done = trained(RIGID, 4, 4, events, 100.0)
    assert pauses(done) == [(20, 24), (24, 31), (60, 65)]
    assert (done.useful, done.shrinking) == (4 * (20 + 29 + 35), 4 * 16)


def test_what_was_made_since_the_last_checkpoint_is_lost():
    kept = RIGID._replace(checkpoint_every=8, checkpoint_cost=2)
    done = accounts(kept, (35, -1))
    assert pauses(done) == [(35, 45)]
    # until 35: three whole intervals, and five seconds for nothing; from 45 to 100: five and a half, nothing is lost
    assert (done.useful, done.checkpointing, done.lost) == (4 * (24 + 44), 4 * (6 + 11), 4 * 5)


def test_the_slowest_chip_sets_the_pace():
    done = accounts(ELASTIC._replace(pace=0.8))
    assert (done.useful, done.slow) == pytest.approx((320, 80))


def test_a_straggler_slows_all_down_while_it_is_one():
    done = accounts(ELASTIC, (20, 0, 1), (30, 0, 1), (50, 0, -1), (60, 0, -1))
    assert (done.useful, done.slow, pauses(done)) == (4 * 60 + 2 * 40, 80, [])


def test_a_straggler_costs_nothing_while_all_stand():
    done = accounts(ELASTIC, (20, -1), (20.5, 0, 1), (29.5, 0, -1))
    assert done.slow == 0
