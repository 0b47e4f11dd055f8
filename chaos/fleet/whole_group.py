"""`fleet` with all the commands that come behind it, each of which adds itself to the group."""

from __future__ import annotations

from diloco_chaos.chaos.fleet import planner, sweep_commands, trace_commands
from diloco_chaos.chaos.fleet.command import group

__all__ = ["group", "planner", "sweep_commands", "trace_commands"]
