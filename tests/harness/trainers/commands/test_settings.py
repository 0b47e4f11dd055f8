"""What a scenario may say of commands, and what it is told where that can't work."""

import socket

import pytest
from pydantic import ValidationError

from diloco_chaos.harness.trainers.commands.plugin import Commands
from diloco_chaos.harness.trainers.commands.settings import CommandSettings

PROGRESS = [{"node": "replica", "log": r"round=(?P<round>\d+)"}]


def settings(nodes=None, **other):
    default = {"store": {"listens": True, "run": "{python} s.py {port}"},
               "replica": {"count": 2, "worker": True, "run": "{python} t.py {store} {name}"}}
    return CommandSettings.model_validate({"nodes": default if nodes is None else nodes, "progress": PROGRESS} | other)


def commands(nodes, **other):
    return Commands(settings(nodes, **other))


def said(nodes=None, **other):
    return {".".join(map(str, place)): why for place, why in settings(nodes, **other).mistakes()}


def replica(**changed):
    return {"replica": {"worker": True, "run": "{python} t.py"} | changed}


def test_the_workers_are_counted_and_named_by_their_kind():
    found = settings()
    assert (found.learners, found.names, found.all_nodes) == (
        2, ["replica-1", "replica-2"], ["store", "replica-1", "replica-2"])


def test_one_of_its_kind_has_the_kinds_name():
    assert settings(replica()).names == ["replica"]
    assert settings(replica(count=1)).names == ["replica-1"]


def test_naming_a_node_that_listens_declares_a_link():
    found = settings()
    assert found.links("replica-1") == ["replica-1.store"]
    assert found.links("store") == []


def test_a_number_in_the_environment_is_what_it_looks_like():
    assert settings(replica(env={"OMP_NUM_THREADS": 1, "RATE": 0.5})).programs["replica"].env == {
        "OMP_NUM_THREADS": "1", "RATE": "0.5"}


def test_links_make_any_graph_and_nobody_has_one_to_itself():
    ring = {f"peer-{number}": {"listens": True, "worker": True, "run": f"t.py {{port}} {{peer-{number}}}",
                               "env": {"NEXT": f"{{peer-{number % 3 + 1}.host}}:{{peer-{number % 3 + 1}.port}}"}}
            for number in (1, 2, 3)}
    found = settings(ring, progress=[])
    assert [found.links(name) for name in found.names] == [["peer-1.peer-2"], ["peer-2.peer-3"], ["peer-3.peer-1"]]


def test_nodes_that_listen_and_do_not_train_are_waited_for():
    found = settings().programs
    assert (found["store"].ready.port, found["replica-1"].ready.port) == (True, False)


def test_several_that_are_alike_have_ports_that_follow_each_other():
    found = settings(replica(count=3, listens=True, port=7000)).programs
    assert [program.port for program in found.values()] == [7000, 7001, 7002]


def test_naming_a_node_in_a_file_declares_a_link():
    found = settings({"store": {"listens": True, "run": "s.py"},
                      "replica": {"worker": True, "run": "t.py", "files": {"at.json": '{"at": "{store}"}'}}})
    assert found.links("replica") == ["replica.store"]


def test_a_plan_shows_the_files_that_a_command_finds():
    found = settings(replica(files={"a.json": "{}", "b": "text"}))
    assert found.commands["replica"].endswith("(finds a.json of 2 characters and b of 4 characters)")


def test_a_plan_says_nothing_of_files_where_there_are_none():
    assert "files" not in settings().model_dump(mode="json")["nodes"]["replica"]


def test_a_sound_scenario_has_no_mistakes():
    assert said() == {}


