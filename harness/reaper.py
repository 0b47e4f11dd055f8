"""Heals what a harness left behind: `python -m diloco_chaos.harness.reaper UNDO_LOG` waits for its harness to die, and
undoes.

A process of its own, in a session of its own, so that neither Ctrl-C nor a kill -9 of the harness reaches it. `heal` is
what `diloco-chaos clean` and the next start do, too. Nothing is touched that does not carry the run's token.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from diloco_chaos.harness.base.extras import lacking
from diloco_chaos.harness.base.processes import carries, end_all, handle, identity, send, with_token
from diloco_chaos.harness.record.user_commands import carried_out

if TYPE_CHECKING:  # imported when there is something to do: a reaper waits in a few megabytes
    from diloco_chaos.harness.places.compose.engine import Engine
    from diloco_chaos.harness.record.undo_log import AnyUndo, Enable, Toxin

_TRIES, _AGAIN_S = 20, 3.0
_SETTLE_S = 0.5
_GONE_S, _COMMAND_S = 20.0, 60.0

NOT_UNDONE = "NOT UNDONE"
"""What a line begins with that tells of something left."""


def heal(path: Path) -> list[str]:
    """Undo what an undo log holds, end every process that carries its token, and remove it.

    Returns:
        What was done, in words; what could not be undone begins with `NOT_UNDONE`, and the undo log stays.

    Raises:
        UndoLogError: it is not an undo log.
    """
    from diloco_chaos.harness.record.undo_log import read
    owed = read(path)
    if owed is None:
        path.unlink(missing_ok=True)
        return []
    token = owed.opened.token
    did: list[str] = []
    _undo_all([undo for undo in owed.undos if undo.entry != "remove"], token, did)
    ours = with_token(token)
    left = end_all(ours, token)
    if ours:
        did.append(f"{len(ours) - len(left)} processes ended: {', '.join(str(who.pid) for who in ours)}")
    did += [f"{NOT_UNDONE}: process {who.pid} does not end" for who in left]
    _undo_all([undo for undo in owed.undos if undo.entry == "remove"], token, did)  # nobody writes there any more
    if not any(line.startswith(NOT_UNDONE) for line in did):
        path.unlink(missing_ok=True)
    return did


def _undo_all(undos: list[AnyUndo], token: str, did: list[str]) -> None:
    for undo in undos:
        try:
            if _undone(undo, token):
                did.append(f"{undo.cause}: {undo.describe()}" if undo.cause else undo.describe())
        except OSError as error:
            did.append(f"{NOT_UNDONE}: {undo.describe()}: {error}")


def _undone(undo: AnyUndo, token: str) -> bool:
    """Undo one thing; False where there was nothing (left) to undo.

    Raises:
        OSError: it could not be undone.
    """
    from diloco_chaos.harness.record import undo_log as owed
    match undo:
        case owed.Continue(process=process):
            return send(process, token, signal.SIGCONT)
        case owed.Lift(process=process, soft=soft, hard=hard):
            with handle(process, token) as descriptor:
                if descriptor is not None:
                    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))
                return descriptor is not None
        case owed.Toxin() | owed.Enable():
            return _link_healed(undo, token)
        case owed.Remove(path=path):
            if token not in path.name or not os.path.lexists(path):
                return False
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            return True
        case owed.Containers(engine=engine, run=run):
            return _containers_removed(engine, run)
        case owed.Namespace(context=context, namespace=namespace, run=run):
            return _namespace_removed(context, namespace, run)
        case owed.SlurmJobs(config=config, run=run):
            return _jobs_over(config, run)
        case owed.Command(argv=argv):
            carried_out(argv, _COMMAND_S)
            return True
    return False


def _containers_removed(url: str, run: str) -> bool:
    """Remove what a run left on an engine; False where nothing was left.

    Raises:
        OSError: the engine does not answer, or refuses.
    """
    if why := lacking("docker", "compose", f"removing the containers of {run}"):
        raise OSError(why)
    from diloco_chaos.harness.places.compose.engine import Engine, EngineError
    try:
        engine = Engine(url)
        try:
            removed = engine.remove(run)
            while engine.labelled(run) or (removed and _unsettled(engine, run)):
                removed += engine.remove(run)
            return bool(removed)
        finally:
            engine.close()
    except EngineError as error:
        raise OSError(str(error)) from error


def _namespace_removed(context: str, namespace: str, run: str) -> bool:
    """Remove what a run left on a Kubernetes; False where nothing was left.

    Raises:
        OSError: it does not answer, or refuses, or something is not gone.
    """
    if why := lacking("kubernetes", "kubernetes", f"removing namespace {namespace}"):
        raise OSError(why)
    from diloco_chaos.harness.places.kubernetes.api import Api, KubernetesError
    try:
        api = Api(context)
        try:
            removed = api.remove(namespace, run)
            if left := api.wait_removed(namespace, run, _GONE_S):
                raise OSError(f"still there: {', '.join(left)}")
            return removed
        finally:
            api.close()
    except KubernetesError as error:
        raise OSError(str(error)) from error


def _jobs_over(config: str, run: str) -> bool:
    """Cancel what a run left in a queue of Slurm's; False where nothing was left.

    Raises:
        OSError: it does not answer, or something is not over.
    """
    from diloco_chaos.harness.places.slurm.queue import Slurm, SlurmError, wait_over
    try:
        return wait_over(Slurm(config), run, _GONE_S)
    except SlurmError as error:
        raise OSError(str(error)) from error


def _unsettled(engine: Engine, run: str) -> bool:
    """Whether anything has come up since: what the harness had asked for in its last moment is still made."""
    time.sleep(_SETTLE_S)
    return bool(engine.labelled(run))


def _link_healed(undo: Toxin | Enable, token: str) -> bool:
    """Heal a link; False where its server is gone, and the link with it."""
    from diloco_chaos.harness.links.client import LinkError, Links
    from diloco_chaos.harness.record.undo_log import Toxin
    if undo.server is not None and not (identity(undo.server.pid) == undo.server and carries(undo.server.pid, token)):
        return False
    try:
        if isinstance(undo, Toxin):
            Links(undo.api).remove(undo.link, undo.name)
        else:
            Links(undo.api).set_enabled(undo.link, True)
    except LinkError as error:
        if error.status in (None, 404):
            return False
        raise OSError(str(error)) from error
    return True


def main() -> int:
    """Wait until the undo log's harness is gone; heal. A harness that ends in peace ends its reaper, too."""
    import fcntl
    path = Path(sys.argv[1])
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    fcntl.flock(file, fcntl.LOCK_EX)  # waits as long as the harness lives, whatever becomes of it
    for _ in range(_TRIES):
        if not path.exists() or not any(line.startswith(NOT_UNDONE) for line in heal(path)):
            break
        time.sleep(_AGAIN_S)  # an engine that is just being restarted, say
    return 0


if __name__ == "__main__":
    sys.exit(main())
