"""Whatever a file holds, the answer is a message and an exit code: scenarios, plans, tapes, undo logs and frames,
damaged in thousands of ways."""

import contextlib
import copy
import io
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import zlib
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import msgpack, to_builtins
from ruamel.yaml import YAML
from safetensors.numpy import save as safetensors

from diloco_chaos.chaos import cli
from diloco_chaos.chaos.commands import running
from diloco_chaos.chaos.commands.common import Failure
from diloco_chaos.chaos.runner import cleanup
from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.chaos.scenario.loading import load, parse
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.chaos.scenario.warnings import warnings_of
from diloco_chaos.harness.base.processes import identity
from diloco_chaos.harness.places.links.undos import Enable, Toxin
from diloco_chaos.harness.record import undo_log
from diloco_chaos.harness.record.tape import line as tape_line
from diloco_chaos.harness.record.undo_log import Done, Opened, UndoLogError
from diloco_chaos.harness.record.undos import Continue, Lift, Remove
from diloco_chaos.harness.trainer.protocol.messages import MESSAGES, Finish, Hello, OuterGradient, Report
from diloco_chaos.harness.trainers.wire import frames as wire
from diloco_chaos.harness.trainers.wire.frames import Decoder, FrameError
from diloco_chaos.scenarios import find
from forged_runs import CALM, calmly
from recorded_events import an_event

HEAD = "diloco_chaos: 1\nname: mine\n"
TOKEN = secrets.token_hex(16)
TOY = Path(__file__).parents[1] / "support" / "elastic_toy.py"
LONGEST_S = float(os.environ.get("DILOCO_CHAOS_FUZZ_SECONDS", "5"))
"""Of its own processor time, which a busy machine does not take from it, though it makes it slower."""
FOREVER_S = 60
"""By the clock: an answer that waits for somebody."""


MORE = int(os.environ.get("DILOCO_CHAOS_FUZZ", "1"))
"""Times as many examples, for a long night."""


def often(number, *more):
    """So many examples, however slow the machine."""
    return settings(max_examples=MORE * number, deadline=None, suppress_health_check=list(HealthCheck),
                    phases=[Phase.explicit, Phase.reuse, Phase.generate, *more])


class HungError(BaseException):
    """No answer came; not caught by anything that catches errors."""


