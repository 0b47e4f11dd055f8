"""A mixture of experts in place of a block's feed-forward layer: every token goes to the k experts that its router
ranks first (top-1: arXiv 2101.03961; top-2: arXiv 2006.16668)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812

BALANCE = 0.01
"""Weight of the load-balancing loss beside the loss itself."""


def feed_forward(hidden: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """[..., width] to [..., width], squared ReLU in between."""
    return F.linear(F.relu(F.linear(hidden, up)).square(), down)


def mixture(hidden: torch.Tensor, weight: Callable[[str], torch.Tensor], experts: int,
            top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the chosen experts make of each token, and this batch's load-balancing loss.

    Args:
        hidden: [..., width].
        weight: `router` [experts, width], and `expert<e>.up` and `.down` of each.
        experts: how many there are.
        top_k: experts per token. 1: its output weighs what the router gives it; more: the weights add up to one.

    The balancing loss is experts * sum_e (share of the choices that fell on e) * (mean chance of e): 1 where all are
    used alike. It is of one learner's own batch: learners that route differently are merged like all else.
    """
    tokens = hidden.reshape(-1, hidden.shape[-1])
    chances = F.linear(tokens, weight("router")).softmax(-1, tokens.dtype)  # with autocast, too
    gates, chosen = chances.topk(top_k)
    if top_k > 1:
        gates = gates / gates.sum(-1, keepdim=True)
    made = torch.zeros_like(tokens)
    for expert in range(experts):
        token, place = (chosen == expert).nonzero(as_tuple=True)
        given = feed_forward(tokens[token], weight(f"expert{expert}.up"), weight(f"expert{expert}.down"))
        made = made.index_add(0, token, given * gates[token, place, None])
    load = torch.bincount(chosen.flatten(), minlength=experts) / chosen.numel()
    return made.view_as(hidden), experts * (load * chances.mean(0)).sum()
