"""A node that is a command somebody wrote: what it is started with, and what `{...}` in it stands for.

Nothing is added to the command. Naming another node in it, or in its environment, declares the link between the two:
what stands there then is the address of the link, and not of the node.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
_IN_FILE = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_.-]*)\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
"""Files have braces of their own, as in JSON: these stay."""
OWN = ("python", "run", "name", "index", "incarnation", "host", "port", "here")
"""What every command may say of its own node: the interpreter, the run's folder, its name, its number among those of
its kind from 0, the number of the process, and where it is to listen; and the folder of the scenario's file."""
_PARTS = ("host", "port")
"""Of another node's address, as in `{store.port}`."""
LOG = "{run}/logs/{name}.{incarnation}.log"
"""Where a process' standard output and error go."""
PROGRESS_FILE = "DILOCO_CHAOS_PROGRESS"
"""Environment variable: where a process that calls `diloco_chaos.progress` writes."""
PROGRESS = "progress"
"""The folder of it, in the run's."""
WRITTEN = f"{{run}}/{PROGRESS}/{{name}}.{{incarnation}}.jsonl"
"""What it says."""
FAILPOINTS = "DILOCO_CHAOS_FAILPOINTS"
"""Environment variable: POINT:N,... where a process that calls `diloco_chaos.progress.hold` is to stand still."""
STEADY = "steady"
"""A file beside what is written, from the steady state on: failpoints are counted from there."""
FILES = "files/{name}"
"""The folder, in the run's, of the files that are written before a node is started."""
LINKS = "toxiproxy"
"""The name of the links' container, where nodes are containers."""
NODE = "DILOCO_CHAOS_NODE"
"""Environment variable: NAME.NUMBER of the process that a command was started as."""
Restart = Literal["never", "on-failure", "always"]


def splittable(text: str) -> str:
    """A command, as it is.

    Raises:
        ValueError: no shell could split it into words.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{text!r} can't be taken apart: {error}") from error
    if not words:
        raise ValueError("it names no program")
    return text


class PlaceholderError(ValueError):
    """A placeholder that stands for nothing."""


@dataclass(frozen=True)
class ReadyCheck:
    """The conditions under which a node counts as started."""

    port: bool = False
    """As soon as its port takes connections."""
    log: str = ""
    """As soon as a line of its log matches this expression; empty: it need not."""
    url: str = ""
    """As soon as this answers with a status below 400; with placeholders; empty: it need not."""
    within: float = 30.0
    """Seconds that it may take."""


@dataclass(frozen=True)
class Service:
    """The place where a compose file states a service."""

    file: str
    name: str


@dataclass(frozen=True)
class Started:
    """The command, environment and folder with which a process of a command is started, everything in its place."""

    argv: list[str]
    env: dict[str, str]
    cwd: str


@dataclass(frozen=True)
class Program:
    """See the module."""

    run: str
    """The command, in words as a shell would split them; no shell is started."""
    listens: bool = False
    """It has a port of its own, and others may name it."""
    port: int = 0
    """Which; 0: one that is free."""
    index: int = 0
    """Its number among the nodes of its kind."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the harness' own environment."""
    cwd: str = ""
    """Where it runs; empty: where the harness does."""
    ready: ReadyCheck = ReadyCheck()
    restart: Restart = "never"
    """What its scheduler does when it ends: nothing, start it again where it failed, or always."""
    restart_delay: float = 1.0
    """Seconds until then."""
    talks_to: tuple[str, ...] = ()
    """The nodes that it names, in order: each is a link."""
    meets: tuple[str, ...] = ()
    """The nodes that it may connect to without naming them: where it does, that is caught, and led through a link."""
    processes: Mapping[str, str] = field(default_factory=dict)
    """What its own processes are called -> an expression for a word of the command line, or `NAME=VALUE` of the
    environment, of each of them, whose group says which it is: `rank` -> `RANK=(\\d+)`."""

    state: str = ""
    """The folder in which it keeps what it goes on from, with placeholders; empty: nobody knows."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path below `FILES` -> text that is written there before each start, with placeholders."""
    image: str = ""
    """Of its container, where it runs in one; empty: its service's."""
    service: Service | None = None
    """What else its container is made with."""
    here: str = ""
    """The folder of the scenario's file; empty: where the harness runs."""
    keeps_leftovers: bool = False
    """What it leaves behind when it ends lives on until the run is over."""
    spare: bool = False
    """It is not there from the beginning."""

    @property
    def waits_for(self) -> str:
        """Return what is waited for when it is started, in words; empty: nothing."""
        waits = [f"a line that matches {self.ready.log!r}" if self.ready.log else "",
                 f"an answer of {self.ready.url}" if self.ready.url else "",
                 "a connection at its port" if self.ready.port else ""]
        return " and ".join(filter(None, waits))

    def own(self, run: str, name: str) -> dict[str, str]:
        """Return what `{run}`, `{here}`, `{name}` and `{index}` stand for, whichever process it is."""
        return {"run": run, "here": self.here or os.getcwd(), "name": name, "index": str(self.index)}

    def started(self, own: Mapping[str, str], addresses: Mapping[str, str], failpoints: Iterable[str]) -> Started:
        """Return what a process of this program is started with.

        Args:
            own: what every word of `OWN` stands for.
            addresses: node -> host:port, of every node that it names.
            failpoints: POINT:N, where it is to stand still.
        """
        env = {"PYTHONUNBUFFERED": "1", NODE: f"{own['name']}.{own['incarnation']}",
               PROGRESS_FILE: filled(WRITTEN, own, {})}
        env |= {name: filled(text, own, addresses) for name, text in self.env.items()}
        if points := ",".join(failpoints):
            env[FAILPOINTS] = points
        return Started([filled(word, own, addresses) for word in shlex.split(self.run)], env,
                       filled(self.cwd, own, addresses))

    @property
    def strings(self) -> list[str]:
        """Everything in which placeholders may stand."""
        return [self.run, *self.env.values(), self.cwd]


