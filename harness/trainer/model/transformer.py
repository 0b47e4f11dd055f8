"""The torch model behind a learner: forward pass, inner AdamW, held-out loss."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from diloco_chaos.harness.base.tensors import Array, Tensors
from diloco_chaos.harness.trainer.model.experts import BALANCE, feed_forward, mixture
from diloco_chaos.harness.trainer.model.replica import GRADIENT, OPTIMIZER, VALUE, StepEvidence, begun

if TYPE_CHECKING:
    from diloco_chaos.harness.base.device import Device
    from diloco_chaos.harness.record.tape.events import MemoryPart
    from diloco_chaos.harness.trainer.model.corpus import Corpus, Windows
    from diloco_chaos.harness.trainer.model.spec import ModelSpec

_CLIP = 1.0
_BETAS = (0.9, 0.99)
_WATCHED = 8
"""Coordinates of which evidence is kept."""


class Transformer:
    """Implements `harness.trainer.model.replica.Replica`. All parameters lie in one flat tensor, so that the
    optimizer's step is one fused call and a fragment is a set of views."""

    def __init__(self, spec: ModelSpec, values: Tensors, corpus: Corpus, learner: int, device: Device = "cpu",
                 autocast: bool = False, seed: int = 0) -> None:
        """`values`: a start, of which AdamW's moments may be part; `learner` is the 0-based shard. `seed`: decides of
        which coordinates evidence is kept.
        `autocast`: the forward pass of inner steps is in bfloat16 where torch holds that to be enough; weights,
        gradients, AdamW and held-out losses are in float32 nevertheless."""
        self._spec, self._corpus, self._learner = spec, corpus, learner
        self._device, self._autocast = torch.device(device), autocast
        shapes = spec.shapes()
        size = sum(int(np.prod(shape)) for shape in shapes.values())
        self._flat, self._grad, self._first, self._second = (torch.zeros(size, device=device) for _ in range(4))
        self._count = torch.tensor(0.0, device=device)
        watched = np.random.default_rng((seed, 3)).choice(size, _WATCHED, replace=False)
        self._watched = torch.from_numpy(watched).to(device)
        self._batch: tuple[Windows, Windows] = (np.zeros((0, 0), np.int64),) * 2  # that the gradient is of
        self._newest: tuple[torch.Tensor, torch.Tensor, float, tuple[Windows, Windows]] | None = None
        self._views: dict[str, torch.Tensor] = {}
        at = 0
        for name, shape in shapes.items():
            end = at + int(np.prod(shape))
            view = self._flat[at:end].view(shape).detach().requires_grad_(True)
            view.grad = self._grad[at:end].view(shape)
            self._views[name], at = view, end
        self.load(begun(values))

    def read(self, names: tuple[str, ...]) -> Tensors:
        """Copies of these tensors' current values."""
        return {name: _copied(self._views[name]) for name in names}

    def write(self, tensors: Tensors) -> None:
        """Overwrite these tensors; the inner optimizer's state stays."""
        with torch.no_grad():
            for name, array in tensors.items():
                self._views[name].copy_(torch.from_numpy(np.ascontiguousarray(array)))

    def train(self, position: int, lr: float) -> float:
        """One inner step on a batch of this shard; returns its loss in nats per byte, without that of balancing. NaN,
        and no step, where loss or gradient are not finite."""
        loss = self._backward(position)
        norm = float(self._grad.norm())
        if not (math.isfinite(loss) and math.isfinite(norm)):
            return math.nan
        self._step(lr, norm)
        return loss

    def gradient(self, position: int) -> tuple[float, Tensors]:
        """Loss and gradient of one batch, without a step: one flat array."""
        loss = self._backward(position)
        return loss, {GRADIENT: _copied(self._grad)}

    def apply(self, gradient: Tensors, lr: float) -> None:
        """One AdamW step with this flat gradient."""
        self._grad.copy_(torch.from_numpy(gradient[GRADIENT]))
        self._step(lr, float(self._grad.norm()))

    def state(self) -> Tensors:
        """The weights, and AdamW's moments and count."""
        weights = {VALUE + name: array for name, array in self.read(tuple(self._views)).items()}
        return weights | {name: _copied(tensor) for name, tensor in self._moments().items()}

    def load(self, state: Tensors) -> None:
        """Go on from there; without moments with fresh ones."""
        self.write({name.removeprefix(VALUE): array for name, array in state.items() if name.startswith(VALUE)})
        for name, tensor in self._moments().items():
            if name in state:
                tensor.copy_(torch.from_numpy(state[name]))
            else:
                tensor.zero_()

    def _moments(self) -> dict[str, torch.Tensor]:
        names = (OPTIMIZER + name for name in ("first", "second", "count"))
        return dict(zip(names, (self._first, self._second, self._count), strict=True))

    def damage(self, part: MemoryPart, change: Callable[[Array], None]) -> None:
        """The weights, or both of AdamW's moments."""
        hit = [self._flat] if part == "weights" else [self._first, self._second]
        memory = np.concatenate(list(map(_copied, hit)))
        change(memory)
        with torch.no_grad():
            for tensor, values in zip(hit, np.split(memory, len(hit)), strict=True):
                tensor.copy_(torch.from_numpy(values))

    def evidence(self) -> StepEvidence | None:
        """The newest step's, at the coordinates that are watched."""
        if self._newest is None:
            return None
        before, after, norm, windows = self._newest
        (*known, count), (*made, counted) = (_copied(part) for part in (before, after))
        batch = hashlib.blake2b(np.stack(windows).astype(np.uint8).tobytes(), digest_size=16).hexdigest()
        return StepEvidence(int(count), int(counted), batch, norm,
                            np.reshape(np.asarray([*known, *made], np.float32), (-1, _WATCHED)))

    def held_out_loss(self) -> float:
        """Mean loss on the held-out windows, nats per byte."""
        inputs, targets = self._corpus.held_out()
        with torch.no_grad():
            losses = [_cross_entropy(self.logits(self._there(inputs[at:at + 64])),
                                     self._there(targets[at:at + 64])).item() for at in range(0, len(inputs), 64)]
        return float(np.mean(losses))

    def _backward(self, position: int) -> float:
        self._batch = inputs, targets = self._corpus.batch(self._learner, position)
        self._grad.zero_()
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._autocast):
            logits, balance = self._forward(self._there(inputs))
            loss = _cross_entropy(logits, self._there(targets))
        (loss + BALANCE * balance).backward()  # type: ignore[no-untyped-call]
        return float(loss.item())

    def _there(self, windows: Windows) -> torch.Tensor:
        return torch.from_numpy(windows).to(self._device)

    def _step(self, lr: float, norm: float) -> None:
        """AdamW (betas .9 and .99, no decay), the gradient, of which this is the norm, clipped to norm 1."""
        before = self._seen(self._flat, self._first, self._second, self._grad)
        if norm > _CLIP:
            self._grad.mul_(_CLIP / norm)
        self._count += 1
        torch._fused_adamw_([self._flat], [self._grad], [self._first], [self._second], [], [self._count],
                            lr=lr, beta1=_BETAS[0], beta2=_BETAS[1], weight_decay=0.0, eps=1e-8, amsgrad=False,
                            maximize=False)
        self._newest = before, self._seen(self._flat, self._first, self._second), norm, self._batch

    def _seen(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Copies of these where they are watched, one after the other, and AdamW's count; they stay on the device,
        which is not waited for."""
        return torch.cat([*(tensor.detach()[self._watched] for tensor in tensors), self._count.view(1)])

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """The forward pass: bytes [batch, context] to logits [batch, context, 256]."""
        return self._forward(inputs)[0]

    def _forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits, and the load-balancing losses of all blocks together; 0 where there are no experts."""
        spec, views = self._spec, self._views
        balance = torch.zeros((), device=self._device)
        batch, context = inputs.shape
        width, heads = spec.width, spec.heads
        hidden = views["embed.token"][inputs] + views["embed.position"]
        for index in range(spec.blocks):
            def weight(name: str, block: int = index) -> torch.Tensor:
                return views[f"block{block}.{name}"]
            normed = F.layer_norm(hidden, (width,), weight("norm1"))
            query, key, value = F.linear(normed, weight("qkv")).view(
                batch, context, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            hidden = hidden + F.linear(mixed.transpose(1, 2).reshape(batch, context, width), weight("proj"))
            normed = F.layer_norm(hidden, (width,), weight("norm2"))
            if spec.experts:
                made, uneven = mixture(normed, weight, spec.experts, spec.top_k)
                hidden, balance = hidden + made, balance + uneven
            else:
                hidden = hidden + feed_forward(normed, weight("up"), weight("down"))
        return F.linear(F.layer_norm(hidden, (width,), views["norm"]), views["head"]), balance


def _copied(tensor: torch.Tensor) -> Array:
    copy: Array = tensor.detach().cpu().numpy().copy()
    return copy


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
