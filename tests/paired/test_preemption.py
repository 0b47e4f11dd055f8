"""A job whose place its scheduler needs: one that saves within its notice and ends, and two that do not."""

import pytest

FAULTS = """
faults:
  - {{preempt: job, {how}, when: {{node: job, event: step, count: 43}}}}
checks:
  profile: resumable
  resumed: {{rounds: 2}}
"""
NOTICE = "signal: USR1, notice: {}, restart_after: 300ms"
BESIDE = "beside: 0s, grace: 2s"


@pytest.fixture
def run(saving):
    """Run the job with a bug: (exit code, check -> verdict, what was printed, on one line)."""
    def run(how, bug=""):
        code, found, said = saving(FAULTS.format(how=how), bug)
        return code, found, " ".join(said.split())
    return run


def test_who_saves_within_its_notice_loses_nothing(run):
    code, found, said = run(NOTICE.format("10s"))
    assert (code, set(found.values())) == (0, {"passed"}), said
    assert "ended within its notice" in said


def test_a_notice_that_is_ignored_costs_the_work_since_the_last_checkpoint(run):
    code, found, said = run(NOTICE.format("150ms"), "deaf")
    assert (code, found["resumed"]) == (1, "failed"), said
    assert "after SIGTERM" in said


def test_who_ends_when_asked_lives_beside_its_successor_and_does_no_harm(run):
    code, found, said = run(BESIDE)
    assert (code, set(found.values())) == (0, {"passed"}), said
    assert "lived beside" in said


def test_one_that_goes_on_beside_its_successor_is_found(run):
    code, found, said = run(BESIDE, "stays")
    assert (code, found["faults_verified"]) == (1, "failed"), said
    assert "went on to train" in said
