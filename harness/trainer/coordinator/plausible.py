"""What a learner says of itself is held against what is possible before it counts: a learner that lies, or whose memory
fails, must not move the clock, the leases or the end of the run for all others. Pure.

A learner can't have made more steps than there was time for since it said hello: the nominal step time, less its
variance, is the quickest. What it said may have been under way for as long as silence is borne, twice: before its hello
arrived, and since.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.protocol.messages import Hello, OuterGradient, Report

_UNDER_WAY = 2
"""Times `heartbeat_timeout` that messages may have been on their way, or a connection may have stood."""


@dataclass(frozen=True)
class LearnerOrigin:
    """The place where a learner was when its connection began."""

    at: float
    """Seconds since the run began."""
    step: int
    tokens: int
    position: int


def most_steps(config: TrainerConfig, learner: str, seconds: float) -> int:
    """Inner steps that this learner can have reported in so long."""
    return 2 + math.ceil((seconds + _UNDER_WAY * config.heartbeat_timeout) / config.quickest_step(learner))


def of_hello(hello: Hello, config: TrainerConfig, now: float, step: int, position: int) -> str:
    """Return why this can't be a learner's hello; empty where it can. `step`: the global one; `position`: batches that
    are leased to it. When it was last heard of does not matter: that may have been another process in its name, while
    it was cut off and trained on."""
    most = most_steps(config, hello.node, now)  # whatever it did it did since the run began
    each = config.tokens_per_step_of(hello.node)
    if hello.step > step + most:
        return f"step {hello.step}: at most {step + most} are possible by now"
    if hello.tokens > most * each:
        return f"{hello.tokens} tokens: at most {most * each} are possible by now"
    if hello.position > (limit := position + most):
        return f"batch {hello.position} of its shard: at most {limit} are leased by now"
    if any(steps * each > hello.tokens for steps in hello.steps):
        return f"{max(hello.steps)} steps since it received a fragment, with {hello.tokens} tokens in all"
    return ""


def of_answer(answer: OuterGradient, learner: str, origin: LearnerOrigin, config: TrainerConfig, now: float) -> str:
    """Return why this can't be an answer of this learner, as far as time goes; empty where it can."""
    most = origin.step + most_steps(config, learner, now - origin.at)
    return f"step {answer.last_step}: at most {most} are possible by now" if answer.last_step > most else ""


def of_report(report: Report, learner: str, origin: LearnerOrigin, versions: Sequence[int], config: TrainerConfig,
              now: float) -> str:
    """Return why this can't be a report of this learner; empty where it can. `versions`: the committed ones."""
    each, most = config.tokens_per_step_of(learner), most_steps(config, learner, now - origin.at)
    if len(report.fragments) != len(versions):
        return "it is of another model"
    if report.step > origin.step + most:
        return f"step {report.step}: at most {origin.step + most} are possible by now"
    more = report.tokens - origin.tokens
    if more > each * (report.step - origin.step if origin.tokens else most):  # before its first step it had no count
        return f"{report.tokens} tokens by step {report.step}, {origin.tokens} by step {origin.step}"
    if report.position > origin.position + most:
        return f"batch {report.position} of its shard: at most {origin.position + most} are possible by now"
    for index, ((version, steps, tokens), newest) in enumerate(zip(report.fragments, versions, strict=True)):
        if not -1 <= version <= newest:
            return f"version {version} of fragment {index}: the newest is {newest}"
        if steps * each > report.tokens or tokens != steps * each:
            return f"{steps} steps of {tokens} tokens since it received fragment {index}, of {report.tokens} in all"
    return ""


def known_took(report: Report, origin: LearnerOrigin, config: TrainerConfig, now: float) -> float:
    """Seconds of its last step, where that can be so; 0 where it is not known: its clock may have jumped."""
    return report.took if report.took <= now - origin.at + _UNDER_WAY * config.heartbeat_timeout else 0.0
