"""Installed beside any project, the package takes one import name.

`.ci/run wheel` runs these tests: DILOCO_CHAOS_INSTALLED names the interpreter of a fresh environment with the wheel,
pytest and xdist. Without it they are skipped.
"""

import os
import subprocess

import pytest

PYTHON = os.environ.get("DILOCO_CHAOS_INSTALLED", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="DILOCO_CHAOS_INSTALLED names no interpreter: see `.ci/run wheel`")
OURS = ("chaos", "faults", "harness", "scenarios")
"""Folders of ours at the root of the repository, and names that other projects give to theirs."""
RUNNERS = {"pytest": [f"{os.path.dirname(PYTHON)}/pytest"], "python -m pytest": [PYTHON, "-m", "pytest"],
           "xdist": [PYTHON, "-m", "pytest", "-n", "2"]}
TEST = """import diloco_chaos as chaos
from {folder}.things import NAME


def test_the_projects_own_module_is_found():
    assert NAME == "{folder}, the project's own"


def test_the_modules_alias_is_ours():
    assert chaos.freeze(chaos.load("kill-one")[0], 0).cluster.names
"""
WITH_A_RUN = """import diloco_chaos as chaos
import pytest


@pytest.mark.chaos("mine.yaml", on="simulated")
def test_the_fixture_is_the_run(chaos):
    chaos.sleep("4s")
    chaos.kill("learner-1", restart_after="1s")


def test_the_alias_is_the_package():
    with chaos.launch("mine.yaml", on="simulated") as run:
        run.sleep("4s")
        run.kill("learner-1", restart_after="1s")
"""
MINE = "diloco_chaos: 1\nname: mine\ncluster: {model: quadratic, learners: 2, budget: 200, step_time: 60ms}\n"


def python(*code, cwd):
    return subprocess.run([PYTHON, *code], cwd=cwd, capture_output=True, text=True, timeout=120, check=True).stdout


def session(runner, cwd, *options):
    environment = {name: value for name, value in os.environ.items()
                   if name != "PYTEST_ADDOPTS" and not name.startswith("PYTEST_XDIST")}
    return subprocess.run([*RUNNERS[runner], "-q", "-p", "no:cacheprovider", *options], cwd=cwd, capture_output=True,
                          text=True, timeout=300, check=False, env=environment)


def outcomes(done):
    """How many tests passed and failed, without the time that they took."""
    return done.stdout.splitlines()[-1].partition(" in ")[0]


def project(place, *, packages, pythonpath):
    """A project whose folders have the names of ours, and each of which has tests in a folder of its own."""
    for name in OURS:
        (place / name / "tests").mkdir(parents=True)
        (place / name / "things.py").write_text(f"NAME = \"{name}, the project's own\"\n")
        (place / name / "tests" / f"test_{name}.py").write_text(TEST.format(folder=name))
        if packages:
            (place / name / "__init__.py").touch()
            (place / name / "tests" / "__init__.py").touch()
    (place / "conftest.py").touch()  # puts the project on the path, as `pythonpath` does
    (place / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\n" + ('pythonpath = ["."]\n' if pythonpath else ""))
    return place


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("packages", [True, False], ids=["packages", "plain folders"])
@pytest.mark.parametrize("pythonpath", [True, False], ids=["pythonpath", "no pythonpath"])
def test_a_project_with_folders_of_our_names_passes_as_it_does_without_us(tmp_path, runner, packages, pythonpath):
    place = project(tmp_path, packages=packages, pythonpath=pythonpath)
    done, without = session(runner, place), session(runner, place, "-p", "no:diloco-chaos")
    assert (without.returncode, outcomes(without)) == (0, "8 passed"), without.stdout
    assert (done.returncode, outcomes(done)) == (0, "8 passed"), done.stdout


def test_the_distribution_has_one_top_level_package(tmp_path):
    code = ("from importlib.metadata import files; "
            "print(*sorted({f.parts[0] for f in files('diloco-chaos') if '..' not in f.parts}))")
    names = [name for name in python("-c", code, cwd=tmp_path).split()
             if not name.endswith(".dist-info")]
    assert names == ["diloco_chaos"]


@pytest.mark.parametrize("name", OURS)
def test_none_of_our_folders_can_be_imported_under_its_own_name(tmp_path, name):
    code = f"from importlib.util import find_spec; print(find_spec({name!r}))"
    assert python("-c", code, cwd=tmp_path) == "None\n"


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_alias_of_the_package_and_the_fixture_do_not_hide_each_other(tmp_path, runner):
    (tmp_path / "mine.yaml").write_text(MINE)
    (tmp_path / "test_mine.py").write_text(WITH_A_RUN)
    done = session(runner, tmp_path, "test_mine.py")
    assert (done.returncode, outcomes(done)) == (0, "2 passed"), done.stdout
