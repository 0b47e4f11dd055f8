"""A job whose disk is full for a while, and that is killed afterwards, with and without bugs in how it saves."""

import pytest

FAULTS = """
faults:
  - io: job
    path: "{{run}}/state/*"
    error: ENOSPC
    after_bytes: 5kB
    when: {{node: job, event: step, count: 25}}
    for: {lasts}
  - {{kill: job, {when}, restart_after: 300ms}}
checks:
  profile: resumable
  no_global_stall: {{max_gap: {gap}}}
"""


AFTER = "after: {fault: f1, wait: 200ms}"
AMID = "when: {node: job, event: step, count: 60}"
"""So that nothing is saved once there is room again."""


def test_who_ends_rather_than_go_on_without_its_state_passes(saving):
    code, found, said = saving(FAULTS.format(lasts="2s", when=AFTER, gap="10s"))
    assert (code, set(found.values())) == (0, {"passed"}), found
    assert "ENOSPC for" in said


FULL = """
faults:
  - {{full_disk: job, when: {{node: job, event: step, count: 25}}, for: {lasts}}}
  - {{kill: job, {when}, restart_after: 300ms}}
checks: resumable
"""


@pytest.mark.parametrize(("bug", "lasts", "when", "verdict"), [
    ("", "2s", AFTER, "passed"), ("swallows", "5s", AMID, "failed")])
def test_the_disk_of_its_state_is_full(saving, bug, lasts, when, verdict):
    _, found, said = saving(FULL.format(lasts=lasts, when=when), bug)
    assert found["no_unplanned_exit"] == verdict, found
    assert "ENOSPC for" in said


@pytest.mark.parametrize(("bug", "lasts", "when", "gap", "check"), [
    ("swallows", "5s", AMID, "10s", "no_unplanned_exit"), ("retries", "2s", AFTER, "1s", "no_global_stall")])
def test_a_bug_in_how_it_saves_is_found(saving, bug, lasts, when, gap, check):
    code, found, _ = saving(FAULTS.format(lasts=lasts, when=when, gap=gap), bug)
    assert (code, found[check]) == (1, "failed"), found
