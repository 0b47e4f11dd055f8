"""What is preloaded into the processes of nodes, and each node's page, by which calls on files fail."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from diloco_chaos.harness.places.base import Ability, ClusterError, NodeSpec
from diloco_chaos.harness.places.local.undos import Disarm
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.preload.library import Concern, PreloadError, built, must_be_preloadable, preloading
from diloco_chaos.harness.preload.page import LONGEST_PATTERN, Hits, Page, PageFullError, Rule
from diloco_chaos.harness.record.undo_log import OpenUndos, UndoLog
from diloco_chaos.harness.trainers.core.elf import is_static
from diloco_chaos.harness.trainers.core.programs import PROGRESS, Program, filled, program_file

PAGE = "DILOCO_CHAOS_PAGE"
"""Environment variable: the file of the page."""
_FOLDER, _MOUNTED = "preload", "mounted"
_CONCERNS: dict[Ability, tuple[Concern, str]] = {
    "lose_unsynced": ("unsynced", "lose_unsynced"), "hang": ("hang", "hang"), "fail_calls": ("io", "io"),
    "cuda": ("cuda", "cuda")}
"""Ability -> what is preloaded for it, and what scenarios call it; in this order: `io` passes no call on to another."""
_COUNTING: dict[Ability, str] = {"fail_calls": "io", "cuda": "cuda"}
"""What counts the processes that have loaded it, by what scenarios call it."""
_SPARED = ("logs", PROGRESS, "tape", "workings")
"""Folders of the run's, by which it is judged: what the harness reads stays whole, whatever a pattern means."""
LOADS_S = 10.0
"""What is preloaded into something else than a process of this machine is loaded within this time, or never."""
NO_PAGE = ("{node}: {fault}: nothing was preloaded into its {what}, so that {cannot}: its program is linked "
           "statically, or its command changes its environment. Take another image or command, or leave `{fault}` "
           "out")
CANNOT = {"io": "no call there can fail", "hang": "its main thread can't be made to stand",
          "cuda": "no call of the CUDA runtime can fail there"}
"""By what scenarios call it."""
BACK_AFTER_S = 1.0
"""A node of ours that ended by it is started again after so long."""


class _Held(NamedTuple):
    rule: int
    ends: bool
    """The node may end by it, and is started again."""


