"""Who is in the league, and how each is set up."""

from __future__ import annotations

from benchmarks.league.roles import Absent, Contestant, Roles, Variant

_DEFAULTS = "its own defaults"
_NO_CHECKPOINT = Absent("it writes no checkpoint of its own; a newcomer takes the weights from a peer")

_BUILT_IN = Contestant(
    "built-in", "built-in", "", (), "2 learners and a syncer, quorum 1",
    Roles(worker="learner-2", leader="syncer", coordinator="syncer", link="learner-2", saver="syncer",
          midway={"node": "syncer", "failpoint": "checkpoint.before_rename", "count": 100}),
    {"defaults": Variant("`heartbeat_timeout: 3s`", _DEFAULTS),
     "best": Variant("`heartbeat_timeout: 1s`", "[scenarios.md](scenarios.md#cluster)", {"heartbeat_timeout": "1s"})},
    trainer={"learners": 2, "quorum": 1, "step_time": "50ms"})

_ENDED = r"failed \(exitcode|Connection (closed|reset) by peer|Timed out waiting|exited with"
"""What an elastic agent or gloo says."""

_TORCHRUN = Contestant(
    "torchrun", "torchrun", "torchrun", (), "2 agents with 2 workers each, and the rendezvous' store",
    Roles(worker="agent-2/rank-1", leader="agent-1", coordinator="store", link="agent-2", saver="agent-1",
          midway={"node": "agent-1", "failpoint": "checkpoint.write", "count": 10}, held="step-*.pt"),
    {"defaults": Variant("gloo's timeout is 30 min", _DEFAULTS,
                         script=(("timedelta(seconds=10)", "timedelta(minutes=30)"),)),
     "best": Variant("gloo's timeout 10 s; a checkpoint every 5 rounds; an agent that is silent for 3 s is gone "
                     "(`keep_alive_interval=1`); `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`",
                     "[PyTorch's rendezvous](https://docs.pytorch.org/docs/stable/elastic/rendezvous.html); the "
                     "variable: [found.md](found.md)",
                     {"nodes": {"agent": {"env": {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}}}},
                     commands=(("is_host=0", "is_host=0,keep_alive_interval=1"),),
                     script=(("EVERY = 20 ", "EVERY = 5 "),))},
    trainer={"noticed": _ENDED, "nodes": {"agent": {"peers": "caught", "state": "{run}/state/checkpoints"}}},
    script=(("EVERY = 1 ", "EVERY = 20 "),))

_STEPS = ("STEPS = 160\n", "STEPS = 100_000\n")
"""Training ends with the scenario's last round, not with the script's."""
_OFTEN = (("EVERY = 20\n", "EVERY = 5\n"),)

_TOLD = 'print(f"step={job.step} loss={mean}", flush=True)'
"""Each rank is in a node of its own here, and tells its rounds."""

_FT_LAUNCHER = Contestant(
    "ft-launcher", "ft_launcher", "resiliency", ("nvidia-resiliency-ext==0.4.1",),
    "2 launchers with a rank each, and the rendezvous' store",
    Roles(worker="launcher-2/rank-1", leader="launcher-1", coordinator="store", link="launcher-2", saver="launcher-1",
          midway={"node": "launcher-1", "failpoint": "checkpoint.write", "count": 10}, held="step-*.pt"),
    {"defaults": Variant("a rank may be without a heartbeat for 45 min, before its first one for 60; gloo's timeout is "
                         "30 min", _DEFAULTS,
                         commands=((" --ft-workload-check-interval 1 --ft-initial-rank-heartbeat-timeout 60 "
                                    "--ft-rank-heartbeat-timeout 8", ""),),
                         script=(("timedelta(minutes=5)", "timedelta(minutes=30)"),)),
     "best": Variant("a rank without a heartbeat for 8 s is killed (60 s before its first), looked for every second; "
                     "gloo's timeout 10 s; a checkpoint every 5 rounds",
                     "[its guide](https://nvidia.github.io/nvidia-resiliency-ext/fault_tolerance/usage_guide.html): "
                     "time-outs of what was seen, times a safety factor of 5",
                     script=(("timedelta(minutes=5)", "timedelta(seconds=10)"), *_OFTEN))},
    base="launchers.yaml", trainer={"noticed": _ENDED, "nodes": {"launcher": {"peers": "caught"}}},
    script=(_STEPS, (f"        if job.rank == 0:\n            {_TOLD}", f"        {_TOLD}")))

