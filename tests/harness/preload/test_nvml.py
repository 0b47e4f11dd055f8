"""What NVML, of which a stub is there, answers while the page lets a device fail."""

import json
import shutil
import subprocess
import sys

import pytest

from diloco_chaos.harness.preload.cuda import CudaRule
from diloco_chaos.harness.preload.library import built
from tests.support.stub_runtime import compiled, monitors, stub_nvml

LOST, ECC = CudaRule(["cudaMalloc"], "error", 999, 100, lost=True, xid=79), CudaRule(
    ["cudaMalloc"], "error", 214, 214, ecc=1, xid=48)
GPU_IS_LOST, TIMEOUT = 15, 10
ASKS = """
import ctypes, json, sys
nvml = ctypes.CDLL(sys.argv[1])
device, number, errors = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_ulonglong()
class Event(ctypes.Structure):
    _fields_ = [("device", ctypes.c_void_p), ("type", ctypes.c_ulonglong), ("data", ctypes.c_ulonglong),
                ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]
event, events = Event(), ctypes.c_void_p(8)
def count(name, *arguments):
    code = getattr(nvml, name)(device, *arguments, ctypes.byref(errors))
    return [code, errors.value]
for line in sys.stdin:
    what = line.split()
    if what[0] == "handle":
        said = [nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))]
    elif what[0] == "count":
        said = [nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)), number.value]
    elif what[0] == "temperature":
        said = [nvml.nvmlDeviceGetTemperature(device, 0, ctypes.byref(number)), number.value]
    elif what[0] == "total":
        said = count("nvmlDeviceGetTotalEccErrors", int(what[1]), 0)
    elif what[0] == "counter":
        said = count("nvmlDeviceGetMemoryErrorCounter", int(what[1]), 0, 2)
    elif what[0] == "register":
        said = [nvml.nvmlDeviceRegisterEvents(device, ctypes.c_ulonglong(int(what[1])), events)]
    elif what[0] == "wait":
        said = [nvml.nvmlEventSetWait_v2(events, ctypes.byref(event), int(what[1])), event.type, event.data]
    else:
        said = [hasattr(nvml, what[0])]
    print(json.dumps(said), flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("nvml")


@pytest.fixture(scope="module")
def library(folder):
    return built(folder, "cuda", "cuda")


@pytest.fixture(scope="module")
def nvml(folder):
    return stub_nvml(folder)


@pytest.fixture(scope="module")
def programs(folder, nvml):
    return monitors(folder)


@pytest.fixture
def ask(page, environment, nvml):
    """A process that asks through ctypes, as pynvml and torch do: ask("total", 1) -> [code, count]."""
    with subprocess.Popen([sys.executable, "-c", ASKS, nvml], env=environment, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        def answer(*words):
            process.stdin.write(f"{' '.join(map(str, words))}\n")
            return json.loads(process.stdout.readline())
        yield answer
        process.stdin.close()


def test_where_nothing_is_armed_nvml_answers_itself(page, ask):
    assert ask("handle") == [0]
    assert [ask("temperature"), ask("total", 1), ask("counter", 1)] == [[0, 40], [0, 7], [0, 2]]
    assert [ask("register", 8), ask("wait", 1)[0]] == [[0], TIMEOUT]
    assert ask("nvmlDeviceGetUtilizationRates") == [False], "what this NVML does not have is not there"
    assert page.cuda_hits.answered == 0


def test_a_lost_device_has_no_handle_and_no_answer_until_it_is_healed_and_is_counted_on(page, ask):
    assert ask("handle") == [0]
    page.arm_cuda(LOST)
    assert [ask("handle"), ask("temperature")[0], ask("total", 1)[0], ask("register", 8)] == [
        [GPU_IS_LOST], GPU_IS_LOST, GPU_IS_LOST, [GPU_IS_LOST]]
    assert ask("count") == [0, 1]
    assert page.cuda_hits.answered == 4
    page.disarm_cuda()
    assert [ask("handle"), ask("temperature")] == [[0], [0, 40]]


def test_an_ecc_error_is_one_more_of_those_that_were_not_corrected(page, ask):
    assert ask("handle") == [0]
    page.arm_cuda(ECC)
    assert [ask("total", 0), ask("total", 1), ask("counter", 0), ask("counter", 1)] == [[0, 7], [0, 8], [0, 2], [0, 3]]
    assert ask("temperature") == [0, 40]
    assert page.cuda_hits.answered == 2


def test_who_waits_for_critical_xids_is_told_of_it_once(page, ask):
    assert [ask("handle"), ask("register", 8)] == [[0], [0]]
    page.arm_cuda(ECC)
    assert ask("wait", 1000) == [0, 8, 48]
    assert ask("wait", 1)[0] == TIMEOUT
    page.disarm_cuda()
    page.arm_cuda(LOST)
    assert ask("wait", 1000) == [0, 8, 79]


def test_who_waits_for_other_events_is_not(page, ask):
    assert [ask("handle"), ask("register", 1)] == [[0], [0]]
    page.arm_cuda(ECC)
    assert ask("wait", 1)[0] == TIMEOUT


@pytest.mark.parametrize("how", ["linked", "loaded later"])
def test_a_program_that_is_linked_with_it_is_told_the_same(page, programs, environment, how):
    def said():
        return subprocess.check_output(programs[how], env=environment, text=True)
    assert said() == "0 40\n"
    page.arm_cuda(LOST)
    assert said() == "15 0\n"


def test_without_nvml_it_is_missing_as_before(page, environment):
    code = "import ctypes; print(hasattr(ctypes.CDLL(None), 'nvmlInit_v2'))"
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "False\n"
    code = "import ctypes; ctypes.CDLL('libnvidia-ml.so.1')"
    assert "cannot open shared object file" in subprocess.run(
        [sys.executable, "-c", code], env=environment, check=False, capture_output=True, text=True).stderr


@pytest.mark.skipif(not shutil.which("musl-gcc"), reason="needs musl-gcc (Debian: musl-tools)")
def test_a_program_of_another_c_library_still_looks_functions_up(page, environment, tmp_path):
    (tmp_path / "looks.c").write_text("""
#include <dlfcn.h>
#include <stdio.h>
int main(void) { return dlsym(dlopen(NULL, RTLD_NOW), "puts") != puts || dlsym(RTLD_DEFAULT, "nowhere"); }
""")
    subprocess.run(["musl-gcc", "-o", tmp_path / "looks", tmp_path / "looks.c"], check=True)
    assert subprocess.run([tmp_path / "looks"], env=environment, check=False).returncode == 0
    assert page.loaded == 1


def test_a_library_behind_it_still_finds_what_comes_next_after_itself(page, folder, environment):
    source = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int getpid(void) { return ((int (*)(void))dlsym(RTLD_NEXT, "getpid"))() + 1; }
"""
    after = compiled(folder, "after.so", source, "-shared", "-ldl")
    code = "import os; print(os.getpid() - int(open('/proc/self/stat').read().split()[0]))"
    preloaded = environment | {"LD_PRELOAD": f"{environment['LD_PRELOAD']} {after}"}
    assert subprocess.check_output([sys.executable, "-c", code], env=preloaded, text=True) == "1\n"
