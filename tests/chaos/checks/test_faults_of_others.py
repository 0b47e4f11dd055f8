"""A fault of another package is judged by what its class says of it, as ours are."""

from __future__ import annotations

from typing import Literal

import pytest

from diloco_chaos.chaos.scenario.plan import PlannedFault
from diloco_chaos.faults import Fault
from diloco_chaos.faults.evidence import Effect

QUIET = {"seconds": 1.0, "cores": 2, "idle": 0.6, "ours": 1.3, "others": 0.0, "stolen": 0.0, "late": 0.0, "cpu": 0.4,
         "io": 0.0, "memory": 0.0}


class Foreign(Fault):
    """Something that another package does to a node."""

    kind: Literal["foreign"] = "foreign"

    def verify(self, run, on):
        return Effect(True, "seen")

    def describe(self):
        return "something foreign"


class Frozen(Foreign):
    halts_target = True


class Walled(Foreign):
    cuts_off = True


class Deaf(Walled):
    def mutes_target(self):
        return False


class Replaced(Frozen):
    supersedes = True


class Hog(Foreign):
    strains = frozenset({"processors"})


class Thrashing(Foreign):
    strains = frozenset({"disks", "memory"})


class Missed(Foreign):
    def verify(self, run, on):
        return Effect(False, f"it missed: {on.observed['why']}")


def hit(story, kind, start, end):
    """The same run with a fault of this class on learner-2 between these times."""
    fault = kind(kind="foreign", targets=("learner-2",), at=f"{start}s", **{"for": f"{end - start}s"})
    plan = story.plan.model_copy(update={"faults": (PlannedFault.model_construct(id="f1", fault=fault),)})
    story = story.having(plan=plan).forged("begin", plan=plan.digest)
    for t, event, more in ((start, "injecting", {"kind": "foreign", "targets": ["learner-2"], "description": "",
                                                 "due": start}), (start + 0.01, "injected", {"observed": {}}),
                           (end, "healing", {}), (end + 0.01, "healed", {"observed": {}})):
        story = story.said(t, "harness", event, fault="f1", **more)
    return story


@pytest.mark.parametrize("kind", [Frozen, Walled])
def test_who_falls_silent_by_it_must_be_missed(calm, kind):
    assert hit(calm, kind, 3.0, 9.0).verdict("silence_noticed").verdict == "failed"


@pytest.mark.parametrize("kind", [Foreign, Deaf, Replaced])
def test_who_is_still_heard_of_or_has_a_successor_need_not_be(calm, kind):
    assert "silence_noticed" not in hit(calm, kind, 3.0, 9.0).describe()


def test_why_it_missed_is_said_once(calm):
    story = hit(calm, Missed, 3.0, 9.0)
    story = story.forged(story.one("injected", fault="f1"), observed={"ok": False, "why": "nobody was there"})
    assert " ".join(story.verdict("faults_verified").evidence).count("nobody was there") == 1


def test_who_was_replaced_has_to_come_back(calm):
    assert "reintegration" not in hit(calm, Frozen, 3.0, 9.0).describe()
    verdict = hit(calm, Replaced, 3.0, 9.0).verdict("reintegration")
    assert (verdict.verdict, verdict.evidence) == ("unknown", ["learner-2 was not started again"])


@pytest.mark.parametrize(("busy", "excused"), [
    ({"others": 1.0, "idle": 0.0}, {Foreign, Thrashing}), ({"io": 0.9}, {Foreign, Hog}),
    ({"memory": 0.9}, {Foreign, Hog})])
@pytest.mark.parametrize("kind", [Foreign, Hog, Thrashing])
def test_what_it_keeps_waiting_excuses_nothing(calm, kind, busy, excused):
    story = hit(calm.silent("merge", 3, 5), kind, 2.5, 5.5)
    for second in range(1, int(story.end) + 2):
        sample = QUIET | (busy if 3 < second <= 5 else {})
        story = story.said(float(second), "harness", "machine", 0, **sample)
    verdict = story.verdict("no_global_stall")
    assert (verdict.verdict, verdict.reason) == (("unknown", "excused") if kind in excused else ("failed", None))
