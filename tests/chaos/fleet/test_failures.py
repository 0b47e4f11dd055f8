"""How a fleet's slices fail is a process or a trace; what contradicts itself is said in a line."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from diloco_chaos.chaos.cli import application
from diloco_chaos.harness.base.errors import UserError
from diloco_chaos.harness.failures.drawing import drawn_by
from diloco_chaos.harness.failures.process import FailureProcess

DAY = 86_400.0
SMALL = ("--mode", "decoupled", "--replications", "2", "--days", "20", "--jobs", "1", "--chips", "1600",
         "--slice-chips", "8", "--learners", "4")


def told(*arguments):
    """What `fleet` says: to people, and to stderr."""
    done = CliRunner().invoke(application(), ["fleet", *arguments], env={"COLUMNS": "80"})
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout, done.stderr


def refused(*arguments):
    """Why it does not."""
    with pytest.raises(UserError) as error:
        told(*arguments)
    return str(error.value).splitlines()


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Half a year of 200 nodes, as a CSV."""
    process = FailureProcess.model_validate({"lemons": 1.0, "relapse": "30%", "relapse_within": "6h", "burst": "20%"})
    course = drawn_by(process, 200, 60 * DAY, 2 * DAY, 180 * DAY, 1)
    lines = ["node,start,end,class", *(f"n{node},{start / DAY!r},{end / DAY!r},GPU"
                                       for node, start, end in course.outages() if end < course.horizon)]
    file = tmp_path_factory.mktemp("trace") / "faults.csv"
    file.write_text("\n".join(lines))
    return str(file)


def test_a_fleet_fails_as_often_as_the_nodes_of_the_trace(trace):
    output, said = told(*SMALL, "--json", "--trace", trace, "--trace-nodes", "200")
    (fleet,) = json.loads(output)["fleets"]
    assert fleet["interruptions_every_s"] == pytest.approx(62 * DAY / 200, rel=0.15)
    assert fleet["fleet"]["process"]["relapse"] == pytest.approx(0.3, abs=0.1)
    assert said == ""


def test_nodes_that_a_trace_does_not_name_are_asked_for(trace):
    assert "if it has more, say how many: --nodes" in told(*SMALL, "--trace", trace)[1].replace("\n", " ")


def test_a_mean_time_of_one_s_own_scales_what_was_fitted(trace):
    output, _ = told(*SMALL, "--json", "--trace", trace, "--trace-nodes", "200", "--mtbf", "1y", "--repair", "1h")
    (fleet,) = json.loads(output)["fleets"]
    assert fleet["interruptions_every_s"] == pytest.approx(365.25 * DAY / 1600, rel=0.01)
    assert float(fleet["fleet"]["process"]["relapse_within"].rstrip("s")) < DAY  # eight chips fail in 46 d, not in 60 d


@pytest.mark.parametrize("how", ["replay", "weeks"])
def test_a_trace_is_replayed_or_drawn_by_weeks(trace, how):
    output, _ = told(*SMALL, "--json", "--trace", trace, "--trace-nodes", "200", "--how", how)
    (fleet,) = json.loads(output)["fleets"]
    assert fleet["goodput"]["mean"] == pytest.approx(60 / 62, abs=0.03)
    assert fleet["fleet"]["process"] is None


def test_a_process_is_a_mapping_or_a_file(tmp_path):
    (tmp_path / "process.yaml").write_text("burst: 50%\nburst_size: 8.0\n")
    inline, file = (json.loads(told(*SMALL, "--json", "--process", process)[0])["fleets"]
                    for process in ("{burst: 50%, burst_size: 8.0}", str(tmp_path / "process.yaml")))
    assert inline == file
    plain = json.loads(told(*SMALL, "--json")[0])["fleets"]
    assert inline[0]["goodput"] != plain[0]["goodput"]