@contextlib.contextmanager
def answers_soon():
    def hung(*_):
        raise HungError
    limits = {signal.SIGPROF: (signal.ITIMER_PROF, LONGEST_S), signal.SIGALRM: (signal.ITIMER_REAL, FOREVER_S)}
    before = {number: signal.signal(number, hung) for number in limits}
    for timer, seconds in limits.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    except HungError:
        pytest.fail(f"no answer within {LONGEST_S:g} s of the processor, or {FOREVER_S} s", pytrace=False)
    finally:
        for number, (timer, _) in limits.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def command(*arguments):
    """(exit code, standard output, standard error) of `diloco-chaos` in this process; a crash comes through."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    with (answers_soon(), mock.patch.object(sys, "argv", ["diloco-chaos", *map(str, arguments)]),
          contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as caught):
        cli.main()
    return caught.value.code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()


# -- damage ----------------------------------------------------------------------------------------------------------

DEEP = [[]]
for _ in range(120):
    DEEP = [DEEP]
NASTY = [None, True, False, 0, 1, -1, 2, 3.5, 0.0, -0.5, 1e-320, 1e308, 2**31, 2**63, -2**63, 10**30, 10**400,
         float("nan"), float("inf"), -float("inf"), "", " ", "0", "0s", "1s", "-3s", "3", "1e400s", "1e-300s",
         "1e400MB", "1MB", "1e9 steps", "٣s", "150%", "1e400%", "nan", "learners", "learner-1", "learner-99",
         "syncer", "ghost", "harness", "kill", "pause", "storm", "composite", "link_fault", "latency", "metro", "f1",
         "f2", "both", "failpoint", "\ud800", "\0", "\n", "[/x]", "[bold", "{}", "a" * 5000, [], {}, [[]], [{}],
         {"": 1},
         {"a": {"b": []}}, ["learner-1"], ["learner-1", 5], {"kill": {}}, {"fault": "f1", "wait": "1s"},
         {"node": "syncer", "event": "merge", "count": 2}, {"loss_below": float("nan")}, DEEP]
LEAVES = st.one_of(st.sampled_from(NASTY), st.integers(), st.floats(), st.text(max_size=12))
JUNK = st.one_of(LEAVES, st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.text(max_size=5), inner, max_size=3), max_leaves=5))
WAYS = ("replace", "delete", "duplicate", "rename", "wrap", "retype", "move")
CHANGES = st.lists(st.tuples(st.integers(0, 1 << 20), st.sampled_from(WAYS), JUNK), min_size=1, max_size=4)
PIECES = ["&a ", "*a", "<<: *a", "? ", ": ", "- ", "\t", "\0", "\n---\n", "%YAML 9.9\n", "|", ">", "{", "}", "[", "]",
          "!!float ", "!!binary ", "!!set ", "!x ", "\ufeff", "'", '"', "#", "\r", "2020-13-45", "1_0", "0x", "1e999",
          ".nan", ".inf", "~", "null", "9" * 4400, "\x85", "\u2028", "🦆", "[" * 2000, "{a: " * 300, "  ", "\n", "=",
          ",", "-"]
CHECKPOINTS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 40), st.one_of(
    st.just(""), st.sampled_from(PIECES), st.text(max_size=6))), min_size=1, max_size=4)
BYTE_CUTS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 9), st.binary(max_size=9)), min_size=1,
                     max_size=3)


def places(tree, above=None):
    """(container, key) of every node below the root."""
    if above is None:
        above = []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, below in items:
        above.append((tree, key))
        places(below, above)
    return above


def changed(tree, changes):
    """The tree with random nodes replaced, deleted, doubled, renamed, wrapped, retyped and moved."""
    tree = copy.deepcopy(tree)
    for where, way, new in changes:
        found = places(tree)
        if not found:
            return tree
        container, key = found[where % len(found)]
        other, place = found[(where // 7) % len(found)]
        value, junk = container[key], copy.deepcopy(new)
        match way:
            case "replace":
                container[key] = junk
            case "delete":
                del container[key]
            case "duplicate" if isinstance(container, list):
                container.insert(key, copy.deepcopy(value))
            case "rename" if isinstance(container, dict):
                container[junk if isinstance(junk, (str, int, bool)) else str(junk)[:99]] = container.pop(key)
            case "wrap":
                container[key] = [value] if where % 2 else {"a": value}
            case "retype":
                container[key] = str(value) if where % 2 else list(value) if isinstance(value, (str, dict)) else [value]
            case _:
                other[place] = copy.deepcopy(value)
    return tree


def cut(text, cuts):
    """The text (or bytes) with pieces of it replaced by others."""
    for where, length, piece in cuts:
        where %= len(text) + 1
        text = text[:where] + piece + text[where + length:]
    return text


def flow(value):
    """YAML of any tree, in one line, NaN and infinities as YAML has them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, float) and value - value != 0:
        return ".nan" if value != value else ".inf" if value > 0 else "-.inf"
    return json.dumps(value)


def document(tree):
    """A scenario's text: its keys in lines of their own."""
    return "".join(f"{flow(key)}: {flow(item)}\n" for key, item in tree.items())


# -- scenarios -------------------------------------------------------------------------------------------------------

TEXTS = [path.read_text() for path in find().values()]
TREES = [YAML(typ="safe").load(text) for text in TEXTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def told_or_frozen(text):
    """A scenario is refused with a message, or it can be frozen and warned of."""
    with answers_soon():
        try:
            scenario = parse(text, "mine.yaml")
            planned = freeze(scenario, 1).faults
        except ScenarioError as error:
            assert str(error)
            assert all(problem.message and problem.line <= len(text.splitlines()) + 1 for problem in error.problems)
        else:
            assert isinstance(warnings_of(scenario.trainer, [one.fault for one in planned]), list)


@pytest.mark.parametrize("text", [
    "tape_limit: 1e400MB\n", "extends: " + "a" * 5000 + "\n", 'extends: "\\0"\n',
    "faults: [{storm: learners, at: 1s, for: 20s, of: []}]\n",
    "faults: [{storm: learners, at: 1s, for: 20s, mtbf: 1s, of: [{link_fault: {for: 1s}}]}]\n",
    "faults: [{storm: learners, at: 1s, for: 20s, mtbf: 1s, of: [{kill: {id: 5}}]}]\n",
    "faults: [{storm: learners, at: 1s, for: 20s, mtbf: 1s, of: [{kill: {targets: []}}]}]\n",
    "faults: [{latency: learner-1, at: 1s, for: 1s, profile: [metro]}]\n",
    "faults: [{latency: learner-1, at: 1s, for: 1s, profile: {metro: 1}}]\n",
    "faults:\n" + "".join(f"- {{pause: learner-1, for: 1ms, after: f{number}}}\n" for number in range(2, 1200))
    + "- {pause: learner-1, at: 1s, for: 1ms}\n",
    "faults:\n" + "- {kill: learner-1, at: 1s}\n" * 4000,
    "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(f"{below}: &{below} [{','.join(['*' + above] * 10)}]\n"
                                              for above, below in zip("abcdefg", "bcdefgh", strict=True)),
    "cluster: &a {<<: *a}\n", "cluster: &a [*a, *a]\n", "cluster: " + "[" * 600 + "]" * 600 + "\n",
    "cluster: {lr: 1" + "0" * 400 + "}\n", "cluster: {learners: 1" + "0" * 5000 + "}\n", "name: 2020-99-99\n",
    '"\\ud800": 1\n',
    '? "\\ud800"\n: {}\n'])
