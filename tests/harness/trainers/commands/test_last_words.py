"""Why a process ended, by the end of its log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainers.commands.last_words import last_words

TRACE = ["Traceback (most recent call last):", '  File "t.py", line 3, in <module>', "    raise RuntimeError('no')"]


@pytest.mark.parametrize(("lines", "said"), [
    ([], ""), (["", "  "], ""), (["step=1", "killed", ""], "killed"),
    ([*TRACE, "RuntimeError: no"], "RuntimeError: no"),
    ([*TRACE, "torch.OutOfMemoryError: CUDA", "=====", "Root Cause:"], "torch.OutOfMemoryError: CUDA"),
    ([*TRACE, "KeyError: 1", "", "During handling of the above exception, another exception occurred:", "", *TRACE,
      "ValueError: 2", "bye"], "ValueError: 2"),
    ([*TRACE, "SupervisionError: an actor is gone", "closing", "Exception ignored in atexit callback:", *TRACE,
      "KeyboardInterrupt", ""], "SupervisionError: an actor is gone"),
    ([*TRACE, "TimeoutError: retried", *(f"step={step}" for step in range(30)), *TRACE, "ValueError: 2"],
     "ValueError: 2"),
    ([f"[rank0]: {line}" for line in [*TRACE, "\x1b[31mRuntimeError\x1b[0m: no"]], "RuntimeError: no")])
def test_it_names_the_first_exception_of_the_end_or_else_is_the_last_that_says_anything(lines, said):
    assert last_words(lines) == said


@given(st.lists(st.text(max_size=300), max_size=20))
def test_any_log_has_some_last_words_or_none(lines):
    assert len(last_words(lines)) <= 200
