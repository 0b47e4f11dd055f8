"""Bounds for a kind of job in one word: `checks: resumable`; `checks: {profile: resumable, ...}` says more."""

from __future__ import annotations

from typing import Any

from diloco_chaos.harness.base.errors import nearest

PROFILES: dict[str, dict[str, Any]] = {
    # A job that dies as a whole and goes on from a checkpoint. While it is started again nothing is made, and what was
    # made since the checkpoint is made again: pace, uptime and lost rounds say how long that takes, not whether it is
    # right.
    "resumable": {
        "no_global_stall": {"max_gap": "60s", "max_gap_vs_start": 5},
        "resumed": {},
        **dict.fromkeys(("self_healing", "reintegration", "uptime", "blast_radius", "rounds_never_go_back"), "off"),
    },
}


def expanded(checks: Any) -> Any:
    """Return the `checks:` of a scenario with the bounds of its profile beneath its own.

    Raises:
        ValueError: there is no such profile.
    """
    if not isinstance(checks, dict) or "profile" not in checks:
        return checks
    name, own = checks["profile"], {key: bound for key, bound in checks.items() if key != "profile"}
    if not isinstance(name, str) or name not in PROFILES:
        raise ValueError(f"no profile {str(name)[:80]!r}{nearest(str(name)[:80], list(PROFILES)) or '.'} There is "
                         f"{', '.join(PROFILES)}: `checks: {next(iter(PROFILES))}`")
    return PROFILES[name] | own


def as_mapping(document: dict[str, Any]) -> dict[str, Any]:
    """Return a scenario in which `checks: NAME` is `checks: {profile: NAME}`, which can be extended key by key."""
    checks = document.get("checks")
    return document | {"checks": {"profile": checks}} if isinstance(checks, str) else document