def test_a_malicious_scenario_is_answered_with_a_message_and_soon(text):
    told_or_frozen(text if text.startswith("name") else HEAD + text)


@often(500, Phase.shrink)
@given(st.sampled_from(TEXTS), CHECKPOINTS)
def test_a_scenario_with_damaged_text_is_told_or_run(text, cuts):
    told_or_frozen(cut(text, cuts))


@often(900, Phase.shrink)
@given(st.sampled_from(TREES), CHANGES)
def test_a_scenario_with_damaged_parts_is_told_or_run(tree, changes):
    told_or_frozen(document(changed(tree, changes)))


@often(120)
@given(st.sampled_from(TREES), CHANGES, st.sampled_from([["validate"], ["validate", "--json"], ["show"], ["plan"],
                                                          ["show", "--json"]]))
def test_every_command_that_reads_a_scenario_ends_with_a_message(folder, tree, changes, words):
    (folder / "mine.yaml").write_text(document(changed(tree, changes)))
    code, out, err = command(*words, folder / "mine.yaml")
    assert code in (0, 2)
    assert out or err


@pytest.mark.parametrize("name", ["a" * 5000, "\ud800", "", ".", "/", "/dev/null", "no\nsuch"])
@pytest.mark.parametrize("word", ["validate", "show", "plan", "run"])
def test_a_name_of_no_scenario_is_told(word, name):
    code, _, err = command(word, name)
    assert code == 2
    assert err
    assert "--runs-dir" not in err


@pytest.mark.parametrize("words", [["validate"], ["show"], ["show", "--json"], ["plan"]])
def test_text_that_no_terminal_can_show_does_not_crash_a_command(folder, words):
    (folder / "odd.yaml").write_text(HEAD + 'description: "\\ud800 [/x]"\n')
    assert command(*words, folder / "odd.yaml")[0] in (0, 2)


# -- plans -----------------------------------------------------------------------------------------------------------

PLANS = [plans.document(freeze(load(name)[0], 1)) for name in ("flagship", "storm", "corrupt-checkpoint", "no-fault")]


def sealed(content):
    """The plan with a digest that is right again, where it can have one."""
    with contextlib.suppress(Exception):
        content["digest"] = Plan.model_validate(content["plan"]).digest
    return content


@pytest.mark.parametrize("change", [
    {"tape_limit": "1e400B"}, {"deadline": "1e400s"}, {"seed": 10**400}, {"cluster": {"overlap": float("inf")}},
    {"faults": [{"id": "f1", "fault": {"kind": "latency", "targets": ["learner-1"], "at": "1s", "for": "1s",
                                       "profile": ["metro"]}}]}])
def test_a_malicious_plan_is_told(folder, change):
    (folder / "plan.json").write_text(json.dumps(sealed({"plan": PLANS[0]["plan"] | change, "digest": ""})))
    with contextlib.suppress(ScenarioError):
        plans.load(folder / "plan.json")


@often(500, Phase.shrink)
@given(st.sampled_from(PLANS), CHANGES, st.booleans())
def test_a_plan_with_damaged_parts_is_told_or_loaded(folder, content, changes, seal):
    content = changed(content, changes)
    (folder / "plan.json").write_text(json.dumps(sealed(content) if seal else content))
    try:
        plan = plans.load(folder / "plan.json")
    except ScenarioError as error:
        assert str(error)
    else:
        assert plan.digest == content["digest"]
        assert isinstance(warnings_of(plan.trainer, [one.fault for one in plan.faults]), list)


@often(200)
@given(st.sampled_from(PLANS), BYTE_CUTS)
def test_a_plan_with_damaged_bytes_is_told_or_not_run(folder, content, cuts):
    (folder / "plan.json").write_bytes(cut(json.dumps(content).encode(), cuts))
    with mock.patch("diloco_chaos.chaos.runner.run.run_plan", side_effect=Failure("not here", 3)):
        code, _, err = command("run", "--plan", folder / "plan.json", "--runs-dir", folder / "runs")
    assert code in (2, 3)
    assert err


