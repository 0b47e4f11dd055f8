"""What the page does to calls of the CUDA runtime, of which a stub is there: no GPU is needed."""

import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from diloco_chaos.harness.preload.cuda import CUDA_CALLS, CudaRule
from diloco_chaos.harness.preload.library import built
from tests.support.stub_runtime import callers, compiled, stub_runtime

ECC, NO_DEVICE, NOT_READY = 214, 100, 600
OF_A_DEVICE = [call for call in CUDA_CALLS if call not in ("cudaGetDeviceCount", "cudaSetDevice", "cudaGetLastError",
                                                           "cudaPeekAtLastError")]
BROKEN = CudaRule(OF_A_DEVICE, "error", ECC, ECC, lasts=True)
FULL = CudaRule(["cudaMalloc", "cudaMallocAsync"], "error", 2, 2, after=1000)
LOST = CudaRule(["cudaGetDeviceCount", *OF_A_DEVICE], "error", 999, NO_DEVICE, lasts=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cuda")


@pytest.fixture(scope="module")
def library(folder):
    return built(folder, "cuda", "cuda")


@pytest.fixture(scope="module")
def runtime(folder):
    return stub_runtime(folder)


@pytest.fixture(scope="module")
def programs(folder, runtime):
    return callers(folder)


@pytest.fixture
def caller(programs, environment):
    """A process that makes calls one by one: caller(name, bytes) -> what the call returned."""
    @contextmanager
    def started(how="loaded later"):
        with subprocess.Popen(programs[how], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, bufsize=1) as process:
            def ask(name, size=8):
                process.stdin.write(f"{name} {size}\n")
                answer = process.stdout.readline()
                assert answer, f"{name} was the end of it"
                code, ask.devices = map(int, answer.split())
                return code
            yield ask
            process.stdin.close()
    return started


@pytest.fixture
def ask(page, caller):
    with caller() as one:
        yield one


@pytest.mark.parametrize("how", ["linked", "loaded later", "looked up"])
def test_where_nothing_is_armed_every_call_is_made(page, caller, how):
    with caller(how) as ask:
        assert {name: ask(name) for name in [*CUDA_CALLS, "__cudaLaunchKernel"] if ask(name)} == {}
        assert ask.devices == 1
    assert page.cuda_hits.met == {}
    assert page.loaded == 1


@pytest.mark.parametrize("how", ["linked", "loaded later", "looked up"])
@pytest.mark.parametrize("name", OF_A_DEVICE)
def test_each_call_returns_the_error_where_it_is_meant_and_no_other_before_that(page, caller, how, name):
    page.arm_cuda(CudaRule([name], "error", ECC, ECC, lasts=True))
    with caller(how) as ask:
        assert [ask(other) for other in CUDA_CALLS if other != name] == [0] * (len(CUDA_CALLS) - 1)
        assert ask(name) == ECC
    assert page.cuda_hits.calls == {name: 1}
    assert sum(page.cuda_hits.met.values()) == len(CUDA_CALLS)


def test_what_nvcc_launches_by_since_cuda_13_is_a_launch(page, ask):
    page.arm_cuda(CudaRule(["cudaLaunchKernel"], "error", ECC, ECC, lasts=True))
    assert ask("__cudaLaunchKernel") == ECC
    assert page.cuda_hits.calls == {"cudaLaunchKernel": 1}


def test_a_process_that_met_it_gets_it_at_every_call_and_when_it_is_over_too(page, ask):
    assert ask("cudaMalloc") == 0
    page.arm_cuda(BROKEN)
    assert ask("cudaGetDeviceCount") == 0
    assert ask("cudaLaunchKernel") == ECC
    assert {ask(name) for name in CUDA_CALLS} == {ECC}
    counted = page.cuda_hits
    assert page.disarm_cuda()
    assert not page.disarm_cuda()
    assert {ask(name) for name in CUDA_CALLS} == {ECC}
    assert page.cuda_hits == counted
    assert sum(counted.calls.values()) == len(CUDA_CALLS) + 1


def test_a_process_that_starts_meanwhile_gets_it_too_and_a_later_one_does_not(page, caller):
    page.arm_cuda(BROKEN)
    for _ in range(2):
        with caller() as ask:
            assert [ask("cudaSetDevice"), ask("cudaMalloc"), ask("cudaMalloc")] == [0, ECC, ECC]
    assert page.cuda_hits.processes == 2
    page.disarm_cuda()
    with caller() as ask:
        assert ask("cudaMalloc") == 0


def test_the_next_fault_does_not_count_what_the_last_one_broke(page, ask):
    page.arm_cuda(BROKEN)
    assert ask("cudaMalloc") == ECC
    page.disarm_cuda()
    page.arm_cuda(FULL)
    assert ask("cudaMalloc") == ECC
    assert page.cuda_hits.calls == {}


def test_a_lost_device_is_an_unknown_error_for_who_had_it_and_none_for_a_new_process(page, caller):
    with caller() as old, caller() as new:
        assert [old("cudaGetDeviceCount"), old("cudaMalloc"), new("cudaGetLastError")] == [0, 0, 0]
        page.arm_cuda(LOST)
        assert [old("cudaGetDeviceCount"), old("cudaMalloc")] == [999, 999]
        assert [new("cudaGetDeviceCount"), new("cudaMalloc"), new.devices] == [NO_DEVICE, NO_DEVICE, 0]
    assert page.cuda_hits.processes == 2


def test_memory_is_full_after_so_many_bytes_and_only_for_who_asks_for_more(page, ask):
    page.arm_cuda(FULL)
    assert [ask("cudaMalloc", 600), ask("cudaMallocAsync", 600), ask("cudaMalloc", 400)] == [0, 2, 0]
    assert ask("cudaMalloc", 1) == 2
    assert [ask("cudaPeekAtLastError"), ask("cudaGetLastError"), ask("cudaGetLastError")] == [2, 2, 0]
    assert ask("cudaLaunchKernel") == 0
    page.disarm_cuda()
    assert ask("cudaMalloc", 5000) == 0
    assert page.cuda_hits.calls == {"cudaMalloc": 1, "cudaMallocAsync": 1}


def test_a_launch_comes_late(page, ask):
    page.arm_cuda(CudaRule(["cudaLaunchKernel"], "delay", delay_s=0.2))
    began = time.monotonic()
    assert ask("cudaMalloc") == 0
    assert ask("cudaLaunchKernel") == 0
    assert time.monotonic() - began >= 0.2
    assert page.cuda_hits.calls == {"cudaLaunchKernel": 1}


@pytest.mark.parametrize("another", [False, True], ids=["it is over", "another one has come"])
def test_who_waits_for_what_never_ends_waits_until_it_is_over(page, ask, another):
    page.arm_cuda(CudaRule(["cudaStreamSynchronize", "cudaEventQuery"], "hang"))
    assert ask("cudaLaunchKernel") == 0
    assert [ask("cudaEventQuery"), ask("cudaEventQuery")] == [NOT_READY, NOT_READY]
    answers = []
    waits = threading.Thread(target=lambda: answers.append(ask("cudaStreamSynchronize")))
    waits.start()
    while not page.cuda_hits.calls.get("cudaStreamSynchronize"):
        time.sleep(0.001)
    assert answers == []
    page.disarm_cuda()
    if another:
        page.arm_cuda(FULL)
    waits.join()
    assert answers == [0]
    assert ask("cudaEventQuery") == 0


def test_a_function_that_is_looked_up_as_ctypes_does_meets_it_too_and_one_that_is_not_there_is_not(page, runtime,
                                                                                                     environment):
    page.arm_cuda(BROKEN)
    code = ("import ctypes, sys; runtime = ctypes.CDLL(sys.argv[1]); print(runtime.cudaDeviceSynchronize(), "
            "hasattr(runtime, 'cudaFree'), hasattr(runtime, 'cudaLaunchHostFunc'))")
    assert subprocess.check_output([sys.executable, "-c", code, runtime], env=environment,
                                   text=True) == f"{ECC} True False\n"
    assert page.cuda_hits.calls == {"cudaDeviceSynchronize": 1}


@pytest.mark.parametrize("first", [0, 1])
def test_a_second_runtime_in_a_process_keeps_its_own_functions(page, folder, runtime, environment, first):
    other = compiled(folder, "libcudart.so.11", "int cudaGetDeviceCount(int *count) { *count = 5; return 0; }",
                     "-shared", "-Wl,-soname,libcudart.so.11,-Bsymbolic")
    page.arm_cuda(CudaRule(["cudaMalloc"], "error", ECC, ECC))
    code = ("import ctypes, sys; count = ctypes.c_int()\nfor name in sys.argv[1:]:\n"
            "    print(ctypes.CDLL(name).cudaGetDeviceCount(ctypes.byref(count)), count.value)")
    names = [runtime, other][::-1 if first else 1]
    assert subprocess.check_output([sys.executable, "-c", code, *names], env=environment,
                                   text=True).splitlines() == ["0 1", "0 5"][::-1 if first else 1]
    assert page.cuda_hits.met == {"cudaGetDeviceCount": 1}


def test_without_a_runtime_nothing_but_what_asks_for_it_fails(page, environment):
    code = "import ctypes, os; os._exit(ctypes.CDLL(None).cudaDeviceSynchronize() == 999)"
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 1
    assert subprocess.run(["true"], env=environment, check=False).returncode == 0


def test_a_process_without_a_page_is_left_alone(page, caller, environment):
    del environment["DILOCO_CHAOS_PAGE"]
    page.arm_cuda(BROKEN)
    with caller() as ask:
        assert ask("cudaMalloc") == 0
