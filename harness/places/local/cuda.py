"""Calls of the CUDA runtime that fail in processes that have a page on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diloco_chaos.harness.places.local.preloads import BACK_AFTER_S, Preloads
from diloco_chaos.harness.places.local.undos import DisarmCuda
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.preload.cuda import CudaHits, CudaRule
from diloco_chaos.harness.record.undo_log import OpenUndos, UndoLog


class CudaFaults:
    """Implements `diloco_chaos.harness.places.capabilities.CudaCalls`."""

    def __init__(self, preloads: Preloads, nodes: Nodes[Any], undo_log: UndoLog) -> None:
        self._preloads, self._nodes = preloads, nodes
        self._undos = OpenUndos(undo_log)
        self._held: dict[str, str] = {}  # node -> its fault
        self._ending: set[str] = set()  # nodes that may end by it
        self._done: dict[tuple[str, str], CudaHits] = {}

    def fail_cuda(self, node: str, fault: str, rule: CudaRule) -> str:
        """Arm it, with its undo written down before."""
        if node in self._held:
            return f"{node}: another fault of its device lasts: one at a time"
        page, path = self._preloads.page(node)
        self._owe(node, path)
        self._held[node] = fault
        self._done.pop((node, fault), None)
        page.arm_cuda(rule)
        if rule.action == "error" and self._nodes[node].spec.program is None:  # ours does not go on without its device
            self._ending.add(node)
            self._nodes.expect_no_space(node, fault, BACK_AFTER_S)
        return self._preloads.why_not_loaded(node)

    def heal_cuda(self, node: str, fault: str) -> None:
        """Keep what it has done, and let it hold no more."""
        if self._held.get(node) != fault:
            return
        page, _ = self._preloads.page(node)
        page.disarm_cuda()
        if node in self._ending:
            self._ending.remove(node)
            self._nodes.space_again(node, fault)
        self._done[node, fault] = page.cuda_hits
        del self._held[node]
        self._undos.complete(node)

    def cuda_hits(self, node: str, fault: str) -> CudaHits | None:
        """Return what was kept, or what it has done so far."""
        if self._held.get(node) == fault:
            return self._preloads.page(node)[0].cuda_hits
        return self._done.get((node, fault))

    def residue(self) -> list[str]:
        """Return what still holds, in words."""
        return [f"{node}: calls of the CUDA runtime fail" for node in self._held]

    def _owe(self, node: str, page: Path) -> None:
        """Write down what disarms it."""
        self._undos.record(node, DisarmCuda, page=page)
