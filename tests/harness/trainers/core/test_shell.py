"""What only a shell understands is told before a command is started without one."""

from __future__ import annotations

import pytest

from diloco_chaos.harness.trainers.core.shell import shell_syntax


@pytest.mark.parametrize(("command", "said"), [
    ("cd x && python t.py --n 1", 'write `cwd: x`, and `run: "python t.py --n 1"`'),
    ("X=1 python t.py", 'write `env: {X: "1"}`, and `run` without it'),
    ("python t.py | tee log", "'|' would be a word of the command, as no shell is started: write `run: sh -c 'python"),
    ("python t.py 2>&1", "leave it out, since all output of a node is in the run's logs/"),
    ("python t.py > out.log", "leave it out"), ("python t.py >>out.log", "leave it out"),
    ("python t.py --rank $RANK", "'$RANK' stays as it is, as no shell is started: write {index} for the node's number"),
    ("python t.py ${HOME}/x", "'${HOME}' stays as it is"), ('python "$X"', "'$X' stays as it is"),
    ("python $(which t.py)", "'$(' stays as it is"), ("python `which t.py`", "'`' stays as it is"),
    ("source v/bin/activate; python t.py", "';' would be a word"), ("python t.py &", "'&' would be a word"),
    ("make&&python t.py", "'&&' would be a word"), ("python ~/t.py", "write the whole path, or {here}/...")])
def test_it_is_told_with_what_to_write(command, said):
    assert said in shell_syntax(command)


@pytest.mark.parametrize("command", [
    "{python} t.py {store} --x={name}", "sh -c 'cd x && python t.py $RANK 2>&1 | tee log'", "/bin/bash -lc \"a | b\"",
    "python t.py 'a|b' '$X' \"x && y\"", "find . -exec true \\;", "env X=1 python t.py", "python t.py --opt=<none>",
    "python t.py 'http://x?a=1&b=2'", "python t.py http://x?a=1&b=2", "python -c 'print(1 > 2)'", "", "awk '{{print $1}}'"])
def test_what_no_shell_is_needed_for_is_left_alone(command):
    assert shell_syntax(command) == ""
