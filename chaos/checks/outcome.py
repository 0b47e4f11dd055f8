"""What it cost, and whether the experiment itself was sound."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

from diloco_chaos.chaos.checks.base import (
    PROMISE,
    QUIET_S,
    Figure,
    Finding,
    Late,
    Unknown,
    at_least,
    check,
    longer,
    need,
    need_before,
    violations,
    zero,
)
from diloco_chaos.chaos.checks.injection import measure, never_seen
from diloco_chaos.chaos.checks.told.rounds import goodput_of_rounds
from diloco_chaos.chaos.evidence.accounting.token_accounting import Node
from diloco_chaos.chaos.evidence.availability import Availability
from diloco_chaos.chaos.evidence.baseline import LossPoint, Reference
from diloco_chaos.chaos.evidence.history import History, Span
from diloco_chaos.chaos.scenario.bounds import Goodput, LossParity
from diloco_chaos.faults.processes.process import TYPICAL_START_S
from diloco_chaos.harness.base.tensors import np
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import Ready, Residue, Spawn

_BACK_S = 3.0
"""What hits a link, or the syncer, so shortly before or after may be why a probe did not get through."""
_UNDISTURBED = 0.85
"""Goodput of a run that nothing is done to, at the least, where a schedule leaves no time for anything better."""
_SAME_EXCESS, _SAME_LOSS = 0.02, 2e-5
"""Two computations of the same loss differ by less than this share of what it has beyond its floor, and by as little as
it is rounded."""
_CHANCE = 3.0
"""Standard errors of a difference that chance explains."""
_REACHES = 0.95
"""Share of a run's tokens that a reference's curve must cover."""


@check(LossParity)
def loss_parity(history: History, bound: LossParity) -> Finding | None:
    """The final held-out loss against the fault-free baseline and against the synchronous run, each with its margin.

    Against the former at equal merged tokens, against the synchronous run at equal processed tokens.
    """
    need(history.curve, "no loss of this run is known")
    final = history.final
    need(final.number == history.plan.trainer.last_snapshot, "training did not reach the end of its budget",
         "more time (`deadline`)")
    floor = history.plan.trainer.loss_floor
    unit = history.plan.trainer.counting.unit
    names = {"fault-free": history.plan.trainer.baseline_name}
    measured, allowed, evidence, holds = [], [], [
        f"final loss {final.loss:.4f} {history.plan.trainer.loss_unit}"], True
    figures: list[Figure] = []
    for kind, margin, count in (("fault-free", bound.against_baseline, "merged"),
                                ("synchronous", bound.against_synchronous, "processed")):
        if margin is None:
            continue
        reference, name = history.references.get(kind), names.get(kind, kind)
        if reference is None or not reference.curve:
            raise Unknown(f"the {name} reference is missing")
        need(all(math.isfinite(point.loss) for point in reference.curve), f"the {name} reference diverged")
        need(max(getattr(point, count) for point in reference.curve) >= _REACHES * getattr(final, count),
             f"the {name} reference ends before this run does")
        if wrong := _wrong_reference(history, reference) if kind == "synchronous" else "":
            return Finding(False, "the synchronous run is wrong", "as the formulas give it", [wrong])
        gap = relative_gap(final, reference.curve, count, floor)
        holds &= gap <= margin
        measured.append(f"{name} {gap:+.1%}" + (" (of the excess over the floor)" if floor else ""))
        figures.append(Figure(of=name, value=gap, limit=margin, unit="share"))
        allowed.append(f"{name} ≤ +{margin:.1%}")
        if kind == "fault-free" and (wrong_losses := _wrong_losses(history, reference, bound)):
            holds = False
            measured += [words for words, _ in wrong_losses]
            evidence = [why for _, why in wrong_losses] + evidence
        other = "processed" if count == "merged" else "merged"
        if kind == "synchronous":
            evidence.append(f"synchronous at equal wall time, which had no pace: "
                            f"{final.loss / loss_at(reference.curve, 't', final.t) - 1:+.2%}")
            more = extra_tokens(history.curve, reference.curve, count)
            evidence.append(f"extra tokens to the same loss {more:+.1%}, by the synchronous run's own curve: a shorter "
                            f"run with a schedule of its own would have been there sooner")
        evidence.append(f"{name} at equal {count} {unit} {loss_at(reference.curve, count, getattr(final, count)):.4f}; "
                        f"at equal {other} {unit} {relative_gap(final, reference.curve, other, floor):+.2%}")
    return Finding(holds, ", ".join(measured), ", ".join(allowed), evidence, figures=figures)


def _wrong_losses(history: History, reference: Reference, bound: LossParity) -> list[tuple[str, str]]:
    """Return, in words, how far each worker's own loss is above the margin, by more than chance; and how far what
    workers told is below what the same nodes reach without faults: a loss can't be better than that."""
    trainer, last = history.plan.trainer, history.plan.trainer.last_snapshot
    if not trainer.tells_losses:
        return []
    own = {worker: told[-1] for worker, told in trainer.workers_losses(history.tape).items() if told[-1].number == last}
    gaps = {worker: _gap_for_sure(LossPoint(number=last, processed=point.round, merged=point.round, t=point.t,
                                            loss=point.loss, error=point.error),
                                  reference.workers.get(worker, reference.curve)) for worker, point in own.items()}
    margin = bound.against_baseline or 0.0
    wrong = [(f"{worker} {gap:+.1%}", f"{worker}'s own loss is {own[worker].loss:.4f}") for worker, gap in gaps.items()
             if gap > margin and len(own) > 1]
    gaps = {"the loss": _gap_for_sure(history.final, reference.curve)} | gaps
    if trainer.baseline() == trainer.settings and (lower := [who for who in gaps if gaps[who] < -bound.better_by]):
        wrong.append((f"{lower[0]} {gaps[lower[0]]:+.1%}",
                      f"{lower[0]} is lower than the same nodes come to without faults, by more than "
                      f"{bound.better_by:.0%}: some frameworks print 0.0 for NaN, and data that are trained on twice "
                      f"are known better (`better_by` says how much is allowed)"))
    return wrong


