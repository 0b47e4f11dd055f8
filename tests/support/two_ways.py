"""Runs of two ways, as `measured` tells them, without running any."""

from diloco_chaos.chaos.report.comparison.measured import PhaseMeasured, RunMeasured, WayMeasured
from diloco_chaos.chaos.report.comparison.model import Comparison, paired

FAULT = '{"id": "f1", "kind": "kill", "says": "(kill w-1, at 3.0 s)", "targets": ["w-1"], "at": 3.0}'


def run(seed, phases, lost=0.0, verdict="PASSED", goodput=0.9, took=20.0, **more):
    """A run; a phase is its seconds, or its ending."""
    told = {name: PhaseMeasured(seconds=None, ending=said, why=f"{name} is {said}") if isinstance(said, str)
            else PhaseMeasured(seconds=said) for name, said in phases.items()}
    return RunMeasured(run=f"runs/{seed}", seed=seed, plan="p", verdict=verdict, why="", faults=[FAULT],
                       recoveries={"f1 w-1": told}, checks={},
                       figures={"goodput": goodput, "lost work": lost, "longest stall": 1.0, "took": took}, **more)


def way(name, runs, **more):
    return WayMeasured(name=name, scenario="job", trainer="commands", unit="rounds", says=[], runs=runs, **more)


def compared(first, second, **more):
    """The comparison of two lists of runs."""
    ways = (way("naive", first), way("prepared", second))
    return Comparison(ways, tuple(paired(ways)), "local", **more)


def quick_and_slow(runs=5):
    """The second notices after 5 s where the first needs a minute; else they are alike."""
    noise = [0.3, -0.2, 0.1, -0.4, 0.2, 0.0, 0.25, -0.1, 0.15, -0.3]
    return compared([run(seed, {"noticed": 60 + noise[seed], "pace as before": 70 + noise[seed]})
                     for seed in range(runs)],
                    [run(seed, {"noticed": 5 + noise[-seed - 1] / 2, "pace as before": 70 + noise[-seed - 1]})
                     for seed in range(runs)])
