"""One cell of a table: a run under virtual time, and what was measured in it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import product
from statistics import mean
from typing import Any, TypeVar

from diloco_chaos.chaos.runner.simulate import performed
from diloco_chaos.chaos.scenario.model import COORDINATOR, Scenario
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.base.workers import Numbered, Task, Workers
from diloco_chaos.harness.record.tape.events import Finished, Injected, Merge, Steady
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.simulation.parameters import Parameters

Key = TypeVar("Key", bound=Hashable)


class Cell(Numbered):
    """The description of one run of a sweep."""

    number: int = 0
    """`measured` gives it."""
    cluster: dict[str, Any]
    """As in a scenario."""
    faults: tuple[dict[str, Any], ...] = ()
    deadline: float
    """Seconds; most cells end before, when their budget is processed."""
    payload: float = 1.0
    """Bytes on the wire for each byte of a tensor."""
    seed: int = 0


class Measured(Numbered):
    """The results of a cell, measured from the steady state, or from the first fault, to the end of training or to the
    deadline."""

    tokens_per_s: float
    """Merged."""
    contributors: float
    """Of a merge, on average; 0: there was none."""
    lasted: float
    """Seconds."""
    curve: tuple[tuple[float, float], ...]
    """(seconds since then, loss above its floor): what the model was worth, snapshot by snapshot."""
    finished: bool
    """Whether the budget was processed."""

    @property
    def excess(self) -> float | None:
        """Return the excess loss at the end of the budget; None: it was not reached."""
        return self.curve[-1][1] if self.finished else None

    def learned(self, seconds: float) -> float:
        """Share of the loss above its floor that was gone by then, by the newest snapshot that there was."""
        return 1 - [excess for at, excess in self.curve if at <= seconds][-1] / self.curve[0][1]


def measure(cell: Cell) -> Measured:
    """Run a cell and return what was measured: a worker does this.

    Raises:
        pydantic.ValidationError: no cluster can be like that.
    """
    scenario = Scenario.model_validate({
        "diloco_chaos": 1, "name": "cell", "deadline": f"{cell.deadline!r}s", "cluster": cell.cluster,
        "faults": cell.faults, "checks": {"outages": "excused"}})
    plan = freeze(scenario, cell.seed)
    done = performed(plan, Parameters(payload=cell.payload))
    tape = done.stage.tape()
    merges = tape.of(Merge)
    begun, ended = _window(tape, cell.deadline)
    before = [merge.merged for merge in merges if merge.t <= begun]
    during = [merge for merge in merges if begun < merge.t <= ended]
    tokens = during[-1].merged - (before[-1] if before else 0) if during else 0
    return Measured(
        number=cell.number, tokens_per_s=tokens / (ended - begun),
        contributors=mean(len(merge.contributions) for merge in during) if during else 0.0,
        lasted=ended - begun, finished=done.outcome.kind == "finished",
        curve=tuple((point.t - begun, point.loss - plan.trainer.loss_floor) for point in done.curve()))


def _window(tape: Tape, deadline: float) -> tuple[float, float]:
    begun = [*tape.of(Injected)[:1], *tape.of(Steady)[:1]]
    finished = tape.of(Finished, node=COORDINATOR)[:1]
    return begun[0].t if begun else 0.0, finished[0].t if finished else deadline


CELLS = Task(measure, Cell, Measured)


def measured(keys: Sequence[Key], cell_of: Callable[[Key], Cell], workers: Workers[Cell, Measured]
             ) -> dict[Key, Measured]:
    """Run the cell of each key, and return what was measured in it, by key.

    Raises:
        WorkersError: workers die again and again.
    """
    cells = [cell_of(key).model_copy(update={"number": number}) for number, key in enumerate(keys)]
    return dict(zip(keys, sorted(workers.run(cells), key=lambda result: result.number), strict=True))


def repeated(keys: Sequence[Key], cell_of: Callable[[Key], Cell], runs: int, workers: Workers[Cell, Measured]
             ) -> dict[Key, list[Measured]]:
    """Run each cell `runs` times, with the seeds that follow its own, and return what was measured, by key.

    Raises:
        WorkersError: as `measured`.
    """
    def seeded(run: tuple[Key, int]) -> Cell:
        cell = cell_of(run[0])
        return cell.model_copy(update={"seed": cell.seed + run[1]})
    results = measured(list(product(keys, range(runs))), seeded, workers)
    return {key: [results[key, run] for run in range(runs)] for key in keys}
