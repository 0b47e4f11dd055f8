"""Who is in the league, and how each is set up."""

from __future__ import annotations

from benchmarks.league.roles import Contestant, Roles, Variant

_DEFAULTS = "its own defaults"

_BUILT_IN = Contestant(
    "built-in", "built-in", "", (), "2 learners and a syncer, quorum 1",
    Roles(worker="learner-2", leader="syncer", coordinator="syncer", link="learner-2", saver="syncer",
          midway={"node": "syncer", "failpoint": "checkpoint.before_rename", "count": 60}),
    {"defaults": Variant("nothing", _DEFAULTS),
     "best": Variant("`heartbeat_timeout: 1s`", "[scenarios.md](scenarios.md#cluster)", {"heartbeat_timeout": "1s"})},
    trainer={"learners": 2, "quorum": 1, "step_time": "50ms"})

_TORCHRUN = Contestant(
    "torchrun", "torchrun", "torchrun", (), "2 agents with 2 workers each, and the rendezvous' store",
    Roles(worker="agent-2/rank-1", leader="agent-1", coordinator="store", link="agent-2", saver="agent-1",
          midway={"node": "agent-1", "failpoint": "checkpoint.write", "count": 6}, held="step-*.pt"),
    {"defaults": Variant("no time-outs: gloo's 30 min", _DEFAULTS,
                         script=(("timedelta(seconds=10)", "timedelta(minutes=30)"),)),
     "best": Variant("gloo's timeout 10 s; a checkpoint every 5 rounds; the rendezvous believes in silent agents for "
                     "3 s (`keep_alive_interval=1`); `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`",
                     "[PyTorch's rendezvous](https://docs.pytorch.org/docs/stable/elastic/rendezvous.html); the "
                     "variable: [found.md](found.md)",
                     {"nodes": {"agent": {"env": {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}}}},
                     commands=(("is_host=0", "is_host=0,keep_alive_interval=1"),),
                     script=(("EVERY = 20", "EVERY = 5"),))},
    trainer={"nodes": {"agent": {"peers": "caught", "state": "{run}/state/checkpoints"}}},
    script=(("EVERY = 1 ", "EVERY = 20 "),))

CONTESTANTS = (_BUILT_IN, _TORCHRUN)
