"""Faults of a node's device, as its processes see them: calls of the CUDA runtime fail, come late, or never end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from diloco_chaos.faults.base import Drawn, FaultContext, Observation, unable
from diloco_chaos.faults.within.counted import Counted
from diloco_chaos.harness.base.units import Seconds, Size, names, show_bytes, show_seconds
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.capabilities import CudaCalls
from diloco_chaos.harness.preload.cuda import CUDA_CALLS, CudaCall, CudaHits, CudaRule

DeviceError = Literal["ecc", "contained", "nvlink", "launch", "lost", "memory"]
_ALLOCATES: tuple[CudaCall, ...] = ("cudaMalloc", "cudaMallocAsync")
_LAUNCHES: tuple[CudaCall, ...] = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaGraphLaunch")
_WAITS: tuple[CudaCall, ...] = ("cudaMemcpy", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize",
                                "cudaStreamQuery", "cudaEventQuery")
_QUESTIONS: tuple[CudaCall, ...] = ("cudaGetLastError", "cudaPeekAtLastError")
_OF_A_DEVICE = tuple(call for call in CUDA_CALLS if call not in ("cudaGetDeviceCount", "cudaSetDevice", *_QUESTIONS))
_COUNTED_BY_ECC: tuple[DeviceError, ...] = ("ecc", "contained")
_NO_DEVICE = 100


class _Code(NamedTuple):
    code: int
    """What calls return: `cudaError_t` of the runtime."""
    called: str
    calls: tuple[CudaCall, ...]
    """Those that it begins with."""
    xid: int = 0
    """The driver's number for what is nearest to it; 0: none is."""


_CODES: Mapping[DeviceError, _Code] = {
    "ecc": _Code(214, "an uncorrectable ECC error", _OF_A_DEVICE, 48),
    "contained": _Code(226, "a contained error", _OF_A_DEVICE, 94),
    "nvlink": _Code(220, "an uncorrectable NVLink error", _OF_A_DEVICE, 74),
    "launch": _Code(719, "a launch failure", (*_LAUNCHES, *_WAITS), 43),
    "lost": _Code(999, "a lost device", tuple(call for call in CUDA_CALLS if call not in _QUESTIONS), 79),
    "memory": _Code(2, "full device memory", _ALLOCATES)}


class Cuda(Counted):
    """Calls of the CUDA runtime return an error in the target's processes, come late, or wait for what never ends. A
    library that is preloaded into them does so; no device is touched.

    An error of a device stays with its process, also when the fault is over, and with the node while the fault lasts: a
    process that is started again fails again. Running out of memory is the call's own. NVML answers to match: the
    device is lost, one more ECC error was not corrected, there was such a Xid.

    What it does not see: libraries that have the runtime linked into them (cuBLAS, cuDNN, NCCL), and the driver's
    interface.
    """

    needs: ClassVar[frozenset[Ability]] = frozenset({"cuda"})
    drawn = Drawn(290, {"for": ("1s", "2s")}, family="device", asked=True, simulated=False,
                  ways=({"delay": "100ms"}, {"hang": True}, {"error": "ecc"}, {"error": "memory"}, {"error": "lost"}))

    kind: Literal["cuda"] = "cuda"
    error: DeviceError | None = None
    """What has befallen the device."""
    delay: Seconds | None = Field(None, gt=0)
    """How late each launch comes."""
    hang: Literal[True] | None = None
    """What was launched never ends: who waits for it waits until the fault is over."""
    after_bytes: Size = 0
    """So much is allocated before the memory is full."""

    @model_validator(mode="after")
    def _one_action(self) -> Cuda:
        if sum(value is not None for value in (self.error, self.delay, self.hang)) != 1:
            raise ValueError("say what becomes of the device, in one way: `error: ecc`, `delay: 300ms` or "
                             "`hang: true`")
        if self.after_bytes and self.error != "memory":
            raise ValueError("after_bytes: only memory is full after so many bytes: write `error: memory`, or leave it "
                             "out")
        return self

    @property
    def rule(self) -> CudaRule:
        """Return what becomes of which calls."""
        if self.error is not None:
            code, _, calls, xid = _CODES[self.error]
            return CudaRule(calls, "error", code, _NO_DEVICE if self.error == "lost" else code,
                            lasts=self.error != "memory", after=self.after_bytes, lost=self.error == "lost",
                            ecc=int(self.error in _COUNTED_BY_ECC), xid=xid)
        return CudaRule(_WAITS, "hang") if self.hang else CudaRule(_LAUNCHES, "delay", delay_s=self.delay or 0.0)

    def inject(self, hit: FaultContext) -> Observation:
        """Arm it for every target."""
        return unable([hit.having(CudaCalls).fail_cuda(target, hit.id, self.rule) for target in self.targets])

    def undo(self, hit: FaultContext) -> None:
        """Disarm it; who waits goes on."""
        for target in self.targets:
            hit.having(CudaCalls).heal_cuda(target, hit.id)

    def observe_end(self, hit: FaultContext) -> Observation:
        """Return the calls that the processes themselves have counted."""
        done = {target: hit.having(CudaCalls).cuda_hits(target, hit.id) for target in self.targets}
        if missed := unable(self._missed(target, each) for target, each in done.items()
                            if not each or not (each.calls or each.answered)):
            return missed
        hits = {target: each for target, each in done.items() if each is not None}
        return {"ok": True, "hit": "; ".join(self._counted(target, each) for target, each in hits.items()),
                "calls": sum(sum(each.calls.values()) for each in hits.values()),
                "processes": sum(each.processes for each in hits.values())}

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        after = f" after {show_bytes(self.after_bytes)}" if self.after_bytes else ""
        return f"{self._what}{after} at {names(self.targets)} {self.describe_duration()}"

    def expected_lost_time(self) -> float:
        """Return its duration in seconds, but where launches come late: nothing is computed meanwhile."""
        return 0.0 if self.delay else self.duration or 0.0

    @property
    def _what(self) -> str:
        if self.error is not None:
            return _CODES[self.error].called
        return "device work that never ends" if self.hang else f"kernel launches {show_seconds(self.delay or 0.0)} late"

    def _counted(self, target: str, hits: CudaHits) -> str:
        calls = ", ".join(f"{call} {count}" for call, count in hits.calls.items())
        of = "one process" if hits.processes == 1 else f"{hits.processes} processes"
        parts = [f"{_several(sum(hits.calls.values()), 'call')} ({calls}) of {of}"] if calls else []
        parts += [f"{_several(hits.answered, 'answer')} of NVML"] if hits.answered else []
        return f"{target}: {self._what} for {' and '.join(parts)}"

    def _missed(self, target: str, hits: CudaHits | None) -> str:
        if hits is None:
            return f"{target}: it was never armed"
        if not hits.met:
            return (f"{target}: no call of the CUDA runtime was met: does the program link it statically, or use no "
                    f"GPU?")
        met = ", ".join(f"{call} {count}" for call, count in hits.met.items())
        why = f"fewer than {show_bytes(self.after_bytes)} were allocated" if self.after_bytes else \
            f"there was no {names(self.rule.calls, 'or')}"
        return f"{target}: calls of the CUDA runtime were met ({met}), and none was hit: {why}"


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
