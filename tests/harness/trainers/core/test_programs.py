"""What `{...}` in a command stands for."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainers.core.programs import (
    PlaceholderError,
    Program,
    Started,
    filled,
    filled_file,
    link_name,
    named,
    named_in_file,
    target,
)

OWN = {"python": "/usr/bin/python3", "run": "/runs/1", "name": "replica-2", "index": "1", "incarnation": "0",
       "host": "127.0.0.1", "port": "4001"}
THERE = {"store": "127.0.0.1:4000", "replica-1": "127.0.0.1:4002"}


def test_every_placeholder_is_found_once_in_order():
    assert named(["{python} t.py {store} {name}", "{store.port} {store} {{json}}"]) == [
        "python", "store", "name", "store.port"]


@pytest.mark.parametrize(("placeholder", "node"), [
    ("name", None), ("port", None), ("store", "store"), ("store.host", "store"), ("replica-1.port", "replica-1")])
def test_it_is_about_the_node_itself_or_names_another(placeholder, node):
    assert target(placeholder, THERE) == node


def test_one_that_stands_for_nothing_is_answered_with_what_there_is():
    with pytest.raises(PlaceholderError) as refused:
        target("stoer", THERE)
    said = str(refused.value)
    assert said.startswith("{stoer} stands for nothing; did you mean {store}? There are {python}, {run}, {name}")
    assert "by its name (store, replica-1)" in said
    assert "write {{ and }} for braces" in said


@pytest.mark.parametrize("placeholder", ["store.name", "nobody.port", "store.", "Store"])
def test_parts_and_names_that_there_are_not(placeholder):
    with pytest.raises(PlaceholderError):
        target(placeholder, THERE)


def test_all_is_filled_in():
    text = ("{python} t.py --to http://{store} --host {store.host} --own {port} --rank {index} "
            "'{{\"a\": 1}}' {replica-1.port}")
    assert filled(text, OWN, THERE) == ("/usr/bin/python3 t.py --to http://127.0.0.1:4000 --host 127.0.0.1 --own 4001 "
                                        "--rank 1 '{\"a\": 1}' 4002")


def test_what_is_no_placeholder_stays():
    assert filled("awk '{ print $1 }' {} {1}", OWN, THERE) == "awk '{ print $1 }' {} {1}"


def test_a_link_is_named_after_both():
    assert link_name("replica-1", "store") == "replica-1.store"


def test_a_process_is_started_with_all_in_its_place_and_what_it_must_know():
    program = Program("{python} 't t.py' --to {store}", env={"RANK": "{index}", "DILOCO_CHAOS_NODE": "mine"},
                      cwd="{run}/w")
    usual = {"PYTHONUNBUFFERED": "1", "DILOCO_CHAOS_PROGRESS": "/runs/1/progress/replica-2.0.jsonl", "RANK": "1",
             "DILOCO_CHAOS_NODE": "mine"}
    argv = ["/usr/bin/python3", "t t.py", "--to", "127.0.0.1:4000"]
    assert program.started(OWN, THERE, ()) == Started(argv, usual, "/runs/1/w")
    assert program.started(OWN, THERE, ["a:1", "b:2"]).env == usual | {"DILOCO_CHAOS_FAILPOINTS": "a:1,b:2"}


def test_a_file_has_placeholders_and_braces_of_its_own():
    text = '{"at": {"store": "{store}", "out": "{run}/{name}"}} {{name}} {other} {store.path} {}'
    assert filled_file(text, OWN, THERE) == (
        '{"at": {"store": "127.0.0.1:4000", "out": "/runs/1/replica-2"}} {name} {other} {store.path} {}')


def test_the_nodes_that_a_file_names_are_those_that_listen():
    assert named_in_file("{store.port} {replica-1} {store} {name} {{store}} {nobody}", THERE) == ["store", "replica-1"]


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text("ab {}:,.", max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner))


@given(JSON)
def test_json_in_a_file_stays_as_it_is_where_it_names_no_placeholder(content):
    text = json.dumps(content)
    assert json.loads(filled_file(text, OWN, THERE)) == content or "{{" in text
