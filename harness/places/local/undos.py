"""What is undone in processes that have a library preloaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from diloco_chaos.harness.base.processes import Identity, carries, end_all, identity
from diloco_chaos.harness.record.undos import Undo

if TYPE_CHECKING:
    from diloco_chaos.harness.preload.page import Page


class _OfPage(Undo):
    page: Path

    def heal(self, token: str) -> bool:
        """Undo it, if the page is the run's."""
        from diloco_chaos.harness.preload.page import Page
        try:
            page = Page(self.page)
        except (FileNotFoundError, ValueError):
            return False
        return page.token == token and self._on(page)

    def _on(self, page: Page) -> bool:
        raise NotImplementedError


class Disarm(_OfPage):
    """Let a rule of a page hold no more: its node's processes may have outlived the harness."""

    entry: Literal["disarm"] = "disarm"
    rule: int = Field(ge=0)

    def describe(self) -> str:
        """Say for people what was done."""
        return f"calls fail no more by rule {self.rule} of {self.page}"

    def _on(self, page: Page) -> bool:
        return page.disarm(self.rule)


class Release(_OfPage):
    """Let main threads go on that stand by a page."""

    entry: Literal["release"] = "release"

    def describe(self) -> str:
        """Say for people what was done."""
        return f"main threads that stand by {self.page} go on"

    def _on(self, page: Page) -> bool:
        return page.release()


class DisarmCuda(_OfPage):
    """Let calls of the CUDA runtime do as ever."""

    entry: Literal["disarm_cuda"] = "disarm_cuda"

    def describe(self) -> str:
        """Say for people what was done."""
        return f"calls of the CUDA runtime fail no more by {self.page}"

    def _on(self, page: Page) -> bool:
        return page.disarm_cuda()


class EndPressure(Undo):
    """End what presses on this machine; its workers end with it."""

    entry: Literal["end_pressure"] = "end_pressure"
    process: Identity

    def describe(self) -> str:
        """Say for people what was done."""
        return f"pressure by process {self.process.pid} ended"

    def heal(self, token: str) -> bool:
        """SIGKILL."""
        if identity(self.process.pid) != self.process or not carries(self.process.pid, token):
            return False
        if end_all([self.process], token):
            raise OSError(f"process {self.process.pid} does not end")
        return True
