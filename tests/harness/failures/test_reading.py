"""A trace is read from a CSV or from JSON; all that is wrong with it is said at once, line by line."""

import json

import pytest

from diloco_chaos.harness.failures.reading import TraceError, read_trace

DAY = 86_400.0


def read(tmp_path, text, nodes=None):
    (tmp_path / "trace").write_text(text)
    return read_trace(tmp_path / "trace", nodes)


def problems(tmp_path, text, nodes=None):
    """What is said of it, without the file's name."""
    with pytest.raises(TraceError) as refused:
        read(tmp_path, text, nodes)
    return str(refused.value).replace(f"{tmp_path / 'trace'}: ", "").splitlines()


def event(node, day, what="fault_start", kind="GPU"):
    return {"node_id": node, "event_time": day, "event_type": what,
            "fault_type": {"Level": "Hardware Failure", "Class": kind, "Desc": "x"}}


def test_numbers_are_days_units_are_what_they_say_and_columns_may_stand_anywhere(tmp_path):
    trace = read(tmp_path, "class,node,end,start,remark\nGPU,a,1.5,1,new\n\nNIC,b,48h,36h,\n,a,4d,3d\n", nodes=10)
    assert trace.starts.tolist() == [DAY, 1.5 * DAY, 3 * DAY]
    assert trace.ends.tolist() == [1.5 * DAY, 2 * DAY, 4 * DAY]
    assert (trace.whose.tolist(), trace.kinds) == ([0, 1, 0], ("GPU", "NIC", "unknown"))
    assert (trace.nodes, trace.length_s, trace.notes) == (10, 4 * DAY, ())


def test_dates_count_from_the_first_outage(tmp_path):
    trace = read(tmp_path, "node,start,end\nb,2026-01-02T12:00,2026-01-03\na,2026-01-01,2026-01-01T02:00+01:00\n", 2)
    assert trace.starts.tolist() == [0, 1.5 * DAY]
    assert trace.ends.tolist() == [3600, 2 * DAY]


def test_events_are_paired_in_their_order_and_what_is_open_lasts_to_the_end(tmp_path):
    trace = read(tmp_path, json.dumps([event("a", 1), event("b", 2, kind="NIC"), event("a", 3, "fault_end"),
                                       event("a", 5), event("c", 6), event("c", 9, "fault_end")]), 3)
    assert trace.kinds == ("GPU", "NIC", "GPU", "GPU")
    assert trace.repairs.tolist() == [2 * DAY, 7 * DAY, 4 * DAY, 3 * DAY]
    assert trace.notes == ("2 of 4 outages have no end: they last until the trace ends",)


def test_how_many_nodes_there_are_is_asked_for(tmp_path):
    trace = read(tmp_path, "node,start,end\na,1,2\nb,1,2\n")
    assert trace.nodes == 2
    assert "2 nodes that fail in it; if it has more, say how many: --nodes" in trace.notes[0]
    assert problems(tmp_path, "node,start,end\na,1,2\nb,1,2\n", 1) == [
        "--nodes 1: 2 nodes fail in it; say how many the cluster has in all"]


def test_a_node_that_fails_while_it_is_away_has_one_outage(tmp_path):
    trace = read(tmp_path, "node,start,end\na,1,4\na,2,3\na,3.5,6\nb,2,3\na,7,8\n", 2)
    assert trace.starts.tolist() == [DAY, 2 * DAY, 7 * DAY]
    assert trace.ends.tolist() == [6 * DAY, 3 * DAY, 8 * DAY]
    assert trace.notes == ("2 of 5 outages begin while their node is away already, one of them at line 3 (a): they are "
                           "one outage with the one before",)


def test_everything_that_is_wrong_is_said_at_once(tmp_path):
    assert problems(tmp_path, "node,start,end\na,3,2\n,1,2\nb,soon,3\nb,1,4x\nb,-1,3\nb,1,40000000\n") == [
        "line 2: node a is back before it is lost: exchange start and end, or leave it out",
        "line 3: no node",
        "line 4: 'soon' is not a duration: write it like 90s, 2h, 30d or 1y",
        "line 5: '4x' is not a duration: write it like 90s, 2h, 30d or 1y",
        "line 6: -1: a time since the trace began lies between 0 and 100 years; a number counts days, 36h or 90s say "
        "their unit",
        "line 7: 40000000: a time since the trace began lies between 0 and 100 years; a number counts days, 36h or 90s "
        "say their unit"]
    assert problems(tmp_path, json.dumps([{"event_time": 1}, event("a", "1"), event("a", 2, "fault_stop"),
                                          event("a", 3, "fault_end"), event("b", 5), event("b", 4, "fault_end")])) == [
        "entry 1: no node_id: each event names its node",
        "entry 2: event_time '1': days since the trace began, from 0 to 36525, are wanted",
        "entry 3: event_type 'fault_stop': fault_start or fault_end; did you mean 'fault_start'?",
        "entry 4: node a is back after 3 d, and no fault_start before it says since when it was away: add one, or "
        "leave it out",
        "entry 6: node b is back before it is lost: exchange start and end, or leave it out"]


@pytest.mark.parametrize(("text", "said"), [
    ("", "it is empty: write a line for each outage, under the header `node,start,end,class`"),
    ("node,start,end\n", "there is no outage in it: write a line for each outage"),
    ("host,from,to\na,1,2\n", "line 1: no column node, start, end in host, from, to: write a line"),
    ("[1", "it is no JSON: "),
    ("{}", "a list of events is wanted"),
    ("node,start,end\na,2026-01-01,3\n", "line 2: '3' is no date, as the first start is: write it like")])
def test_what_is_no_trace_is_said(tmp_path, text, said):
    assert problems(tmp_path, text)[0].startswith(said)


def test_many_problems_are_cut_short(tmp_path):
    lines = problems(tmp_path, "node,start,end\n" + "a,2,1\n" * 100)
    assert (len(lines), lines[-1]) == (21, "and 80 more like these")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TraceError, match="No such file or directory; name a CSV or JSON file with outages"):
        read_trace(tmp_path / "nothing.csv")