@pytest.mark.parametrize(("options", "said"), [
    (("--process", "{}", "--trace", "x"), ["--process, --trace: slices fail by one of them: leave the other out"]),
    (("--how", "weeks"), ["--how: it says how a trace is used: name one (--trace)"]),
    (("--process", "{lemons: 1.0}", "--shape", "2", "--repair-shape", "2"), [
        "--shape: the process says it: leave out one of them", "--repair-shape: the process says it: leave out one of "
        "them"]),
    (("--process", "[1]"), ["--process [1]: No such file or directory; name a YAML file, or write a mapping, like "
                            "'{relapse: 30%}'"]),
    (("--process", "{1"), None), (("--process", "{burts: 30%, waves: -1}"), None),
    (("--process", "{relapse: 90%, relapse_within: 2y}", "--mtbf", "1d"), None)])
def test_what_contradicts_itself_is_refused(options, said):
    lines = refused(*SMALL, *options)
    if said is None:
        assert all(line.startswith(("--process: ", "process: ", " ")) for line in lines)
    else:
        assert lines == said


def test_a_replayed_trace_says_how_often_nodes_fail(trace):
    assert refused(*SMALL, "--trace", trace, "--trace-nodes", "200", "--how", "replay", "--mtbf", "1y", "--repair", "1h"
                   ) == [f"{option}: with --how replay the trace says it: leave it out, or take --how fitted"
                         for option in ("--mtbf", "--repair")]
    assert refused(*SMALL, "--trace", trace, "--how", "often") == ["--how often: one of fitted, weeks, replay"]
    assert refused(*SMALL, "--trace", trace, "--trace-nodes", "200", "--mtbf", "1x") == [
        "--mtbf: '1x' is not a duration: write it like 90s, 2h, 30d or 1y"]


def test_fit_draws_quantiles_of_the_trace_against_those_of_both_models(trace, tmp_path):
    file = tmp_path / "fit.svg"
    told("fit", trace, "--nodes", "200", "--replications", "3", "--plot", str(file))
    texts = [element.text for element in ElementTree.parse(file).getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert {"fitted", "exponential", "how long repairs take", "from a failure to the next",
            "from a repair to the node's next failure"} <= {*texts}
    nowhere = tmp_path / "nowhere" / "fit.svg"
    assert refused("fit", trace, "--plot", str(nowhere)) == [
        f"--plot {nowhere}: there is no folder {nowhere.parent}: make it, or name another file"]
    assert refused("fit", trace, "--plot", "fit.pdf") == ["--plot fit.pdf: name a file that ends in .svg or .png"]


def test_fit_prints_the_process_and_its_numbers_beside_the_trace_s(trace):
    output, said = told("fit", trace, "--nodes", "200", "--replications", "5")
    lines = output.splitlines()
    assert said == ""
    assert max(map(len, lines)) <= 80
    assert lines[0].endswith("outages of 200 nodes in 180 d")
    for begin in ("a node is in service", "lemons:", "relapse:", "burst:", "waves:", "repair:"):
        assert any(line.startswith(begin) for line in lines)
    found = json.loads(told("fit", trace, "--nodes", "200", "--replications", "5", "--json")[0])
    for name in ("failures", "weekly", "away", "repair_median"):
        assert found["fitted"][name]["low"] * 0.8 <= found["trace"][name] <= found["fitted"][name]["high"] * 1.2
    assert FailureProcess.model_validate(found["process"]).relapse == pytest.approx(0.3, abs=0.1)


def test_spares_are_told_for_each_way_to_draw_failures(trace):
    output, _ = told("spares", trace, "--nodes", "200", "--job", "300", "--replications", "5")
    lines = output.splitlines()
    assert lines[0] == "Spares with which a job has its 300 nodes 99% of the time"
    found = json.loads(told("spares", trace, "--nodes", "200", "--job", "300", "--replications", "5", "--json")[0])
    assert [*found["spares"]] == ["replay", "weeks", "fitted", "exponential"]
    assert all(4 < each["needed"] < 60 and each["low"] <= each["high"] for each in found["spares"].values())
    assert np.mean([each["needed"] for each in found["spares"].values()]) > 10


def test_a_trace_with_too_little_in_it_is_refused(tmp_path):
    (tmp_path / "few.csv").write_text("node,start,end\na,1,2\n")
    file = tmp_path / "few.csv"
    assert refused("fit", str(file), "--nodes", "9") == [
        f"{file}: too few outages to fit a process to: 1, and 20 are the least; replay it (--how replay)"]