def _gap_for_sure(final: LossPoint, curve: Sequence[LossPoint]) -> float:
    """Return the relative gap at equal rounds, without what chance explains."""
    expected = loss_at(curve, "merged", final.merged)
    chance = _CHANCE * math.hypot(final.error, max(curve, key=lambda point: point.number).error)
    gap = final.loss - expected
    return math.copysign(max(0.0, abs(gap) - chance), gap) / abs(expected)


def relative_gap(final: LossPoint, curve: Sequence[LossPoint], count: str, floor: float = 0.0) -> float:
    """final / reference - 1 at an equal count of tokens (`processed` or `merged`), of what each has beyond the least
    loss that there is."""
    return (final.loss - floor) / (loss_at(curve, count, getattr(final, count)) - floor) - 1


def _wrong_reference(history: History, reference: Reference) -> str:
    """Return how the synchronous run differs from what the formulas give for it: it was made by the trainer under test.
    Empty where it does not, or nothing but that trainer could tell."""
    floor = history.plan.trainer.loss_floor
    expected = history.plan.trainer.synchronous_loss()
    ended = max(reference.curve, key=lambda point: point.number).loss
    if expected is None or abs(ended - expected) <= _SAME_LOSS + _SAME_EXCESS * (expected - floor):
        return ""
    return f"the synchronous run ended at {ended:.6f}, and the formulas give {expected:.6f}"


def extra_tokens(curve: Sequence[LossPoint], reference: Sequence[LossPoint], count: str) -> float:
    """Return how many more tokens than the reference a run took to where the worse of the two ends, as a share of the
    lesser.

    Where this run ends above the reference: its own count over that at which the reference first was as low, minus 1;
    infinite where the reference begins as low. Where it ends below, the reference never was as low: then the count at
    which this run first was as low as the reference in its end, over the reference's own, minus 1, which is negative.

    A curve is of one schedule, which has not decayed before its end: a shorter run with a schedule of its own length
    would be there sooner. So a run took at least so many more.
    """
    mine, its = (max(of, key=lambda point: float(getattr(point, count))) for of in (curve, reference))
    own_end, reference_end = float(getattr(mine, count)), float(getattr(its, count))
    if mine.loss < its.loss:
        return first_at(curve, count, its.loss) / reference_end - 1
    reached = first_at(reference, count, mine.loss)
    return own_end / reached - 1 if reached else math.inf


