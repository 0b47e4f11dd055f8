"""What becomes of calls of the CUDA runtime: the page's part for it, whose twin is in page.h."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

CudaCall = Literal[
    "cudaGetDeviceCount", "cudaSetDevice", "cudaMalloc", "cudaMallocAsync", "cudaLaunchKernel", "cudaLaunchKernelExC",
    "cudaGraphLaunch", "cudaMemcpy", "cudaMemcpyAsync", "cudaMemset", "cudaMemsetAsync", "cudaStreamSynchronize",
    "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaStreamQuery", "cudaEventQuery", "cudaGetLastError",
    "cudaPeekAtLastError"]
CUDA_CALLS: tuple[CudaCall, ...] = get_args(CudaCall)
"""In the order of page.h, as are the actions."""
CudaAction = Literal["error", "delay", "hang"]
_ACTIONS: tuple[CudaAction, ...] = get_args(CudaAction)


@dataclass(frozen=True)
class CudaRule:
    """What becomes of which calls."""

    calls: Sequence[CudaCall]
    """Those that it begins with; of a process that is broken by it, every call fails."""
    action: CudaAction
    error: int = 0
    """What a call returns."""
    error_before: int = 0
    """The same in a process that has not used its device yet."""
    lasts: bool = False
    """An error is one of the process from then on; else of the call."""
    delay_s: float = 0.0
    after: int = 0
    """Bytes that are allocated before it bites."""
    lost: bool = False
    """NVML says that the device is lost."""
    ecc: int = 0
    """So many more uncorrected ECC errors does NVML count."""
    xid: int = 0
    """And of this Xid it tells who waits for events; 0: of none."""


@dataclass(frozen=True)
class CudaHits:
    """What it has done."""

    met: Mapping[str, int]
    """How many calls of each there were; none that there was not."""
    calls: Mapping[str, int]
    """How many of each were hit."""
    processes: int
    """How many had such a call."""
    answered: int = 0
    """How many questions NVML answered as of such a device."""


class CudaPart(ctypes.Structure):
    """The part of the page."""

    _fields_ = (("armed", ctypes.c_uint32), ("calls", ctypes.c_uint32), ("action", ctypes.c_uint32),
                ("error", ctypes.c_int32), ("error_before", ctypes.c_int32), ("lasts", ctypes.c_uint32),
                ("lost", ctypes.c_uint32), ("ecc", ctypes.c_uint32), ("xid", ctypes.c_uint64),
                ("delay_ns", ctypes.c_uint64), ("after", ctypes.c_uint64), ("allocated", ctypes.c_uint64),
                ("processes", ctypes.c_uint64), ("answered", ctypes.c_uint64),
                ("met", ctypes.c_uint64 * len(CUDA_CALLS)), ("hit", ctypes.c_uint64 * len(CUDA_CALLS)))

    def arm(self, rule: CudaRule, number: int) -> None:
        """Let a rule hold from now on. `number`: another one each time, and never 0."""
        ctypes.memset(ctypes.addressof(self), 0, ctypes.sizeof(self))
        self.calls = sum(1 << CUDA_CALLS.index(call) for call in set(rule.calls))
        self.action, self.lasts = _ACTIONS.index(rule.action), rule.lasts
        self.error, self.error_before = rule.error, rule.error_before
        self.delay_ns, self.after = round(rule.delay_s * 1e9), rule.after
        self.lost, self.ecc, self.xid = rule.lost, rule.ecc, rule.xid
        self.armed = number

    def disarm(self) -> bool:
        """Let it hold no more; return whether it did."""
        held, self.armed = bool(self.armed), 0
        return held

    @property
    def hits(self) -> CudaHits:
        """Return what it has done since it was armed; also of one that is not any more."""
        return CudaHits(_counted(self.met), _counted(self.hit), self.processes, self.answered)


def _counted(counts: Sequence[int]) -> dict[str, int]:
    return {call: int(count) for call, count in zip(CUDA_CALLS, counts, strict=True) if count}
