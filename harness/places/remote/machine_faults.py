"""What happens to whole machines, and to what manages them: by commands that the user gave."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.remote.hosts import LOOK_S, Hosts
from diloco_chaos.harness.places.remote.settings import BACK, Command, PlaceSettings
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.record.undos import Command as CommandUndo
from diloco_chaos.harness.record.user_commands import begun, carried_out

_COMMAND_S = 30.0


class MachineFaults:
    """Implements `Machines` and `ControlPlane` of `diloco_chaos.harness.places.capabilities`."""

    def __init__(self, hosts: Hosts, nodes: Nodes[Any], settings: PlaceSettings, undo_log: UndoLog,
                 answers: Callable[[], bool]) -> None:
        """`answers`: whether what manages the place does, now."""
        self._hosts, self._nodes, self._settings, self._undo_log = hosts, nodes, settings, undo_log
        self._answers = answers
        self._owed: list[tuple[str, list[str], int]] = []  # what was done, what undoes it, its number

    def lose_machine(self, node: str, restart_after: float | None) -> None:
        """Take the power from the machine by the user's command; at the end of the run the other command brings it
        back."""
        machine = self._hosts.machine_of(node)
        hit = self._hosts.on(machine)
        self._do("node_power_loss", machine)
        for name in hit:
            self._nodes[name].expect_exit(restart_after)
            self._nodes[name].process.host.lost = f"{machine}, which it was on, has lost its power"
        self._hosts.avoided.add(machine)

    def part_machine(self, node: str, off: bool) -> None:
        """Cut the machine off, or let it back, by the user's commands."""
        if off:
            self._do("node_partition", self._hosts.machine_of(node))
        else:
            self.undo("node_partition")

    def restart_control_plane(self) -> None:
        """Begin to restart it by the user's command."""
        begun(self._settings.command("restart_control_plane"))

    def control_plane_away(self, within: float) -> float:
        """Ask again and again."""
        until, gone = time.monotonic() + within, None
        while time.monotonic() < until:
            answers = self._answers()
            if gone is None and not answers:
                gone = time.monotonic()
            if gone is not None and answers:
                return time.monotonic() - gone
            time.sleep(LOOK_S)
        return 0.0

    def undo(self, what: str = "") -> None:
        """Undo all of one kind, or all; one that fails keeps no other from being undone.

        Raises:
            ClusterError: some could not be undone; they stay owed.
        """
        failed = []
        for owed in [owed for owed in self._owed if not what or owed[0] == what]:
            try:
                _carry_out(owed[1])
            except ClusterError as error:
                failed.append(str(error))
                continue
            self._undo_log.complete(owed[2])
            self._owed.remove(owed)
        if failed:
            raise ClusterError("; ".join(failed))

    def _do(self, what: Command, machine: str) -> None:
        """Run the user's command on a machine; what undoes it is written down before."""
        back = self._settings.command(BACK[what], machine)
        self._owed.append((what, back, self._undo_log.record(CommandUndo, argv=back)))
        _carry_out(self._settings.command(what, machine))


def _carry_out(argv: Sequence[str]) -> None:
    """A command of the user's, to its end.

    Raises:
        ClusterError: it fails.
    """
    try:
        carried_out(argv, _COMMAND_S)
    except OSError as error:
        raise ClusterError(f"{' '.join(argv)}: {error}") from error
