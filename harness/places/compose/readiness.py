"""Whether this machine is ready for runs in containers: before one starts, and for the doctor."""

from __future__ import annotations

from collections.abc import Collection

from diloco_chaos.harness.base.fingerprint import node_digest
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.compose import compose_file
from diloco_chaos.harness.places.compose.engine import DockerEngine, EngineError, dead_runs
from diloco_chaos.harness.places.place import Requirement
from diloco_chaos.harness.trainers.core.programs import LINKS, Program

_BUILD = "docker build -f docker/Dockerfile -t {image} ., or without a registry: docker/offline.sh"
_PULL = "docker pull {image}, or without a registry: docker/offline.sh"
_SOURCES = "/app/sources"  # see docker/Dockerfile


def must_be_ready(url: str = "", programs: Collection[Program] = ()) -> None:
    """Tell before anything starts what is missing. `programs`: commands that are to run in images of somebody else's;
    where there are none, the nodes are ours.

    Raises:
        EngineError: there is no engine that can be used, an image is not there, or nodes' image holds another version
            of the trainer than this installation.
        ClusterError: a compose file can't be read, or says what a run can't take over; or `docker compose` is missing.
    """
    engine, file = DockerEngine(url), compose_file.find()
    try:
        ours, links = (compose_file.service(file, name)["image"] for name in ("syncer", LINKS))
        for image, service in dict.fromkeys((program.image, program.service) for program in programs):
            engine.image(compose_file.of_command(image, service).get("image", ""),
                         "build it, or `docker pull` it: runs pull nothing")
        engine.image(links, _PULL.format(image=links))
        if not programs:
            _must_be_of_this_version(engine, ours)
    finally:
        engine.close()


def _must_be_of_this_version(engine: DockerEngine, image: str) -> None:
    engine.image(image, _BUILD.format(image=image))
    if (engine.file_of(image, _SOURCES) or b"").decode().strip() != node_digest():
        raise EngineError(f"image {image} holds another version of the trainer than this installation, or none; "
                          f"build it again: {_BUILD.format(image=image)}")


def requirement() -> Requirement:
    """A Docker engine that can be used, with the images."""
    try:
        engine = DockerEngine()
    except EngineError as error:
        return Requirement("docker", "missing", "unusable", str(error))
    try:
        if dead := dead_runs(engine):
            return Requirement("docker", "optional", f"engine {engine.version}, containers of {len(dead)} runs that "
                                                     f"died", "diloco-chaos clean removes them")
        must_be_ready()
    except ClusterError as error:
        return Requirement("docker", "missing", f"engine {engine.version}", str(error))
    finally:
        engine.close()
    return Requirement("docker", "ok", f"engine {engine.version}, images there")
