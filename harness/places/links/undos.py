"""What is undone on links whose server is a process beside the harness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from diloco_chaos.harness.base.processes import Identity, carries, identity
from diloco_chaos.harness.record.undos import Undo

if TYPE_CHECKING:  # the client is not needed to read an undo log
    from diloco_chaos.harness.links.client import Links

_LOCAL = r"^(http://)?(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}$"


class _OfLink(Undo):
    api: str = Field(pattern=_LOCAL)
    server: Identity | None = None
    """The process that serves the API, where it is ours: another one may get its port once it is gone."""
    link: str

    def heal(self, token: str) -> bool:
        """Undo it through the server's API; where the server is gone, the link is gone with it, and nothing is left to
        undo."""
        from diloco_chaos.harness.links.client import LinkError, Links
        server = self.server
        if server is not None and not (identity(server.pid) == server and carries(server.pid, token)):
            return False
        try:
            self._on(Links(self.api))
        except LinkError as error:
            if error.status in (None, 404):
                return False
            raise OSError(str(error)) from error
        return True

    def _on(self, links: Links) -> None:
        raise NotImplementedError


class Toxin(_OfLink):
    """Take a toxic off a link."""

    entry: Literal["toxic"] = "toxic"
    name: str

    def describe(self) -> str:
        """Say for people what was done."""
        return f"toxic {self.name} taken off {self.link}"

    def _on(self, links: Links) -> None:
        links.remove(self.link, self.name)


class Enable(_OfLink):
    """Let a link listen again."""

    entry: Literal["enable"] = "enable"

    def describe(self) -> str:
        """Say for people what was done."""
        return f"link {self.link} let through again"

    def _on(self, links: Links) -> None:
        links.set_enabled(self.link, True)
