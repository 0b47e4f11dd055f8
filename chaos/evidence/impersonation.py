"""Impostors: processes that took a learner's place at the syncer and are none of this run. Any that has the run's token
can."""

from __future__ import annotations

import math

from diloco_chaos.chaos.evidence.accounting.token_accounting import Node
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.harness.base.lines import Line, line
from diloco_chaos.harness.record.tape.events import Disconnected, Hello, Spawn


def usurpations(history: History) -> list[Line]:
    """A line for each: a number that the harness never started, or one whose own process never made that connection.

    A process says `disconnected` before it introduces itself again, so that a second hello without one is another's. A
    syncer that stood reads several of them at once: then what was said before the first of them counts for the next.
    """
    together = history.plan.cluster.heartbeat_timeout
    started = {spawn.process for spawn in history.tape.of(Spawn, node="harness")}
    lines: list[Line] = []
    holder: dict[str, int] = {}
    last: dict[Node, float] = {}
    unused: dict[Node, int] = {}  # times that it said `disconnected` and its return has not been read
    for hello in history.tape.of(Hello, node=history.recorder):
        node = hello.process
        name = f"{node[0]}.{node[1]}"
        before = f"{node[0]}.{holder[node[0]]}" if node[0] in holder else "nobody"
        since = last.get(node, -math.inf)
        own = _disconnected(history, node, since, hello.t)
        own += unused.get(node, 0) if hello.t <= since + together else 0
        if node not in started:
            lines.append(line(hello.t, f": {name}, which this run never started, took the place of {before}"))
        elif node in last and not own:
            lines.append(line(hello.t, f": another process that calls itself {name} took its place, which {name} had "
                                       f"not left"))
        unused[node] = max(0, own - (node in last))
        holder[node[0]], last[node] = node[1], hello.t
    return lines


def _disconnected(history: History, node: Node, after: float, before: float) -> int:
    return sum(event.inc == node[1] and after < event.t <= before
               for event in history.tape.of(Disconnected, node=node[0]))
