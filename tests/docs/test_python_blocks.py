"""Every piece of Python in the documentation does what the page says: it is executed, as its reader would have it."""

import inspect
import re
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import entry_points
from textwrap import dedent
from typing import Literal

import pytest
from hypothesis import settings

import diloco_chaos
from diloco_chaos import (
    EVERYWHERE,
    LocalSite,
    Option,
    Place,
    RoundTrainer,
    SimpleSettings,
    Tensors,
    Undo,
    UndoLog,
    freeze,
    simulate,
)
from diloco_chaos.chaos.pytest.plugin import _OPTIONS as OF_PYTEST
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.harness.places.registry import refusal
from diloco_chaos.harness.record.tape.reading import Tape
from doc_blocks import ROOT, blocks, every_block, in_backticks
from packages import installed

PYTHON = {block.first: block for block in blocks("python")}
"""By their first lines, up to the comment behind."""
SMALL = """diloco_chaos: 1
name: {name}
cluster: {{model: quadratic, learners: 3, budget: 200 steps, step_time: 60ms}}
{more}"""


def block(first):
    """The only block that begins so."""
    [found] = [code for line, code in PYTHON.items() if line.startswith(first)]
    return found


TREATED = {"class Hiccup(Fault):", "class Nice(Place):", "class Unplug(Undo):", "class Reconnects(BaseModel):",
           "from diloco_chaos import freeze, load, simulate", "class Walk(RoundTrainer):", "import diloco_chaos",
           '@pytest.mark.chaos("my-scenario.yaml"', "from hypothesis import given, settings"}
"""A test below executes each."""
SHOWN = {"text": "what a program prints, and a diagram"}
"""Languages of blocks that are no code, and what they are."""


def test_every_block_is_executed_or_validated():
    assert {line for line in PYTHON if not line.startswith(tuple(TREATED))} == set()
    assert {code.language for code in every_block()} == {"", "sh", "python", "yaml", "toml", "ini", *SHOWN}


def executed(code, **names):
    """The names that a block makes, where it is executed with these."""
    exec(compile(code.text, str(code), "exec"), names)
    return names


def small(more="", name="small"):
    return SMALL.format(name=name, more=more)


@pytest.fixture
def package(tmp_path):
    """package(entry point, code, imports): as if a package with this code had been installed."""
    with ExitStack() as stack:
        def install(entry, code, imports):
            group, member = entry.split(":", 1)
            points = f"[diloco_chaos.{group}]\nacme = acme_code{member}\n"
            stack.enter_context(installed(tmp_path / "site", "acme", points,
                                          acme_code=f"{dedent(imports)}\n{code.text}"))
        yield install


def test_the_fault_is_a_fault(package):
    package("faults:", block("class Hiccup(Fault)"), """
        from typing import Literal
        from diloco_chaos import Drawn, Fault
        from diloco_chaos.faults.base import FaultContext, Observation
        from diloco_chaos.harness.base.units import names
        """)
    result = simulate(freeze(parse(small("faults: [{hiccup: learner-2, at: 5s}]\n")), 0))
    assert result.judgement.exit_code == 0
    assert [span.planned.fault.describe() for span in result.history.spans] == ["hiccup of learner-2"]


def test_the_place_has_its_option_its_launcher_and_its_refusals(tmp_path):
    given = Option("acme_niceness", "How far nodes give way.", 10, between=(1, 19))
    made = executed(block("class Nice(Place)"), Place=Place, EVERYWHERE=EVERYWHERE, NICENESS=given)["Nice"]
    place = made.chosen({"acme_niceness": 7})
    site = place.site(tmp_path, lambda event: None, UndoLog(tmp_path / "undo.jsonl", "c0ffee" * 4))
    assert isinstance(site, LocalSite)
    assert site._launcher("learner-1") == ("nice", "-n", "7")
    assert refusal(place, {"exhaust_memory"}).startswith("processes that give way share their memory with all others")
    assert refusal(place, {"disconnect"}).startswith("processes that give way can't do that")


def test_the_undo_says_what_it_did_and_does_it():
    unplugged = []
    kind = executed(block("class Unplug(Undo)"), Undo=Undo, Literal=Literal,
                    unplugged=lambda board, token: unplugged.append((board, token)) or True)["Unplug"]
    undo = kind(number=1, board="b7")
    assert (undo.describe(), undo.heal("c0ffee"), unplugged) == ("b7 unplugged", True, [("b7", "c0ffee")])


CHECK = """
    from collections import Counter
    from pydantic import BaseModel
    from diloco_chaos import Finding, History, Unknown, at_most, check, events
    """


