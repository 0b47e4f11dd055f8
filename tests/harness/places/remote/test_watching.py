"""What is looked at all through a run."""

import threading

import pytest

from diloco_chaos.harness.places.remote.watching import Watching


class AwayError(Exception):
    """What is looked at can't be seen now."""


class Looks(Watching):
    def __init__(self, *told):
        super().__init__("looks", 0.001, AwayError)
        self.told, self.seen, self.done = iter(told), [], threading.Event()
        self.start()

    def look(self):
        for what in self.told:
            if isinstance(what, BaseException):
                raise what
            self.seen.append(what)
            return
        self.done.set()


def test_what_passes_ends_one_look_and_not_the_watch():
    looks = Looks(1, AwayError(), AwayError(), 2)
    assert looks.done.wait(30)
    looks.close()
    looks.join(30)
    assert looks.seen == [1, 2]
    assert looks.failure is None


@pytest.mark.parametrize("error", [ValueError("a bug"), SystemExit(1)])
def test_why_it_ended_is_kept(error):
    looks = Looks(1, error, 2)
    looks.join(30)
    assert (looks.seen, looks.failure) == ([1], error)


def test_closing_it_from_its_own_thread_ends_it():
    looks = Looks()
    looks.look = looks.close
    looks.join(30)
    assert not looks.is_alive()
    assert looks.failure is None
