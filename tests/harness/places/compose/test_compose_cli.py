"""Compose reads a file once, within limits; whatever goes wrong is a sentence that names the file."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.compose import compose_cli
from diloco_chaos.harness.places.compose.place import Compose

pytestmark = pytest.mark.usefixtures("docker_compose")
BOMB = "x-0: &a0 [1, 1]\n" + "".join(f"x-{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"
                                      for level in range(1, 9))
WIDE = ", ".join(f"A{number}: {'b' * 1000}" for number in range(800))
LARGE = "services:\n  s: {image: a, environment: &e {" + WIDE + "}}\n" + "".join(
    f"  s{number}: {{image: a, environment: *e}}\n" for number in range(30))


@pytest.fixture
def write(tmp_path):
    """write(text) -> the file."""
    def make(text):
        path = tmp_path / "compose.yml"
        path.write_text(text)
        return path
    return make


@pytest.fixture
def asked(monkeypatch):
    """What was started."""
    started, real = [], subprocess.Popen

    def begin(argv, **options):
        started.append(argv)
        return real(argv, **options)
    monkeypatch.setattr(subprocess, "Popen", begin)
    return started


def refusal(path):
    with pytest.raises(ClusterError) as error:
        compose_cli.services(path)
    text = str(error.value)
    assert text.startswith(f"{path}: can't be read: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: can't be read: ")


def test_a_file_is_read_once_until_it_or_the_environment_changes(write, asked, monkeypatch):
    monkeypatch.setenv("MINE", "a")
    path = write("services: {x: {image: $MINE}, y: {image: b, profiles: [never]}}")
    for _ in range(3):
        read = compose_cli.services(path)
        assert {name: service["image"] for name, service in read.items()} == {"x": "a", "y": "b"}
    assert len(asked) == 1
    monkeypatch.setenv("MINE", "c")
    assert compose_cli.services(path)["x"]["image"] == "c"
    write("services: {x: {image: d}}")
    assert compose_cli.services(path)["x"]["image"] == "d"
    assert len(asked) == 3


def test_paths_are_those_of_the_files_folder(write, tmp_path, monkeypatch):
    write("services: {x: {image: a, volumes: ['./here:/there', '../up:/up']}}")
    monkeypatch.chdir(tmp_path)
    volumes = compose_cli.services(Path("compose.yml"))["x"]["volumes"]
    assert [volume["source"] for volume in volumes] == [str(tmp_path / "here"), str(tmp_path.parent / "up")]


def test_no_engine_is_needed(write, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    assert set(compose_cli.services(write("services: {x: {image: a}}"))) == {"x"}


@pytest.mark.parametrize(("text", "why"), [
    ("services: {x: {image: a, imgae: b}}", r"^services\.x .*imgae"),
    ("services: {x: {image: $NONE, mem_limit: lots}}", r"^(?!time=).*mem_limit.* invalid size: 'lots'$"),
    ("services: {x: {image: a, image: b}}", r'^line 1: mapping key "image" already defined at line 1$'),
    ("services: {x: {image: '${" + "A" * 5000 + "'}}", r"^.{1000}$"),
    ("", "^empty compose file$")])
def test_what_is_wrong_is_one_short_sentence_without_warnings(write, text, why):
    assert re.search(why, refusal(write(text)))


@pytest.mark.parametrize("include", ["https://github.com/a/b.git", "oci://localhost/b"])
def test_nothing_is_fetched(write, include):
    assert "remote resource is disabled" in refusal(write(f"include: ['{include}']"))


@pytest.mark.parametrize("line", ["env_file: /dev/zero", "extends: {file: /dev/zero, service: y}"])
def test_a_file_without_end_that_it_names_takes_no_more_memory_than_there_is_for_it(write, line):
    assert "out of memory" in refusal(write(f"services: {{x: {{image: a, {line}}}}}"))


def test_what_comes_to_too_much_is_refused(write):
    assert "file too large" in refusal(write(LARGE))


@pytest.mark.parametrize("text", [BOMB + "services: {x: {image: a}}", "services: {x: {image: a, env_file: pipe}}"],
                         ids=["aliases", "pipe"])
def test_what_never_ends_is_ended_with_all_that_it_started(write, tmp_path, monkeypatch, asked, text):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(compose_cli, "_WITHIN_S", 1)
    assert refusal(write(text)) == "docker compose takes more than 1 s for it"
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) in " ".join(asked[0])
    assert str(tmp_path) not in listed


@pytest.mark.parametrize(("text", "why"), [
    ("[" * 5000, "yaml: line 1: did not find expected node content"),
    ("services: {x: {image: a}}\nx-deep: " + "[" * 1200 + "]" * 1200, "it is nested too deeply")])
def test_brackets_without_number_are_refused(write, text, why):
    assert refusal(write(text)) == why


def test_the_doctor_names_its_version():
    line = Compose.requirements({})[-1]
    assert (line.name, line.state) == ("compose", "ok")
    assert line.found == "docker compose {}.{}".format(*compose_cli.version())


@pytest.mark.parametrize("path", ["/dev/zero", "."])
def test_what_is_no_file_or_has_no_end_is_never_given_to_it(asked, path):
    assert refusal(Path(path)) in ("more than 1 MB", "[Errno 21] Is a directory: '.'")
    assert asked == []