@pytest.mark.parametrize("deadline", ["1e400s", "1e9s", "0s", "-1s", "x", "٣", "2000000s"])
def test_a_deadline_that_no_plan_may_have_is_no_option_either(deadline):
    with pytest.raises(Failure):
        running.with_options(freeze(load("far")[0], 0), "", deadline, "")


# -- tapes -----------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(folder of a small calm run, what its files hold)."""
    story = calmly(CALM, budget=40)
    path = tmp_path_factory.mktemp("run")
    (path / "tape").mkdir()
    (path / "references").mkdir()
    plans.save(story.plan, path / "plan.json")
    for event in story.events:
        with open(path / "tape" / f"{event.node}.{event.inc}.jsonl", "ab") as file:
            file.write(tape_line.line(event))
    for kind, reference in story.references.items():
        (path / "references" / f"{kind}.json").write_text(reference.model_dump_json())
    (path / "curve.json").write_text(json.dumps({"curve": [point.model_dump() for point in story.curve]}))
    (path / "manifest.json").write_text(json.dumps({"repeat": "diloco-chaos run calm", "harness": [1, 1]}))
    return path, {one.relative_to(path): one.read_bytes() for one in path.rglob("*") if one.is_file()}


@contextlib.contextmanager
def holding(run, name, content):
    """The run's folder with one file that holds something else."""
    path, before = run
    (path / name).write_bytes(content)
    try:
        yield path
    finally:
        if Path(name) in before:
            (path / name).write_bytes(before[Path(name)])
        else:
            (path / name).unlink()


def reader(*words, twice=False, around=False):
    """What a command that reads a run's folder is given: the folder, the one above it, or it twice."""
    def given(path):
        return [*words, *([path] * (1 + twice) if not around else [path.parent])]
    given.__name__ = " ".join(words)
    return given


READERS = [reader("check"), reader("check", "--json"), reader("tokens"), reader("replay"), reader("resume"),
           reader("open", "--print"), reader("runs", "--runs-dir", around=True), reader("diff", twice=True),
           reader("diff", "--json", twice=True),
           *(reader("report", "--format", form) for form in ("html", "md", "json", "model", "junit", "svg", "perfetto",
                                                             "prometheus", "otel"))]
"""Every command that tells what a run's folder holds."""


def judged(path):
    """Both ways to ask for a judgement end with an exit code; exit 2 has a message."""
    codes = []
    for words in ([], ["--json"]):
        code, out, err = command("check", path, *words)
        assert code in (0, 1, 2, 3, 130)
        assert err if code == 2 else out
        assert "--runs-dir" not in err
        codes.append(code)
    assert codes[0] == codes[1]


def test_the_run_as_it_was_recorded_passes(run):
    code, out, err = command("check", run[0])
    assert code == 0, out + err


def event(name, **fields):
    """A line of this name; fields that it must have, and that are not given, are zero or empty."""
    whole = json.loads(tape_line.line(an_event(1.0, "learner-1", 0, name)))
    return json.dumps(whole | fields).encode() + b"\n"


@pytest.mark.parametrize("line", [
    event("step", node="ghost"), event("failpoint", node="ghost"), event("finished", node="ghost"),
    event("spawn", node="harness", target=["learner-1"]), event("exit", node="harness", target="ghost"),
    event("injecting", node="harness", fault=["f1"]), event("healed", node="harness", fault={}),
    event("injected", node="harness", observed=None), event("end", node="harness", t=99, outcome=3, message=[]),
    event("begin", node="harness", plan=None), event("ready", t=10**400), event("steady", node="syncer", t=-1e308),
    event("merge", node="syncer"), event("merge", node="syncer", contributions=[{}]),
    event("merge", node="syncer", contributions=[{"learner": "ghost"}]),
    event("step", step=10**400), event("step", step=float("nan"), tokens="x"), event("received", carried=None),
    event("refused", node="syncer", reason="[/x]", first=0, last=10**9, fragment=0, learner="learner-1", incarnation=0),
    event("outer_gradient", fragment=[]), b"[" * 100_000 + b"\n",
    b'{"t":1e999,"node":"learner-1","inc":0,"event":"ready"}\n',
    b'{"t":NaN,"node":"learner-1","inc":0,"event":"ready"}\n', b"\xff\n", b"\n", b"{}\n", b"null\n", b'"x"\n',
    b"9" * 5000 + b"\n"], ids=lambda line: line[:60].decode("ascii", "backslashreplace"))