@pytest.mark.parametrize(("changed", "place", "why"), [
    ({"run": "{python} t.py {stor}"}, "nodes.replica.run", "{stor} stands for nothing; did you mean {store}?"),
    ({"env": {"AT": "{lighthouse}"}}, "nodes.replica.env.AT", "{lighthouse} stands for nothing."),
    ({"cwd": "{run}/{nmae}"}, "nodes.replica.cwd", "{nmae} stands for nothing; did you mean {name}?"),
    ({"run": "t.py {port}"}, "nodes.replica.run", "{port}: replica has no port: write `listens: true`"),
    ({"run": "t.py {quiet}"}, "nodes.replica.run", "{quiet}: nobody can connect to quiet: write `listens: true` at it"),
    ({"run": "t.py {shard}"}, "nodes.replica.run", "{shard}: which one? There are {shard-1}, {shard-2}")])
def test_a_command_that_names_what_is_not_there_is_told_where(changed, place, why):
    nodes = {"store": {"listens": True, "run": "s.py"}, "quiet": {"run": "q.py"},
             "shard": {"listens": True, "count": 2, "run": "s.py"}} | replica(**changed)
    assert said(nodes)[place].startswith(why)


def test_a_metrics_file_has_few_placeholders():
    told = said(progress=[{"node": "replica", "metrics": "{name}-{port}.jsonl"}])
    assert told["progress.0.metrics"] == ("{port} stands for nothing here: there are {name}, {index}, {incarnation}, "
                                          "{run}, {here}")


def test_all_mistakes_are_told_at_once():
    nodes = {"a": {"run": "{x}"}, "b": {"run": "{y}", "env": {"Z": "{z}"}}}
    assert set(said(nodes, progress=[{"node": "c", "log": r"(?P<round>\d+)"}])) == {
        "nodes.a.run", "nodes.b.run", "nodes.b.env.Z", "nodes", "progress.0.node"}


def test_workers_whose_rounds_nobody_tells_are_named():
    assert said(progress=[])["nodes"].startswith("nothing tells the rounds of replica-1, replica-2: add `progress:")
    told = [{"node": "replica-1", "log": r"(?P<round>\d+)"}]
    assert said(progress=told)["progress"].startswith("nothing tells the rounds of replica-2")


@pytest.mark.parametrize(("given", "why"), [
    ({"nodes": {}}, "at least 1 item"),
    ({"nodes": {"A": {"run": "x"}}}, "'A' is not a name: it has small letters"),
    ({"nodes": {"a": {"run": " "}}}, "it names no program"),
    ({"nodes": {"a": {"run": "sh -c 'open"}}}, "\"sh -c 'open\" can't be taken apart: No closing quotation"),
    ({"nodes": {"a": {"run": "x", "restart": "maybe"}}}, "'never', 'on-failure' or 'always'"),
    ({"nodes": {"a": {"run": "x", "cuont": 2}}}, "Extra inputs are not permitted"),
    ({"nodes": {"a": {"run": "x", "count": 65}}}, "less than or equal to 64"),
    ({"nodes": {"a": {"run": "x", "count": 40}, "b": {"run": "x", "count": 40}}}, "80 of them, and 64 are the most"),
    ({"nodes": {"a": {"run": "x", "count": 2}, "a-1": {"run": "x"}}}, "two nodes are called 'a-1'"),
    ({"nodes": {"a": {"run": "x", "files": {"../b": "text"}}}}, "must be a path within the node's folder"),
    ({"nodes": {"a": {"run": "x", "files": {"/etc/b": "text"}}}}, "must be a path within the node's folder"),
    ({"nodes": {"a": {"run": "x", "files": {"b/.": "text"}}}}, "must be a path within the node's folder"),
    ({"nodes": {"a": {"run": "x", "files": {"b": {"x": 1}}}}}, "Input should be a valid string"),
    ({"nodes": {"harness": {"run": "x"}}},
     "a node can't be called 'harness', because the run's folder has the harness' own events under that name"),
    ({"nodes": {"rounds": {"run": "x"}}}, "has the rounds under that name: choose another one"),
    ({"nodes": {"a": {"run": "x", "ready": {"log": "("}}}}, "no regular expression"),
    ({"learners": 3}, "there are as many as nodes with `worker: true`, 2 here: leave it out"),
    ({"progress": [{"node": "replica", "log": r"step \d+"}]}, "it has no group `round`"),
    ({"progress": [{"node": "replica"}]}, "say how it is known, in one way"),
    ({"progress": [{"node": "replica", "written": True, "metrics": "m"}]}, "say how it is known, in one way"),
    ({"progress": [{"node": "replica", "written": True, "keys": {"round": "n"}}]}, "those of a `metrics` file"),
    ({"progress": [{"node": "replica", "metrics": "m", "keys": {"rounds": "n"}}]}, "'round', 'loss', 'samples'")])
