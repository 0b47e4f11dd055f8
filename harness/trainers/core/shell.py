"""What only a shell would understand of a command that is started without one, and what to write for it. Pure."""

from __future__ import annotations

import re
import shlex

_TOKEN = re.compile(r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\])+""", re.DOTALL)
_SINGLE = re.compile(r"""\\.|'[^']*'""", re.DOTALL)
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_OPERATOR = re.compile(r"&&|\|\|?|;|&|<<?<?\S*")
_REDIRECTION = re.compile(r"\d*>>?(?:&\d|\S*)|&>>?\S*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\w+|\{\w+[^}]*\}|[(@*#?$!])|`")
_HOME = re.compile(r"~(?:/.*)?")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish", "busybox")
_BUILT_IN = ("cd", "export", "source", ".", "exec", "set", "ulimit", "umask")
_INDICES = re.compile(r"\$\{?\w*(?:RANK|INDEX|PROCID|NODEID)\}?")


def shell_syntax(command: str) -> str:
    """Return what is wrong with a command that is written for a shell, and what to write; empty: nothing."""
    tokens = [part for token in _TOKEN.findall(command) for part in _parted(token)]
    found = _found(tokens)
    if not found:
        return ""
    cwd, env, rest = _apart(tokens)
    if not _found(rest):
        run = " ".join(rest) or "..."
    else:
        several = any(_OPERATOR.fullmatch(token) for token in rest)
        run = f"sh -c {shlex.quote(('' if several else 'exec ') + ' '.join(rest))}"
    parts = [f"`cwd: {cwd}`" if cwd else "",
             f"`env: {{{', '.join(f'{name}: {_yaml(value)}' for name, value in env.items())}}}`" if env else "",
             f"`run: {_yaml(run)}`"]
    words = [*filter(None, parts)]
    told = f"no shell is started, which {found!r} needs: write {', '.join(words[:-1])}"
    told += f"{' and ' if words[:-1] else ''}{words[-1]}"
    if any(map(_REDIRECTION.fullmatch, tokens)):
        told += "; all output of a node is in the run's logs/, and read from there"
    if any(map(_INDICES.search, tokens)):
        told += "; {index} is the node's number among its kind"
    return told


def _parted(token: str) -> list[str]:
    """A word, and the semicolon at its end."""
    bare = token.endswith(";") and len(token) > 1 and _QUOTED.sub("", token).endswith(";")
    return [token[:-1], ";"] if bare else [token]


def _found(tokens: list[str]) -> str:
    """Return the first word that a shell is needed for; empty: there is none."""
    words = [_unquoted(token) for token in tokens]
    if words and (words[0] in _BUILT_IN or _ASSIGNMENT.fullmatch(words[0])):
        return words[0]
    script = next((number + 1 for number, word in enumerate(words) if number and word.startswith("-")
                   and "c" in word[1:] and words[0].rpartition("/")[2] in _SHELLS), None)  # `sh -c SCRIPT`
    for number, token in enumerate(tokens):
        bare = _QUOTED.sub("", token)
        if number == script:
            continue
        if _OPERATOR.fullmatch(token) or _REDIRECTION.fullmatch(token) or _HOME.fullmatch(bare):
            return token
        if operator := next((operator for operator in ("&&", "||") if operator in bare), ""):
            return operator
        if variable := _VARIABLE.search(_SINGLE.sub("", token)):
            return variable[0]
    return ""


def _apart(tokens: list[str]) -> tuple[str, dict[str, str], list[str]]:
    """Return the folder and the environment that a command begins with, and the rest without redirections."""
    cwd, env, rest = "", dict[str, str](), list(tokens)
    while rest:
        words = [_unquoted(token) for token in rest[:2]]
        ends = len(rest) < 3 or rest[2] in ("&&", ";")
        assigned = _ASSIGNMENT.fullmatch(words[-1] if words[0] == "export" else words[0])
        if words[0] == "cd" and len(words) == 2 and ends:
            cwd = f"{cwd}/{words[1]}" if cwd and not words[1].startswith("/") else words[1]
            rest = rest[3:]
        elif assigned is not None and (words[0] != "export" or ends) and "$" not in assigned[2]:
            env[assigned[1]] = assigned[2]
            rest = rest[3 if words[0] == "export" else 1:]
        else:
            break
    kept: list[str] = []
    for number, token in enumerate(rest):
        to = rest[number - 1] if number else ""
        if not _REDIRECTION.fullmatch(token) and not (_REDIRECTION.fullmatch(to) and to.endswith(">")):
            kept.append(token)
    return cwd, env, kept


def _yaml(text: str) -> str:
    """Return text as it can be written in YAML."""
    return f'"{text}"' if '"' not in text and "\\" not in text else "'" + text.replace("'", "''") + "'"


def _unquoted(token: str) -> str:
    try:
        return "".join(shlex.split(token))
    except ValueError:
        return token
