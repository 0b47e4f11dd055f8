"""The command line: every mistake gets a message, a hint and exit code 2, and `--json` is one object."""

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.base.processes import identity
from diloco_chaos.harness.record.tape.events import Start
from diloco_chaos.harness.record.tape.writing import TapeWriter
from typed import typed


def command(*arguments, timeout=60, **environment):
    return typed(*arguments, timeout=timeout, env=os.environ | environment)


def test_a_printed_plan_is_one_that_can_be_repeated(tmp_path):
    file = tmp_path / "plan.json"
    file.write_text(command("plan", "storm", "--seed", "3").stdout)
    assert plans.load(file) == freeze(load("storm")[0], 3)
    saved = command("plan", "storm", "--seed", "3", "--out", str(tmp_path / "other.json"))
    assert plans.load(tmp_path / "other.json") == plans.load(file)
    assert "f1.1" in saved.stdout


def folder(runs, name, harness=(1, 1)):
    """A folder that looks like a run's."""
    (runs / name / "tape").mkdir(parents=True)
    (runs / name / "plan.json").write_text("{}")
    (runs / name / "manifest.json").write_text(json.dumps({"harness": harness}))


def cleaned(state, *arguments):
    """`clean` where there is no engine: tests beside these kill harnesses that have containers."""
    return command("clean", *arguments, XDG_STATE_HOME=str(state), DOCKER_HOST=f"unix://{state}/docker.sock")


def test_clean_keeps_the_newest_runs_those_that_go_on_and_whatever_is_no_run(tmp_path):
    names = [f"2026010{day}-120000-flagship-00c0ffee" for day in range(1, 6)]
    for name in names:
        folder(tmp_path, name, harness=identity(os.getpid()) if name == names[1] else (1, 1))
    folder(tmp_path, "my-own-notes")
    (tmp_path / "20260101-120000-file-00c0ffee").write_text("")
    done = cleaned(tmp_path / "state", "--runs", "--keep", "2", "--runs-dir", str(tmp_path))
    assert done.returncode == 0, done
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([names[1], *names[3:], "my-own-notes", "20260101-120000-file-00c0ffee"])
    assert done.stdout.count(" removed") == 2


