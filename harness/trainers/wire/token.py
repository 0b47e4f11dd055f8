"""Who may talk to us: whoever knows the run's token."""

from __future__ import annotations

import hmac


def matches(presented: str, token: str) -> bool:
    """Return whether the presented token is right, in a time that does not depend on how much of it is right."""
    return hmac.compare_digest(presented.encode("utf-8", "surrogatepass"), token.encode())
