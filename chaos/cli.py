"""The command line: `diloco-chaos
run|resume|explore|compare|fleet|plan|list|show|validate|schema|progress|check|report|open|runs|diff|replay|tokens|clean|
doctor|rbac`."""

from __future__ import annotations

import errno
import signal
import sys
from typing import NoReturn

import typer

from diloco_chaos.chaos.commands import (  # noqa: F401 - each adds its commands to the application
    comparing,
    exploring,
    fleet,
    folders,
    library,
    places,
    progress,
    reading,
    running,
    sweeps,
)
from diloco_chaos.chaos.commands.common import Failure, app
from diloco_chaos.chaos.evidence.run_folder import FolderError
from diloco_chaos.chaos.program import PROGRAM
from diloco_chaos.chaos.runner.baselines import NoReferenceError
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.harness.cleanup.undo_log import UndoLogError
from diloco_chaos.harness.cluster.base import ClusterError
from diloco_chaos.harness.errors import printable
from diloco_chaos.harness.extras import MissingExtraError
from diloco_chaos.harness.providers import ProviderError
from diloco_chaos.harness.trainer_api.trainer import TrainerError

_INTERRUPTED = 130
_UNREAD = 128 + signal.SIGPIPE
"""As a shell tells of a program whose output nobody reads."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
_NOTHING_LEFT = "interrupted; no process of ours is left"


def main() -> NoReturn:
    """The entry point: every expected error becomes a message and an exit code."""
    if sys.platform != "linux":
        sys.exit("diloco-chaos runs on Linux only: it needs process signals and /proc as they are there")
    try:
        # without its standalone mode, typer returns what Exit carries, and what it makes of Ctrl-C
        if (code := app(prog_name=PROGRAM, standalone_mode=False) or 0) == _INTERRUPTED:
            _fail(_NOTHING_LEFT, code)
    except Failure as failure:
        code = _fail(str(failure), failure.code)
    except (ScenarioError, FolderError, TrainerError, UndoLogError, ClusterError, MissingExtraError,
            ProviderError) as error:
        code = _fail(str(error), 2)
    except NoReferenceError as error:
        code = _fail(str(error), 3)
    except OSError as error:  # the run's folder keeps what was written
        advice = "; free some space or name another place with --runs-dir" if error.errno in _NO_ROOM else ""
        code = _fail(f"{error}{advice}", 3)
    except SystemExit:  # typer and rich end so where nobody reads what they print; 1 would be a check that failed
        code = _UNREAD
    except (KeyboardInterrupt, typer.Abort):
        code = _fail(_NOTHING_LEFT, _INTERRUPTED)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", PROGRAM)
        code = _fail(f"{error.format_message()}\nTry `{command} --help`.", 2)
    sys.exit(code)


def _fail(message: str, code: int) -> int:
    print(printable(message), file=sys.stderr)
    return code


if __name__ == "__main__":
    main()

