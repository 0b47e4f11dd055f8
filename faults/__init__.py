"""What can be broken. One file per family; every fault carries its own undo and says what was felt."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator

from faults.base import FAULTS, Fault, Felt, Hit
from faults.network import Latency, Partition
from faults.process import Kill
from faults.straggler import Straggler

AnyFault = Annotated[Kill | Straggler | Latency | Partition, Discriminator("kind")]

__all__ = ["FAULTS", "AnyFault", "Fault", "Felt", "Hit", "Kill", "Latency", "Partition", "Straggler"]
