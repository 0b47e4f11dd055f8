"""What a rule of the page does to the calls of a process that nobody has changed."""

import ctypes
import errno
import math
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from itertools import chain, pairwise

import pytest

from diloco_chaos.harness.preload.library import built
from diloco_chaos.harness.preload.page import CALLS, Page, Rule

WHOLE = 100_000
DRAWN = "be58c0608a7f4ae2899b603d51056070"
WRITERS = {
    "write": "os.write(os.open(path, os.O_WRONLY | os.O_CREAT), b'x' * size)",
    "a loop of writes": "f = open(path, 'wb', 0)\nleft = size\nwhile left:\n    left -= f.write(b'x' * left)",
    "pwrite": "os.pwrite(os.open(path, os.O_WRONLY | os.O_CREAT), b'x' * size, 0)",
    "writev": "fd = os.open(path, os.O_WRONLY | os.O_CREAT)\nleft = size - 100 - os.writev(fd, [b'x' * 100, b'y' * "
              "(size - 100)]) + 100\nwhile left:\n    left -= os.write(fd, b'z' * left)",
    "sendfile": "source = os.memfd_create('s')\nos.write(source, b'x' * size)\nos.lseek(source, 0, 0)\n"
                "fd = os.open(path, os.O_WRONLY | os.O_CREAT)\nwhile os.sendfile(fd, source, None, size): pass"}
