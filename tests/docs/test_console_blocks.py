"""Every command in the documentation exists, with its options, and names scenarios, places and forms that there are."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.main import get_command

from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.pytest.plugin import _OPTIONS as OF_PYTEST
from diloco_chaos.chaos.report.forms.registry import GROUP as REPORTS
from diloco_chaos.harness.base.registries import points
from diloco_chaos.harness.places.registry import places
from diloco_chaos.scenarios import find
from doc_blocks import ROOT, in_backticks, typed

PLACES = [place.name for place in places()]

OTHERS = {"git", "pip", "python3", "mkdir", "cd", ".", "docker", "curl", "kubectl"}
"""Programs that are not ours: nothing of theirs is tried here."""
OF_THE_EXAMPLE = {"nic-brownout", "acme-far", "one-line"}
"""What `examples/extension` brings, which is not installed here."""
TARGETS = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
STEERS_PYTEST = {"-n", "-v", "-p", "--junitxml"}


def commands(text):
    """The commands of a line, each as words, without comments and what their output goes to."""
    words = []
    for word in [*_words(text), ";"]:
        if word in ("|", "&&", ";", ">"):
            yield words
            if word == ">":
                return
            words = []
        else:
            words.append(word)


def _words(text):
    return shlex.split(text.replace("[WHEELS]", "wheels").replace("<", "").replace(">", " > ") if " > " in text else
                       re.sub(r"<([^>]*)>", r"\1", text.replace("[WHEELS]", "wheels")), comments=True)


LINES = [code for code in typed() if not code.text.endswith(" ...")]
TYPED = [(code, words) for code in LINES for words in commands(code.text) if words]


def of(program):
    return [pytest.param(words[1:], id=f"{code}: {' '.join(words)[:60]}") for code, words in TYPED
            if Path(words[0]).name == program]


def test_every_program_is_one_of_ours_or_known():
    ours = {"diloco-chaos", "make", "pytest"}
    programs = {words[0] for _, words in TYPED if Path(words[0]).name not in ours and words[0] not in OTHERS}
    assert {name for name in programs if not (ROOT / name).is_file()} == set()


def stand_in(word):
    """What a placeholder stands for: a number, the folder of a run, a file."""
    named = {"latest": "runs/latest", "RUN": "runs/RUN", "SCENARIO": "base", "FILE": "mine.yaml", "X": "base"}
    return "1" if re.fullmatch(r"[A-WYZ]", word) else named.get(word, word)


@pytest.mark.parametrize("words", of("diloco-chaos"))
def test_a_command_takes_what_is_typed(words):
    if words[0] == "--version":
        return
    command = get_command(application(words))
    command = command.commands[words[0]] if hasattr(command, "commands") else command
    arguments = [stand_in(word) for word in words[1:]]
    bare = not arguments or arguments == ["--help"]  # the command is spoken of, not typed
    context = None
    while hasattr(command, "commands") and arguments and arguments[0] in command.commands:
        command, arguments = command.commands[arguments[0]], arguments[1:]
    if not bare:
        context = command.make_context(words[0], list(arguments))
        assert named_things(context.params) == []


def named_things(given):
    """Scenarios, places and forms that are named and do not exist."""
    known = {"scenario": set(find()), "scenarios": set(find()), "on": set(PLACES),
             "form": {point.name for point in points(REPORTS)}}
    return [value for key, values in given.items() if key in known and values
            for value in (values if isinstance(values, list | tuple) else [values])
            if value not in known[key] | OF_THE_EXAMPLE and not of_a_file(value)]


def of_a_file(name):
    return name.endswith(".yaml") and ("examples/" not in name or (ROOT / name).is_file())


@pytest.mark.parametrize("words", of("pytest"))
def test_pytest_takes_what_is_typed(words):
    left = list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--chaos-"):
            name, _, value = word.removeprefix("--chaos-").partition("=")
            value = value or left.pop(0)
            option = OF_PYTEST[name]
            option.type(value)
            assert value in (option.choices or [value])
            assert name != "on" or value in PLACES
        elif word in STEERS_PYTEST:
            left = left[1:] if word != "-v" else left
        else:
            assert not word.startswith("-")
            assert "/" not in word or word.startswith("scenarios/")


@pytest.mark.parametrize("words", of("make"))
def test_make_has_the_target(words):
    assert {word for word in words if "=" not in word} <= TARGETS


@pytest.mark.parametrize("module", sorted({word for _, words in TYPED for word in words
                                           if re.fullmatch(r"(diloco_chaos|benchmarks)(\.\w+)+", word)}
                                          | {code.text.split()[2] for code in in_backticks(r"python -m [^`]+")}))
def test_a_module_that_is_run_exists(module):
    assert find_spec(module)


def options():
    """Every option that a command of ours has, a node's process, or a benchmark."""
    pending, found = [get_command(application())], {"--version", "--help", "--install-completion"}
    while pending:
        command = pending.pop()
        pending += getattr(command, "commands", {}).values()
        found |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for folder in ("benchmarks", "harness"):
        for file in (ROOT / folder).rglob("*.py"):
            found |= set(re.findall(r"""add_argument\(["'](--[a-z-]+)["']""", file.read_text()))
    return found | {f"--chaos-{name}" for name in OF_PYTEST}


NOT_OURS = {"--junitxml", "--nnodes", "--overlap", "--jobid", "--signal", "--qos", "--constraint", "--advertise-addr",
            "--alias", "--force", "--project-name", "--no-index", "--alone", "--max-restarts", "--min_replicas"}
"""Options of pytest, torchrun, torchft, Slurm, Docker, pip and of an example's trainer, of which the pages speak."""


def test_every_option_that_is_spoken_of_exists():
    known = options() | NOT_OURS
    spoken = {(str(code), option) for code in in_backticks(r"[^`\n]*--[a-z][^`\n]*")
              for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code.text)}
    assert {(where, option) for where, option in spoken if option not in known} == set()
    assert {option for _, option in spoken} >= NOT_OURS, "nothing speaks of it any more"
