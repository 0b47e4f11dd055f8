"""What only a shell understands is told before a command is started without one."""

from __future__ import annotations

import pytest

from diloco_chaos.harness.trainers.core.shell import shell_syntax


@pytest.mark.parametrize(("command", "said"), [
    ("cd x && python t.py --n 1", "which 'cd' needs: write `cwd: x` and `run: \"python t.py --n 1\"`"),
    ("X=1 python t.py", "which 'X=1' needs: write `env: {X: \"1\"}` and `run: \"python t.py\"`"),
    ("cd x; export A=1 && B='2 3' python t.py 2>&1",
     'write `cwd: x`, `env: {A: "1", B: "2 3"}` and `run: "python t.py"`; all output of a node is in the run\'s logs/'),
    ("python t.py | tee log", "'|' needs: write `run: \"sh -c 'python t.py | tee log'\"`"),
    ("python t.py 2>&1", "'2>&1' needs: write `run: \"python t.py\"`; all output"),
    ("python t.py > out.log", "write `run: \"python t.py\"`; all output"),
    ("python t.py >>out.log", "write `run: \"python t.py\"`; all output"),
    ("python t.py --rank $RANK", "'$RANK' needs: write `run: \"sh -c 'exec python t.py --rank $RANK'\"`; {index}"),
    ("python t.py ${HOME}/x", "'${HOME}' needs"), ('python "$X"', "'$X' needs"), ("python $(which t.py)", "'$(' needs"),
    ("python `which t.py`", "'`' needs"), ("python t.py &", "'&' needs"), ("make&&python t.py", "'&&' needs"),
    ("source v/bin/activate; python t.py", "'source' needs: write `run: \"sh -c 'source v/bin/activate ; python"),
    ("python ~/t.py", "'~/t.py' needs")])
def test_it_is_told_with_what_to_write(command, said):
    assert said in shell_syntax(command)


@pytest.mark.parametrize("command", [
    "{python} t.py {store} --x={name}", "sh -c 'cd x && python t.py $RANK 2>&1 | tee log'", "/bin/bash -lc \"a | b\"",
    "python t.py 'a|b' '$X' \"x && y\"", "find . -exec true \\;", "env X=1 python t.py", "python t.py --opt=<none>",
    "python t.py 'http://x?a=1&b=2'", "python t.py http://x?a=1&b=2", "python -c 'print(1 > 2)'", "",
    "awk '{{print $1}}'"])
def test_what_no_shell_is_needed_for_is_left_alone(command):
    assert shell_syntax(command) == ""
