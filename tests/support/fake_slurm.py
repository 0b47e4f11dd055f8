#!/usr/bin/env python3
"""Slurm's commands, made up: jobs and their steps are processes of this machine, and the queue is a file.

`install(folder)` puts them there, for a PATH. What a real one does differently, tests/alone/test_slurm.py sees.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "scancel", "srun", "scontrol", "sinfo")
STATE = Path(os.environ.get("FAKE_SLURM", "/nowhere"))


def install(folder: Path) -> dict[str, str]:
    """The environment in which they are found."""
    folder.mkdir()
    for name in COMMANDS:
        (folder / name).write_text(f"#!{sys.executable}\n" + Path(__file__).read_text().partition("\n")[2])
        (folder / name).chmod(0o755)
    empty = {"jobs": {}, "say": "", "hold": False, "machines": {"n1": "idle", "n2": "idle"}}
    (folder / "queue.json").write_text(json.dumps(empty))
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "FAKE_SLURM": str(folder)}


@contextmanager
def queue(folder: Path = STATE):
    """The file; what is changed in it stays."""
    with open(folder / "queue.json", "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        content = json.load(file)
        yield content
        file.seek(0)
        file.truncate()
        json.dump(content, file)


def begin(number: str, job: dict) -> None:
    env = job["env"] | {"SLURM_JOB_ID": number, "SLURM_RESTART_COUNT": str(job["restarts"])}
    job["pid"] = subprocess.Popen(["sh", job["script"]], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, start_new_session=True).pid
    job["state"], job["machine"] = "RUNNING", f"n{(int(number) + job['restarts']) % 2 + 1}"


def held(content: dict, job: dict) -> bool:
    """Whether it has to wait: all jobs, or those whose names end so."""
    return content["hold"] is True or any(job["name"].endswith(name) for name in content["hold"] or ())


def there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def end(job: dict, number: int = signal.SIGTERM) -> None:
    """What is in a job ends, step by step."""
    for pid in [step["pid"] for step in job["steps"].values()]:
        if there(pid):
            os.kill(pid, number)
    until = time.monotonic() + 5
    if there(job["pid"]):
        os.killpg(job["pid"], number)
    while there(job["pid"]) and time.monotonic() < until:
        time.sleep(0.02)
    if there(job["pid"]):
        os.killpg(job["pid"], signal.SIGKILL)


def sbatch(argv: list[str]) -> str:
    with queue() as content:
        number = str(len(content["jobs"]) + 1)
        script = STATE / f"{number}.sh"
        script.write_text(sys.stdin.read())
        name = next(one.partition("=")[2] for one in argv if one.startswith("--job-name="))
        job = {"name": name, "script": str(script), "env": dict(os.environ), "restarts": 0, "steps": {}, "argv": argv,
               "state": "PENDING", "machine": "", "code": "0", "reason": "Resources", "pid": 0}
        content["jobs"][number] = job
        if not held(content, job):
            begin(number, job)
    return number


def squeue(argv: list[str]) -> str:
    with queue() as content:
        for number, job in content["jobs"].items():
            if job["state"] == "RUNNING" and not there(job["pid"]):
                job["state"] = "COMPLETED"
            if job["state"] == "PENDING" and not held(content, job):
                begin(number, job)
        return "".join(f"{number}|{job['name']}|{job['state']}|{job['restarts']}|{job['machine']}|{job['code']}|"
                       f"{job['reason']}|\n" for number, job in content["jobs"].items())


def scancel(argv: list[str]) -> str:
    number = next((one.partition("=")[2] for one in argv if one.startswith("--signal=")), "")
    with queue() as content:
        for one in argv:
            job, _, step = one.partition(".")
            if job in content["jobs"] and number:
                pid = content["jobs"][job]["steps"][step]["pid"]
                if there(pid):
                    os.kill(pid, getattr(signal, f"SIG{number}"))
            elif job in content["jobs"]:
                end(content["jobs"][job])
                content["jobs"][job]["state"] = "CANCELLED"
    return ""


def scontrol(argv: list[str]) -> str:
    if argv[-2] == "node":
        return f"NodeName={argv[-1]} NodeAddr=127.0.0.1 State=IDLE\n"
    with queue() as content:
        job = content["jobs"][argv[-1]]
        end(job)
        job["restarts"], job["steps"] = job["restarts"] + 1, {}
        begin(argv[-1], job)
    return ""


def sinfo(argv: list[str]) -> str:
    if argv == ["--version"]:
        return "slurm-fake 1\n"
    with queue() as content:
        return "".join(f"{name}|{state}|\n" for name, state in content["machines"].items())


def srun(argv: list[str]) -> None:
    """A step; its exit status as srun has it."""
    after = next(at for at, one in enumerate(argv) if not one.startswith("--"))
    job = next((one.partition("=")[2] for one in argv if one.startswith("--jobid=")), os.environ.get("SLURM_JOB_ID"))
    with queue() as content:
        step = str(len(content["jobs"][job]["steps"]))
        process = subprocess.Popen(argv[after:], env=os.environ | {"SLURM_STEP_ID": step}, start_new_session=True)
        content["jobs"][job]["steps"][step] = {"pid": process.pid}
    status = process.wait()
    sys.exit(128 - status if status < 0 else status)


def off(machine: str) -> None:
    """All that is on a machine is gone at once; nobody notices."""
    with queue() as content:
        for job in content["jobs"].values():
            if job["machine"] == machine:
                end(job, signal.SIGKILL)


def main() -> None:
    if sys.argv[1:2] == ["off"]:
        off(sys.argv[2])
        return
    with queue() as content:
        if content["say"]:
            sys.exit(f"{Path(sys.argv[0]).name}: error: {content['say']}")
    told = globals()[re.sub(r"\W", "", Path(sys.argv[0]).name)](sys.argv[1:])
    sys.stdout.write(f"{told}\n" if sys.argv[0].endswith("sbatch") else told)


if __name__ == "__main__":
    main()