_IN_PROCESS = Contestant(
    "in-process", "in-process restart", "resiliency", ("nvidia-resiliency-ext==0.4.1",),
    "2 ranks and the store where they meet",
    Roles(worker="rank-2", leader="rank-1", coordinator="store", link="rank-2", saver="rank-1",
          midway={"node": "rank-1", "failpoint": "checkpoint.write", "count": 10}, held="step-*.pt"),
    {"defaults": Variant("a process without a heartbeat for 30 s is gone, a rank without progress for 60 s restarts; "
                         "gloo's timeout is 30 min", _DEFAULTS,
                         script=(("TIMEOUT = timedelta(seconds=60)", "TIMEOUT = timedelta(minutes=30)"),)),
     "best": Variant("a process without a heartbeat for 5 s is gone, a rank without progress for 8 s restarts, and "
                     "ends after 12; gloo's timeout 10 s; a checkpoint every 5 rounds",
                     "[its guide](https://nvidia.github.io/nvidia-resiliency-ext/inprocess/usage_guide.html)",
                     script=(("TIMEOUT = timedelta(seconds=60)", "TIMEOUT = timedelta(seconds=10)"),
                             ("inprocess.Wrapper()", "inprocess.Wrapper(heartbeat_timeout=timedelta(seconds=5), "
                              "soft_timeout=timedelta(seconds=8), hard_timeout=timedelta(seconds=12))"), *_OFTEN))},
    saves="inprocess.py", base="in-process.yaml",
    trainer={"noticed": _ENDED + "|Interruption|RankShouldRestart", "nodes": {"rank": {"peers": "caught"}}},
    script=(_STEPS,))

_TORCHFT_DEFAULTS = Variant(
    "heartbeats may be away for 5 s, stragglers are waited for 60 s, and so are quorums and all-reduces", _DEFAULTS,
    commands=((" --join_timeout_ms 1000 --heartbeat_timeout_ms 2000", ""),),
    script=(("TIMEOUT = timedelta(seconds=10)", "TIMEOUT = timedelta(seconds=60)"),))
_TORCHFT_BEST = Variant(
    "heartbeats may be away for 2 s, stragglers are waited for 1 s, all-reduces 10 s; `TORCHFT_QUORUM_RETRIES=50`",
    "`torchft_lighthouse --help`, [Manager](https://docs.pytorch.org/torchft/manager.html); the retries: "
    "[found.md](found.md)", {"nodes": {"replica": {"env": {"TORCHFT_QUORUM_RETRIES": "50"}}}})


def _torchft(name: str, title: str, wanted: str, diloco: bool) -> Contestant:
    return Contestant(
        name, title, "torchft", (wanted, "numpy"), "2 replicas and the lighthouse"
        + (", an outer step every 4 steps" if diloco else ""),
        Roles(worker="replica-2", leader="replica-1", coordinator="lighthouse", link="replica-2",
              saver=_NO_CHECKPOINT),
        {"defaults": _TORCHFT_DEFAULTS, "best": _TORCHFT_BEST}, round_s=0.2 if diloco else 0.05,
        trainer={"noticed": r"got exception|heartbeat .*(expired|stale|timed out)|lighthouse quorum failed"},
        commands=(("train.py ddp", "train.py diloco"),) if diloco else ())


_STABLE, _NIGHTLY = "torchft==0.2.0", "torchft-nightly==2026.10.26"
_TORCHFT = (_torchft("torchft-ddp", "torchft DDP", _STABLE, False),
            _torchft("torchft-diloco", "torchft DiLoCo", _STABLE, True),
            _torchft("torchft-nightly-ddp", "torchft nightly DDP", _NIGHTLY, False),
            _torchft("torchft-nightly-diloco", "torchft nightly DiLoCo", _NIGHTLY, True))

