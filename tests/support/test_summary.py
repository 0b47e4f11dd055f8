"""The last lines of `make test`."""

import subprocess
import sys
from pathlib import Path

import pytest

SUMMARY = Path(__file__).with_name("summary.py")
OUTCOMES = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_in_a_container(number):
    pytest.skip("no engine for containers: start it\\nin three lines")

def test_broken():
    assert False

def test_whole():
    pass
"""


@pytest.fixture
def report(tmp_path):
    """A report of pytest's on tests that pass, fail and are skipped."""
    (tmp_path / "test_outcomes.py").write_text(OUTCOMES)
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1",
                    "--junitxml", "unit.xml"], cwd=tmp_path, check=False, capture_output=True)
    return tmp_path / "unit.xml"


def summary(*reports):
    done = subprocess.run([sys.executable, SUMMARY, *reports], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_it_says_once_what_was_skipped_and_why(report):
    status, said = summary(report)
    assert status == 0
    assert "3 were skipped:\n     3  no engine for containers: start it\n" in said


def test_it_names_what_failed_and_the_slowest(report):
    _, said = summary(report)
    assert "1 failed:\n  test_outcomes.py::test_broken" in said
    assert "The slowest 5 of 5 tests:" in said


@pytest.mark.parametrize("torn", [None, "<testsuites><testsuite>"])
def test_a_part_without_a_whole_report_fails_by_name(report, tmp_path, torn):
    other = tmp_path / "alone.xml"
    if torn is not None:
        other.write_text(torn)
    status, said = summary(report, other)
    assert status == 1
    assert "no report of alone: that part did not come to its end" in said
