"""What can be broken. One file per family; every fault carries its own undo and says what was observed."""

from __future__ import annotations

from diloco_chaos.faults.base import Drawn, Fault, FaultContext, Observation
from diloco_chaos.faults.byzantine import Impersonation, Lie, Poison
from diloco_chaos.faults.composite import Composite, CrashLoop, Flapping
from diloco_chaos.faults.containers import Disconnect, FullDisk, OutOfMemory, RestartEngine, RestartLinks
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.faults.inner import KillProcess, OfProcess, PauseProcess, TerminateProcess
from diloco_chaos.faults.links.base import LinkFault
from diloco_chaos.faults.links.corruption import CorruptLink
from diloco_chaos.faults.links.disruption import LimitData, Reset, Slicer, SlowClose, Timeout
from diloco_chaos.faults.links.network import Bandwidth, Latency, Partition
from diloco_chaos.faults.machines import (
    DeletePod,
    DrainNode,
    Evict,
    NodePartition,
    NodePowerLoss,
    Requeue,
    RestartControlPlane,
)
from diloco_chaos.faults.pressure import CpuPressure, IoPressure, MemoryPressure
from diloco_chaos.faults.processes.lemon import Lemon
from diloco_chaos.faults.processes.preemption import Preempt
from diloco_chaos.faults.processes.process import Asked, Ending, Join, Kill, Pause, Restart, Terminate, Zombie
from diloco_chaos.faults.processes.replace import Replace
from diloco_chaos.faults.registry import FAULTS, AnyEntry, AnyFault
from diloco_chaos.faults.simulated import ClockJump, PowerLoss
from diloco_chaos.faults.state import Corrupt, CorruptMemory, Damage, Delete, FailingWrites, Truncate, WriteLimit
from diloco_chaos.faults.storm import Storm
from diloco_chaos.faults.straggler import Straggler
from diloco_chaos.faults.triggers import AbortWhen, After, Condition, When
from diloco_chaos.faults.within.cuda import Cuda
from diloco_chaos.faults.within.hang import Hang, HangProcess
from diloco_chaos.faults.within.io import Io

__all__ = [
    "FAULTS",
    "AbortWhen",
    "After",
    "AnyEntry",
    "AnyFault",
    "Asked",
    "Bandwidth",
    "ClockJump",
    "Composite",
    "Condition",
    "Corrupt",
    "CorruptLink",
    "CorruptMemory",
    "CpuPressure",
    "CrashLoop",
    "Cuda",
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
    "Hang",
    "HangProcess",
    "Impersonation",
    "Injection",
    "Io",
    "IoPressure",
    "Join",
    "Kill",
    "KillProcess",
    "Latency",
    "Lemon",
    "Lie",
    "LimitData",
    "LinkFault",
    "MemoryPressure",
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
    "Preempt",
    "Replace",
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
