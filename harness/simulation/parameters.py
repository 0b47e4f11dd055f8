"""How fast simulated machines and links are: measured on real ones, from the tape of a run that nothing was done to."""

from __future__ import annotations

import hashlib
from statistics import median, quantiles

from pydantic import BaseModel, ConfigDict, Field

from diloco_chaos.harness.record.tape.events import Hello, Listening, Merge, OuterGradient, Spawn, Step
from diloco_chaos.harness.record.tape.reading import Tape


class Parameters(BaseModel):
    """Seconds, each. The defaults are those of processes on a machine with two cores."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start_learner: float = Field(1.6, ge=0, le=60)
    """From the start of a learner's process to its first attempt to connect (imports, the model, the corpus), with a
    processor for itself."""
    start_syncer: float = Field(0.45, ge=0, le=60)
    """From the start of the syncer's process until it listens, with a processor for itself."""
    cores: int = Field(2, ge=1, le=1024)
    """Processors that those who start at the same time share."""
    delay: float = Field(0.0006, ge=0, le=60)
    """One way through a link that nothing was done to, until the receiver handles it."""
    jitter: float = Field(0.0003, ge=0, le=60)
    """Plus or minus."""
    compute: float = Field(0.02, ge=0, le=60)
    """One inner step, where the model does not say what it takes."""
    compute_spread: float = Field(0.005, ge=0, le=60)
    """Plus or minus."""
    write: float = Field(0.0004, ge=0, le=60)
    """To write one copy of a fragment's checkpoint."""
    sync: float = Field(0.0004, ge=0, le=60)
    """To have it on stable storage; the same for its name."""
    late: float = Field(0.0006, ge=0, le=60)
    """How late timers are, at most."""
    payload: float = Field(1.0, gt=0, le=1e12)
    """Not seconds: bytes on the wire for each byte of a tensor, so that a small model stands for a large one."""
    tick: float = Field(0.01, gt=0, le=1)
    """How often the harness looks at what happens."""

    @property
    def digest(self) -> str:
        """Names them."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def measured(tape: Tape, cores: int) -> Parameters:
    """The parameters of the machine on which this tape was recorded; `cores`: how many processors it has.

    Raises:
        ValueError: something that is measured is not on it; it must be of a run without faults, on local or compose.
    """
    computing = sorted(event.t - event.began for event in tape.of(Step))
    merges = tape.of(Merge, node="syncer")
    spawned = {event.process: event.t for event in tape.of(Spawn, node="harness")}
    hellos = [event.t - spawned[event.process] for event in tape.of(Hello, node="syncer") if event.process in spawned]
    listening = [event.t - spawned["syncer", event.inc] for event in tape.of(Listening, node="syncer")
                 if ("syncer", event.inc) in spawned]
    if len(computing) < 20 or len(merges) < 20 or not hellos or not listening:
        raise ValueError("too little is on this tape: it takes a run of some seconds")
    answers = _answer_times(tape)
    if len(answers) < 20:
        raise ValueError("no learner's snapshot has a merge that names it")
    # snapshot -> answer arrived at the syncer: one way, with what handling costs at both ends
    delay = median(answers)
    deciles = quantiles(answers, n=10)
    commits = [merge.t - merge.closed for merge in merges]  # it is recorded once it is committed
    steps = quantiles(computing, n=10)
    save = median(commits) / 6  # two copies: write, fsync, fsync of the folder
    together = max(1.0, len(hellos) / cores)  # they all start at the same time
    return Parameters(
        cores=cores, start_learner=round(median(hellos) / together, 4),
        start_syncer=round(median(listening), 4), delay=round(delay, 6),
        jitter=round(min(delay, (deciles[7] - deciles[1]) / 2), 6), compute=round(median(computing), 6),
        compute_spread=round((steps[7] - steps[1]) / 2, 6), write=round(save, 6), sync=round(save, 6),
        late=round(delay / 2, 6))


def _answer_times(tape: Tape) -> list[float]:
    """Seconds from each snapshot that was merged to its arrival at the syncer."""
    given = {(event.node, event.inc, event.fragment, event.step): event.t for event in tape.of(OuterGradient)}
    return [part.arrived - given[key] for merge in tape.of(Merge, node="syncer") for part in merge.contributions
            if (key := (part.learner, part.incarnation, merge.fragment, part.last)) in given]
