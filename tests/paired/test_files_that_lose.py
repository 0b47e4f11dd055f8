"""A job whose machine loses its power: with and without an fsync before its state gets its name."""

import pytest

FAULTS = """
faults:
  - {{kill: job, lose_unsynced: {which}, when: {{node: job, event: step, count: 35}}, restart_after: 300ms}}
checks:
  profile: resumable
"""


@pytest.fixture
def run(saving):
    """Run the job with a bug: (exit code, check -> verdict, what was printed, on one line)."""
    def run(bug="", which="true"):
        code, found, said = saving(FAULTS.format(which=which), bug)
        return code, found, " ".join(said.split())
    return run


def test_who_syncs_before_it_renames_goes_on_from_its_newest_state(run):
    code, found, said = run()
    assert (code, set(found.values())) == (0, {"passed"}), said
    assert "1 file lost" in said


def test_a_rename_before_the_fsync_is_found(run):
    code, found, said = run("unsynced")
    assert (code, found["restarts"]) == (1, "failed"), said
    assert "4 files lost" in said


def test_where_all_was_synced_it_is_said_that_nothing_was_lost(run):
    code, _, said = run(which="'*.json'")
    assert code == 3, said
    assert "nothing was lost: everything was synced (3 files); aim at a moment between a write and its fsync" in said
