"""Is each learner told of the answers that were merged, and of no others? Error feedback depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from diloco_chaos.chaos.evidence.accounting.parts import Integers, PartColumns, parts_of
from diloco_chaos.chaos.evidence.accounting.token_accounting import Node
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.harness.base.tensors import np
from diloco_chaos.harness.record.tape.events import Disconnected, OuterGradient, Received, Reset
from diloco_chaos.harness.record.tape.series import Series, ranks


def misinformed(history: History) -> list[str]:
    """Name each process that was told, with a version that it received, that its answer is in it where it is not, or
    that it is not where it is."""
    parts = parts_of([*history.merges, *history.recovered_merges])
    if not len(parts.merge):
        return []
    sent, received = history.tape.series(OuterGradient), history.tape.series(Received)
    broken: list[Mapping[Node, Series[Any]]] = [history.tape.series(Disconnected), history.tape.series(Reset)]
    processes, process = parts.processes
    wrong = []
    for node, receipts in received.items():
        if node in sent and node in processes:
            ends: list[Series[Any]] = [series[node] for series in broken if node in series]
            rows = np.flatnonzero(process == processes.index(node))
            wrong += [f"{node[0]}.{node[1]} was told with version {receipt.version} of fragment {receipt.fragment} "
                      f"that its answer is {'' if receipt.arrived else 'not '}in it; the syncer's tape says otherwise"
                      for receipt in _misinforming(receipts.until(history.end), sent[node], ends, parts, rows)]
    return wrong


def _misinforming(receipts: Series[Received], sent: Series[OuterGradient],
                  ends: Sequence[Series[Any]], parts: PartColumns, rows: Integers) -> Iterator[Received]:
    """`ends`: of what was under way; `rows`: of the process' own parts in merges."""
    told = receipts.plain("arrived")
    came, answered, *over = ranks(receipts, sent, *ends)
    lost = np.sort(np.concatenate([np.zeros(0, np.int64), *over]))
    fragment_of, version_of = (np.asarray(parts.of_merge(name), np.int64) for name in ("fragment", "version"))
    made = np.asarray([(merge.fragment, merge.version) for merge in parts.merges], np.int64)
    for fragment in np.unique(receipts.integers("fragment")).tolist():
        mine = np.flatnonzero(receipts.integers("fragment") == fragment)
        answers = np.flatnonzero(sent.integers("fragment") == fragment)
        if not len(answers):
            continue
        newest = np.searchsorted(answered[answers], came[mine], "left") - 1
        at = answered[answers[np.maximum(newest, 0)]]
        before = np.concatenate([[-1], came[mine][:-1]])
        under_way = (newest >= 0) & (at > before) & (
            np.searchsorted(lost, at) == np.searchsorted(lost, came[mine]))
        own = rows[fragment_of[rows] == fragment]
        own = own[np.argsort(version_of[own], kind="stable")]
        versions = receipts.integers("version")[mine]
        held = np.concatenate([[0], versions[:-1]])
        known = np.unique(made[made[:, 0] == fragment, 1])
        whole = np.searchsorted(known, versions, "right") - np.searchsorted(known, held, "right") == versions - held
        last = np.append(parts.integers("last")[own], -1)[np.searchsorted(version_of[own], versions, "right") - 1]
        merged = under_way & (last == sent.integers("step")[answers[np.maximum(newest, 0)]])
        for place, receipt in enumerate(mine.tolist()):
            if told[receipt] is not None and bool(told[receipt]) != bool(merged[place]) and (
                    merged[place] or whole[place]):
                yield receipts[receipt]
