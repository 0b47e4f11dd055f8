"""A device that fails, as the processes that use it see it."""

from types import SimpleNamespace

import pytest

from diloco_chaos.faults import FAULTS
from diloco_chaos.harness.preload.cuda import CUDA_CALLS, CudaHits


def fault(**more):
    how = {} if {"error", "delay", "hang"} & more.keys() else {"error": "ecc"}
    return FAULTS["cuda"].model_validate({"targets": "w", "at": "1s", "for": "2s"} | how | more)


class Node:
    """A node whose processes have counted these calls."""

    def __init__(self, hits=None, why=""):
        self.result, self.why, self.rules = hits, why, []

    def fail_cuda(self, node, fault, rule):
        self.rules.append(rule)
        return self.why

    def heal_cuda(self, node, fault):
        self.rules.clear()

    def cuda_hits(self, node, fault):
        return self.result


def effect(one, node):
    hit = SimpleNamespace(id="f1", having=lambda capability: node)
    seen = one.inject(hit)
    one.undo(hit)
    assert node.rules == []
    seen = seen or one.observe_end(hit)
    return one.verify(None, SimpleNamespace(observed=seen))


@pytest.mark.parametrize(("error", "code", "before", "lasts"), [
    ("ecc", 214, 214, True), ("contained", 226, 226, True), ("nvlink", 220, 220, True), ("launch", 719, 719, True),
    ("lost", 999, 100, True), ("memory", 2, 2, False)])
def test_an_error_is_a_code_of_the_runtime_and_stays_but_for_full_memory(error, code, before, lasts):
    rule = fault(error=error).rule
    assert (rule.action, rule.error, rule.error_before, rule.lasts) == ("error", code, before, lasts)
    assert "cudaGetLastError" not in rule.calls


@pytest.mark.parametrize(("more", "lost", "ecc", "xid"), [
    ({"error": "ecc"}, False, 1, 48), ({"error": "contained"}, False, 1, 94), ({"error": "nvlink"}, False, 0, 74),
    ({"error": "launch"}, False, 0, 43), ({"error": "lost"}, True, 0, 79), ({"error": "memory"}, False, 0, 0),
    ({"hang": True}, False, 0, 0)])
def test_nvml_answers_to_match(more, lost, ecc, xid):
    rule = fault(**more).rule
    assert (rule.lost, rule.ecc, rule.xid) == (lost, ecc, xid)


@pytest.mark.parametrize(("more", "action", "among", "not_among"), [
    ({"error": "ecc"}, "error", "cudaMalloc", "cudaGetDeviceCount"),
    ({"error": "launch"}, "error", "cudaDeviceSynchronize", "cudaMalloc"),
    ({"error": "lost"}, "error", "cudaGetDeviceCount", "cudaPeekAtLastError"),
    ({"error": "memory"}, "error", "cudaMallocAsync", "cudaLaunchKernel"),
    ({"delay": "300ms"}, "delay", "cudaGraphLaunch", "cudaMemcpy"),
    ({"hang": True}, "hang", "cudaEventQuery", "cudaLaunchKernel")])
def test_each_begins_with_the_calls_that_it_is_about(more, action, among, not_among):
    rule = fault(**more).rule
    assert rule.action == action
    assert among in rule.calls
    assert not_among in set(CUDA_CALLS) - set(rule.calls)


@pytest.mark.parametrize(("more", "words"), [
    ({"error": "lost"}, "a lost device at w for 2.0 s"),
    ({"error": "memory", "after_bytes": "2GB"}, "full device memory after 2.0 GB at w for 2.0 s"),
    ({"delay": "300ms"}, "kernel launches 300 ms late at w for 2.0 s"),
    ({"hang": True}, "device work that never ends at w for 2.0 s")])
def test_it_says_what_befalls_the_device(more, words):
    assert fault(**more).describe() == words


@pytest.mark.parametrize(("more", "words"), [
    ({"error": "ecc", "hang": True}, "say what becomes of the device, in one way"),
    ({"error": "ecc", "after_bytes": "1MB"}, "write `error: memory`, or leave it out"),
    ({"error": "xid"}, "Input should be 'ecc', 'contained', 'nvlink', 'launch', 'lost' or 'memory'"),
    ({"delay": "0s"}, "greater than 0")])
def test_what_makes_no_sense_is_refused(more, words):
    with pytest.raises(ValueError, match=words):
        fault(**more)


def test_a_fault_without_an_action_is_refused():
    with pytest.raises(ValueError, match="say what becomes of the device"):
        FAULTS["cuda"].model_validate({"targets": "w", "at": "1s", "for": "2s"})


@pytest.mark.parametrize(("hits", "words"), [
    (CudaHits({"cudaMalloc": 9}, {"cudaMalloc": 4, "cudaLaunchKernel": 8}, 1),
     "w: an uncorrectable ECC error for 12 calls (cudaMalloc 4, cudaLaunchKernel 8) of one process"),
    (CudaHits({"cudaMalloc": 1}, {"cudaMalloc": 1}, 1),
     "w: an uncorrectable ECC error for 1 call (cudaMalloc 1) of one process"),
    (CudaHits({"cudaMalloc": 3}, {"cudaMalloc": 3}, 3),
     "w: an uncorrectable ECC error for 3 calls (cudaMalloc 3) of 3 processes"),
    (CudaHits({"cudaMalloc": 1}, {"cudaMalloc": 1}, 1, 2),
     "w: an uncorrectable ECC error for 1 call (cudaMalloc 1) of one process and 2 answers of NVML"),
    (CudaHits({}, {}, 0, 1), "w: an uncorrectable ECC error for 1 answer of NVML")])
def test_it_took_effect_once_the_processes_counted_calls(hits, words):
    assert effect(fault(), Node(hits))[:2] == (True, words)


@pytest.mark.parametrize(("more", "hits", "words"), [
    ({}, None, "w: it was never armed"),
    ({}, CudaHits({}, {}, 0), "w: no call of the CUDA runtime was met: does the program link it statically, or use no "
                              "GPU?"),
    ({"error": "memory"}, CudaHits({"cudaMemcpy": 3}, {}, 0),
     "w: calls of the CUDA runtime were met (cudaMemcpy 3), and none was hit: there was no cudaMalloc or "
     "cudaMallocAsync"),
    ({"error": "memory", "after_bytes": "2GB"}, CudaHits({"cudaMalloc": 3}, {}, 0),
     "w: calls of the CUDA runtime were met (cudaMalloc 3), and none was hit: fewer than 2.0 GB were allocated")])
def test_where_no_call_was_hit_it_says_why(more, hits, words):
    assert effect(fault(**more), Node(hits))[:2] == (False, words)


def test_why_nothing_can_be_hit_is_told():
    assert effect(fault(), Node(why="w: train is linked statically"))[:2] == (False, "w: train is linked statically")
    assert not fault().verify(None, SimpleNamespace(observed={})).ok


def test_a_device_that_is_only_slow_costs_no_time_that_is_known():
    assert (fault(delay="300ms").expected_lost_time(), fault(hang=True).expected_lost_time()) == (0.0, 2.0)
