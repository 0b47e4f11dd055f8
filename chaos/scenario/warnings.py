"""What can be run but will not do what a reader may expect."""

from __future__ import annotations

from collections.abc import Sequence

from diloco_chaos.chaos.scenario.validation import longest
from diloco_chaos.faults import Fault, Latency, LinkFault
from diloco_chaos.harness.base.units import names
from diloco_chaos.harness.trainers.api.trainer import Trainer
from diloco_chaos.harness.trainers.core.elf import is_static
from diloco_chaos.harness.trainers.core.programs import program_file


def warnings_of(trainer: Trainer, faults: Sequence[Fault]) -> list[str]:
    """Return a warning for each fault that will not do what a reader may expect, in words."""
    cluster, warnings = trainer.settings, []
    window = cluster.longest_grace_s
    for fault in faults:
        if isinstance(fault, Latency):
            size = max(fragment.size for fragment in cluster.fragment_table()) * 4
            exchange = len(fault.streams) * fault.delay + (2 * size / fault.rate if fault.rate else 0)
            if exchange > window and not set(cluster.names) <= set(fault.targets):  # else no learner answers in time
                warnings.append(
                    f"{fault.describe()}: an exchange takes at least {exchange * 1e3:.0f} ms, but the grace window is "
                    f"at most {window * 1e3:.0f} ms; while others answer in time, its contributions come too late")
        if fault.at is not None and fault.reversible and cluster.step_time:
            over = longest(cluster, faults)
            if fault.at + (fault.duration or 0) > over:
                warnings.append(f"{fault.describe()}: training is over before it is")
        if isinstance(fault, LinkFault) and fault.toxicity < 1:
            warnings.append(f"{fault.describe()}: which connections it hits is drawn by the proxy, not by the plan")
    warnings += [f"{name}: peers: caught: {program.run.split()[0]} is linked statically: what it connects to itself "
                 f"can't be caught; processes that it starts can" for name, program in trainer.programs().items()
                 if program.meets and (path := program_file(program)) and is_static(path)]
    dead = {target for fault in faults if fault.is_final() for target in fault.targets}
    needed = cluster.learners_needed
    if len(set(cluster.names) - dead) < needed:
        warnings.append(f"kills leave fewer than {needed} learners: the quorum is never reached again"
                        if trainer.counting.made == "merge" else
                        f"nothing starts {names(sorted(dead))} again, and too few workers are left to go on: write "
                        f"`restart_after` at the fault")
    if trainer.coordinator in dead:
        warnings.append("the syncer is never started again: training can't come to its end")
    return warnings
