"""Corpora: shards are disjoint, held-out bytes are never trained on, and the Markov source keeps its promise."""

from collections import Counter

import numpy as np
import pytest

from diloco_chaos.harness.record.storage.disk import file_digest
from diloco_chaos.harness.trainer.model.corpus import Corpus, CorpusError, MarkovSource, materialize, needed_bytes


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """A corpus in which every window can be told from its position."""
    path = tmp_path_factory.mktemp("corpus") / "numbers.bin"
    path.write_bytes(np.random.default_rng(1).integers(0, 256, needed_bytes(16), np.uint8).tobytes())
    return path


def test_learners_never_see_the_same_window_within_an_epoch(numbered):
    corpus = Corpus(numbered, 16, 3, 8, 0)
    windows = [bytes(row.astype(np.uint8)) for position in range(40) for learner in range(3)
               for row in corpus.batch(learner, position)[0]]
    assert max(Counter(windows).values()) == 1


def test_learners_with_batches_of_their_own_never_see_the_same_window_either(numbered):
    corpus = Corpus(numbered, 16, 3, (8, 2, 5), 0)
    batches = [corpus.batch(learner, position)[0] for position in range(40) for learner in range(3)]
    assert [len(batch) for batch in batches[:3]] == [8, 2, 5]
    assert max(Counter(bytes(row.astype(np.uint8)) for batch in batches for row in batch).values()) == 1


def test_settings_are_chosen_on_as_many_held_out_windows_of_which_none_is_reported_on(numbered):
    reported, tuning = (Corpus(numbered, 16, 1, 64, 0, held_out) for held_out in ("reported", "tuning"))
    assert len(set(tuning._held_out)) == len(set(reported._held_out)) == 512
    assert not set(tuning._held_out) & set(reported._held_out)
    assert not set(tuning._held_out) & set(tuning._order)
    assert np.array_equal(reported._held_out, Corpus(numbered, 16, 1, 64, 7)._held_out)
    assert np.array_equal(tuning._held_out, Corpus(numbered, 16, 1, 64, 7, "tuning")._held_out)


def test_a_corpus_with_too_few_held_out_windows_for_two_sets_is_refused_where_the_second_is_asked_for(tmp_path):
    path = tmp_path / "small.bin"
    path.write_bytes(bytes(needed_bytes(1024)))
    assert len(Corpus(path, 1024, 1, 1, 0).held_out()[0]) == 512
    with pytest.raises(CorpusError, match="name a larger corpus"):
        Corpus(path, 1024, 1, 1, 0, "tuning")


def test_held_out_windows_are_never_trained_on(numbered):
    corpus = Corpus(numbered, 16, 1, 64, 0)
    held = {bytes(row.astype(np.uint8)) for row in corpus.held_out()[0]}
    assert len(held) == 512
    epoch = len(corpus._order) // 64
    seen = {bytes(row.astype(np.uint8)) for position in range(epoch) for row in corpus.batch(0, position)[0]}
    assert not held & seen


def test_targets_are_the_inputs_shifted_by_one(numbered):
    inputs, targets = Corpus(numbered, 16, 2, 4, 0).batch(1, 3)
    assert inputs.shape == targets.shape == (4, 16)
    assert np.array_equal(inputs[:, 1:], targets[:, :-1])


def test_seeds_shuffle_differently_but_hold_out_the_same(numbered):
    one, other = Corpus(numbered, 16, 2, 4, 0), Corpus(numbered, 16, 2, 4, 1)
    assert not np.array_equal(one.batch(0, 0)[0], other.batch(0, 0)[0])
    assert np.array_equal(one.held_out()[0], other.held_out()[0])


def test_the_markov_source_is_the_same_on_every_machine():
    source = MarkovSource()
    assert source.sample(40, 0) == source.sample(40, 0)
    assert source.sample(40, 0)[:24] == b"llidebabclmoekpilijnemja"
    assert source.entropy_rate() == pytest.approx(2.39396995, abs=1e-6)


def test_the_entropy_rate_in_closed_form_is_what_the_bytes_show():
    source = MarkovSource()
    data = np.frombuffer(source.sample(1 << 20, 3), np.uint8) - 97
    pairs = np.zeros((16, 16))
    np.add.at(pairs, (data[:-1], data[1:]), 1)
    rows = pairs / pairs.sum(axis=1, keepdims=True)
    empirical = -(pairs * np.log(np.where(rows > 0, rows, 1))).sum() / pairs.sum()
    assert empirical == pytest.approx(source.entropy_rate(), abs=0.005)


def test_a_small_or_missing_corpus_is_refused_with_advice(tmp_path):
    (tmp_path / "small.txt").write_text("hello")
    with pytest.raises(CorpusError, match="needs at least"):
        materialize(str(tmp_path / "small.txt"), tmp_path / "cache", needed_bytes(64))
    with pytest.raises(CorpusError, match="no such file or folder"):
        materialize(str(tmp_path / "nowhere"), tmp_path / "cache", 10)


def test_a_folder_is_read_in_the_order_of_names_and_cached_by_its_digest(tmp_path):
    folder = tmp_path / "texts"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "2.txt").write_bytes(b"second")
    (folder / "1.txt").write_bytes(b"first")
    path, digest = materialize(str(folder), tmp_path / "cache", 1)
    assert path.read_bytes() == b"firstsecond"
    assert digest in path.name
    assert materialize(str(folder), tmp_path / "cache", 1) == (path, digest)


def test_the_default_corpus_is_the_standard_librarys_sources(tmp_path):
    path, _ = materialize("stdlib", tmp_path, 1 << 20)
    assert b"class Counter" in path.read_bytes()


def test_a_corpus_that_somebody_changed_in_the_cache_is_written_again(tmp_path):
    path, digest = materialize("markov", tmp_path, 0)
    whole = path.read_bytes()
    path.write_bytes(b"x" + whole[1:])
    assert materialize("markov", tmp_path, 0) == (path, digest)
    assert path.read_bytes() == whole
    assert file_digest(path) == digest


def test_a_cache_that_cant_be_written_is_named(tmp_path):
    (tmp_path / "cache").write_text("no folder")
    with pytest.raises(CorpusError, match=r"a corpus can't be kept there: .*; set XDG_CACHE_HOME"):
        materialize("markov", tmp_path / "cache", 0)


def test_files_are_read_again_only_if_one_of_them_has_changed(tmp_path, monkeypatch):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "1.txt").write_bytes(b"first")
    before = materialize(str(folder), tmp_path / "cache", 1)
    with monkeypatch.context() as reading:
        reading.setattr("diloco_chaos.harness.trainer.model.corpus._write", None)
        assert materialize(str(folder), tmp_path / "cache", 1) == before
    (folder / "1.txt").write_bytes(b"fIrst")
    path, digest = materialize(str(folder), tmp_path / "cache", 1)
    assert (path.read_bytes(), digest != before[1]) == (b"fIrst", True)


def test_a_folder_without_files_is_refused_and_caches_are_no_part_of_one(tmp_path):
    (tmp_path / "texts" / "__pycache__").mkdir(parents=True)
    (tmp_path / "texts" / "__pycache__" / "a.pyc").write_bytes(b"x")
    with pytest.raises(CorpusError, match="there is no file in this folder"):
        materialize(str(tmp_path / "texts"), tmp_path / "cache", 1)
