"""Corpora: where the bytes come from, which are held out, and which learner sees which window."""

from __future__ import annotations

import os
import secrets
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from diloco_chaos.harness.record.storage.disk import content_digest, file_digest
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.record.undos import Remove
from diloco_chaos.harness.trainers.api.trainer import TrainerError

Bytes = npt.NDArray[np.uint8]
Windows = npt.NDArray[np.int64]

HELD_OUT_WINDOWS = 512
HeldOut = Literal["reported", "tuning"]
"""Which held-out windows: those that figures are reported on, or as many others, on which settings are chosen."""
_BLOCK = 1 << 15
_MARKOV_BYTES = 1 << 21
_HELD_OUT_EVERY = 16  # one block of sixteen is never trained on


class CorpusError(TrainerError):
    """A corpus that can't be used; the message says why and what to do."""


def materialize(corpus: str, cache: Path, needed: int, undo_log: UndoLog | None = None) -> tuple[Path, str]:
    """Write a corpus to one file in the cache, named by its digest, and return both; a run maps that file.

    Args:
        corpus: `stdlib`, `markov`, or a path to a file or a folder.
        needed: bytes that the run must find at least.

    What was read before is not read again, unless a file of it has changed: its size, or one of its times.

    Raises:
        CorpusError: nothing is there, or it is too small.
    """
    files = _files(corpus)
    index = cache / f"{_signature(files)}.digest"
    name = index.read_text() if index.is_file() else ""
    path = cache / f"{name}.bin"
    if not name or file_digest(path) != name:  # it is not there, or somebody changed it
        data = b"".join(file.read_bytes() for file in files) if files else MarkovSource().sample(_MARKOV_BYTES, seed=0)
        name = content_digest(data)
        path = cache / f"{name}.bin"
        try:
            _write(path, data, undo_log)
            _write(index, name.encode(), undo_log)
        except OSError as error:
            raise CorpusError(f"{cache}: a corpus can't be kept there: {error.strerror or error}; set XDG_CACHE_HOME "
                              f"to a folder that can be written") from error
    if (size := path.stat().st_size) < needed:
        raise CorpusError(f"corpus {corpus}: {size} bytes, but this run needs at least {needed}: "
                          f"name a larger file or folder with --corpus, or leave it out to train on {'stdlib'!r}")
    return path, name


