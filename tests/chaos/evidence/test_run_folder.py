"""A run's folder that comes from somebody else."""

import os

import pytest

from diloco_chaos.chaos.evidence.run_folder import FolderError, RunFolder


@pytest.fixture
def folder(tmp_path):
    run = RunFolder.create(tmp_path / "runs", "mine")
    (run.path / "plan.json").write_text("{}")
    return run


@pytest.mark.parametrize("name", ["report.json.partial", "report.json"])
def test_what_a_link_points_to_is_not_overwritten(folder, tmp_path, name):
    (tmp_path / "precious").write_text("precious")
    (folder.path / name).symlink_to(tmp_path / "precious")
    folder.write("report.json", {"verdict": "passed"})
    assert (tmp_path / "precious").read_text() == "precious"
    assert folder.document("report.json") == {"verdict": "passed"}
    assert not (folder.path / "report.json").is_symlink()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"),
                                  lambda path: path.write_text("{"), lambda path: path.mkdir(),
                                  lambda path: path.touch() or os.truncate(path, 8 << 30)],
                         ids=["a pipe", "a device", "a torn file", "a folder", "a sparse file"])
def test_a_document_that_no_run_has_written_tells_nothing_and_holds_nobody_up(folder, make):
    make(folder.path / "report.json")
    assert folder.document("report.json") == {}


def test_logs_that_are_none_tell_nothing(folder):
    (folder.path / "logs" / "learner-1.0.log").mkdir(parents=True)
    assert folder.log_tail("learner-1") == []


def test_what_could_not_be_written_leaves_nothing(folder):
    with pytest.raises(TypeError):
        folder.write("report.json", {"verdict": object()})
    assert not list(folder.path.glob("report.json*"))


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc/hostname"), lambda path: path.symlink_to("no"),
                                  lambda path: path.symlink_to("."), os.mkfifo],
                         ids=["a file", "nothing", "a folder", "a pipe"])
@pytest.mark.parametrize("where", ["manifest.json", "tape/syncer.0.jsonl", "references"])
def test_a_folder_with_links_or_pipes_is_refused(folder, make, where):
    make(folder.path / where)
    with pytest.raises(FolderError, match=rf"{where}: not a plain file; .* remove it"):
        RunFolder.open(folder.path)


def test_a_folder_as_a_run_leaves_it_is_opened(folder):
    (folder.path / "references").mkdir()
    (folder.path / "references" / "fault-free.json").write_text("{}")
    assert RunFolder.open(folder.path) == folder


@pytest.mark.parametrize("schema", [1, 2, "two", None, [3]])
def test_a_run_that_was_recorded_with_another_schema_is_told_so(folder, schema):
    folder.write("manifest.json", {"tape_schema": schema})
    with pytest.raises(FolderError, match=r"its tape is of schema .*, and this version reads 3"):
        RunFolder.open(folder.path)


def test_a_new_place_of_runs_is_no_part_of_anybodys_repository(tmp_path):
    RunFolder.prepare(tmp_path / "runs")
    assert (tmp_path / "runs" / ".gitignore").read_text() == "*\n"
    (tmp_path / "own").mkdir()
    RunFolder.prepare(tmp_path / "own")
    assert not any((tmp_path / "own").iterdir()), "what was there is left as it is"


@pytest.mark.parametrize(("told", "typed"), [
    ("diloco-chaos run --plan elsewhere/plan.json --on slurm", " --on slurm"),
    ("diloco-chaos run --plan elsewhere/plan.json --on kubernetes", " --on kubernetes"),
    ("diloco-chaos run --plan elsewhere/plan.json --on acme-cloud", " --on acme-cloud"),
    ("diloco-chaos run --plan elsewhere/plan.json", ""),
    ("plan.json --on slurm; rm -rf ~", ""), ("plan.json --on $(id)", ""), ("plan.json --on -x", "")])
def test_the_command_that_repeats_it_says_where_and_nothing_that_somebody_else_wrote(folder, told, typed):
    folder.write("manifest.json", {"repeat": told})
    assert folder.repeat == f"diloco-chaos run --plan {folder.path / 'plan.json'}{typed}"


def test_the_first_exception_at_the_end_of_a_log_is_told_before_the_last_one(tmp_path):
    (tmp_path / "logs").mkdir()
    trace = ["Traceback (most recent call last):", *(f"  frame {number}" for number in range(12))]
    (tmp_path / "logs" / "w-1.0.log").write_text("\n".join(
        ["step=1", *trace, "SupervisionError: an actor is gone", *trace, "KeyboardInterrupt", "bye"]))
    assert RunFolder(tmp_path).log_tail("w-1") == [
        "  frame 9", "  frame 10", "  frame 11", "SupervisionError: an actor is gone", "...", "  frame 11",
        "KeyboardInterrupt", "bye"]
