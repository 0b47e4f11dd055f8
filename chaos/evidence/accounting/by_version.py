"""What is known of each version of each fragment, to be looked up for many receipts at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from diloco_chaos.chaos.evidence.accounting.parts import Integers
from diloco_chaos.harness.base.tensors import np
from diloco_chaos.harness.record.tape.events import Received
from diloco_chaos.harness.record.tape.series import Column, Series, column_of


class ByVersion:
    """One value for each (fragment, version)."""

    def __init__(self, values: Mapping[tuple[int, int], Any]) -> None:
        """`values`: one at least, all of one type."""
        self.values: Column = column_of(list(values.values()))
        """In the order in which they were given."""
        rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for row, (fragment, version) in enumerate(values):
            rows[fragment].append((version, row))
        self._rows = {fragment: np.asarray(sorted(pairs), np.int64).T for fragment, pairs in rows.items()}

    def rows(self, received: Series[Received]) -> Integers:
        """Return the number of the value that belongs to each receipt; -1 where there is none."""
        fragments, versions = received.integers("fragment"), received.integers("version")
        matches = np.full(len(received), -1, np.int64)
        for fragment in np.unique(fragments).tolist():
            known, rows = self._rows.get(fragment, np.zeros((2, 0), np.int64))
            mine = np.flatnonzero(fragments == fragment)
            places = np.searchsorted(known, versions[mine])
            inside = places < len(known)
            mine, places = mine[inside], places[inside]
            same = known[places] == versions[mine]
            matches[mine[same]] = rows[places[same]]
        return matches
