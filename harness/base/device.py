"""What learners compute on: this machine's processor, or a CUDA device."""

from __future__ import annotations

from typing import Literal, get_args

Device = Literal["cpu", "cuda"]
DEVICES: tuple[Device, ...] = get_args(Device)


def best() -> Device:
    """CUDA where there is one."""
    return "cpu" if missing("cuda") else "cuda"


def missing(device: str) -> str:
    """Return why this device can't be used here; empty where it can. Imports torch where it must be asked."""
    if device == "cpu":
        return ""
    import torch
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA: install another build, or compute on device cpu"
    return "" if torch.cuda.is_available() else "torch finds no CUDA device"
