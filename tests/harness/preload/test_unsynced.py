"""What a process that nobody has changed loses of its files, by the calls that it made."""

import os
import subprocess
import sys

import pytest

from diloco_chaos.harness.preload.library import built
from diloco_chaos.harness.preload.page import Page, Rule
from diloco_chaos.harness.preload.unsynced import FILES, WRITTEN_BACK_S, Journal

NEW = {
    "write": "os.write(os.open('a', os.O_WRONLY | os.O_CREAT), b'x' * 1000)",
    "writev": "os.writev(os.open('a', os.O_WRONLY | os.O_CREAT), [b'x' * 400, b'y' * 600])",
    "pwrite": "os.pwrite(os.open('a', os.O_WRONLY | os.O_CREAT), b'x' * 1000, 0)",
    "a stream": "open('a', 'w').write('x' * 1000)",
    "posix_fallocate": "os.posix_fallocate(os.open('a', os.O_WRONLY | os.O_CREAT), 0, 1000)",
    "sendfile": "s = os.memfd_create('s')\nos.write(s, b'x' * 1000)\nos.lseek(s, 0, 0)\n"
                "os.sendfile(os.open('a', os.O_WRONLY | os.O_CREAT), s, None, 1000)"}
STREAM = """
#include <stdio.h>
#include <unistd.h>
int main(int count, char **names) {
    FILE *file = fopen("a", names[1]);
    fprintf(file, "%s", names[2]);
    fflush(file);
    if (count > 3) fsync(fileno(file));
    fwrite("zz", 1, 2, file);
    return fclose(file);
}
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    return [str(built(folder, concern, concern)) for concern in ("unsynced", "io")]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def page(tmp_path):
    return Page(tmp_path / "page", "0123456789abcdef", [f"{tmp_path}/work/logs/"])


@pytest.fixture
def journal(page, tmp_path):
    return Journal(tmp_path / "page")


@pytest.fixture
def perform(journal, libraries, folder, tmp_path):
    """Run a command in the folder; Python's statements where it is a string."""
    def run(code, *, io=False):
        environment = os.environ | {"LD_PRELOAD": " ".join(libraries[:1 + io]), "DILOCO_CHAOS_PAGE": f"{tmp_path}/page"}
        argv = [sys.executable, "-c", f"import os, sys\n{code}"] if isinstance(code, str) else code
        return subprocess.run(argv, env=environment, cwd=folder, timeout=60, check=False).returncode
    return run


@pytest.fixture
def lost(journal, folder):
    """Lose what was not synced, and say of which files how much."""
    def lose():
        return {os.path.relpath(name, folder): size for name, size in journal.lose(lambda name: True).lost}
    return lose


@pytest.mark.parametrize("writer", NEW)
def test_a_new_file_that_was_not_synced_is_there_and_empty(perform, lost, folder, writer):
    perform(NEW[writer])
    assert lost() == {"a": 1000}
    assert (folder / "a").read_bytes() == b""
    assert lost() == {}


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_what_was_synced_stays_and_what_was_appended_since_is_gone(perform, lost, folder, call):
    perform(f"file = open('a', 'w')\nfile.write('x' * 300)\nfile.flush()\nos.{call}(file.fileno())\n"
            "file.write('y' * 20)")
    assert lost() == {"a": 20}
    assert (folder / "a").read_text() == "x" * 300


def test_what_was_overwritten_is_as_it_was_at_the_last_sync(perform, lost, folder):
    (folder / "a").write_text("0123456789")
    perform("fd = os.open('a', os.O_WRONLY)\n"
            "os.pwrite(fd, b'xx', 2)\nos.pwrite(fd, b'yyy', 3)\nos.pwrite(fd, b'zzz', 8)")
    assert (folder / "a").read_text() == "01xyyy67zzz"
    assert lost() == {"a": 8}
    assert (folder / "a").read_text() == "0123456789"
    perform("fd = os.open('a', os.O_WRONLY)\nos.write(fd, b'xx')\nos.fsync(fd)\nos.write(fd, b'y')")
    assert lost() == {"a": 1}
    assert (folder / "a").read_text() == "xx23456789"


def test_what_was_cut_off_stays_cut_off(perform, lost, folder):
    for name in "ab":
        (folder / name).write_text("0123456789")
    perform("open('a', 'w').write('xxx')\nos.truncate('b', 4)\nopen('b', 'a').write('yy')")
    assert lost() == {"a": 3, "b": 2}
    assert ((folder / "a").read_text(), (folder / "b").read_text()) == ("", "0123")


def test_a_file_is_followed_to_its_next_name_also_with_its_folder(perform, lost, folder):
    perform("os.mkdir('tmp')\nopen('tmp/a', 'w').write('x')\nos.rename('tmp/a', 'tmp/b')\nos.rename('tmp', 'final')\n"
            "os.rename('final/b', 'final/c')")
    assert lost() == {"final/c": 1}


def test_a_rename_that_is_no_call_of_the_c_library_is_followed_in_its_folder(perform, lost, folder):
    code = "import ctypes\nopen('a', 'w').write('x')\nctypes.CDLL(None).syscall({}, -100, b'a', -100, b'b', 0)\n"
    number = {"x86_64": 316, "aarch64": 276}[os.uname().machine]
    perform(code.format(number))
    assert lost() == {"b": 1}
    perform(code.format(number) + "os.sync()")
    assert lost() == {}
    assert (folder / "b").read_text() == "x"


