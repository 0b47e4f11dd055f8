"""Connections in virtual time, and what toxics, cuts and lost packets do to them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco_chaos.harness.links.toxic import Toxic

DELAY = 0.001

STEPS = st.lists(st.one_of(
    st.tuples(st.just("send"), st.integers(1, 5000)),
    st.tuples(st.just("wait"), st.floats(0, 0.3)),
    st.tuples(st.just("latency"), st.integers(0, 300)),
    st.tuples(st.just("bandwidth"), st.integers(1, 50)),
    st.tuples(st.just("slicer"), st.integers(1, 2000)),
    st.tuples(st.just("clear"), st.just(0)),
    st.tuples(st.just("vanish"), st.booleans())), max_size=25)


@settings(max_examples=60)
@given(STEPS, st.integers(0, 1000))
def test_every_frame_arrives_once_and_in_order_through_all_changes(line, steps, seed):
    between, sent = line(jitter=0.0009, seed=seed), 0
    for what, value in steps:
        if what == "send":
            between.send(sent, value)
            sent += 1
        elif what == "wait":
            between.at(between.world.now + value)
        elif what == "vanish":
            between.link.vanish(value)
        elif what == "clear":
            for name in list(between.link.toxics):
                between.link.remove(name)
        else:
            attributes = {"latency": {"latency": value, "jitter": value // 2}, "bandwidth": {"rate": value},
                          "slicer": {"average_size": value, "delay": 100}}[what]
            between.toxic(what, **attributes)
    between.link.vanish(False)
    between.at(between.world.now + 1000)
    assert between.server.messages == list(range(sent))


def test_a_frame_that_was_sent_first_arrives_first_under_jitter(line):
    between = line(delay=0.01, jitter=0.01)
    for number in range(200):
        between.at(number * 1e-4).send(number)
    assert between.at(1.0).server.messages == list(range(200))


def test_a_plain_link_takes_its_delay(line):
    between = line()
    between.send("up")
    between.connection.to_client(100, "down", {})
    between.at(1.0)
    assert (between.server.came, between.client.came) == ([(DELAY, "up")], [(DELAY, "down")])


# -- toxics ------------------------------------------------------------------------------------------------------------

def test_latency_delays_every_frame_of_its_stream_only(line):
    between = line()
    between.toxic("latency", latency=500)
    between.send("up")
    between.connection.to_client(100, "down", {})
    between.at(1.0)
    assert (between.server.came, between.client.came) == ([(0.501, "up")], [(DELAY, "down")])


def test_latency_delays_no_end_but_the_end_stays_behind_the_data(line):
    between = line()
    between.toxic("latency", latency=500)
    between.send("last")
    between.connection.close_client()
    between.at(1.0)
    assert between.server.messages == ["last"]
    assert 0.501 <= between.server.end[0] <= 0.51


def test_an_unrelated_toxic_does_not_delay_anew_what_was_delayed_already(line):
    between = line()
    between.toxic("latency", latency=500)
    between.send("under way")
    between.at(0.4).toxic("noop")
    assert between.at(2.0).server.came == [(0.501, "under way")]


def test_a_toxic_of_the_other_stream_does_not_delay_anew_what_was_delayed_already(line):
    between = line()
    between.toxic("latency", latency=500)
    between.send("under way")
    between.at(0.4).toxic("latency", "downstream", latency=10)
    assert between.at(2.0).server.came == [(0.501, "under way")]


def test_latency_that_is_removed_lets_go_what_waited(line):
    between = line()
    toxic = between.toxic("latency", latency=500)
    between.send("under way")
    between.at(0.2).link.remove(toxic.name)
    assert between.at(1.0).server.came == [(0.201, "under way")]


def test_bandwidth_carries_a_rate(line):
    between = line()
    between.toxic("bandwidth", rate=10)
    between.send("first", 5000)
    between.send("second", 5000)
    came = between.at(5.0).server.came
    assert [at for at, _ in came] == pytest.approx([0.501 - 0.1, 1.001 - 0.1], abs=0.101)


def test_a_rate_of_zero_holds_data_until_it_is_removed(line):
    between = line()
    toxic = between.toxic("bandwidth", rate=0)
    between.send("held")
    assert between.at(10.0).server.came == []
    assert between.connection.up.backlog() == 100
    between.link.remove(toxic.name)
    between.send("after")
    assert between.at(11.0).server.messages == ["held", "after"]


def test_behind_a_rate_of_zero_no_end_arrives_before_the_data(line):
    between = line()
    between.toxic("bandwidth", rate=0)
    between.send("held")
    between.connection.close_client()
    assert between.at(10.0).server.end is None


def test_a_timeout_drops_all_and_closes_after_as_long_without_data(line):
    between = line()
    between.toxic("timeout", timeout=1000)
    between.at(0.7).send("lost")
    between.at(5.0)
    assert between.server.came == []
    assert between.server.end[0] == between.client.end[0] == pytest.approx(1.7)


def test_a_timeout_of_zero_closes_only_when_it_is_removed(line):
    between = line()
    toxic = between.toxic("timeout", timeout=0)
    between.send("lost")
    assert between.at(100.0).server.end is None
    between.link.remove(toxic.name)
    assert between.at(101.0).server.came == []
    assert between.server.end[0] == between.client.end[0] == 100.0


def test_a_timeout_closes_also_where_packets_were_lost_for_a_moment(line):
    between = line()
    between.toxic("timeout", timeout=1000)
    between.at(0.2).link.vanish(True)
    between.at(0.4).link.vanish(False)
    assert between.at(10.0).server.end is not None


def test_a_reset_comes_after_the_first_data_and_an_idle_connection_stays(line):
    between = line()
    between.toxic("reset_peer", timeout=500)
    between.connect()
    assert between.at(3.0).client.end is None
    between.send("lost")
    between.at(5.0)
    assert between.server.came == []
    assert between.client.end == (3.5, "Connection reset by peer")
    assert between.server.end == (3.5, "reset")


def test_a_reset_counts_the_end_as_data(line):
    between = line()
    between.toxic("reset_peer", timeout=500)
    between.connect()
    between.connection.close_client()
    assert between.at(5.0).server.end == (0.5, "reset")


def test_a_connection_from_before_a_reset_peer_ends_without_a_reset(line):
    between = line()
    between.toxic("reset_peer", timeout=500)
    between.send("lost")
    between.at(5.0)
    assert between.server.came == []
    assert between.client.end == (0.5, "closed by the syncer")
    assert between.server.end == (0.5, "closed by the peer")


def test_one_that_was_made_beside_it_ends_with_a_reset_even_later_and_when_it_was_spared(line):
    between = line()
    toxic = between.toxic("reset_peer", toxicity=0.0, timeout=500)
    between.connect()
    between.link.remove(toxic.name)
    between.connection.close_client()
    assert between.at(5.0).server.end[1] == "reset"


def test_a_timeout_that_is_removed_closes_also_what_it_spared(line):
    between = line()
    toxic = between.toxic("timeout", toxicity=0.0, timeout=0)
    between.send("spared")
    between.at(1.0).link.remove(toxic.name)
    assert between.at(2.0).server.came == [(DELAY, "spared")]
    assert between.server.end == (1.0, "closed by the peer")


def test_toxics_that_are_drawn_together_hit_the_same_connections_and_probes(line):
    between = line()
    for stream in ("upstream", "downstream"):
        between.link.add(Toxic("timeout", stream, {"timeout": 0}, 0.5, draw="f1"))
    hits = []
    for _ in range(60):
        between.connect()
        hits.append([flow._pace.swallows if flow._pace else False for flow in (between.connection.up,
                                                                               between.connection.down)])
        hits.append([pace.swallows for pace in between.link.paces()])
    assert {tuple(hit) for hit in hits} == {(False, False), (True, True)}
    assert 30 < sum(up for up, _ in hits) < 90


def test_nothing_stops_a_reset_under_way_and_nothing_gets_on_meanwhile(line):
    between = line()
    toxic = between.toxic("reset_peer", timeout=500)
    between.connect()
    between.send("first")
    between.at(0.2).link.remove(toxic.name)
    between.send("second")
    between.at(5.0)
    assert (between.server.messages, between.server.end) == ([], (0.5, "reset"))


def test_a_slow_close_holds_the_end_and_not_the_data(line):
    between = line()
    between.toxic("slow_close", delay=2000)
    between.send("last")
    between.connection.close_client()
    between.at(5.0)
    assert between.server.came == [(DELAY, "last")]
    assert between.server.end[0] == pytest.approx(2.0, abs=0.01)


def test_a_slow_close_that_is_removed_lets_the_end_go(line):
    between = line()
    toxic = between.toxic("slow_close", delay=2000)
    between.connection.close_client()
    between.at(0.5).link.remove(toxic.name)
    assert between.at(5.0).server.end[0] == pytest.approx(0.5, abs=0.01)


def test_a_slicer_sends_slices_so_many_microseconds_apart(line):
    between = line()
    between.toxic("slicer", average_size=10, delay=1000)
    between.send("cut", 101)
    [(at, _)] = between.at(5.0).server.came
    assert at - DELAY == pytest.approx(0.01, abs=0.0001)


def test_a_data_limit_closes_at_the_byte_and_lets_through_what_came_before(line):
    between = line()
    between.toxic("limit_data", bytes=250)
    for number in range(4):
        between.send(number, 100)
    between.at(5.0)
    assert between.server.messages == [0, 1]
    assert between.server.end is not None
    assert between.client.end is not None


def test_a_frame_that_fills_a_data_limit_exactly_arrives(line):
    between = line()
    between.toxic("limit_data", bytes=100)
    between.send("fits", 100)
    between.at(5.0)
    assert between.server.messages == ["fits"]
    assert between.server.end is not None


def test_a_data_limit_of_zero_closes_with_the_first_data(line):
    between = line()
    between.toxic("limit_data", bytes=0)
    assert between.at(3.0).server.end is None
    between.send("none")
    between.at(5.0)
    assert between.server.came == []
    assert between.server.end[0] == pytest.approx(3.0, abs=0.01)


def test_a_data_limit_counts_each_byte_once_however_often_toxics_change(line):
    between = line()
    between.toxic("limit_data", bytes=1000)
    between.toxic("latency", latency=500)
    between.send("under way", 600)
    for turn in range(5):
        between.at(0.05 * (turn + 1)).toxic("noop")
    between.at(5.0)
    assert (between.server.messages, between.server.end) == (["under way"], None)


def test_a_data_limit_that_is_removed_in_time_closes_nothing(line):
    between = line()
    between.toxic("latency", latency=500)
    limit = between.toxic("limit_data", bytes=50)
    between.send("delayed", 100)
    between.at(0.2).link.remove(limit.name)
    between.at(5.0)
    assert (between.server.messages, between.server.end) == (["delayed"], None)


def test_toxicity_decides_for_each_connection(line):
    between = line()
    between.toxic("latency", toxicity=0.5, latency=500)
    others = [between.link.connect(number, between.client, between.server) for number in range(2, 102)]
    for other in others:
        other.to_server(100, other.number, {})
    between.at(1.0)
    assert 25 < sum(at > 0.5 for at, _ in between.server.came) < 75


def test_a_toxic_that_is_put_on_again_is_drawn_anew(line):
    between, hits = line(), set()
    for turn in range(40):
        toxic = between.toxic("latency", toxicity=0.5, latency=500)
        between.send(turn)
        between.at(between.world.now + 1.0).link.remove(toxic.name)
        hits.add(between.server.came[-1][0] - turn > 0.4)
    assert hits == {True, False}


# -- ends --------------------------------------------------------------------------------------------------------------

def test_a_cut_breaks_connections_for_both_and_what_was_under_way_is_lost(line):
    between = line()
    between.send("under way")
    between.link.enable(False)
    between.at(1.0)
    assert between.server.came == []
    assert between.server.end[0] == between.client.end[0] == 0.0
    between.link.enable(True)
    between.send("into the void")
    assert between.at(2.0).server.came == []


def test_an_end_arrives_behind_data_that_a_new_toxic_delays(line):
    between = line()
    between.send("last")
    between.connection.close_client()
    between.toxic("latency", latency=500)
    between.at(5.0)
    assert between.server.messages == ["last"]
    assert between.server.end is not None


def test_an_end_arrives_behind_data_whose_packets_are_lost_for_a_while(line):
    between = line()
    between.send("last")
    between.connection.close_client()
    between.link.vanish(True)
    between.at(5.0)
    assert between.server.end is None
    between.link.vanish(False)
    between.at(6.0)
    assert between.server.messages == ["last"]
    assert between.server.end is not None


def test_what_the_server_sends_before_it_closes_still_arrives(line):
    between = line()
    between.connection.to_client(100, "bye", {})
    between.connection.close_server()
    between.at(1.0)
    assert between.client.messages == ["bye"]
    assert between.client.end[1] == "closed by the syncer"


def test_nobody_who_closed_is_told_anything_more(line):
    between = line()
    between.connection.to_client(100, "unheard", {})
    between.connection.close_client()
    between.at(1.0)
    assert (between.client.came, between.client.end) == ([], None)


def test_a_connection_that_is_over_for_both_is_forgotten(line):
    between = line()
    between.connection.close_client()
    between.connection.close_server()
    between.at(1.0)
    between.link.break_all()
    assert (between.client.end, between.server.end) == (None, None)


# -- packets that vanish -----------------------------------------------------------------------------------------------

def test_vanished_packets_come_later_and_none_is_lost_or_doubled(line):
    between = line(jitter=0.0005)
    between.send(0)
    between.link.vanish(True)
    for number in range(1, 5):
        between.send(number)
    assert between.at(10.0).server.came == []
    between.link.vanish(False)
    between.send(5)
    between.at(11.0)
    assert between.server.messages == [0, 1, 2, 3, 4, 5]
    assert between.server.end is None


def test_a_client_off_the_network_hears_of_no_end_until_it_is_back(line):
    between = line()
    between.link.vanish(True)
    between.connection.close_server()
    assert between.at(10.0).client.end is None
    between.link.vanish(False)
    assert between.at(11.0).client.end is not None


def test_a_client_off_the_network_is_not_told_of_a_cut_until_it_is_back(line):
    between = line()
    between.link.vanish(True)
    between.link.enable(False)
    assert between.at(5.0).client.end is None
    between.link.vanish(False)
    assert between.at(6.0).client.end is not None


def test_a_new_connection_through_a_vanished_link_carries_nothing(line):
    between = line()
    between.link.vanish(True)
    late = between.link.connect(2, between.client, between.server)
    late.to_server(100, "stuck", {})
    assert between.at(5.0).server.came == []
    between.link.vanish(False)
    assert between.at(6.0).server.messages == ["stuck"]


# -- halves ------------------------------------------------------------------------------------------------------------

def test_half_a_frame_is_known_until_the_whole_has_come(line):
    between = line()
    between.connection.half_to_server(50, 100)
    between.at(1.0)
    assert between.connection.partial == (50, 100)
    between.send("whole")
    between.at(2.0)
    assert between.connection.partial is None