STREAM = """
#include <errno.h>
#include <stdio.h>
static char data[100000];
int main(int count, char **names) {
    FILE *file = fopen(names[1], "wb");
    if (!file) return errno;
    size_t done = fwrite(data, 4, sizeof data / 4, file);
    int error = done < sizeof data / 4 ? errno : 0;
    fclose(file);
    return error;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return built(tmp_path_factory.mktemp("library"), "io", "io")


@pytest.fixture
def python(environment, tmp_path):
    """Run statements in which `path` is a file that is not there, and `size` its bytes; its errno, 0 where it ended."""
    def run(code, path=None):
        text = f"import os, sys\npath, size = {str(path or tmp_path / 'model.bin')!r}, {WHOLE}\n" + (
            "try:\n" + "\n".join(f"    {each}" for each in code.splitlines()) +
            "\nexcept OSError as error:\n    sys.exit(error.errno)\n")
        return subprocess.run([sys.executable, "-c", text], env=environment, timeout=30, check=False).returncode
    return run


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_takes_what_fits_and_not_a_byte_more(page, python, tmp_path, writer):
    number = page.arm(Rule("*/model.bin", ["write"], "error", "ENOSPC", after=40_000))
    status = python(WRITERS[writer] + ("\nos.write(os.open(path, os.O_WRONLY | os.O_APPEND), b'x')"))
    assert status == errno.ENOSPC
    assert (tmp_path / "model.bin").stat().st_size == 40_000
    assert page.hits(number).calls == {"write": 1}
    assert page.hits(number).first == str(tmp_path / "model.bin")


def test_a_c_stream_that_gets_less_than_all_is_told_why(page, environment, tmp_path):
    (tmp_path / "stream.c").write_text(STREAM)
    subprocess.run(["cc", "-O2", "-o", tmp_path / "stream", tmp_path / "stream.c"], check=True)
    number = page.arm(Rule("*/model.bin", ["write"], "error", "EDQUOT", after=40_000))
    done = subprocess.run([tmp_path / "stream", tmp_path / "model.bin"], env=environment, timeout=30, check=False)
    assert done.returncode == errno.EDQUOT
    assert (tmp_path / "model.bin").stat().st_size == 40_000
    assert page.hits(number).lost == WHOLE - 40_000


@pytest.mark.parametrize(("call", "code"), [
    ("open", "open(path, 'w')"), ("read", "os.read(os.open(path, os.O_RDONLY), 9)"),
    ("read", "os.pread(os.open(path, os.O_RDONLY), 9, 0)"),
    ("read", "os.readv(os.open(path, os.O_RDONLY), [bytearray(9)])"),
    ("write", "os.write(os.open(path, os.O_WRONLY), b'9')"), ("fsync", "os.fsync(os.open(path, os.O_WRONLY))"),
    ("fsync", "os.fdatasync(os.open(path, os.O_WRONLY))"), ("rename", "os.rename(path, path + '.old')"),
    ("rename", "open(path + '.new', 'w').close()\nos.replace(path + '.new', path)"),
    ("close", "os.close(os.open(path, os.O_RDONLY))"),
    ("mmap", "import mmap\nmmap.mmap(os.open(path, os.O_RDONLY), 4, access=mmap.ACCESS_READ)")])
def test_each_call_fails_where_it_is_meant_and_only_there(page, python, tmp_path, call, code):
    (tmp_path / "model.bin").write_bytes(b"12345678")
    page.arm(Rule("*/model.bin", [each for each in CALLS if each != call], "error", "EIO", after=1 << 40))
    number = page.arm(Rule("*/model.bin", [call], "error", "ESTALE"))
    assert python(code) == errno.ESTALE
    assert set(page.hits(number).calls) == {call}
    page.disarm(number)
    (tmp_path / "model.bin").write_bytes(b"12345678")
    assert python(code) == 0


@pytest.mark.parametrize(("pattern", "name", "meant"), [
    ("*/model.pt", "model.pt", True), ("*/model.pt", "model.pt.tmp", True), ("*/model.pt", "model.pt.partial", True),
    ("*/model.pt", "model.pth", False), ("*.pt", "a/b/model.pt", True), ("*/a/*", "a/b/model.pt", True),
    ("*/a/*.pt", ".tmpAbC123", False), ("*.safetensors", "a/.tmpAbC123", True),
    ("*/a/model.safetensors", "a/.tmpAbC123", True), ("*/b/model.safetensors", "a/.tmpAbC123", False),
    ("*/c/0", f"c/0.{DRAWN}.partial", True), ("*/c/1", f"c/0.{DRAWN}.partial", False),
    ("*/zarr.json", f"zarr.{DRAWN}.partial", True), ("*.json", f"c/0.{DRAWN}.partial", False),
    ("*/2/state/x", "2.orbax-checkpoint-tmp/state.orbax-checkpoint-tmp/x.__lock", True),
    ("*/3/state/x", "2.orbax-checkpoint-tmp/state.orbax-checkpoint-tmp/x", False),
    ("*/zarr.json", "zarr.json.__lock", True), ("*/model", "model.12ab.partial", False)])
def test_a_pattern_means_the_name_that_a_file_has_or_will_have(page, python, tmp_path, pattern, name, meant):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    page.arm(Rule(pattern, ["write"], "error", "ENOSPC"))
    assert python(WRITERS["write"], tmp_path / name) == (errno.ENOSPC if meant else 0)


def test_a_file_that_is_named_by_its_folder_is_met_too(page, python, tmp_path):
    page.arm(Rule(f"{tmp_path}/model.bin", ["open"], "error", "EROFS"))
    assert python(f"os.chdir({str(tmp_path)!r})\nopen('./model.bin', 'w')") == errno.EROFS
    here = f"dir_fd=os.open({str(tmp_path)!r}, 0)"
    assert python(f"os.open('model.bin', os.O_CREAT | os.O_WRONLY, {here})") == errno.EROFS
    (tmp_path / "model.bin").touch()
    assert python("open(path)") == 0  # who only reads from a disk that can't be written sees nothing


def test_a_descriptor_that_another_file_gets_is_another_file(page, python, tmp_path):
    page.arm(Rule("*/model.bin", ["write"], "error", "EIO", after=8))
    assert python("fd = os.open(path, os.O_WRONLY | os.O_CREAT)\nos.write(fd, b'12345678')\nos.close(fd)\n"
                  "other = os.open(path + '.log', os.O_WRONLY | os.O_CREAT)\nassert other == fd\n"
                  "os.write(other, b'x' * 100)") == 0


def test_a_descriptor_that_was_closed_among_many_is_another_file_too(page, python):
    page.arm(Rule("*/model.bin", ["write"], "error", "EIO", after=8))
    assert python("fd = os.open(path, os.O_WRONLY | os.O_CREAT)\nos.write(fd, b'12345678')\nos.closerange(fd, fd + 1)\n"
                  "import socket\none, other = socket.socketpair()\nassert one.fileno() == fd\n"
                  "os.write(fd, b'x' * 100)") == 0


def test_a_descriptor_that_is_made_another_files_is_that_one(page, python):
    page.arm(Rule("*/model.bin", ["write"], "error", "EIO", after=8))
    assert python("fd = os.open(path, os.O_WRONLY | os.O_CREAT)\nos.write(fd, b'12345678')\n"
                  "os.dup2(os.memfd_create('other'), fd)\nos.dup2(fd, fd)\nos.write(fd, b'x' * 100)") == 0


def test_calls_do_half_of_what_they_are_asked_to(page, python, tmp_path):
    page.arm(Rule("*/model.bin", ["write"], "short"))
    assert python("sys.exit(os.write(os.open(path, os.O_WRONLY | os.O_CREAT), b'12345678'))") == 4


def test_a_share_of_calls_is_hit_the_same_ones_by_the_same_seed(page, python):
    code = ("fd, failed = os.open(path, os.O_WRONLY | os.O_CREAT), 0\nfor _ in range(200):\n"
            "    try: os.write(fd, b'x')\n    except OSError: failed += 1\nsys.exit(failed)")
    counts = []
    for seed in (1, 1, 2):
        number = page.arm(Rule("*/model.bin", ["write"], "error", "EIO", share=0.3, seed=seed))
        counts.append(python(code))
        page.disarm(number)
    assert all(40 <= count <= 80 for count in counts)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("writer", ["write", "pwrite", "writev"])
@pytest.mark.parametrize("action", ["bit", "zeros"])
def test_what_is_written_is_changed_and_has_its_length(page, python, tmp_path, writer, action):
    number = page.arm(Rule("*/model.bin", ["write"], action, after=40_000))
    page.arm(Rule("*/model.bin", ["write"], "error", "EIO", after=1 << 40))  # another one beside it changes nothing
    assert python(WRITERS[writer].replace("b'y'", "b'x'")) == 0
    content = (tmp_path / "model.bin").read_bytes()
    assert len(content) == WHOLE
    assert content[:40_000] == b"x" * 40_000
    turned = sum((byte ^ ord("x")).bit_count() for byte in content[40_000:])
    assert content[40_000:] == bytes(60_000) if action == "zeros" else turned == 1
    assert page.hits(number).lost == (60_000 if action == "zeros" else 1)


@pytest.mark.parametrize("typecode", "efd")
@pytest.mark.parametrize(("action", "is_so"), [
    ("nan", math.isnan), ("sign", lambda value: value == -0.25), ("scale", lambda value: value > 2.0 ** 10)])
@pytest.mark.parametrize("odd", [0, 3])
def test_one_value_of_a_tensor_is_changed_whatever_its_format(page, python, tmp_path, typecode, action, is_so, odd):
    number = page.arm(Rule("*/model.bin", ["write"], action, after=16 + odd))
    assert python(f"import struct\ndata = bytes(16) + struct.pack('<100{typecode}', *[0.25] * 100)\n"
                  f"fd = os.open(path, os.O_WRONLY | os.O_CREAT)\nos.write(fd, data[:{16 + odd}])\n"
                  f"os.write(fd, data[{16 + odd}:])\nos.write(fd, b'1234567')") == 0
    values = struct.unpack_from(f"<100{typecode}", (tmp_path / "model.bin").read_bytes(), 16)
    changed = [value for value in values if value != 0.25]
    assert page.hits(number).calls == {"write": 1}
    assert changed
    assert all(map(is_so, changed))


def test_what_a_c_stream_writes_is_changed_too(page, environment, tmp_path):
    (tmp_path / "stream.c").write_text(STREAM.replace("data[100000];", "data[100000] = {1};"))
    subprocess.run(["cc", "-O2", "-o", tmp_path / "stream", tmp_path / "stream.c"], check=True)
    page.arm(Rule("*/model.bin", ["write"], "zeros"))
    subprocess.run([tmp_path / "stream", tmp_path / "model.bin"], env=environment, timeout=30, check=True)
    assert (tmp_path / "model.bin").read_bytes() == bytes(WHOLE)


@contextmanager
def writing(environment, path):
    """Yield a process that writes a line for every byte that it has written to `path`, a millisecond after another."""
    code = ("import os, sys, time\nfd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\nwhile True:\n"
            "    status = 0\n    try: os.write(fd, b'x')\n    except OSError as error: status = error.errno\n"
            "    print(status, time.monotonic(), flush=True)\n    time.sleep(.001)")
    process = subprocess.Popen([sys.executable, "-c", code, path], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield (tuple(map(float, line.split())) for line in process.stdout)
    finally:
        process.kill()
        process.communicate()


def test_a_living_process_is_hit_from_its_next_call_on_and_let_go(page, environment, tmp_path):
    with writing(environment, tmp_path / "model.bin") as lines:
        assert next(lines)[0] == 0
        number = page.arm(Rule("*/model.bin", ["write"], "error", "EIO"))
        assert next(status for status, _ in lines if status) == errno.EIO
        page.disarm(number)
        assert any(status == 0 for status, _ in lines)


def test_a_call_that_hangs_goes_on_when_it_is_over(page, environment, tmp_path):
    with writing(environment, tmp_path / "model.bin") as lines:
        first = next(lines)
        number = page.arm(Rule("*/model.bin", ["write"], "hang"))
        while not page.hits(number).calls:
            time.sleep(0.001)
        threading.Timer(0.2, page.disarm, [number]).start()
        assert next(later - earlier for (_, earlier), (_, later) in pairwise(chain([first], lines))
                    if later - earlier > 0.15)
        assert page.hits(number).calls == {"write": 1}


def test_a_call_that_is_delayed_is_made_in_the_end(page, python, tmp_path):
    page.arm(Rule("*/model.bin", ["fsync"], "delay", delay_s=0.2))
    assert python("import time\nfd = os.open(path, os.O_WRONLY | os.O_CREAT)\nt = time.monotonic()\nos.fsync(fd)\n"
                  "sys.exit(time.monotonic() - t > .2)") == 1


def test_a_process_that_forks_and_one_that_is_started_anew_meet_the_same_page(page, python):
    number = page.arm(Rule("*/model.bin", ["write"], "error", "EIO"))
    code = ("import subprocess\nwrite = 'import os, sys; os.write(os.open(sys.argv[1], 65), b\"x\")'"
            "\nsubprocess.run([sys.executable, '-c', write, path], stderr=subprocess.DEVNULL)\n"
            "if os.fork() == 0:\n    " + WRITERS["write"] + "\nos.wait()")
    assert python(code) == 0
    assert page.hits(number).calls == {"write": 2}
    assert page.loaded == 2


def test_files_that_no_rule_means_are_known_to_whoever_asks(page, python, tmp_path):
    page.arm(Rule("*/other.bin", ["write"], "error", "EIO"))
    assert python(WRITERS["write"]) == 0
    assert str(tmp_path / "model.bin") in page.others()


@pytest.mark.parametrize("content", [None, b"", b"no page" * 10_000])
def test_without_a_page_everything_is_as_if_nothing_were_there(python, tmp_path, content):
    if content is not None:
        (tmp_path / "page").write_bytes(content.ljust(65536, b"\0"))
    assert python(WRITERS["write"]) == 0


def test_both_sides_have_the_same_page(tmp_path):
    """The compiler's word for what ctypes lays out."""
    folder = os.path.dirname(sys.modules[Page.__module__].__file__)
    (tmp_path / "size.c").write_text('#include <stdio.h>\n#include "page.h"\nint main(void) { printf("%zu %zu", '
                                     'sizeof(struct page), sizeof(struct rule)); }')
    subprocess.run(["cc", "-I", folder, "-o", tmp_path / "size", tmp_path / "size.c"], check=True)
    sizes = subprocess.run([tmp_path / "size"], capture_output=True, text=True, check=True).stdout
    module = sys.modules[Page.__module__]
    assert sizes == f"{ctypes.sizeof(module._Page)} {ctypes.sizeof(module._Rule)}"


@pytest.mark.skipif(not shutil.which("musl-gcc"), reason="needs musl-gcc (Debian: musl-tools)")
def test_a_program_of_another_c_library_loads_it_too(library, page, environment, tmp_path):
    (tmp_path / "stream.c").write_text(STREAM)
    subprocess.run(["musl-gcc", "-O2", "-o", tmp_path / "stream", tmp_path / "stream.c"], check=True)
    page.arm(Rule("*/model.bin", ["write"], "error", "ENOSPC"))
    done = subprocess.run([tmp_path / "stream", tmp_path / "model.bin"], env=environment, timeout=30, check=False)
    assert done.returncode == errno.ENOSPC
