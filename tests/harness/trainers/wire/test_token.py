"""Whoever knows the token may talk to us, and whatever else is told is not it."""

import pytest

from diloco_chaos.harness.trainers.wire.token import matches

TOKEN = "0123456789abcdef"


def test_the_token_is_it():
    assert matches(TOKEN, TOKEN)


@pytest.mark.parametrize("told", ["", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), "\u00e9", "\ud800", "\0"])
def test_nothing_else_is_and_nothing_that_is_told_is_an_error(told):
    assert not matches(told, TOKEN)