def first_at(curve: Sequence[LossPoint], count: str, loss: float) -> float:
    """The count of tokens at which a curve, linear between snapshots, first is as low; its end's where it never is."""
    points = sorted((float(getattr(point, count)), point.loss) for point in curve)
    for (before, above), (after, below) in zip(points[:1] + points, points, strict=False):
        if below <= loss:
            return before + (after - before) * ((above - loss) / (above - below) if above > loss else 0.0)
    return points[-1][0]


def loss_at(curve: Sequence[LossPoint], count: str, tokens: float) -> float:
    """A curve's loss at a count of tokens: linear between snapshots, its ends beyond them."""
    place: Callable[[LossPoint], float] = lambda point: float(getattr(point, count))  # noqa: E731
    points = sorted(curve, key=place)
    index = bisect_left([place(point) for point in points], tokens)
    if index == 0:
        return points[0].loss
    if index == len(points):
        return points[-1].loss
    left, right = points[index - 1], points[index]
    share = (tokens - place(left)) / (place(right) - place(left))
    return left.loss + share * (right.loss - left.loss)


@check(Goodput, cumulative=True)
def goodput(history: History, bound: Goodput) -> Finding | None:
    """Share of learner time in inner steps whose tokens were merged, carried, or lost only to the overlap; of a trainer
    whose event log has no tokens, rounds that were made, of as many as at its own pace before the first fault."""
    if "tokens" not in history.plan.trainer.evidence:
        return None if bound.at_least is None else goodput_of_rounds(history, bound.at_least)
    start = zero(history)
    wall = history.seconds(start, history.end)
    need(wall > 0 and history.steps, "no time, or no steps, after the steady state")
    value = goodput_between(history, start, history.end)
    predicted, late = history.plan.predicted_availability(), 0.0
    if history.plan.checks.excuses_outages:
        least = _left(history, start)
    elif bound.at_least is not None:
        least = bound.at_least
    else:
        late = _started_late(history)
        predicted *= 1 - late / wall
        least = 0.9 * predicted
    return Finding(value >= least, f"{value:.1%} (predicted {predicted:.0%})", at_least(f"{least:.1%}"),
                   [*_never(predicted, least), *_slow(late), _became(history),
                    f"measured over {wall:.1f} s of {history.plan.cluster.learners} learners from the steady state on"],
                   [Late(start, history.end, (1 - max(0.0, least - value)) * (history.end - start))],
                   [Figure(value=value, limit=least, best=1.0, unit="share")])


def _never(predicted: float, least: float) -> list[str]:
    """Return a line that says that more is asked for than the plan leaves, where that is so; else no line."""
    if predicted >= least:
        return []
    return [f"the plan's own faults were predicted to leave {predicted:.0%}, less than the {least:.1%} asked for"]


def _started_late(history: History) -> float:
    """Return the seconds of the whole cluster by which replacements were ready later than the prediction takes for
    granted, as far as the first processes of this run were, too: a slow place is no fault of the trainer."""
    ready: dict[Node, float] = {}
    for event in history.tape.of(Ready):
        ready.setdefault((event.node, event.inc), event.t)
    started = [(spawn, ready[node]) for spawn in history.tape.of(Spawn)
               if (node := (spawn.target, spawn.incarnation)) in ready and spawn.target in history.plan.cluster.names]
    usual = max((t - spawn.t for spawn, t in started if spawn.incarnation == 0), default=0.0)
    late = sorted((spawn.t + TYPICAL_START_S, min(t, spawn.t + usual)) for spawn, t in started if spawn.incarnation)
    if history.plan.cluster.coupling.waits != "all":
        return sum(max(0.0, end - start) for start, end in late) / history.plan.cluster.learners
    waited, until = 0.0, 0.0  # who waits for two waits once
    for start, end in late:
        waited += max(0.0, end - max(start, until))
        until = max(until, end)
    return waited


def _slow(late: float) -> list[str]:
    """Return a line that says that the prediction allows for a slow place, where it does; else no line."""
    if not late:
        return []
    return [f"processes start slowly here, the first ones, too: {show_seconds(late)} of the cluster's time are allowed "
            "for it"]


def _became(history: History) -> str:
    """Say what became of the tokens that were processed, as shares of them."""
    accounting = history.accounting
    fates = ", ".join(f"{count / max(1, accounting.processed):.1%} {fate}"
                      for fate, count in accounting.by_fate.most_common() if count >= 0.001 * accounting.processed)
    return f"of the tokens that were processed: {fates}"


