"""What is undone in processes that have a library preloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from diloco_chaos.harness.record.undos import Undo


class Disarm(Undo):
    """Let a rule of a page hold no more: its node's processes may have outlived the harness."""

    entry: Literal["disarm"] = "disarm"
    page: Path
    rule: int = Field(ge=0)

    def describe(self) -> str:
        """Say for people what was done."""
        return f"calls fail no more by rule {self.rule} of {self.page}"

    def heal(self, token: str) -> bool:
        """Disarm it, if the page is the run's."""
        from diloco_chaos.harness.preload.page import Page
        try:
            page = Page(self.page)
        except (FileNotFoundError, ValueError):
            return False
        return page.token == token and page.disarm(self.rule)
