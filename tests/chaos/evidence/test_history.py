"""What is known of a fault, from all that was recorded of it."""

from forged_runs import stormy


def observed(story, fault):
    return next(dict(span.observed) for span in story.history().spans if span.id == fault)


def test_what_was_measured_later_adds_to_what_was_known_at_once():
    measured = stormy().said(7.0, "harness", "observed", fault="f2", observed={"pace": 0.5})
    assert observed(measured, "f2") == {"ok": True, "pace": 0.5}


def test_a_fault_that_could_not_take_place_stays_so_whatever_is_measured_later():
    could_not = stormy().forged(lambda event: event.event == "injected" and event.fault == "f2",
                                observed={"ok": False, "why": "nothing is preloaded"})
    measured = could_not.said(7.0, "harness", "observed", fault="f2", observed={"ok": False, "why": "never armed"})
    assert observed(measured, "f2")["why"] == "nothing is preloaded"
