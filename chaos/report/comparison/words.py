"""A comparison in words: which way is better in what, whether that is more than chance, by how many runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diloco_chaos.chaos.evidence.phases import EXCLUDED, FIRST_ROUND, MADE_GOOD, NOTICED, OVER, PACE, READY, RESTARTED
from diloco_chaos.chaos.report.comparison.measured import GOODPUT, LOST, STALL, TOOK, Ending, WayMeasured
from diloco_chaos.chaos.report.comparison.model import Call, Cell, Pairing, Row
from diloco_chaos.harness.base.units import names, show_seconds

MEANING = {
    NOTICED: "the fault was noticed by another node", EXCLUDED: "the first round without its target",
    RESTARTED: "its target's process is there again", OVER: "the fault is over", READY: "its target can train again",
    FIRST_ROUND: "its target has part in a round again", PACE: "as many rounds a second, by as many, as before",
    MADE_GOOD: "what its target had lost is made again",
    LOST: "work of all targets that came to nothing", STALL: "the longest time without a round or merge",
    GOODPUT: "share of the time, or of the pace before the first fault, that came to something",
    TOOK: "from the steady state to the end of training"}
CALLS: dict[Call, str] = {"better": "better", "worse": "worse", "perhaps": "perhaps", "no": "unclear", "untold": "–"}
MARKS: dict[Call, str] = {"better": "✓", "worse": "✗", "perhaps": "?", "no": "", "untold": ""}
HOW_TO_READ = (
    "Times of phases count from the fault. An interval holds the true difference in 95% of all cases.",
    "better, worse: more than chance explains, with allowance for how many figures there are. perhaps: the interval "
    "of this figure alone leaves out zero; more runs will tell. unclear: chance may explain it.",
    "What has no time in one of two runs takes no part in the difference, and is counted beside the figure.")
ONLY = "Only what is more than chance explains is called better or worse."
_ENDINGS: dict[Ending, str] = {"never": "never", "untold": "not told", "idle": "nothing to do"}
_MANY = 10


@dataclass(frozen=True)
class Headline:
    """What the first lines say."""

    title: str
    better: tuple[str, ...]
    worse: tuple[str, ...]
    perhaps: tuple[str, ...]
    same: str
    """What is not shown to differ."""
    advice: str
    """What to type for more; empty where nothing is open."""


def headline(pairing: Pairing) -> Headline:
    """Return which way is better, and in what."""
    first, second, runs = pairing.first.name, pairing.second.name, len(pairing.seeds)
    better, worse, perhaps = (tuple(map(phrase, pairing.called(call))) for call in ("better", "worse", "perhaps"))
    same = [row.name for row in pairing.called("no")]
    if not runs:
        title = f"{first} and {second}: no run of one has a partner of the other"
    elif runs < 2:
        title = f"{first} and {second}: one run of each tells no difference from chance"
    elif better and not worse:
        title = f"{second} is better than {first} in {len(better)} of {len(pairing.rows)} figures, worse in none"
    elif worse and not better:
        title = f"{first} is better than {second} in {len(worse)} of {len(pairing.rows)} figures, worse in none"
    elif better:
        title = (f"{second} is better than {first} in {len(better)} of {len(pairing.rows)} figures, and worse in "
                 f"{len(worse)}")
    elif perhaps:
        title = f"{first} and {second} may differ: {runs} runs of each do not settle it"
    else:
        title = f"no difference between {first} and {second} is shown by {runs} runs of each"
    is_open = runs < _MANY and (perhaps or not (better or worse))
    advice = f"more runs tell more: --repeat {max(5, 2 * runs)}" if is_open else ""
    return Headline(title, better, worse, perhaps, ", ".join(same), advice)


def phrase(row: Row) -> str:
    """A row's difference as a person says it: `noticed 27.0 s sooner (4.1 s, not 31.0 s)`."""
    told = row.difference.estimate
    assert told is not None, "a row of which something is said"
    values = f"({value(row, row.second)}, not {value(row, row.first)})"
    if row.unit == "rate":
        held = "held " if row.kind == "check" else ""
        return f"{row.name} {held}in {value(row, row.second)} runs instead of {value(row, row.first)}"
    amount = shown(abs(told.mean), row.unit)
    if row.kind == "phase":
        return f"{row.name} {amount} {'later' if told.mean > 0 else 'sooner'} {values}"
    if row.unit == "s":
        return f"{row.name} {amount} {'longer' if told.mean > 0 else 'shorter'} {values}"
    return f"{row.name} {amount} {'more' if told.mean > 0 else 'less'} {values}"


