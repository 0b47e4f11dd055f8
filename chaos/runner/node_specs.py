"""A plan's nodes: what a cluster must know to run them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.places.base import FROM_WITHIN, OF_MACHINES, Ability, NodeSpec
from diloco_chaos.harness.record.storage.disk import STATE
from diloco_chaos.harness.trainers.api.trainer import Role
from diloco_chaos.harness.trainers.core.programs import filled


def node_specs(plan: Plan, run: Path, epoch: float, reads: tuple[Path, ...] = (),
               incarnations: Mapping[str, int] | None = None, over: Collection[str] = ()) -> list[NodeSpec]:
    """Syncer and learners, with the failpoints that faults wait for.

    `reads`: files beyond the run's folder. `incarnations`: numbers of the first ones, where they are not 0. `over`:
    faults that came before this run went on.
    """
    numbers = incarnations or {}

    def points(name: str) -> tuple[str, ...]:
        return tuple(f"{planned.fault.when.failpoint}:{planned.fault.when.count}" for planned in plan.faults
                     if planned.fault.when and planned.fault.when.failpoint and planned.fault.when.node == name
                     and planned.id not in over)

    machine = {target: "apart" for planned in plan.faults if planned.fault.requires() & OF_MACHINES
               for target in planned.fault.targets}  # who is hit with its machine shares it with no other

    def preloaded(name: str) -> frozenset[Ability]:
        return FROM_WITHIN & {ability for planned in plan.faults if name in planned.fault.targets
                              for ability in planned.fault.requires()}

    pressed = {target for planned in plan.faults if "press" in planned.fault.requires()
               for target in planned.fault.targets}
    if programs := plan.trainer.programs():
        return [NodeSpec(name, (), listens=program.listens, program=program, incarnation=numbers.get(name, 0),
                         state=filled(program.state, program.own(str(run.absolute()), name), {}),
                         failpoints=points(name), machine=machine.get(name, ""), preloaded=preloaded(name),
                         pressed=name in pressed)
                for name, program in programs.items()]
    full = any("fill_disk" in planned.fault.requires() for planned in plan.faults)
    disk = plan.trainer.stored_bytes() if full else 0

    def spec(name: str, role: Role, more: tuple[str, ...]) -> NodeSpec:
        argv = ("{python}", "-m", "diloco_chaos.harness.trainers.node.process", "--role", role, "--name", name,
                "--run", str(run), "--epoch", "{epoch}", "--incarnation", "{incarnation}", *more)
        syncer = role == "syncer"
        driver = f"diloco_chaos.harness.trainers.node.{'server' if syncer else 'client'}"
        return NodeSpec(name, argv, listens=syncer, state=STATE if syncer else "", disk=disk if syncer else 0,
                        connects_to="" if syncer else COORDINATOR, reads=reads, incarnation=numbers.get(name, 0),
                        imports=(driver, *plan.trainer.imports(role)), failpoints=points(name),
                        epoch=epoch, machine=machine.get(name, ""), preloaded=preloaded(name),
                        pressed=name in pressed)
    return [spec(COORDINATOR, "syncer", ("--host", "{host}", "--listen", "{listen}")),
            *(spec(name, "learner", ("--connect", "{connect}")) for name in plan.cluster.names)]
