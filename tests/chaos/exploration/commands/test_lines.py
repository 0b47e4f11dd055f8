"""Kinds of log lines, and the expressions that find them again."""

import re

import pytest

from diloco_chaos.chaos.exploration.commands.lines import expression_of, kind_of, kinds_in, sizes


@pytest.mark.parametrize(("line", "kind"), [
    ("round=12 members=3 loss=0.01 time=1795983067.784 digest=a2b2c2e7",
     "round=# members=# loss=# time=# digest=#"),
    ("[Errno 2] No such file /tmp/tmpab12cd_x at 0x7ffe12", "[Errno #] No such file /tmp/# at #"),
    ("  replica-2 is\tlate (3e-4 s)", "replica-# is late (# s)"),
    ("a facade is no number", "a facade is no number"), ("---- 12 ----", ""), ("", "")])
def test_a_kind_is_a_line_without_its_numbers_and_identifiers(line, kind):
    assert kind_of(line) == kind


@pytest.mark.parametrize("line", ["[Errno 2] what? (a|b) {x} 3.5 s", "gives $5 ^ 7 * 2 \\ n", "replica-1 is late"])
def test_the_expression_of_a_kind_finds_its_lines(line):
    assert re.search(expression_of(kind_of(line)), line)
    assert not re.search(expression_of(kind_of(line)), "another line")


def test_only_lines_after_the_steady_state_count_and_those_of_processes_that_came_later(tmp_path):
    (tmp_path / "logs").mkdir()
    first, later = tmp_path / "logs" / "w-1.0.log", tmp_path / "logs" / "w-1.1.log"
    first.write_text("begins\n")
    before = sizes(tmp_path)
    first.write_text("begins\nround 1\nround 2\nlost w-2\n")
    later.write_text("begins\n")
    assert kinds_in(tmp_path, before) == {"w-1": ["round #", "lost w-#", "begins"]}
