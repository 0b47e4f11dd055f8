"""The order in which things happen under virtual time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.simulation.world import World


@given(st.lists(st.floats(0, 10)))
def test_things_happen_in_the_order_of_their_times_and_then_of_their_planning(times):
    world, seen = World(0), []
    for place, time in enumerate(times):
        world.at(time, lambda time=time, place=place: seen.append((world.now, time, place)))
    world.run(10)
    assert [(time, place) for _, time, place in seen] == sorted((time, place) for place, time in enumerate(times))
    assert all(now == time for now, time, _ in seen)


def test_what_is_planned_for_the_past_happens_at_once_behind_what_is_due_now():
    world, seen = World(0), []

    def plan():
        world.at(0.0, lambda: seen.append(("late", world.now)))
    world.at(2.0, plan)
    world.at(2.0, lambda: seen.append(("due", world.now)))
    world.run(3.0)
    assert seen == [("due", 2.0), ("late", 2.0)]


def test_a_run_ends_at_its_time_though_nothing_happens():
    world = World(0)
    world.run(5.0)
    assert world.now == 5.0


def test_what_is_due_exactly_at_the_end_of_a_run_happens():
    world, seen = World(0), []
    world.at(5.0, seen.append, "now")
    world.at(5.000001, seen.append, "later")
    world.run(5.0)
    assert seen == ["now"]


def test_a_stop_leaves_the_rest_for_the_next_run():
    world, seen = World(0), []
    world.at(1.0, world.stop)
    world.at(1.0, seen.append, "rest")
    world.run(5.0)
    assert (world.now, seen) == (1.0, [])
    world.run(5.0)
    assert (world.now, seen) == (5.0, ["rest"])


def test_a_stop_between_two_runs_does_not_hinder_the_next():
    world = World(0)
    world.stop()
    world.run(1.0)
    assert world.now == 1.0


def test_time_never_goes_back():
    world = World(0)
    world.run(2.0)
    world.run(1.0)
    assert world.now == 2.0


@given(st.floats(0, 10), st.floats(0, 10), st.integers())
def test_a_draw_stays_within_its_spread_and_is_never_negative(value, spread, seed):
    drawn = World(seed).near(value, spread)
    assert max(0.0, value - spread) - 1e-9 <= drawn <= value + spread + 1e-9


def test_a_seed_gives_one_course_of_chance_and_another_seed_another():
    def draws(seed):
        world = World(seed)
        return [world.near(1.0, 0.5) for _ in range(5)]
    assert draws("a") == draws("a") != draws("b")