def _signature(files: Sequence[Path]) -> str:
    """Return a digest of which files these are, and of when each was changed."""
    if not files:
        return content_digest(f"{MarkovSource()} {_MARKOV_BYTES}".encode())
    facts = [(str(file), (stat := file.stat()).st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
             for file in files]
    return content_digest(repr(facts).encode())


def _write(path: Path, data: bytes, undo_log: UndoLog | None) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{undo_log.token if undo_log else secrets.token_hex(8)}.partial")
    owed = undo_log.record(Remove, path=temporary) if undo_log else 0
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        if undo_log:
            undo_log.complete(owed)


def needed_bytes(context: int) -> int:
    """The least corpus from which the held-out windows can be cut."""
    return (HELD_OUT_WINDOWS * (context + 1) // _BLOCK + 2) * _BLOCK * _HELD_OUT_EVERY


def _files(corpus: str) -> list[Path]:
    """Return the files of a corpus, in order; none: of the Markov source."""
    if corpus == "markov":
        return []
    root = Path(sysconfig.get_paths()["stdlib"]) if corpus == "stdlib" else Path(corpus).expanduser()
    if not root.exists():
        raise CorpusError(f"corpus {corpus}: no such file or folder; name one with --corpus PATH")
    if root.is_file():
        return [root]
    files = sorted(_below(root, ".py" if corpus == "stdlib" else ""))
    if not files:
        raise CorpusError(f"corpus {corpus}: there is no file in this folder; name another one with --corpus PATH")
    return files


def _below(root: Path, ending: str) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = set(folders) - {"site-packages", "__pycache__"}
        for name in names:
            path = Path(folder, name)
            if name.endswith(ending) and path.is_file() and not path.is_symlink():
                yield path


@dataclass(frozen=True)
class MarkovSource:
    """A first-order Markov source over a few letters whose entropy rate is known in closed form.

    Integer transition counts and integer draws: the same bytes on every machine.
    """

    symbols: int = 16
    seed: int = 7
    denominator: int = 1 << 10

    def transitions(self) -> npt.NDArray[np.int64]:
        """Transition counts [from, to]; each row adds up to `denominator`, no entry is zero."""
        random = np.random.default_rng(self.seed)
        cuts = np.sort(random.integers(1, self.denominator - self.symbols, (self.symbols, self.symbols - 1)), axis=1)
        edges = np.concatenate([np.zeros((self.symbols, 1), np.int64), cuts,
                                np.full((self.symbols, 1), self.denominator - self.symbols)], axis=1)
        return np.diff(edges, axis=1) + 1

    def entropy_rate(self) -> float:
        """H = sum_i pi_i H(P_i) in nats per byte, pi the stationary distribution: no model can do better."""
        rows = self.transitions() / self.denominator
        system = np.vstack([rows.T - np.eye(self.symbols), np.ones(self.symbols)])
        stationary = np.linalg.lstsq(system, np.append(np.zeros(self.symbols), 1.0), rcond=None)[0]
        return float(-(stationary[:, None] * rows * np.log(rows)).sum())

    def sample(self, length: int, seed: int) -> bytes:
        """`length` bytes, letters from `a` on."""
        thresholds = np.cumsum(self.transitions(), axis=1)
        draws = np.random.default_rng(seed).integers(0, self.denominator, length)
        following = np.array([np.searchsorted(row, np.arange(self.denominator), side="right") for row in thresholds])
        state, out, table = 0, bytearray(length), following.tolist()
        for index, draw in enumerate(draws.tolist()):
            state = table[state][draw]
            out[index] = 97 + state
        return bytes(out)


class Corpus:
    """A materialized corpus: training windows for M learners, and held-out windows that nobody trains on."""

    def __init__(self, path: Path, context: int, learners: int, batches: int | Sequence[int], seed: int,
                 held_out: HeldOut = "reported") -> None:
        """Maps the file; `context` bytes a window, plus one as the last target; `batches`: of every learner, or of all.

        Raises:
            CorpusError: there are too few held-out windows for two sets of them.
        """
        self._data: Bytes = np.memmap(path, np.uint8, mode="r")
        self._context, self._learners = context, learners
        self._batches = (batches,) * learners if isinstance(batches, int) else tuple(batches)
        blocks = len(self._data) // _BLOCK
        per_block = (_BLOCK - 1) // context
        starts = (np.arange(blocks)[:, None] * _BLOCK + np.arange(per_block)[None, :] * context)
        held = np.arange(blocks) % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1
        fixed = np.random.default_rng(0)  # the held-out windows are the same for every seed
        reported = fixed.choice(starts[held].ravel(), HELD_OUT_WINDOWS, replace=False)
        self._held_out = np.sort(reported if held_out == "reported" else _others(starts[held].ravel(), reported))
        self._order = np.random.default_rng(seed).permutation(starts[~held].ravel())

    def batch(self, learner: int, position: int) -> tuple[Windows, Windows]:
        """Inputs and targets [batch, context] of one learner's batch; shards are disjoint until an epoch ends.

        Learner m (0-based) takes windows m, m + M, m + 2M, ... of one shuffled order; after the last it begins again.
        """
        size = self._batches[learner]
        first = position * size
        windows = (np.arange(first, first + size) * self._learners + learner) % len(self._order)
        return self._cut(self._order[windows])

    def held_out(self) -> tuple[Windows, Windows]:
        """The 512 held-out windows [512, context]."""
        return self._cut(self._held_out)

    def _cut(self, starts: npt.NDArray[np.int64]) -> tuple[Windows, Windows]:
        windows = self._data[starts[:, None] + np.arange(self._context + 1)].astype(np.int64)
        return windows[:, :-1], windows[:, 1:]


def _others(starts: npt.NDArray[np.int64], reported: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return other held-out windows, as many as are reported on, and none of those; the same for every seed."""
    rest = np.setdiff1d(starts, reported)
    if len(rest) < HELD_OUT_WINDOWS:
        raise CorpusError(f"of {len(starts)} held-out windows {HELD_OUT_WINDOWS} are reported on, which leaves "
                          f"{len(rest)} to choose settings on, not as many: name a larger corpus with --corpus")
    return np.random.default_rng(1).choice(rest, HELD_OUT_WINDOWS, replace=False)