def test_one_process_syncs_what_another_one_has_written(perform, lost):
    perform("open('a', 'w').write('x')\nopen('b', 'w').write('x')")
    perform("os.fsync(os.open('a', os.O_RDONLY))")
    assert lost() == {"b": 1}


def test_sync_means_all(perform, lost):
    perform("open('a', 'w').write('x')\nos.sync()\nopen('b', 'w').write('xx')")
    assert lost() == {"b": 2}


def test_a_file_that_takes_the_place_of_a_removed_one_is_another(perform, lost):
    perform("file = open('a', 'w')\nfile.write('x' * 9)\nfile.flush()\nos.fsync(file.fileno())\nfile.close()\n"
            "os.remove('a')\nopen('a', 'w').write('y' * 5)")
    assert lost() == {"a": 5}


def test_what_somebody_else_has_written_is_spared(perform, lost, folder):
    perform("open('a', 'w').write('x')")
    (folder / "a").unlink()
    (folder / "a").write_text("of others")
    (folder / "b").write_text("of others")
    assert lost() == {}
    assert (folder / "a").read_text() == "of others"


def test_logs_are_spared_and_what_a_pattern_does_not_mean(perform, journal, folder):
    (folder / "logs").mkdir()
    perform("open('logs/a', 'w').write('x')\nopen('b', 'w').write('x')\nopen('c.pt', 'w').write('x')")
    assert [name for name, _ in journal.lose(lambda name: name.endswith(".pt")).lost] == [f"{folder}/c.pt"]
    assert (folder / "b").read_text() == "x"


def test_a_mapped_file_and_one_that_is_written_through_are_spared(perform, journal, folder):
    perform("import mmap\nfile = open('a', 'w+b')\nfile.write(b'x' * 4096)\nfile.flush()\n"
            "mmap.mmap(file.fileno(), 4096)\nos.write(os.open('b', os.O_WRONLY | os.O_CREAT | os.O_DSYNC), b'x')")
    loss = journal.lose(lambda name: True)
    assert (loss.lost, loss.mapped) == ((), 2)
    assert (folder / "a").stat().st_size == 4096


def test_what_was_left_alone_for_long_the_kernel_has_written_back(perform, journal, monkeypatch):
    import time
    perform("open('a', 'w').write('x')")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + WRITTEN_BACK_S + 1)
    loss = journal.lose(lambda name: True)
    assert (loss.lost, loss.older) == ((), 1)


def test_a_c_stream_is_followed_whatever_writes_into_it(perform, lost, folder, tmp_path):
    (tmp_path / "stream.c").write_text(STREAM)
    subprocess.run(["cc", "-o", tmp_path / "stream", tmp_path / "stream.c"], check=True)
    perform([tmp_path / "stream", "w", "12345678"])
    assert lost() == {"a": 10}
    perform([tmp_path / "stream", "w", "12345678", "sync"])
    assert lost() == {"a": 2}
    assert (folder / "a").read_text() == "12345678"


def test_files_beyond_the_most_are_counted_and_removed_ones_make_room(perform, journal):
    perform(f"for n in range({FILES}):\n    open(f'a{{n}}', 'w').write('x')\n    n < 5 and os.remove(f'a{{n}}')\n"
            "for n in range(8):\n    open(f'b{n}', 'w').write('x')")
    loss = journal.lose(lambda name: True)
    assert (len(loss.lost), loss.missed) == (FILES, 3)


def test_a_call_that_fails_by_another_fault_makes_nothing_durable(perform, page, lost):
    page.arm(Rule("*/a", ["fsync"], "error", "EIO"))
    assert perform("file = open('a', 'w')\nfile.write('x')\nfile.flush()\n"
                   "try: os.fsync(file.fileno())\nexcept OSError as error: sys.exit(error.errno)", io=True) == 5
    assert lost() == {"a": 1}


def test_many_threads_and_processes_share_one_journal(perform, lost):
    perform("from threading import Thread\n"
            "def some(who):\n"
            "    for n in range(20):\n"
            "        file = open(f'{who}-{n}', 'w')\n"
            "        file.write('x' * 10)\n        file.flush()\n"
            "        n % 2 and os.fsync(file.fileno())\n"
            "children = [pid for which in 'abc' if not (pid := os.fork()) and not some(which) and os._exit(0) or pid]\n"
            "threads = [Thread(target=some, args=(which,)) for which in 'def']\n"
            "[thread.start() for thread in threads]\n[thread.join() for thread in threads]\n"
            "[os.waitpid(pid, 0) for pid in children]")
    assert lost() == {f"{who}-{n}": 10 for who in "abcdef" for n in range(0, 20, 2)}


def test_nothing_is_left_when_the_run_is_over(perform, journal, folder, tmp_path):
    (folder / "a").write_text("0123")
    perform("os.write(os.open('a', os.O_WRONLY), b'x')")
    assert len(list(tmp_path.glob("page.unsynced*"))) == 2
    journal.remove()
    journal.remove()
    assert not list(tmp_path.glob("page.unsynced*"))
