"""What only a shell would understand of a command that is started without one, and what to write for it. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

_TOKEN = re.compile(r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\])+""", re.DOTALL)
_QUOTED = re.compile(r"""\\.|'[^']*'""", re.DOTALL)
"""What a shell would leave alone."""
_ANY_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_OPERATOR = re.compile(r"&&|\|\|?|;|&|\d*>>?(?:&\d|\S*)?|&>>?\S*|<<?<?\S*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)[^}]*\}|\(|[@*#?$!])|`")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish", "busybox")
_INDICES = ("RANK", "LOCAL_RANK", "NODE_RANK", "INDEX", "SLURM_PROCID", "SLURM_NODEID")


def shell_syntax(command: str) -> str:
    """Return what is wrong with a command that is written for a shell, and what to write; empty: nothing."""
    return next(_mistakes(_TOKEN.findall(command)), "")


def _mistakes(tokens: list[str]) -> Iterator[str]:
    words = [_unquoted(token) for token in tokens]
    if not words:
        return
    if (assigned := _ASSIGNMENT.fullmatch(words[0])) is not None:
        yield (f"{words[0]!r} is taken for the program, as no shell is started: write `env: {{{assigned[1]}: "
               f"\"{assigned[2]}\"}}`, and `run` without it")
    if words[0] == "cd" and len(words) > 1:
        rest = " ".join(tokens[3:]) if len(tokens) > 3 and tokens[2] in ("&&", ";") else "the command alone"
        folder = words[1].rstrip(";")
        yield f"no shell is started, and `cd` is no program: write `cwd: {folder}`, and `run: \"{rest}\"`"
    script = next((number + 1 for number, word in enumerate(words) if number and word.startswith("-")
                   and "c" in word[1:] and words[0].rpartition("/")[2] in _SHELLS), None)  # `sh -c SCRIPT`
    for number, token in enumerate(tokens):
        if number == script:
            continue
        if (operator := _operator(token)) is not None:
            yield _instead_of(operator, tokens)
        if (variable := _VARIABLE.search(_QUOTED.sub("", token))) is not None:
            yield _instead_of_variable(variable, tokens)
        if words[number].startswith("~/") and token[0] == "~":
            yield f"{words[number]!r}: no shell is started, and `~` is no folder: write the whole path, or {{here}}/..."


def _operator(token: str) -> str | None:
    """The operator that a word is, or has in it."""
    if _OPERATOR.fullmatch(token):
        return token
    bare = _ANY_QUOTED.sub("", token)
    return next((operator for operator in ("&&", "||") if operator in bare), ";" if bare.endswith(";") else None)


def _instead_of(operator: str, tokens: list[str]) -> str:
    if operator.lstrip("0123456789&").startswith(">"):
        return (f"{operator!r} would be a word of the command, as no shell is started: leave it out, since all output "
                f"of a node is in the run's logs/ and read from there; or write `run: {_in_a_shell(tokens)}`")
    return (f"{operator!r} would be a word of the command, as no shell is started: write `run: "
            f"{_in_a_shell(tokens)}`")


def _instead_of_variable(variable: re.Match[str], tokens: list[str]) -> str:
    name = variable[1] or variable[2] or ""
    instead = "{index} for the node's number, or " if name in _INDICES else ""
    return (f"{variable[0]!r} stays as it is, as no shell is started: write {instead}the value, or `run: "
            f"{_in_a_shell(tokens)}`")


def _in_a_shell(tokens: list[str]) -> str:
    several = any((_operator(token) or ">")[0] in "&|;" for token in tokens)
    return f"sh -c {shlex.quote(('' if several else 'exec ') + ' '.join(tokens))}"


def _unquoted(token: str) -> str:
    try:
        return "".join(shlex.split(token))
    except ValueError:
        return token