def test_what_nobody_reads_is_no_failed_check():
    with subprocess.Popen([sys.executable, "-m", "diloco_chaos", "list"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as listing:
        listing.stdout.close()
        assert listing.stderr.read() == b""
    assert listing.returncode == 128 + signal.SIGPIPE


def test_clean_says_so_where_there_is_nothing(tmp_path):
    done = cleaned(tmp_path)
    assert (done.returncode, done.stdout) == (0, "nothing was left behind\n")


@pytest.mark.parametrize(("arguments", "message"), [
    (["run", "flagshp"], "did you mean 'flagship'"),
    (["run"], "name a scenario"),
    (["run", "flagship", "--plan", "x.json"], "name a scenario"),
    (["run", "--plan", "nowhere.json"], "nowhere.json: can't be read: No such file"),
    (["run", "flagship", "--on", "simulated", "--toxiproxy", "real"],
     "--toxiproxy: under virtual time there is no server of the links; leave it out"),
    (["run", "restart-engine", "--on", "simulated"], "there is no engine in a simulation: run it with --on compose"),
    (["run", "flagship", "--on", "compose", "--toxiproxy", "./t"], "on compose the links are those of the image"),
    (["run", "out-of-memory"],
     "out_of_memory: processes alone can't do that: run it with --on compose, kubernetes or simulated"),
    (["run", "flagship", "--on", "locl"], "did you mean 'local'"),
    (["run", "flagship", "--corpus", "/nowhere"], "no such file or folder; name one with --corpus"),
    (["run", "flagship", "--corpus", __file__], "needs at least"),
    (["run", "flagship", "--deadline", "5"], "--deadline: '5' is not a duration: write it like 8s"),
    (["run", "flagship", "--deadline", "0s"], "--deadline: it must be more than 0s"),
    (["run", "--plan", "x.json", "--seed", "3"], "--seed: a frozen plan has its seed"),
    (["run", "flagship", "--seed", "-1"], "Try `diloco-chaos run --help`"),
    (["run", "flagship", "--toxiproxy", "reel"], "did you mean 'real'"),
    (["run", "flagship", "--toxiproxy", "/nowhere/server"], "/nowhere/server: no such program"),
    (["run", "--plan", "x.json", "--repeat", "3"], "--repeat: a frozen plan has its seed"),
    (["run", "flagship", "--repeat", "3", "--retries-inconclusive", "1"], "give one of the two"),
    (["run", "flagship", "--repeat", "0"], "Try `diloco-chaos run --help`"),
    (["plan", "flagshp"], "did you mean 'flagship'"),
    (["plan", "flagship", "--seed", "x"], "Try `diloco-chaos plan --help`"),
    (["plan", "flagship", "--out", "/nowhere/plan.json"], "/nowhere/plan.json"),
    (["clean", "--keep", "-1"], "Try `diloco-chaos clean --help`"),
    (["check", "nowhere"], "nowhere: no such folder"),
    (["check", "/"], "not the folder of a run: it has no plan.json"),
    (["validate", "pyproject.toml"], "pyproject.toml"),
    (["show", "nothing"], "no scenario of this name"),
    (["frobnicate"], "No such command"),
    (["list", "--frobnicate"], "No such option"),
    (["list", "--tier", "quick"], "no tier 'quick'; there are ci and full"),
    (["list", "zzz"], "no scenario has 'zzz' in its name, its description or its kinds of faults"),
])
def test_a_mistake_is_told_with_what_to_type_instead(arguments, message):
    done = command(*arguments)
    assert done.returncode == 2, done
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_runs_dir_that_can_not_be_made_is_told_before_any_reference_is_trained(tmp_path):
    (tmp_path / "file").write_text("")
    done = command("run", "kill-one", "--runs-dir", str(tmp_path / "file"), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 2
    assert "--runs-dir" in done.stderr
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("arguments", [["list", "--json"], ["show", "flagship", "--json"], ["doctor", "--json"],
                                       ["validate", "flagship", "far", "--json"],
                                       ["schema"], ["plan", "storm", "--seed", "3"], ["clean", "--json"]])
def test_json_is_one_object_on_standard_output(arguments):
    done = command(*arguments)
    assert isinstance(json.loads(done.stdout), dict)


def test_what_is_shown_into_a_file_is_a_scenario(tmp_path):
    shown = command("show", "flagship", COLUMNS="40")
    (tmp_path / "mine.yaml").write_text(shown.stdout)
    assert command("validate", str(tmp_path / "mine.yaml")).stdout == "1 valid\n"
    assert "\n# f3  learner-3 +12 ms" in shown.stdout


def test_the_list_has_groups_and_takes_a_word_and_a_tier():
    def names(*more):
        return {one["name"] for one in json.loads(command("list", *more, "--json").stdout)["scenarios"]}
    assert names("Partition") == {"flagship", "one-way", "split", "switch-goes", "syncer-cut-off"}
    assert names("partition", "--tier", "ci") == {"flagship"}
    assert names("--tier", "ci") | names("--tier", "full") == names()
    whole = command("list", COLUMNS="80").stdout
    assert whole.index("Tier ci: ") < whole.index("flagship") < whole.index("Tier full: ") < whole.index("zombie")


def test_every_command_explains_itself_with_an_example():
    runner, commands = CliRunner(), get_command(application()).commands
    assert len(commands) == 21
    for name in commands:
        short, long = (runner.invoke(application(), [name, option]) for option in ("-h", "--help"))
        assert (short.exit_code, short.stdout) == (0, long.stdout)
        assert "Example" in short.stdout, name


def test_the_version_is_that_of_the_package():
    assert command("--version").stdout == f"diloco-chaos {version('diloco-chaos')}\n"


def test_a_shell_completes_commands():
    done = command(COMP_WORDS="diloco-chaos re", COMP_CWORD="1", _DILOCO_CHAOS_COMPLETE="complete_bash")
    assert done.stdout.split() == ["replay", "report", "resume"]


def test_validate_tells_every_problem_and_exits_2(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("diloco_chaos: 1\nname: bad\ncluster: {quorm: 1}\ndeadlin: 3s\n")
    done = command("validate", str(file), "flagship", "--json")
    assert done.returncode == 2
    report = json.loads(done.stdout)
    assert [problem.split(": ", 1)[0] for problem in report["problems"]] == [f"{file}:3:11", f"{file}:4:1"]


def test_validate_tells_what_this_machine_lacks_for_a_scenario_that_is_sound(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("diloco_chaos: 1\nname: mine\ntrainer:\n  kind: commands\n  nodes: {a: {worker: true, run: "
                    "no-such-trainer}}\n  progress: [{node: a, log: '(?P<round>[0-9]+)'}]\n")
    done = command("validate", str(file), "--json")
    assert done.returncode == 0
    [warning] = json.loads(done.stdout)["warnings"]
    assert warning.startswith(f"{file}: this machine can't run it: a: there is no program 'no-such-trainer'")


@pytest.fixture
def recorded(tmp_path):
    """A folder with a plan and an empty run."""
    (tmp_path / "tape").mkdir()
    plans.save(freeze(load("kill-one")[0], 0), tmp_path / "plan.json")
    writer = TapeWriter(tmp_path / "tape", "syncer", 0, 0.0)
    writer.record(Start(role="syncer", pid=1))
    return tmp_path


def test_validate_says_what_can_not_be_done_at_a_place(tmp_path):
    (file := tmp_path / "mine.yaml").write_text(
        "diloco_chaos: 1\nname: mine\ntrainer:\n  kind: commands\n  nodes: {a: {worker: true, run: ls}}\n"
        "  progress: [{node: a, file: '{run}/out/*'}]\n")
    assert command("validate", str(file), "--on", "local").stdout == "1 valid\n"
    done = command("validate", str(file), "--on", "slurm")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{file}: progress: {{run}}/out/*: files of nodes are on another machine there" in done.stderr


def test_a_tape_cut_off_in_the_middle_of_a_line_is_judged_up_to_the_cut_and_says_so(recorded):
    with open(recorded / "tape" / "syncer.0.jsonl", "a") as file:
        file.write('{"t": 3.0, "node": "syn')
    done = command("check", str(recorded))
    assert done.returncode == 3, done.stderr
    said = " ".join(done.stdout.split())
    assert "The event log is incomplete, and judged up to there: syncer.0.jsonl, line 2" in said
    assert "Traceback" not in done.stdout + done.stderr


def test_a_folder_without_any_event_is_inconclusive(recorded):
    (recorded / "tape" / "syncer.0.jsonl").unlink()
    done = command("check", str(recorded), "--json")
    assert done.returncode == 3
    assert {check["verdict"] for check in json.loads(done.stdout)["checks"]} == {"unknown"}


def test_a_port_in_use_is_told_before_anything_starts():
    import socket
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = command("run", "kill-one", "--toxiproxy-port", port)
    assert done.returncode == 2
    assert f"--toxiproxy-port {port}: Address already in use; choose another one" in done.stderr


@pytest.mark.parametrize(("options", "words"), [
    (["--device", "cud"], "no such device; did you mean 'cuda'?; there are cpu, cuda and auto"),
    (["--device", "cuda"], "run it with --device cpu"),
    (["--device", "cuda", "--on", "simulated"], "run it with --device cpu")])
def test_a_device_that_is_not_there_is_refused_before_anything_starts(tmp_path, monkeypatch, options, words):
    done = command("run", "no-fault", "--runs-dir", str(tmp_path / "runs"), *options, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert not (tmp_path / "runs").exists()


def test_auto_is_the_processor_where_there_is_no_other_device():
    code = "from diloco_chaos.chaos.commands.running import with_options; from diloco_chaos import freeze, load; " \
           "print(with_options(freeze(load('no-fault')[0], 0), device='auto').cluster.device)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    assert done.stdout == "cpu\n"


@pytest.mark.parametrize(("files", "words"), [
    ([], "no such folder"),
    (["plan.json", "tape/"], "not a frozen plan"),
    (["tape/"], "not the folder of a run: it has no plan.json")])
def test_resume_says_what_is_wrong_with_a_folder(tmp_path, files, words):
    run = tmp_path / "run"
    for name in files:
        (run / name).mkdir(parents=True) if name.endswith("/") else (
            run.mkdir(exist_ok=True), (run / name).write_text("{"))
    done = command("resume", str(run))
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def simulated(tmp_path, deadline="60s", **cluster):
    """The folder of a run that is over."""
    settings = {"model": "quadratic", "learners": 3, "budget": "150 steps", "step_time": "60ms"} | cluster
    (tmp_path / "small.yaml").write_text(
        f"diloco_chaos: 1\nname: small\ndeadline: {deadline}\ncluster: {json.dumps(settings)}")
    command("run", str(tmp_path / "small.yaml"), "--on", "simulated", "--runs-dir", str(tmp_path / "runs"))
    (run,) = (tmp_path / "runs").glob("2*")
    return run


def unfinished(run, harness=(1, 1), backend="local"):
    """As if it had been killed in processes."""
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"backend": backend, "harness": harness}))
    (run / "report.json").unlink()
    tapes = run / "tape"
    for path in tapes.iterdir():
        path.write_text("".join(line for line in path.read_text().splitlines(keepends=True)
                                if '"event":"finished"' not in line and '"event":"end"' not in line))
    return run


@pytest.mark.parametrize(("spoil", "words"), [
    (lambda run: None, "its training was over, there is nothing to go on with"),
    (lambda run: unfinished(run, backend="simulated"),
     "a simulation that was ended left no global checkpoints; run it again: diloco-chaos run --plan"),
    (lambda run: unfinished(run, identity(os.getpid())), "this run still goes on; end it first"),
    (unfinished, "can't be trusted: "),
    (unfinished, "begin again: diloco-chaos run --plan")])
def test_resume_says_why_a_run_can_not_go_on(tmp_path, spoil, words):
    run = simulated(tmp_path)
    spoil(run)
    done = command("resume", str(run))
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_run_whose_deadline_has_passed_is_not_resumed_into_it(tmp_path):
    run = simulated(tmp_path, deadline="5s")
    done = command("resume", str(run))
    assert done.returncode == 2
    words = " ".join(done.stderr.split())
    assert "its deadline of 5.0 s has passed, no time is left to go on in; begin again with a later one: " \
           "diloco-chaos run" in words
    assert words.endswith("--deadline 15s")


def on_cuda(run):
    """As if it had been computed there."""
    plan = plans.load(run / "plan.json")
    cluster = plan.cluster.model_copy(update={"device": "cuda"})
    plans.save(plan.model_copy(update={"cluster": cluster}), run / "plan.json")
    settings = json.loads((run / "cluster.json").read_text())
    settings["cluster"]["device"] = "cuda"
    (run / "cluster.json").write_text(json.dumps(settings))


@pytest.mark.parametrize(("trainer", "cluster"), [("os:abort", {}), (None, {"learners": 2})])
def test_what_a_folder_says_of_its_trainer_is_held_against_its_plan_before_anything_is_imported(tmp_path, trainer,
                                                                                               cluster):
    run = simulated(tmp_path)
    settings = json.loads((run / "cluster.json").read_text())
    settings["trainer"] = trainer or settings["trainer"]
    settings["cluster"] |= cluster
    (run / "cluster.json").write_text(json.dumps(settings))
    done = command("replay", str(run))
    assert done.returncode == 2
    assert "cluster.json is of another cluster than the plan" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_replay_needs_the_device_that_the_run_had(tmp_path):
    run = simulated(tmp_path)
    on_cuda(run)
    done = command("replay", str(run))
    assert done.returncode == 2
    assert "it was computed on device cuda: " in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_resume_tells_what_cuts_there_are_and_that_a_finished_run_has_none_left(tmp_path):
    run = simulated(tmp_path, checkpoint_interval=40)
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"backend": "local"}))
    done = command("resume", str(run))
    assert "its training was over, there is nothing to go on with" in " ".join(done.stderr.split())
    unfinished(run)
    done = command("resume", str(run), "--from-checkpoint", "9")
    assert done.returncode == 2
    assert "there is no global checkpoint 9: there are 3, 2, 1" in " ".join(done.stderr.split())


