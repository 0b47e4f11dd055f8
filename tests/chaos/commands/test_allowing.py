"""A plan may bring commands. Those that this user has not started here before need a word; nothing else starts any."""

import json
import os
import pty
import subprocess
import sys
from types import SimpleNamespace

import pytest

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner import own_commands, resume
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.plan import freeze
from typed import typed

SCENARIO = """diloco_chaos: 1
name: mine
deadline: 30s
trainer:
  kind: commands
  nodes:
    work: {worker: true, env: {A: b c}, exits: [0],
           run: "sh -c 'touch started; for i in 1 2 3; do echo round=$i; done'"}
  progress: [{node: work, log: 'round=(?P<round>[0-9]+)'}]
  rounds: 3
"""
COMMAND = "  work: A='b c' sh -c 'touch started; for i in 1 2 3; do echo round=$i; done'"
JUDGED = (0, 1, 3)
"""Exit codes of a command that ran something."""


class Checkout:
    """A folder with a scenario, from which a user types commands."""

    def __init__(self, path, state):
        self.path, self.state = path, state
        path.mkdir()
        (path / "mine.yaml").write_text(SCENARIO)

    def type(self, *arguments, state=None, **options):
        environment = os.environ | {"XDG_STATE_HOME": str(state or self.state), "TERM": "dumb"}
        if not options:
            return typed(*arguments, cwd=self.path, env=environment)
        return subprocess.run([sys.executable, "-m", "diloco_chaos", *map(str, arguments)], cwd=self.path, text=True,
                              env=environment, timeout=60, check=False, **options)

    def freeze(self):
        """A plan's file of which nothing was ever started here."""
        file = self.path / "foreign.json"
        plans.save(freeze(load(str(self.path / "mine.yaml"))[0], 0), file)
        return file

    @property
    def started(self):
        """Whether the command was started since the last question."""
        mark = self.path / "started"
        was = mark.exists()
        mark.unlink(missing_ok=True)
        return was


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path / "checkout", tmp_path / "state")


@pytest.fixture
def ran(checkout):
    """One run of the scenario: its folder."""
    assert checkout.type("run", "mine.yaml").returncode in JUDGED
    assert checkout.started
    [run] = (checkout.path / "runs").glob("2*")
    return run


def refused(done):
    """Whether a command was refused, with the commands and what to type."""
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, lines[1]) == (2, "", COMMAND)
    assert "brings commands that you have never started from" in lines[0]
    assert lines[-1].endswith("add --allow-commands")
    return True


def test_a_run_of_ones_own_is_repeated_without_a_question(checkout, ran):
    repeat = json.loads((ran / "manifest.json").read_text())["repeat"].removeprefix("diloco-chaos ").split()
    assert checkout.type(*repeat).returncode in JUDGED
    assert checkout.started


def test_other_faults_and_another_seed_bring_no_other_commands(checkout, ran):
    file = checkout.path / "other.json"
    (checkout.path / "mine.yaml").write_text(SCENARIO + "faults: [{kill: work, at: 1s}]\n")
    plans.save(freeze(load(str(checkout.path / "mine.yaml"))[0], 7), file)
    assert checkout.type("run", "--plan", file).returncode in JUDGED
    assert checkout.started


def test_commands_of_a_foreign_plan_are_shown_and_not_started(checkout):
    assert refused(checkout.type("run", "--plan", checkout.freeze()))
    assert refused(checkout.type("run", "--plan", "foreign.json", "--json"))
    assert not checkout.started
    assert not (checkout.path / "runs").exists()


def test_the_option_starts_them_and_they_are_ones_own_from_then_on(checkout):
    file = checkout.freeze()
    assert checkout.type("run", "--plan", file, "--allow-commands").returncode in JUDGED
    assert checkout.started
    assert checkout.type("run", "--plan", file).returncode in JUDGED


def test_the_folder_of_a_run_proves_nothing_wherever_it_comes_from(checkout, ran, tmp_path):
    """All that lies beside a plan can be made by whoever made the plan."""
    assert refused(checkout.type("run", "--plan", ran / "plan.json", state=tmp_path / "somebody-else"))
    assert not checkout.started


def test_the_same_command_in_another_folder_is_another_command(checkout, ran, tmp_path):
    other = Checkout(tmp_path / "other", checkout.state)
    assert refused(other.type("run", "--plan", ran / "plan.json"))
    assert not other.started


@pytest.mark.parametrize(("before", "after"), [("A: b c", "A: b"), ("touch started", "touch ./started"),
                                               ("exits: [0]", "exits: [0], cwd: /tmp")])
def test_every_change_of_what_is_executed_is_asked_for(checkout, ran, before, after):
    (checkout.path / "mine.yaml").write_text(SCENARIO.replace(before, after))
    assert checkout.type("run", "--plan", checkout.freeze()).returncode == 2
    assert not checkout.started


