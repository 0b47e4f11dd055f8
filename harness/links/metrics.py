"""How many bytes the links carried, as the counters that Toxiproxy has for Prometheus.

Counted as the bytes go by; Toxiproxy's own counters hear of them when a connection ends.
"""

from __future__ import annotations

from dataclasses import dataclass

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus' text format

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass
class LinkTraffic:
    """The bytes of one direction: `received` from its source, `sent` to its sink."""

    received: int = 0
    sent: int = 0


class Metrics:
    """The traffic of all proxies of one server, deleted ones included: counters only ever grow."""

    def __init__(self) -> None:
        self._traffic: dict[tuple[str, str, str, str], LinkTraffic] = {}

    def traffic(self, *, direction: str, listener: str, proxy: str, upstream: str) -> LinkTraffic:
        """The counters for these labels, to be added to."""
        return self._traffic.setdefault((direction, listener, proxy, upstream), LinkTraffic())

    def as_text(self) -> str:
        """Return all counters in Prometheus' text format."""
        return "".join(self._family(field) for field in ("received", "sent"))

    def _family(self, field: str) -> str:
        if not self._traffic:
            return ""
        name = f"toxiproxy_proxy_{field}_bytes_total"
        lines = [f"# HELP {name} ", f"# TYPE {name} counter"]
        for labels, traffic in sorted(self._traffic.items()):
            direction, listener, proxy, upstream = (label.translate(_ESCAPES) for label in labels)
            lines.append(f'{name}{{direction="{direction}",listener="{listener}",proxy="{proxy}",'
                         f'upstream="{upstream}"}} {getattr(traffic, field)}')
        return "\n".join(lines) + "\n"