@pytest.mark.parametrize("name", ["tape/harness.0.jsonl", "tape/ghost.7.jsonl"])
def test_a_line_that_nobody_wrote_is_judged_or_told(run, line, name):
    before = run[1].get(Path(name), b"")
    with holding(run, name, before + line + before[-200:].partition(b"\n")[2]) as path:
        judged(path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_line_whose_time_is_no_number_is_not_whole(number):
    with pytest.raises(ValueError):
        tape_line.parse(f'{{"t":{number},"node":"learner-1","inc":0,"event":"ready"}}'.encode())


POINT = '{"number":1,"processed":1,"merged":1,"t":1,"loss":%s}'


@pytest.mark.parametrize(("name", "content"), [
    ("curve.json", '{"curve":[%s]}' % (POINT % "NaN")), ("curve.json", '{"curve":[%s]}' % (POINT % "1e999")),
    ("curve.json", "[" * 100_000), ("curve.json", '{"curve":5}'), ("curve.json", '{"curve":[5]}'),
    ("curve.json", '{"curve":[]}'), ("manifest.json", '{"repeat":5}'), ("manifest.json", '{"repeat":[1]}'),
    ("manifest.json", '{"repeat":null}'), ("manifest.json", "[" * 100_000), ("manifest.json", '{"repeat":"\\ud800"}'),
    ("references/fault-free.json", '{"kind":"fault-free","key":"k","curve":[],"wall":1}'),
    ("references/fault-free.json", '{"kind":"fault-free","key":"k","curve":[%s],"wall":1}' % (POINT % "NaN")),
    ("references/fault-free.json", '{"kind":"fault-free","key":"k","curve":[%s],"wall":1}' % (POINT % "0")),
    ("references/fault-free.json", '{"kind":5}'), ("references/fault-free.json", "9" * 5000),
    ("plan.json", "[" * 100_000),
    ("tape/learner-1.x.jsonl", "{\n"), ("tape/x.jsonl", ""), ("tape/..jsonl", "{\n")])
def test_a_file_of_a_run_that_holds_something_else_is_told(run, name, content):
    with holding(run, name, content.encode()) as path:
        judged(path)


ESCAPE = "\x1b]0;owned\x07\x1b[1A\x1b[2K\u202e"


def test_no_text_of_a_tape_a_log_or_a_manifest_is_obeyed_by_the_terminal(run):
    refused = event("refused", node="syncer", t=1.5, reason=ESCAPE) + event("skipped", t=1.5, reason=ESCAPE)
    stalled = event("residue", node="harness", t=99.0, left=[ESCAPE])
    told = json.dumps({"repeat": "plan.json; rm -rf ~ " + ESCAPE, "harness": [1, 1], "torch": ESCAPE}).encode()
    path, _ = run
    (path / "logs").mkdir()
    (path / "logs" / "syncer.0.log").write_text(ESCAPE)
    try:
        with (holding(run, "manifest.json", told), holding(run, "tape/harness.9.jsonl", stalled),
              holding(run, "tape/ghost.7.jsonl", refused)):
            code, out, err = command("check", path)
            asked = [told for words in READERS for told in command(*words(path))[1:]]
    finally:
        shutil.rmtree(path / "logs")
    assert code == 1
    assert "\\x1b]0;owned" in out
    assert "rm -rf" not in out
    for text in (out, err, *asked):
        assert not set(text) & set(ESCAPE.replace("[1A", "").replace("[2K", "").replace("]0;owned", ""))


def test_no_text_of_a_scenario_is_obeyed_by_the_terminal(folder):
    (folder / "odd.yaml").write_text(HEAD + f"description: {json.dumps(ESCAPE)}\n{json.dumps('odd' + ESCAPE)}: 1\n")
    (folder / "good.yaml").write_text(HEAD + f"description: {json.dumps(ESCAPE)}\n")
    for words in (["validate", folder / "odd.yaml"], ["show", folder / "good.yaml"], ["plan", folder / "good.yaml"],
                  ["validate", folder / "good.yaml"], ["run", folder / "odd.yaml"]):
        _, out, err = command(*words)
        assert "\x1b]" not in out + err
        assert "\u202e" not in out + err


@pytest.mark.parametrize("words", READERS)
@pytest.mark.parametrize(("name", "content"), [
    ("cluster.json", "{}"), ("cluster.json", '{"trainer":{},"cut":"x"}'), ("manifest.json", '{"backend":[5]}'),
    ("manifest.json", '{"resumed":5}'), ("manifest.json", '{"resumed":{"environments":5}}'),
    ("manifest.json", '{"corpus":5,"harness":"x"}'), ("plan.json", '{"plan":{"cluster":5},"digest":1}')])
def test_a_folder_that_somebody_forged_ends_a_command_with_a_sentence(run, words, name, content):
    with holding(run, name, content.encode()) as path:
        code, out, err = command(*words(path))
    assert code in (0, 2, 3)
    assert err if code == 2 else out


@pytest.mark.parametrize("name", ["tape/learner-1.0.jsonl", "tape/new.0.jsonl", "plan.json", "curve.json",
                                  "manifest.json", "references/fault-free.json"])
def test_a_folder_in_the_place_of_a_file_is_told(run, tmp_path, name):
    path = tmp_path / "run"
    shutil.copytree(run[0], path)
    (path / name).unlink(missing_ok=True)
    (path / name).mkdir()
    judged(path)


def damaged(lines, kind, changes, everywhere):
    """A node's tape with changed fields in all events of one kind, or in one of them."""
    events = [json.loads(line) for line in lines.splitlines()]
    names = sorted({one["event"] for one in events})
    chosen = [index for index, one in enumerate(events) if one["event"] == names[kind % len(names)]]
    for index in chosen if everywhere else chosen[len(chosen) // 2:][:1]:
        events[index] = changed(events[index], changes)
    return "".join(json.dumps(one) + "\n" for one in events).encode()


@often(200)
@given(st.sampled_from(["learner-1", "learner-4", "syncer", "harness"]), st.integers(0, 1 << 20), CHANGES,
       st.booleans())
def test_a_tape_with_damaged_fields_is_judged_or_told(run, node, kind, changes, everywhere):
    name = Path("tape") / f"{node}.0.jsonl"
    with holding(run, name, damaged(run[1][name], kind, changes, everywhere)) as path:
        judged(path)


@often(100)
@given(st.integers(0, 1 << 20), BYTE_CUTS)
def test_a_run_with_damaged_bytes_is_judged_or_told(run, which, cuts):
    name = sorted(run[1])[which % len(run[1])]
    with holding(run, name, cut(run[1][name], cuts)) as path:
        judged(path)


@pytest.fixture(scope="module")
def replayable(tmp_path_factory):
    """(folder of a small simulated run, what its files hold)."""
    place = tmp_path_factory.mktemp("replayable")
    (place / "small.yaml").write_text("diloco_chaos: 1\nname: small\ndeadline: 60s\ncluster: {model: quadratic, "
                                      "learners: 3, fragments: 2, budget: 40 steps, step_time: 60ms}\n")
    command("run", place / "small.yaml", "--on", "simulated", "--runs-dir", place / "runs")
    (path,) = (place / "runs").glob("2*")
    assert command("replay", path)[0] == 0
    return path, {one.relative_to(path): one.read_bytes() for one in path.rglob("*") if one.is_file()}


@often(100)
@given(st.sampled_from(["learner-1", "syncer"]), st.integers(0, 1 << 20), CHANGES, st.booleans())
def test_a_tape_with_damaged_fields_is_replayed_or_told(replayable, node, kind, changes, everywhere):
    name = Path("tape") / f"{node}.0.jsonl"
    with holding(replayable, name, damaged(replayable[1][name], kind, changes, everywhere)) as path:
        code, out, err = command("replay", path)
        assert code in (0, 1, 2, 3)
        assert err if code == 2 else out


KINDS = ("remove", "empty", "cut", "swap", "copy", "other name", "folder", "pipe", "link", "loop", "device", "change")
DAMAGE = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1 << 20), st.integers(0, 1 << 20), BYTE_CUTS,
                            CHANGES), min_size=1, max_size=5)


