"""Who may talk to us: whoever knows the run's token."""

from __future__ import annotations

import hmac


def matches(told: str, token: str) -> bool:
    """Whether somebody told the token, in a time that does not tell how much of it was right."""
    return hmac.compare_digest(told.encode("utf-8", "surrogatepass"), token.encode())