def search_path(path: str) -> str:
    """Return where a command's program is looked for: on this PATH, and then beside the interpreter, so that what is
    installed with the harness is found where its environment was not activated."""
    return os.pathsep.join(filter(None, [path, os.path.dirname(sys.executable)]))


def taken(port: int) -> str:
    """Return why no process can listen at this port of the loopback address, and what to do; empty: it can be had."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return (f"port {port} can't be had ({error.strerror}): end the program that has it, choose another, or "
                    f"leave `port` out for one that is free")
    return ""


def program_file(program: Program) -> str:
    """Return the file that a command starts; empty where there is none, or a placeholder stands for it."""
    first = shlex.split(program.run)[0]
    path = search_path(program.env.get("PATH") or os.environ.get("PATH", ""))
    return "" if named([first]) else shutil.which(Path(program.cwd) / first if "/" in first else first, path=path) or ""


def link_name(node: str, to: str) -> str:
    """Return the name of the link from one node to another."""
    return f"{node}.{to}"


def ends(target: str) -> list[str]:
    """The nodes at the ends of a link, by its name; of a node, the node."""
    return target.split(".")


def named(strings: Iterable[str]) -> list[str]:
    """Return the names in these strings' placeholders, each once, in order."""
    return list(dict.fromkeys(match[1] for text in strings for match in _PLACEHOLDER.finditer(text) if match[1]))


def target(placeholder: str, nodes: Iterable[str]) -> str | None:
    """Return the node that a placeholder names; None where it is about the node itself.

    Raises:
        PlaceholderError: it names neither.
    """
    known = list(nodes)
    if placeholder in OWN:
        return None
    node, _, part = placeholder.rpartition(".")
    if placeholder in known:
        return placeholder
    if node in known and part in _PARTS:
        return node
    near = get_close_matches(placeholder, [*OWN, *known], 1)
    raise PlaceholderError(f"{{{placeholder}}} stands for nothing{f'; did you mean {{{near[0]}}}?' if near else '.'} "
                           f"There are {', '.join(f'{{{name}}}' for name in OWN)}, "
                           f"and every node that listens by its name ({', '.join(known) or 'none does'}), or its "
                           f"parts, as {{NODE.host}} and {{NODE.port}}; write {{{{ and }}}} for braces")


def named_in_file(text: str, nodes: Iterable[str]) -> list[str]:
    """Return the nodes that the placeholders in a file's text name, each once, in order; what names none is text."""
    found = []
    for match in _IN_FILE.finditer(text):
        with suppress(PlaceholderError):
            found.append(target(match[2] or "", nodes))
    return list(dict.fromkeys(filter(None, found)))


def filled_file(text: str, own: Mapping[str, str], addresses: Mapping[str, str]) -> str:
    """Return a file's text with every placeholder filled, and `{{name}}` as `{name}`; all other braces stay."""
    def value(match: re.Match[str]) -> str:
        if match[1]:
            return f"{{{match[1]}}}"
        with suppress(PlaceholderError):
            target(match[2], addresses)
            return filled(match[0], own, addresses)
        return match[0]
    return _IN_FILE.sub(value, text)


def filled(text: str, own: Mapping[str, str], addresses: Mapping[str, str]) -> str:
    """Return the text with every placeholder filled. `addresses`: node -> host:port.

    Raises:
        KeyError: a placeholder has no value: `target` would have refused it.
    """
    def value(match: re.Match[str]) -> str:
        name = match[1]
        if not name:
            return match[0][0]  # {{ or }}
        if name in own:
            return own[name]
        if name in addresses:
            return addresses[name]
        node, _, part = name.rpartition(".")
        host, _, port = addresses[node].rpartition(":")
        return host if part == "host" else port
    return _PLACEHOLDER.sub(value, text)