def value(row: Row, cell: Cell) -> str:
    """A cell's value, without what is missing."""
    if cell.held is not None:
        return f"{cell.held[0]} of {cell.held[1]}" if cell.held[1] else "none judged"
    return "–" if cell.estimate is None else shown(cell.estimate.mean, row.unit)


def missing(cell: Cell) -> str:
    """What takes no part in it: `2 never, 1 not told`."""
    return ", ".join(f"{count} {_ENDINGS[ending]}" for ending, count in cell.missing.items() if ending)


def change(row: Row) -> str:
    """The difference with its sign."""
    told = row.difference.estimate
    if told is None:
        return "–"
    return _signed(told.mean, row.unit) if row.unit in ("s", "share", "rate") else f"{told.mean:+.3g}"


def pairs(row: Row, pairing: Pairing) -> str:
    """Of how many pairs a difference is, where those are not all; else empty."""
    told = row.difference.estimate
    fewer = told is not None and row.unit != "rate" and told.runs < len(pairing.seeds)
    return f"of {told.runs} pair{'s' * (told.runs != 1)}" if fewer and told else ""


def between(row: Row) -> str:
    """The difference's interval with signs: `-30 s to -24 s`; empty where there is none."""
    told = row.difference.estimate
    if told is None or told.low is None or told.high is None:
        return ""
    factor, decimals, unit = _scale(max(abs(told.low), abs(told.high)), row.unit)
    return f"{factor * told.low:+.{decimals}f} to {factor * told.high:+.{decimals}f}{unit}"


def shown(amount: float, unit: str) -> str:
    """A number with its unit."""
    if unit == "s":
        return show_seconds(max(0.0, amount))
    if unit in ("share", "rate"):
        return f"{100 * amount:.1f}%" if unit == "share" else f"{100 * amount:.0f}%"
    return f"{amount:.3g} {unit}"


def verdicts(pairing: Pairing) -> str:
    """How many runs of each way passed, and how many prove nothing."""
    return f"passed: {_passed(pairing.first, pairing)}, {_passed(pairing.second, pairing)}"


def _passed(way: WayMeasured, pairing: Pairing) -> str:
    ends = [run.verdict for run in way.runs if run.seed in pairing.seeds]
    open_ = len(ends) - ends.count("PASSED") - ends.count("FAILED")
    return f"{way.name} {ends.count('PASSED')} of {len(ends)}" + (f" ({open_} inconclusive)" if open_ else "")


def counted(pairing: Pairing) -> str:
    """How many runs there are, and of what seeds."""
    seeds = list(pairing.seeds)
    count = len(seeds)
    if not seeds:
        return "no pairs of runs"
    in_a_row = count > 1 and seeds == list(range(seeds[0], seeds[0] + count))
    which = f"{seeds[0]} to {seeds[-1]}" if in_a_row else names(list(map(str, seeds)))
    return f"{count} pair{'s' * (count != 1)} of runs, seed{'s' * (count != 1)} {which}"


def notes(pairings: Sequence[Pairing]) -> list[str]:
    """What else must be known: what no evidence shows, and runs that prove nothing."""
    lines = []
    for pairing in pairings:
        lines += [f"not told in any run: {phase}: {why}" for phase, why in pairing.not_told.items()]
        lines += [_unproved(way) for way in (pairing.first, pairing.second)]
    return list(dict.fromkeys(filter(None, lines)))


def _unproved(way: WayMeasured) -> str:
    runs = [run for run in way.runs if run.verdict not in ("PASSED", "FAILED")]
    if not runs:
        return ""
    which = f"seed{'s' * (len(runs) > 1)} {names([str(run.seed) for run in runs])}"
    return f"{way.name}: {which} inconclusive, and the figures count all the same: {runs[0].why}"


def _scale(most: float, unit: str) -> tuple[float, int, str]:
    """How amounts of this size are told: times how much, with how many decimals, and in what."""
    if unit == "s":
        return (1e3, 0, " ms") if most < 0.9995 else (1, 1 if most < 1000 else 0, " s")
    if unit in ("share", "rate"):
        return 100, 1 if unit == "share" else 0, "%"
    return 1, 1 if most < 1000 else 0, ""


def _signed(amount: float, unit: str) -> str:
    return f"{'-' if amount < 0 else '+'}{shown(abs(amount), unit)}"