_RAY = Contestant(
    "ray-train", "Ray Train", "ray-train", ("ray[train]==2.60.0",), "a head, 2 nodes with a worker each, and a driver",
    Roles(worker="node-2/worker-RayTrainWorker", leader="node-1", coordinator="head",
          link=Absent("Ray takes a loopback address for the machine's own one, where no proxy listens", exists=True),
          saver="node-1", midway={"node": "node-1", "file": "{run}/state/**/model.pt", "count": 4},
          files="{run}/state/*", newest="*/model.pt"),
    {"defaults": Variant("the controller looks every 2 s", _DEFAULTS),
     "best": Variant("the controller looks every 0.2 s (`RAY_TRAIN_HEALTH_CHECK_INTERVAL_S`); a checkpoint every 25 "
                     "rounds", "`ray/train/v2/_internal/constants.py`; [the example](../examples/ray-train/README.md)",
                     {"nodes": {"driver": {"env": {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2"}}}},
                     script=(("EVERY = 50\n", "EVERY = 25\n"),))},
    trainer={"noticed": r"RayActorError|ActorDiedError|WorkerGroupError|worker.*(died|dead)",
             "nodes": {"node": {"processes": {"worker": r"ray::(RayTrainWorker)\S*"},
                                "state": "{run}/state/checkpoints"}}},
    commands=(("127.0.0.1:6399 600 ", "127.0.0.1:6399 100000 "),))

_NO_LINK = Absent("its network is a static Go program, and no link leads through it", exists=True)

_HIVEMIND = Contestant(
    "hivemind", "hivemind", "hivemind", ("hivemind==1.1.12",), "2 peers, which average once in 30 steps each",
    Roles(worker="peer-2", leader="peer-1", link=_NO_LINK, saver=_NO_CHECKPOINT,
          coordinator=Absent("peers find each other in a hash table that they keep themselves")),
    {"defaults": Variant("an average waits 15 s for peers, and ends after 60 s", _DEFAULTS,
                         script=(("matchmaking_time=2.0, averaging_timeout=10.0", "matchmaking_time=15.0, "
                                  "averaging_timeout=60.0"),)),
     "best": Variant("an average waits 3 s for peers, and ends after 10 s",
                     "`hivemind.Optimizer`: \"3-5s for small local runs\", \"around of 2x the actual time\"",
                     script=(("matchmaking_time=2.0", "matchmaking_time=3.0"),))},
    round_s=2.4, trainer={"noticed": "Averaging gradients failed|could not find a group"})

_MONARCH = Contestant(
    "monarch", "torchmonarch", "monarch", ("torchmonarch==0.7.0",), "a driver and a mesh of 3 trainers",
    Roles(worker="driver/trainer-1", leader="driver", saver="driver",
          coordinator=Absent("the driver is leader and coordinator in one"),
          link=Absent("driver and trainers are one node, with no link between them", exists=True),
          midway={"node": "driver", "failpoint": "checkpoint.write", "count": 10}, held="step-*.pt"),
    {"defaults": Variant("a trainer that has not answered for 30 s is gone", _DEFAULTS),
     "best": Variant("a trainer that has not answered for 5 s is gone (`get_actor_state_max_idle`); a checkpoint "
                     "every 5 rounds", "`monarch.config.configure`",
                     script=(("    folder = Path(sys.argv[1])\n",
                              "    configure(get_actor_state_max_idle=\"5s\")\n    folder = Path(sys.argv[1])\n"),
                             ("from torch import nn\n", "from monarch.config import configure\nfrom torch import nn\n"),
                             *_OFTEN))},
    trainer={"noticed": "[Ss]upervision|KeyboardInterrupt"}, script=(_STEPS,))

CONTESTANTS = (_BUILT_IN, *_TORCHFT, _FT_LAUNCHER, _IN_PROCESS, _TORCHRUN, _RAY, _HIVEMIND, _MONARCH)