def _left(history: History, start: float) -> float:
    """Return the least share of goodput that must be left where what faults take is excused: of what the cluster has
    without any, or, where some may be too slow to be merged from, of what it had before the first; without the time in
    which learners were out, and in which nothing could be merged, and the work that was at stake whenever a learner
    was hit."""
    availability, cluster, wall = history.once(Availability), history.plan.cluster, history.end - start
    out = sum(availability.out_s(learner, start, history.end) for learner in cluster.names)
    out += sum(cluster.at_stake_s(learner) for span in history.spans if span.injected is not None
               for learner in cluster.names if learner in span.planned.fault.affected_nodes(cluster.names)
               or cluster.blocking)
    usual = history.plan.predicted_availability(undisturbed=True)
    if not cluster.merges_from_all:
        need_before(history.first_fault - start, QUIET_S, "goodput")
        usual = min(usual, goodput_between(history, start, history.first_fault))
    return max(0.0, usual * _UNDISTURBED - out / (cluster.learners * wall))


def goodput_between(history: History, start: float, end: float) -> float:
    """Goodput in a window; an inner step counts its nominal time, or what it computed where there is no pace."""
    awake = history.awake(start, end)
    useful = sum(_useful_s(history, node, awake) for node in history.steps)
    return useful / (history.plan.cluster.learners * history.seconds(start, end))


def _useful_s(history: History, node: Node, awake: Sequence[tuple[float, float]]) -> float:
    """Useful seconds of the steps that a process ended in these windows, which follow each other."""
    steps, nominal = history.steps[node], history.step_time(node[0])
    shares = history.accounting.useful(node, steps.integers("step"))
    seconds = (nominal or steps.t - steps.numbers("began")) * shares
    return math.fsum(math.fsum(seconds[slice(*np.searchsorted(steps.t, window))]) for window in awake)


@check(**PROMISE)
def faults_verified(history: History) -> Finding | None:
    """Each fault was measured; one that had no measurable effect leaves the verdicts that depend on it unknown.

    It fails where the harness did its part, and the trainer did not notice, refuse or repair what it must.
    """
    if not history.plan.faults:
        return None
    results = [(span, measure(history, span)) for span in history.spans]
    ignored = [f"{span.planned.id}: {result.requested}: {result.observed}" for span, result in results
               if result.ok and not result.reacted]
    if ignored:
        return Finding(False, f"{len(ignored)} of {len(results)} without a reaction", "all", ignored[:5],
                       figures=violations(ignored))
    missed = [f"{span.planned.id}: asked for {result.requested}; observed: {result.observed}"
              for span, result in results if not result.ok]
    if missed:
        never = [span for span in history.spans if span.injected is None]
        unseen = [span.planned.id for span in never if never_seen(history, span)]
        change = f"`when` of {', '.join(unseen)}: nothing that matches was seen" if unseen else ""
        raise Unknown("; ".join(missed), change or (longer(history) if never else ""))
    return Finding(True, f"{len(results)} of {len(results)}", "all",
                   [f"{span.planned.id}: {result.requested}: {result.observed}" for span, result in results],
                   figures=violations(ignored))


@check(**PROMISE)
def all_undone(history: History) -> Finding:
    """Nothing of any fault is left."""
    residue = history.tape.of(Residue, node="harness")
    need(residue, "the harness did not look for what was left")
    need(not residue[-1].unknown, f"not known: {residue[-1].unknown}")
    left = list(residue[-1].left)
    left += [f"{span.planned.describe()}: nothing came through after it was healed" for span in history.spans
             if span.observed.get("back") is False and not _in_the_way(history, span)]
    left += [f"{span.planned.describe()}: never healed" for span in history.spans
             if span.injected is not None and span.planned.fault.reversible and span.ended is None]
    return Finding(not left, f"{len(left)} left", "0", left, figures=violations(left))


def _in_the_way(history: History, span: Span) -> bool:
    """Return whether another fault may be why nothing came through: of the same links, of the syncer, or of all."""
    learners, at = history.plan.cluster.names, span.ended or history.end
    mine = set(span.planned.fault.affected_nodes(learners))
    return history.coordinator_down(at - _BACK_S, at + _BACK_S) or any(
        other is not span and other.overlaps(at - _BACK_S, at + _BACK_S)
        and (history.coordinator in other.planned.fault.targets
             or mine & set(other.planned.fault.affected_nodes(learners)))
        for other in history.spans)