def strike(folder, kind, one, other, cuts, changes):
    """Do something to a file of a run's folder, or to two of them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    if not files:
        return
    mine, its = files[one % len(files)], files[other % len(files)]
    content = mine.read_bytes()
    match kind:
        case "swap":
            mine.write_bytes(its.read_bytes())
            its.write_bytes(content)
        case "copy":
            its.write_bytes(content)
        case "cut":
            mine.write_bytes(cut(content, cuts))
        case "change" if mine.suffix in (".json", ".jsonl"):
            with contextlib.suppress(ValueError, RecursionError):
                lines = [json.loads(line) for line in (content.splitlines() if mine.suffix == ".jsonl" else [content])]
                mine.write_text("".join(json.dumps(changed({"": line}, changes).get("")) + "\n" for line in lines))
        case "other name":
            mine.rename(mine.with_name(("ghost.0" if one % 2 else "learner-1.99") + mine.suffix))
        case _:
            mine.unlink()
            if kind == "empty":
                mine.touch()
            elif kind == "folder":
                mine.mkdir()
            elif kind == "pipe":
                os.mkfifo(mine)
            elif kind in ("link", "loop", "device"):
                mine.symlink_to({"link": its, "loop": mine, "device": "/dev/zero"}[kind])


@pytest.fixture(scope="module", params=["ours", "shared rounds", "rounds of their own"])
def left_by(request, tmp_path_factory):
    """The folder that a trainer of each kind left. The port is the hub's own choice: one that others may take before it
    listens would leave its traceback in its log."""
    if request.param == "ours":
        return request.getfixturevalue("replayable")[0]
    place = tmp_path_factory.mktemp("left")
    (place / "toy.yaml").write_text(f"""{HEAD}deadline: 30s
