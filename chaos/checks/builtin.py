"""The checks that every run is judged by, in the order of the report."""

from __future__ import annotations

from diloco_chaos.chaos.checks.attention import nobody_starves, silence_noticed
from diloco_chaos.chaos.checks.diloco.arithmetic import arithmetic_correct
from diloco_chaos.chaos.checks.diloco.donors import recovered_from_peers
from diloco_chaos.chaos.checks.diloco.inner_steps import inner_steps_correct
from diloco_chaos.chaos.checks.diloco.protocol import (
    exactly_once,
    staleness_bounded,
)
from diloco_chaos.chaos.checks.diloco.quorum import quorum_respected
from diloco_chaos.chaos.checks.diloco.replicas import replica_consistency
from diloco_chaos.chaos.checks.diloco.totals import learning_rate_correct, processed_correct
from diloco_chaos.chaos.checks.diloco.turns import fragments_in_turn
from diloco_chaos.chaos.checks.diloco.weights import weights_correct
from diloco_chaos.chaos.checks.ends import end_correct, no_unplanned_exit, restarts
from diloco_chaos.chaos.checks.left_behind import left_behind
from diloco_chaos.chaos.checks.liveness import (
    blast_radius,
    participation,
    reintegration,
    self_healing,
)
from diloco_chaos.chaos.checks.outcome import all_undone, faults_verified, goodput, loss_parity
from diloco_chaos.chaos.checks.phases import noticed_within, recovered_within
from diloco_chaos.chaos.checks.stalls import no_global_stall, uptime
from diloco_chaos.chaos.checks.told.digests import digests_agree
from diloco_chaos.chaos.checks.told.losses import (
    losses_are_numbers,
    members_agree,
    rounds_repeat,
    same_as_uninterrupted,
)
from diloco_chaos.chaos.checks.told.resumed import resumed
from diloco_chaos.chaos.checks.told.rounds import none_left_out, round_quorum, rounds_never_go_back
from diloco_chaos.chaos.checks.told.samples import samples_once

CHECKS = (no_global_stall, self_healing, reintegration, noticed_within, recovered_within, participation, blast_radius,
          uptime, goodput, loss_parity, losses_are_numbers, members_agree, digests_agree, rounds_repeat,
          same_as_uninterrupted, samples_once, rounds_never_go_back, resumed, none_left_out, round_quorum,
          exactly_once, replica_consistency, weights_correct, processed_correct, learning_rate_correct,
          arithmetic_correct, inner_steps_correct, quorum_respected, staleness_bounded, fragments_in_turn,
          nobody_starves, silence_noticed, recovered_from_peers, end_correct, no_unplanned_exit, restarts, left_behind,
          faults_verified, all_undone)
