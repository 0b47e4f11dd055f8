"""Of too many connections the oldest has to go."""

import socket
from itertools import count

import pytest

from diloco_chaos.harness.base.crowd import Crowd, OpenSockets


@pytest.fixture
def pairs():
    made = [socket.socketpair() for _ in range(4)]
    for one in made:
        one[1].settimeout(0)
    yield made
    for here, there in made:
        here.close()
        there.close()


def over(pair):
    try:
        return pair[1].recv(1) == b""
    except BlockingIOError:
        return False


def test_of_more_than_there_may_be_the_oldest_is_ended(pairs):
    crowd = OpenSockets(2)
    for here, _ in pairs[:3]:
        crowd.enter(here)
    assert list(map(over, pairs)) == [True, False, False, False]


def test_who_has_left_is_not_counted_and_not_ended(pairs):
    crowd = OpenSockets(2)
    for here, _ in pairs[:2]:
        crowd.enter(here)
    crowd.leave(pairs[0][0])
    crowd.enter(pairs[2][0])
    assert not any(map(over, pairs))
    crowd.enter(pairs[3][0])
    assert list(map(over, pairs)) == [False, True, False, False]


def test_one_that_was_closed_already_keeps_nobody_out(pairs):
    crowd = OpenSockets(1)
    crowd.enter(pairs[0][0])
    pairs[0][0].close()
    crowd.enter(pairs[1][0])
    assert not over(pairs[1])


def test_the_oldest_goes_first_and_who_left_does_not_count():
    crowd, numbers = Crowd(2), count(1)
    assert crowd.enter(next(numbers)) is None
    assert crowd.enter(next(numbers)) is None
    crowd.leave(1)
    assert crowd.enter(next(numbers)) is None
    assert crowd.enter(next(numbers)) == 2
    crowd.leave(2)
    assert crowd.enter(next(numbers)) == 3