@pytest.mark.parametrize(("fault", "bound", "verdict"), [
    ("", "{at_most: 1}", "passed"),
    ("{crash_loop: learner-2, at: 2s, times: 2, restart_after: 300ms, alive: 2s}", "{at_most: 1}", "failed"),
    ("{crash_loop: learner-2, at: 2s, times: 2, restart_after: 300ms, alive: 2s}", "{at_most: 2}", "passed"),
])
def test_the_check_holds_on_a_healthy_run_and_fails_on_one_that_breaks_it(package, fault, bound, verdict):
    package("checks::reconnects", block("class Reconnects(BaseModel)"), CHECK)
    result = simulate(freeze(parse(small(f"faults: [{fault}]\nchecks: {{reconnects: {bound}}}\n")), 0))
    [found] = [one for one in result.judgement.checks if one.name == "reconnects"]
    assert found.verdict == verdict


def test_the_check_tells_nothing_of_a_run_that_never_was_steady(package):
    package("checks::reconnects", block("class Reconnects(BaseModel)"), CHECK)
    history = simulate(freeze(parse(small("checks: {reconnects: {}}\n")), 0)).history
    early = replace(history, tape=Tape([event for event in history.tape.events if event.event != "steady"]))
    assert early.zero is None
    [found] = [one for one in diloco_chaos.judge(early).checks if one.name == "reconnects"]
    assert (found.verdict, found.evidence[0]) == ("unknown", "the cluster never was steady")


def test_a_run_under_virtual_time_takes_three_lines(monkeypatch):
    """With the quadratic model: torch takes a minute."""
    def load(name):
        scenario, path = load_it(name)
        return scenario.model_copy(update={"cluster": scenario.trainer.cheapest()}), path
    load_it = diloco_chaos.load
    monkeypatch.setattr(diloco_chaos, "load", load)
    executed(block("from diloco_chaos import freeze, load, simulate"))


def test_the_trainer_has_the_methods_of_one_that_works_in_rounds():
    class WalkSettings(SimpleSettings):
        """As the page says: with fields of its own."""
    walk = executed(block("class Walk(RoundTrainer)"), RoundTrainer=RoundTrainer, WalkSettings=WalkSettings,
                    Tensors=Tensors)["Walk"]
    assert not inspect.isabstract(walk)
    methods = {name: method for name, method in vars(walk).items() if inspect.isfunction(method)}
    assert methods.keys() == RoundTrainer.__abstractmethods__
    for name, method in methods.items():
        assert [*inspect.signature(method).parameters] == [
            *inspect.signature(getattr(RoundTrainer, name)).parameters], name


def test_a_run_beside_a_test_is_launched_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-scenario.yaml").write_text(small().replace("200 steps", "400 steps"))
    executed(block("import diloco_chaos"))["test_the_second_death_costs_nobody_else_anything"]()


def test_the_mark_gives_a_test_its_run(tmp_path):
    (tmp_path / "my-scenario.yaml").write_text(small())
    (tmp_path / "test_mine.py").write_text("import pytest\n\n" + block('@pytest.mark.chaos("my-scenario.yaml"').text)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
                          cwd=tmp_path, text=True, capture_output=True, check=False)
    assert done.stdout.splitlines()[-1].startswith("3 passed"), done.stdout


def test_a_property_test_of_plans_is_written_as_the_page_says():
    settings.register_profile("few", settings(), max_examples=3)
    before = settings.get_current_profile_name()
    settings.load_profile("few")
    try:
        executed(block("from hypothesis import given, settings"))["test_training_survives"]()
    finally:
        settings.load_profile(before)


@pytest.mark.parametrize("code", blocks("toml"), ids=str)
def test_an_entry_point_is_of_a_group_that_there_is(code):
    [groups] = [content["entry-points"] for content in tomllib.loads(code.text).values()]
    assert all(entry_points(group=group) for group in groups)


@pytest.mark.parametrize("code", blocks("ini"), ids=str)
def test_pytests_ini_file_has_keys_that_there_are(code):
    parser = ConfigParser()
    parser.read_string(code.text)
    keys = {key for key in parser["pytest"] if key.startswith("chaos_")}
    assert keys <= {f"chaos_{name.replace('-', '_')}" for name in OF_PYTEST}


def test_the_public_names_are_those_that_the_page_lists():
    """`from diloco_chaos import ...` in docs/extending.md."""
    [code] = [code for code in in_backticks(r"from diloco_chaos import[^`]+") if code.page == "docs/extending.md"]
    listed = {name.strip() for name in code.text.removeprefix("from diloco_chaos import").replace("\n", " ").split(",")}
    assert listed == set(diloco_chaos.__all__)


def test_the_example_imports_nothing_else():
    code = "".join(path.read_text() for path in (ROOT / "examples/extension/acme_chaos").glob("*.py"))
    assert re.findall(r"(?:from|import) diloco_chaos\.\S+", code) == []
