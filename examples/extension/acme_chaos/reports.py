"""A run in one line, for a chat channel."""

from __future__ import annotations

from diloco_chaos import Result


def one_line(result: Result) -> str:
    """`nic-brownout: 15 checks, failed: uptime`."""
    verdicts = result.judgement.checks
    bad = [f"{word}: {', '.join(names)}" for word in ("failed", "unknown")
           if (names := [one.name for one in verdicts if one.verdict == word])]
    return f"{result.history.plan.scenario}: {len(verdicts)} checks, {'; '.join(bad) or 'all passed'}\n"