trainer:
  kind: commands
  nodes:
    hub: {{run: '{{python}} {TOY} hub @{{run}}/hub'}}
    worker: {{count: 2, worker: true, run: '{{python}} {TOY} worker @{{run}}/hub'}}
  progress: [{{node: worker, log: 'round=(?P<round>\\d+) members=(?P<members>\\d+) loss=(?P<loss>\\S+)'}}]
  rounds: 90
  shared: {str(request.param == "shared rounds").lower()}
faults: [{{pause: hub, at: 2s, for: 300ms}}]
""")
    with mock.patch(f"{__name__}.LONGEST_S", FOREVER_S):
        code, out, err = command("run", place / "toy.yaml", "--runs-dir", place / "runs")
    assert code in (0, 1, 3), out + err
    (path,) = (place / "runs").glob("2*")
    return path


@often(100)
@given(DAMAGE, st.sampled_from(READERS))
def test_a_folder_that_is_damaged_all_over_ends_a_command_with_an_answer_and_soon(left_by, damage, words):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "20260101-120000-mine-00c0ffee")
        shutil.copytree(left_by, folder)
        for one in damage:
            strike(folder, *one)
        code, out, err = command(*words(folder))
        assert code in (0, 1, 2, 3), (code, out, err)
        assert err.strip() if code == 2 else out.strip(), (code, err)
        assert "Traceback" not in out + err


# -- undo logs ---------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def untouched(folder):
    """Nobody is signalled, limited or asked, and nothing but undo logs is removed."""
    unwanted = mock.Mock(side_effect=AssertionError("touched what is not ours"))
    with (mock.patch("signal.pidfd_send_signal", unwanted), mock.patch("os.kill", unwanted),
          mock.patch("shutil.rmtree", unwanted), mock.patch("resource.prlimit", unwanted),
          mock.patch("socket.getaddrinfo", side_effect=socket.gaierror("nobody is asked")),
          mock.patch.object(socket.socket, "connect", side_effect=ConnectionRefusedError()), answers_soon()):
        yield
    assert not unwanted.called
    assert (folder / "theirs" / "precious").read_text() == "kept"


@pytest.fixture(scope="module")
def belongings(tmp_path_factory):
    """A place with a folder that belongs to somebody else."""
    place = tmp_path_factory.mktemp("belongings")
    (place / "theirs").mkdir()
    (place / "theirs" / "precious").write_text("kept")
    (place / "undo-logs").mkdir()
    return place


def entries(place):
    """An undo log with one of everything, about processes and folders that are there but are not ours."""
    mine = identity(os.getpid())
    return [json.loads(entry.model_dump_json()) for entry in (
        Opened(token=TOKEN, pid=1), Continue(number=1, process=mine),
        Lift(number=2, process=mine, soft=1, hard=1), Remove(number=3, path=place / "theirs"),
        Toxin(number=4, api="http://127.0.0.1:1", server=mine, link="learner-1", name="f1"),
        Enable(number=5, api="http://127.0.0.1:1", link="learner-1"), Done(number=5), Remove(number=6, path=place))]


def cleaned(place, content):
    """Reading tells what is wrong; cleaning never touches anybody."""
    path = place / "undo-logs" / "a.jsonl"
    path.write_bytes(content)
    with untouched(place):
        with contextlib.suppress(UndoLogError):
            assert undo_log.read(path) is None or undo_log.read(path).opened
        for line in cleanup.clean(place / "undo-logs"):
            assert str(line).startswith("NOT UNDONE: ")
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("entry", [
    {"entry": "continue", "number": 1, "process": [10**30, 1]},
    {"entry": "continue", "number": 1, "process": [2**31, 1]},
    {"entry": "continue", "number": 1, "process": [-1, 1]}, {"entry": "continue", "number": 1, "process": [0, 0]},
    {"entry": "lift", "number": 1, "process": [10**30, 1], "soft": 1, "hard": 1},
    {"entry": "enable", "number": 1, "api": "http://[", "server": [10**30, 1], "link": "\0"},
    {"entry": "enable", "number": 1, "api": "http://[", "link": "\ud800"},
    {"entry": "toxic", "number": 1, "api": "", "link": "", "name": ""},
    {"entry": "remove", "number": 1, "path": "\0"}, {"entry": "remove", "number": 1, "path": "a" * 5000},
    {"entry": "remove", "number": 1, "path": "/"}, {"entry": "remove", "number": 1, "path": ""}])
def test_a_undo_log_of_nonsense_touches_nobody(belongings, entry):
    head = json.dumps({"entry": "opened", "token": TOKEN, "pid": 1})
    cleaned(belongings, f"{head}\n{json.dumps(entry)}\n".encode())


def test_a_folder_in_the_place_of_a_undo_log_does_not_keep_others_from_being_healed(belongings):
    (belongings / "undo-logs" / "0.jsonl").mkdir()
    try:
        cleaned(belongings, b"")
        assert list((belongings / "undo-logs").iterdir()) == [belongings / "undo-logs" / "0.jsonl"]
    finally:
        (belongings / "undo-logs" / "0.jsonl").rmdir()


@often(300)
@given(CHANGES)
def test_a_undo_log_with_damaged_entries_touches_nobody(belongings, changes):
    lines = changed({"lines": entries(belongings)}, changes).get("lines")
    cleaned(belongings, "".join(json.dumps(line) + "\n" for line in lines or [] if lines).encode()
            if isinstance(lines, list) else json.dumps(lines).encode())


@often(200)
@given(BYTE_CUTS)
def test_a_undo_log_with_damaged_bytes_touches_nobody(belongings, cuts):
    cleaned(belongings, cut("".join(json.dumps(line) + "\n" for line in entries(belongings)).encode(), cuts))


# -- frames ----------------------------------------------------------------------------------------------------------

TENSORS = {"a": np.zeros((2, 3), np.float32), "b": np.ones(4, np.float32)}
SAMPLES = [Finish(), Report(step=1, tokens=2, position=3, fragments=[(0, 1, 2)]),
            Hello(token="t", node="learner-1", incarnation=0, step=0, tokens=0, position=0, versions=[0], steps=[0]),
            OuterGradient(round=1, fragment=0, base_version=0, first_step=1, last_step=2, steps=2, tokens=3,
                          digest="d")]
HEADERS = [to_builtins(message) for message in SAMPLES]


def frame(header, payload=b""):
    """Any header and payload under a prefix that is right."""
    checksum = zlib.crc32(payload, zlib.crc32(header))
    return wire.PREFIX.pack(wire.MAGIC, len(header), len(payload), checksum) + header + payload


def packed(tensors, data=b"\0" * 64):
    """A payload with any header of tensors."""
    header = json.dumps(tensors).encode()
    return len(header).to_bytes(8, "little") + header + data


def fed(data, size=1 << 20):
    """A stream is understood, or it is told why not."""
    decoder = Decoder(MESSAGES)
    with answers_soon():
        try:
            for start in range(0, max(1, len(data)), size):
                for message, tensors in decoder.feed(data[start:start + size]):
                    assert message.type
                    assert all(isinstance(tensor, np.ndarray) for tensor in tensors.values())
        except FrameError as error:
            assert str(error)


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "BOOL", "C64", "U64", "F16", "XX"])
def test_tensors_of_any_kind_are_understood_or_told(kind):
    for size in (2, 4, 8, 16, 32):
        tensor = {"dtype": kind, "shape": [4], "data_offsets": [0, size]}
        fed(frame(msgpack.encode(HEADERS[0]), packed({"a": tensor}, b"\0" * size)))


@often(500)
@given(st.sampled_from(SAMPLES), st.sampled_from([{}, TENSORS]), BYTE_CUTS, st.booleans(), st.integers(1, 99))
def test_frames_with_damaged_bytes_are_told(message, tensors, cuts, sealed_again, size):
    whole = wire.encode(message, tensors)
    header, payload = whole[wire.PREFIX.size:], b""
    if tensors:
        length = wire.PREFIX.unpack_from(whole)[1]
        header, payload = header[:length], header[length:]
    fed(frame(cut(header, cuts), cut(payload, cuts)) if sealed_again else whole + cut(whole, cuts), size)


@often(500)
@given(st.sampled_from(HEADERS), CHANGES)
def test_frames_with_damaged_messages_are_told(header, changes):
    with contextlib.suppress(OverflowError, UnicodeEncodeError, ValueError):
        header = msgpack.encode(changed(header, changes))
    fed(frame(header if isinstance(header, bytes) else b""))


@often(300)
@given(CHANGES)
def test_frames_with_damaged_tensors_are_told(changes):
    payload = safetensors(TENSORS)
    length = int.from_bytes(payload[:8], "little")
    tensors = changed(json.loads(payload[8:8 + length]), changes)
    fed(frame(msgpack.encode(HEADERS[0]), packed(tensors, payload[8 + length:])))


@often(200)
@given(st.binary(max_size=200), st.booleans())
def test_bytes_that_are_no_frames_are_told(data, begun):
    fed(wire.MAGIC + data if begun else data)
