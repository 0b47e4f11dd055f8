"""Kinds of undo: those of old undo logs, those of other packages, and those that nobody knows."""

from __future__ import annotations

import json
import secrets

import pytest

from diloco_chaos.harness.record.reaper import HealedRun
from diloco_chaos.harness.record.reaper import heal as healed
from diloco_chaos.harness.record.undo_log import UndoLogError, read
from packages import installed


def heal(path):
    """What it does, as people read it."""
    return list(map(str, healed(path)))


TOKEN = secrets.token_hex(16)
OPENED = {"entry": "opened", "version": 1, "token": TOKEN, "pid": 4711}
OLD = [
    ('{"number":1,"cause":"f1","process":[4711,815],"entry":"continue"}', "process 4711 let run again"),
    ('{"number":2,"cause":"","process":[4711,815],"entry":"lift","soft":-1,"hard":-1}',
     "file size limit of process 4711 lifted"),
    ('{"number":3,"cause":"f1","api":"127.0.0.1:8474","server":[4711,815],"link":"learner-1","entry":"toxic",'
     '"name":"f1-latency-upstream"}', "toxic f1-latency-upstream taken off learner-1"),
    ('{"number":4,"cause":"f2","api":"127.0.0.1:8474","server":null,"link":"learner-1","entry":"enable"}',
     "link learner-1 let through again"),
    ('{"number":5,"cause":"","entry":"remove","path":"/tmp/x"}', "/tmp/x removed"),
    ('{"number":6,"cause":"","entry":"containers","engine":"unix:///var/run/docker.sock","run":"c0ffeec0ffee"}',
     "containers, networks and volumes of c0ffeec0ffee removed"),
    ('{"number":7,"cause":"","entry":"namespace","context":"lab","namespace":"n","run":"c0ffeec0ffee"}',
     "everything of c0ffeec0ffee in namespace n of lab removed"),
    ('{"number":8,"cause":"","entry":"slurm_jobs","config":"","run":"c0ffeec0ffee"}', "jobs of c0ffeec0ffee cancelled"),
    ('{"number":9,"cause":"f3","entry":"command","argv":["true"]}', "true: done")]
ENTRY = "[diloco_chaos.backends]\nacme = acme_places:Acme\n"
ACME = """
    from typing import Literal
    from diloco_chaos.harness.record.undos import Undo

    class Unplug(Undo):
        entry: Literal["acme-unplug"] = "acme-unplug"
        board: str

        def describe(self):
            return f"{self.board} unplugged"

        def heal(self, token):
            if self.board == "stuck":
                raise RuntimeError("no such board")
            return True

    class Acme:
        @classmethod
        def undos(cls):
            return (Unplug,)
"""


def undo_log(folder, *lines):
    path = folder / "undo_log.jsonl"
    path.write_text("".join(f"{line}\n" for line in (json.dumps(OPENED), *lines)))
    return path


@pytest.mark.parametrize(("line", "words"), OLD, ids=[json.loads(line)["entry"] for line, _ in OLD])
def test_an_undo_log_of_an_earlier_version_is_read(tmp_path, line, words):
    [undo] = read(undo_log(tmp_path, line)).undos
    assert undo.describe() == words


def unplug(number, board):
    return json.dumps({"number": number, "cause": "", "entry": "acme-unplug", "board": board})


def test_a_place_of_another_package_heals_what_it_left(tmp_path):
    path = undo_log(tmp_path, unplug(1, "b7"))
    with installed(tmp_path / "site", "acme-places", ENTRY, acme_places=ACME):
        assert heal(path) == ["b7 unplugged"]
    assert not path.exists()


def test_what_was_undone_is_not_owed_whatever_its_words(tmp_path):
    path = undo_log(tmp_path, unplug(1, "NOT UNDONE: b7"))
    with installed(tmp_path / "site", "acme-places", ENTRY, acme_places=ACME):
        assert healed(path) == [HealedRun("NOT UNDONE: b7 unplugged")]
    assert not path.exists()


def test_what_only_a_package_can_undo_that_is_gone_stays_and_is_told(tmp_path):
    path = undo_log(tmp_path, unplug(1, "b7"))
    with pytest.raises(UndoLogError, match=r"undo_log.jsonl:2: .*no installed place undoes 'acme-unplug': install the "
                                           r"package that wrote it"):
        heal(path)
    assert path.exists()


@pytest.mark.parametrize(("source", "why"), [
    ("import no_such_cloud", "acme of acme-places 1.2 can't be loaded: ModuleNotFoundError"),
    ("class Acme:\n    def undos():\n        raise OSError('no disk')",
     "acme of acme-places 1.2 can't say what it undoes: OSError: no disk")])
def test_a_place_that_can_not_be_asked_is_named_where_its_undo_is_missed(tmp_path, source, why):
    path = undo_log(tmp_path, unplug(1, "b7"))
    with installed(tmp_path / "site", "acme-places", ENTRY, acme_places=source):
        with pytest.raises(UndoLogError, match=why):
            heal(path)
        assert heal(undo_log(tmp_path, OLD[-1][0])) == ["f3: true: done"]


def test_an_undo_that_raises_what_nobody_expects_keeps_no_other_from_being_done(tmp_path):
    path = undo_log(tmp_path, OLD[-1][0], unplug(10, "stuck"))
    with installed(tmp_path / "site", "acme-places", ENTRY, acme_places=ACME):
        assert heal(path) == ["NOT UNDONE: stuck unplugged: RuntimeError: no such board", "f3: true: done"]
    assert path.exists()
