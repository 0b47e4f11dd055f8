"""What can be broken. One file per family; every fault carries its own undo and says what was observed."""

from __future__ import annotations

from faults.base import Drawn, Fault, FaultContext, Observation
from faults.byzantine import Impersonation, Lie, Poison
from faults.composite import Composite, CrashLoop, Flapping, Storm
from faults.containers import Disconnect, FullDisk, OutOfMemory, RestartEngine, RestartLinks
from faults.evidence import Effect, Evidence, Injection
from faults.inner import KillProcess, OfProcess, PauseProcess, TerminateProcess
from faults.links.base import LinkFault
from faults.links.disruption import LimitData, Reset, Slicer, SlowClose, Timeout
from faults.links.network import Bandwidth, Latency, Partition
from faults.machines import DeletePod, DrainNode, Evict, NodePartition, NodePowerLoss, Requeue, RestartControlPlane
from faults.process import Ending, Join, Kill, Pause, Restart, Terminate, Zombie
from faults.registry import FAULTS, AnyEntry, AnyFault
from faults.simulated import ClockJump, PowerLoss
from faults.state import Corrupt, CorruptMemory, Damage, Delete, FailingWrites, Truncate, WriteLimit
from faults.straggler import Straggler
from faults.triggers import AbortWhen, After, Condition, When

__all__ = [
    "FAULTS",
    "AbortWhen",
    "After",
    "AnyEntry",
    "AnyFault",
    "Bandwidth",
    "ClockJump",
    "Composite",
    "Condition",
    "Corrupt",
    "CorruptMemory",
    "CrashLoop",
    "Damage",
    "Delete",
    "DeletePod",
    "Disconnect",
    "DrainNode",
    "Drawn",
    "Effect",
    "Ending",
    "Evict",
    "Evidence",
    "FailingWrites",
    "Fault",
    "FaultContext",
    "Flapping",
    "FullDisk",
    "Impersonation",
    "Injection",
    "Join",
    "Kill",
    "KillProcess",
    "Latency",
    "Lie",
    "LimitData",
    "LinkFault",
    "NodePartition",
    "NodePowerLoss",
    "Observation",
    "OfProcess",
    "OutOfMemory",
    "Partition",
    "Pause",
    "PauseProcess",
    "Poison",
    "PowerLoss",
    "Requeue",
    "Reset",
    "Restart",
    "RestartControlPlane",
    "RestartEngine",
    "RestartLinks",
    "Slicer",
    "SlowClose",
    "Storm",
    "Straggler",
    "Terminate",
    "TerminateProcess",
    "Timeout",
    "Truncate",
    "When",
    "WriteLimit",
    "Zombie",
]