@pytest.mark.parametrize("command", ["check", "report", "replay", "tokens", "open --print", "diff latest", "resume"])
def test_what_only_reads_a_foreign_folder_starts_nothing(checkout, ran, command, tmp_path):
    checkout.type(*command.split(), ran, state=tmp_path / "somebody-else")
    assert not checkout.started


@pytest.mark.parametrize("command", ["validate", "show", "plan", "explore", "compare"])
def test_looking_at_a_scenario_starts_nothing_and_allows_nothing(checkout, command):
    checkout.type(*command.split(), "mine.yaml")
    assert refused(checkout.type("run", "--plan", checkout.freeze()))
    assert not checkout.started


def test_what_an_exploration_has_found_is_a_scenario_that_is_named(checkout):
    found = checkout.path / "explored" / "mine"
    found.mkdir(parents=True)
    (checkout.path / "mine.yaml").rename(found / "no-global-stall.yaml")
    assert checkout.type("run", found / "no-global-stall.yaml").returncode in JUDGED
    assert checkout.started


def test_what_python_runs_is_the_callers_word(checkout, monkeypatch):
    monkeypatch.chdir(checkout.path)
    plan = plans.load(checkout.freeze())
    assert not own_commands.started_before(plan)
    run_plan(plan, checkout.path / "runs", NullAudience())
    assert checkout.started
    assert own_commands.started_before(plan)


def at_a_terminal(checkout, answer):
    """What `run --plan` says where stdin and stdout are a terminal, at which this is typed; and its exit code."""
    here, there = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "diloco_chaos", "run", "--plan", str(checkout.freeze())],
                          cwd=checkout.path, stdin=there, stdout=there, stderr=subprocess.PIPE,
                          env=os.environ | {"XDG_STATE_HOME": str(checkout.state)}) as process:
        os.close(there)
        asked = b""
        while b"[y/N]" not in asked:
            asked += (byte := process.stderr.read(1))
            assert byte, asked
        os.write(here, answer)
        try:
            while os.read(here, 1000):
                pass
        except OSError:
            pass  # that is how a terminal ends
        asked += process.stderr.read()
    os.close(here)
    return asked.decode(), process.returncode


def test_a_person_at_a_terminal_is_shown_them_and_says_yes(checkout):
    asked, code = at_a_terminal(checkout, b"y\n")
    assert COMMAND in asked.splitlines()
    assert code in JUDGED
    assert checkout.started


@pytest.mark.parametrize("answer", [b"n\n", b"\n"])
def test_a_person_at_a_terminal_says_no(checkout, answer):
    asked, code = at_a_terminal(checkout, answer)
    assert asked.endswith("nothing was started\n")
    assert code == 2
    assert not checkout.started


def test_what_a_terminal_would_obey_is_shown_and_a_command_is_one_line(checkout):
    (checkout.path / "mine.yaml").write_text(SCENARIO.replace("touch started", r"touch\nstarted\e[2J\u202e"))
    lines = checkout.type("run", "--plan", checkout.freeze()).stderr.splitlines()
    assert len(lines) == 3
    assert r"touch started\x1b[2J\u202e;" in lines[1]


@pytest.fixture
def resuming(checkout, monkeypatch):
    """resuming(*options) -> the exit code of `resume` for a folder of commands that says it can be resumed; `went_on`
    is what then was."""
    from typer.testing import CliRunner

    from diloco_chaos.chaos.cli import application
    monkeypatch.chdir(checkout.path)
    file = checkout.freeze()
    run = checkout.path / "runs" / "20260101-120000-mine-1a2b3c4d"
    (run / "tape").mkdir(parents=True)
    file.rename(run / "plan.json")
    went_on = []

    def goes_on(_run, origin, *_):
        went_on.append(origin.plan)
        raise KeyboardInterrupt
    monkeypatch.setattr(resume, "origin_of", lambda folder, _checkpoint: (SimpleNamespace(plan=folder.plan()), []))
    monkeypatch.setattr(resume, "resume_summary", lambda _origin: [])
    monkeypatch.setattr(resume, "resume", goes_on)

    def typed(*options):
        return CliRunner().invoke(application(["resume"]), ["resume", str(run), *options])
    return SimpleNamespace(type=typed, went_on=went_on)


def test_resuming_a_foreign_run_needs_the_word_too(resuming):
    done = resuming.type()
    assert "brings commands that you have never started" in str(done.exception)
    assert not resuming.went_on
    resuming.type("--allow-commands")
    assert len(resuming.went_on) == 1


def test_resuming_a_run_of_ones_own_needs_none(resuming, checkout):
    own_commands.remember(freeze(load("mine.yaml")[0], 0))
    resuming.type()
    assert len(resuming.went_on) == 1