def test_what_is_no_setting_is_refused(given, why):
    with pytest.raises(ValidationError) as refused:
        settings(given.get("nodes"), **{key: value for key, value in given.items() if key != "nodes"})
    assert why in str(refused.value)


def test_what_is_installed_beside_the_interpreter_is_found_though_it_is_not_on_the_path(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert commands({"a": {"run": "diloco-chaos doctor"}}, progress=[]).lacking() == ""


def test_programs_and_folders_that_are_not_there_are_told(tmp_path):
    nodes = {"a": {"run": "no-such-program --x"}, "b": {"run": "{python} t.py", "cwd": str(tmp_path / "gone")},
             "c": {"run": "./mine", "cwd": str(tmp_path)}}
    told = commands(nodes, progress=[]).lacking().split("; ")
    assert [one.partition(":")[0] for one in told] == ["a", "b", "c"]
    assert "there is no program 'no-such-program'" in told[0]
    assert "there is no folder" in told[1]
    assert "there is no program './mine'" in told[2]
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    assert commands({"c": nodes["c"]}, progress=[]).lacking() == ""


def test_a_baseline_is_a_node_of_its_own_whose_mistakes_are_told_where_it_stands():
    one = {"run": "{python} t.py --alone", "log": r"(?P<round>\d+) (?P<loss>\S+)"}
    found = settings(rounds=50, baseline=one).alone
    assert (found.all_nodes, found.rounds) == (["baseline"], 50)
    assert not said(rounds=50, baseline=one)
    assert "{nobody} stands for nothing" in said(rounds=50, baseline=one | {"run": "t.py {nobody}"})["baseline.run"]
    assert "tells no loss" in said(rounds=50, baseline=one | {"log": r"(?P<round>\d+)"})["baseline"]
    assert "say how many there are" in said(baseline=one)["baseline"]


def test_a_health_address_is_the_nodes_own():
    at = {"listens": True, "run": "s.py"}
    assert not said({"store": at | {"ready": {"url": "http://{host}:{port}/health"}}, **replica()})
    wrong = said({"store": at | {"ready": {"url": "http://{store}/"}}, **replica()})
    assert "can name itself only" in wrong["nodes.store.ready.url"]
    with pytest.raises(ValidationError, match=r"ready\.url"):
        settings(replica(ready={"url": "file:///etc/passwd"}))


def test_what_may_end_is_known_by_its_kind():
    found = commands({"prepare": {"run": "p.py", "exits": [0, -15]}, **replica()})
    assert (found.may_end_with("prepare"), found.may_end_with("replica")) == ((0, -15), ())


def test_a_plan_that_says_nothing_of_containers_is_written_as_before_there_were_any():
    nodes = {"a": {"run": "x", "worker": True}, "b": {"run": "x", "image": "mine"}}
    written = settings(nodes, progress=[]).model_dump(mode="json")["nodes"]
    assert not {"image", "service"} & set(written["a"])
    assert (written["b"]["image"], "service" in written["b"]) == ("mine", False)


def test_in_containers_no_node_has_the_name_of_the_links():
    told = commands({"toxiproxy": {"run": "x", "image": "mine"}}, progress=[]).lacking(containers=True)
    assert told == "toxiproxy: the links' container has that name there: choose another one"


def test_a_port_that_somebody_has_is_told_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as theirs:
        port = theirs.getsockname()[1]
        told = commands({"a": {"run": "sh", "listens": True, "port": port}}, progress=[]).lacking()
        assert told.startswith(f"a: port {port} can't be had (Address already in use): end the program that has it")
    assert commands({"a": {"run": "sh", "listens": True, "port": port}}, progress=[]).lacking() == ""


# -- shells, folders, files, epochs ----------------------------------------------------------------------------------

def test_a_command_for_a_shell_is_a_mistake_where_it_stands():
    told = said(nodes={"w": {"worker": True, "run": "cd x && python t.py --rank ${RANK}"}},
                progress=[{"node": "w", "written": True}])
    assert list(told) == ["nodes.w.run"]
    assert "write `cwd: x`" in told["nodes.w.run"]


def test_lines_may_be_in_files_of_a_pattern():
    progress = [{"node": "w", "log": r"(?P<round>\d+)", "file": "{run}/tr/*/0/stdout.log"}]
    settings = CommandSettings.model_validate({"nodes": {"w": {"worker": True, "run": "t"}}, "progress": progress})
    [source] = settings.sources()
    assert source.file == "{run}/tr/*/0/stdout.log"


def test_newer_settings_leave_older_plans_as_they_are():
    document = CommandSettings.model_validate({
        "nodes": {"w": {"worker": True, "run": "t"}}, "progress": [{"node": "w", "written": True}],
        "baseline": {"run": "t", "written": True}}).model_dump(mode="json")
    assert "here" not in document
    for told in (document["progress"][0], document["baseline"]):
        assert not {"file", "unit"} & set(told)


def test_where_rounds_are_fractions_of_epochs_training_ends_with_an_epoch():
    settings = CommandSettings.model_validate({
        "nodes": {"w": {"worker": True, "run": "t"}}, "rounds": 3,
        "progress": [{"node": "w", "log": "(?P<round>[0-9.]+)", "unit": "epoch"}]})
    assert settings.target == settings.budget_tokens == 30_000


def test_the_folder_of_the_scenario_is_a_placeholder():
    settings = CommandSettings.model_validate({
        "nodes": {"w": {"worker": True, "run": "{python} {here}/t.py"}}, "here": "/a folder",
        "progress": [{"node": "w", "written": True}]})
    program = settings.programs["w"]
    own = program.own("/run", "w") | {"python": "python3", "incarnation": "0"}
    assert program.started(own, {}, ()).argv == ["python3", "/a folder/t.py"]
    assert settings.commands == {"w": "{python} /a folder/t.py"}, "what is asked about before a foreign plan is run"


@pytest.mark.parametrize(("shared", "share"), [(True, 1), (False, 0.5)])
def test_half_of_the_workers_make_as_many_shared_rounds_and_half_of_those_of_their_own(shared, share):
    found = settings(shared=shared)
    assert found.merging_speed(["replica-1"]) == share * found.merging_speed(found.names)


@pytest.mark.parametrize(("node", "progress"), [
    ({"worker": True}, {"log": r"(?P<round>\d+)"}), ({"worker": True}, {"metrics": "{name}.jsonl"}),
    ({"worker": "silent"}, {"log": r"(?P<rank>\d)(?P<round>\d+)"})])
def test_ranks_are_counted_by_lines_that_say_which_one_tells_them(node, progress):
    nodes = {"replica": {"run": "t", "ranks": 2} | node, "other": {"run": "t", "worker": True}}
    found = said(nodes, progress=[{"node": "replica"} | progress])
    assert "add a group `(?P<rank>" in found["nodes.replica.ranks"]


@pytest.mark.parametrize("progress", [
    {"log": r"(?P<rank>\d)(?P<round>\d+)"}, {"metrics": "{name}.jsonl", "keys": {"rank": "r"}}, {"written": True}])
def test_ranks_of_a_node_may_be_promised_where_they_are_told_apart(progress):
    assert "nodes.replica.ranks" not in said(replica(ranks=2), progress=[{"node": "replica"} | progress])
    assert commands(replica(ranks=2)).ranks_of("replica") == 2
    assert commands(replica()).ranks_of("replica") == 0
