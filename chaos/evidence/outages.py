"""When a whole run was down: it had been ended, and went on from a checkpoint. Fed with its tape's events. Pure."""

from __future__ import annotations

from diloco_chaos.harness.record.tape.events import CheckpointBegun, Continued, Event, Merge, Ready, Spawn


class Outages:
    """The times from a checkpoint that a run goes on from to the next merge with all the learners that were started
    again: they are no fault of the plan, and no failure of the nodes that were ended. What was merged after the
    coordinator's part of that checkpoint is void, so that it is down from there on, whatever learners did until their
    own part."""

    def __init__(self, coordinator: str | None) -> None:
        """`coordinator`: the node that merges; None: there is none."""
        self._coordinator = coordinator
        self.over: list[tuple[float, float]] = []
        """(down, up), in seconds of the run."""
        self.since: float | None = None
        """When the one that is not over began."""
        self._starting: set[str] = set()
        self._begun: dict[int, float] = {}

    def on_event(self, event: Event) -> None:
        """Take in an event; in the order of time, as far as one node's are concerned."""
        if isinstance(event, CheckpointBegun):
            self._begun[event.checkpoint] = event.t
        elif isinstance(event, Continued):
            self.since, self._starting = self._begun.get(event.checkpoint, event.t), set()
        elif self.since is None:
            return
        elif isinstance(event, Spawn) and event.target != self._coordinator:
            self._starting.add(event.target)
        elif isinstance(event, Ready):
            self._starting.discard(event.node)
        elif isinstance(event, Merge) and not self._starting and event.t > self.since:
            self.over.append((self.since, event.t))
            self.since = None

    def after(self, start: float, seconds: float) -> float:
        """Return the time in seconds by which the run has been up for `seconds` since `start`."""
        due = start + seconds
        for down, up in self.over:
            if start <= down < due:
                due += up - down
        return due