class Preloads:
    """The pages of one run's nodes. Implements `diloco_chaos.harness.places.capabilities.CallFaults`."""

    def __init__(self, run: Path, nodes: Nodes[Any], undo_log: UndoLog, mounted_at: str = "") -> None:
        """`run`: the run's folder. `mounted_at`: where containers, which have the run's folder at the same path, find
        the folder of library and pages; empty: nodes are processes of this machine."""
        self._run, self._nodes, self._token, self._mounted_at = run, nodes, undo_log.token, mounted_at
        self._seen = str(run.absolute() if mounted_at else run.resolve())  # the run's folder, as calls name it
        self.folder = run.resolve() / _FOLDER / (_MOUNTED if mounted_at else "")
        self._libraries: dict[Ability, Path] = {}
        self._pages: dict[str, Page] = {}
        self._specs: dict[str, NodeSpec] = {}
        self._undos = OpenUndos(undo_log)
        self._held: dict[tuple[str, str], _Held] = {}  # by node and fault
        self._done: dict[tuple[str, str], tuple[Hits, list[str]]] = {}

    def begin(self, nodes: Sequence[NodeSpec]) -> None:
        """Make a page for each of these nodes whose calls can be made to fail, and build the library for the first of
        them. A page that is there is a dead harness' of a run that goes on.

        Raises:
            ClusterError: it can't be built or preloaded.
        """
        for spec in (each for each in nodes if each.preloaded):
            try:
                self._build(spec.preloaded - self._libraries.keys())
                self.file(spec.name).unlink(missing_ok=True)
                self._pages[spec.name] = self._made(spec.name, [f"{self._seen}/{folder}/" for folder in _SPARED])
                if self._mounted_at:
                    self.file(spec.name).chmod(0o666)  # whoever its nodes are; on this machine only we get there
                self._specs[spec.name] = spec
            except (PreloadError, OSError) as error:
                raise ClusterError(f"{error}") from error

    def environment(self, node: str, before: str) -> Mapping[str, str]:
        """Return the environment variables with which a process of a node loads it. `before`: what it would preload
        anyway."""
        if node not in self._pages:
            return {}
        libraries = " ".join(self.found(library) for library in self.libraries(node))
        return {**preloading(libraries, before), PAGE: self.found(self.file(node))}

    def libraries(self, node: str) -> list[Path]:
        """Return what is preloaded into a node with a page."""
        return [self._libraries[ability] for ability in _CONCERNS if ability in self._specs[node].preloaded]

    def arm(self, node: str, fault: str, rule: Rule) -> str:
        """Arm it, with its undo written down before."""
        page, spec = self._pages[node], self._specs[node]
        pattern = self.whole(node, rule.pattern)
        if len(os.fsencode(pattern)) > LONGEST_PATTERN:
            raise ClusterError(f"{node}: {pattern} is longer than {LONGEST_PATTERN} bytes")
        ends = spec.program is None and rule.action == "error"  # a node of ours does not go on without its files
        self._owe(node, fault)
        try:
            self._held[node, fault] = _Held(page.arm(replace(rule, pattern=pattern)), ends)
        except PageFullError as error:
            self._undos.complete((node, fault))
            raise ClusterError(f"{node}: {error}") from error
        self._done.pop((node, fault), None)
        if ends:
            self._nodes.expect_no_space(node, fault, BACK_AFTER_S)
        return self.why_not_loaded(node)

    def disarm(self, node: str, fault: str) -> None:
        """Keep what it has done, and let it hold no more."""
        if (held := self._held.pop((node, fault), None)) is not None:
            self._pages[node].disarm(held.rule)
            if held.ends:
                self._nodes.space_again(node, fault)
            self._done[node, fault] = self._hits(node, held.rule)
            self._undos.complete((node, fault))

    def missing(self, node: str) -> str:
        """Return a fault that can't hit a node because no process of it has its page; empty: there is none."""
        counting = [fault for ability, fault in _COUNTING.items() if ability in self._specs[node].preloaded]
        return "" if not counting or self._pages[node].loaded else counting[0]

    def hits(self, node: str, fault: str) -> tuple[Hits, list[str]] | None:
        """Return what was kept, or what it has done so far."""
        if (held := self._held.get((node, fault))) is not None:
            return self._hits(node, held.rule)
        return self._done.get((node, fault))

    def residue(self) -> list[str]:
        """Return what still holds, in words."""
        return [f"{node}: {page.armed} faults of files" for node, page in self._pages.items() if page.armed]

    def end(self) -> None:
        """The run is over: the pages are no more."""
        for name in self._pages:
            with suppress(OSError):
                self.file(name).unlink()

    def _hits(self, node: str, number: int) -> tuple[Hits, list[str]]:
        """Return what a rule has done, with files of the run's folder by their names there, and before others."""
        hits, run = self._pages[node].hits(number), f"{self._seen}/"
        inside = sorted(self._pages[node].others(), key=lambda name: not name.startswith(run))
        return replace(hits, first=hits.first.removeprefix(run)), [name.removeprefix(run) for name in inside]

    def _build(self, abilities: Collection[Ability]) -> None:
        if self._mounted_at:
            self.folder.parent.mkdir(mode=0o700, exist_ok=True)
        self.folder.mkdir(exist_ok=True)
        for ability in abilities:
            concern, what = _CONCERNS[ability]
            if self._mounted_at:
                self.folder.chmod(0o755)
            else:
                must_be_preloadable(self.folder, what)
            self._libraries[ability] = built(self.folder, concern, what)

    def page(self, node: str) -> tuple[Page, Path]:
        """Return the page of a node, and its file."""
        return self._pages[node], self.file(node)

    def spec(self, node: str) -> NodeSpec:
        """Return what a node with a page was started from."""
        return self._specs[node]

    def whole(self, node: str, pattern: str) -> str:
        """Return a pattern of whole paths, with what its placeholders stand for at a node."""
        own = (self._specs[node].program or Program("")).own(self._seen, node)
        whole = filled(pattern, own, {})
        return whole if whole.startswith("/") else f"*/{whole}"

    def why_not_loaded(self, node: str) -> str:
        """Return why no process of a node has loaded anything; empty: one has."""
        if self._pages[node].loaded:
            return ""
        spec = self._specs[node]
        here = spec.program if not self._mounted_at else None
        file = program_file(here) if here is not None else ""
        if file and is_static(file):
            return f"{spec.name}: {os.path.basename(file)} is linked statically: nothing can be preloaded into it"
        return f"{spec.name}: nothing was preloaded into it: does its command change its environment, or its user?"

    def file(self, node: str) -> Path:
        """Return the file of a node's page."""
        return self.folder / f"{node}.page"

    def found(self, file: Path) -> str:
        """Return where nodes find a file of the folder."""
        return f"{self._mounted_at}/{file.name}" if self._mounted_at else str(file)

    def _made(self, node: str, spared: Sequence[str]) -> Page:
        return Page(self.file(node), self._token, spared)

    def _owe(self, node: str, fault: str) -> None:
        """Write down what disarms the rule that is armed next."""
        self._undos.record((node, fault), Disarm, page=self.file(node), rule=self._pages[node].free)
