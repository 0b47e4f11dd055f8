"""Every kind of fault by its name, from whichever package provides it, and what a plan or a scenario may hold."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Literal, get_origin

from pydantic import BeforeValidator, SerializeAsAny
from pydantic_core import PydanticCustomError, PydanticKnownError

from diloco_chaos.faults.base import Fault
from diloco_chaos.harness.base.registries import Provided, ProviderError, Registry

GROUP = "diloco_chaos.faults"
"""Of entry points; each names a subclass of Fault, or a module or package in which there are some."""


def _provided(entry: Provided) -> list[tuple[str, type[Fault]]]:
    classes = list(_classes(entry.content))
    if not classes:
        raise ProviderError(f"{entry.name} of {entry.provider} provides no fault: an entry point of {GROUP} names a "
                            f"subclass of diloco_chaos.Fault whose `kind` is a Literal, or a module with some")
    return [(fault.model_fields["kind"].default, fault) for fault in classes]


FAULTS = Registry(GROUP, "fault", _provided)


def _classes(content: Any) -> Iterator[type[Fault]]:
    """The faults in a module, and in the modules of a package; or the one that a class is."""
    if isinstance(content, type) and issubclass(content, Fault):
        yield from [content] if _named(content) else []
    elif isinstance(content, ModuleType):
        for module in _modules(content):
            for _, value in inspect.getmembers(module, inspect.isclass):
                if issubclass(value, Fault) and value.__module__ == module.__name__ and _named(value):
                    yield value


def _modules(module: ModuleType) -> Iterator[ModuleType]:
    yield module
    for entry in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."):
        yield import_module(entry.name)


def _named(fault: type[Fault]) -> bool:
    """Return whether a fault has a kind of its own; else it is what others are made from."""
    return get_origin(fault.model_fields["kind"].annotation) is Literal


def _of_its_kind(composites: bool, value: Any) -> Any:
    """A fault from what a file says of it; each class is built by pydantic when it is first needed."""
    if isinstance(value, Fault):
        return value
    if not isinstance(value, Mapping):
        raise PydanticKnownError("dict_type")
    kind = str(value.get("kind"))
    fault = FAULTS.get(kind)
    if fault is None or (fault.taken_apart and not composites):
        raise PydanticCustomError("unknown_fault", "no fault {kind}", {"kind": kind})
    return fault.model_validate(value)


AnyFault = Annotated[SerializeAsAny[Fault], BeforeValidator(partial(_of_its_kind, False))]
"""What a plan holds."""
AnyEntry = Annotated[SerializeAsAny[Fault], BeforeValidator(partial(_of_its_kind, True))]
"""What a scenario may name."""
