"""Other people have folders named `chaos`, `faults`, `harness` or `scenarios`, too: what to do where one hides ours.

Nothing of the other packages is imported here: this is asked before they are.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("chaos", "faults", "harness", "scenarios")
HOME = Path(__file__).resolve().parents[1]


def hidden() -> str:
    """Which folder Python takes for one of our packages, and what to do; empty where it finds ours."""
    for name in PACKAGES:
        spec = find_spec(name)
        found = [Path(place).resolve() for place in (spec and spec.submodule_search_locations) or ()]
        if found and HOME / name not in found:
            root = found[0].parent
            return (f"{found[0]}: this folder hides the package `{name}` of diloco-chaos, because {root} comes first "
                    f"on Python's path. Rename the folder, or keep {root} off the path: leave it out of PYTHONPATH, "
                    f"and call `pytest --import-mode=importlib`, not `python -m pytest`")
    return ""


def clash(test: Path) -> str:
    """Why a test file can't be imported where its package has one of our names; empty where it has none."""
    top = None
    for folder in test.parents:
        if not (folder / "__init__.py").exists():
            break
        top = folder
    if top is None or top.name not in PACKAGES or top.resolve() == HOME / top.name:
        return ""
    return (f"{top}: this folder is a package named `{top.name}`, as one of diloco-chaos is, and Python knows only one "
            f"of a name. Remove {top / '__init__.py'}, or run pytest with --import-mode=importlib")
