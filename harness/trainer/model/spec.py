"""The model's shapes and initial values, without torch: the syncer needs no more than these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diloco_chaos.harness.base.tensors import Tensors, np
from diloco_chaos.harness.trainer.algorithm.fragments import Shape
from diloco_chaos.harness.trainer.model.quadratic import QuadraticSpec

VOCABULARY = 256  # bytes


@dataclass(frozen=True)
class ModelSpec:
    """A byte-level decoder-only transformer: pre-norm, learned positions, squared-ReLU, no biases, untied output;
    dense, or with a mixture of experts in every block."""

    width: int
    blocks: int
    heads: int
    context: int
    experts: int = 0
    """Of every block, each half as wide as a dense block's feed-forward layer; 0: dense."""
    top_k: int = 1
    """Experts that a token goes to."""
    loss_unit: ClassVar[str] = "nats per byte"

    def shapes(self) -> dict[str, Shape]:
        """Return every tensor's shape, by name, in the order of the forward pass."""
        width = self.width
        shapes: dict[str, Shape] = {"embed.token": (VOCABULARY, width), "embed.position": (self.context, width)}
        for index in range(self.blocks):
            shapes |= {f"block{index}.{name}": shape for name, shape in {
                "norm1": (width,), "qkv": (3 * width, width), "proj": (width, width), "norm2": (width,),
                **self._feed_forward()}.items()}
        return shapes | {"norm": (width,), "head": (VOCABULARY, width)}

    def _feed_forward(self) -> dict[str, Shape]:
        width = self.width
        if not self.experts:
            return {"up": (4 * width, width), "down": (width, 4 * width)}
        shapes: dict[str, Shape] = {"router": (self.experts, width)}
        for expert in range(self.experts):
            shapes |= {f"expert{expert}.up": (2 * width, width), f"expert{expert}.down": (width, 2 * width)}
        return shapes

    def embeddings(self) -> frozenset[str]:
        """Tensors that are looked up, not multiplied: merged by plain weighted average."""
        return frozenset({"embed.token", "embed.position"})

    def initial(self, seed: int) -> Tensors:
        """Initial values: norms 1, matrices normal with deviation 0.02, those that end a block scaled by depth."""
        random = np.random.default_rng(seed)
        values: Tensors = {}
        for name, shape in self.shapes().items():
            if "norm" in name:
                values[name] = np.ones(shape, np.float32)
                continue
            scale = 0.02 / np.sqrt(2 * self.blocks) if name.endswith((".proj", ".down")) else 0.02
            values[name] = (random.standard_normal(shape) * scale).astype(np.float32)
        return values


MODELS: dict[str, ModelSpec | QuadraticSpec] = {
    "tiny": ModelSpec(width=64, blocks=2, heads=4, context=64),  # 135,488 parameters, 11 to 16 ms a step at batch 16
    "micro": ModelSpec(width=16, blocks=1, heads=2, context=16),  # for tests: 11,568 parameters, under 2 ms a step
    "small": ModelSpec(width=24, blocks=2, heads=2, context=64),  # 27,768 parameters: a fifth of `tiny`
    "large": ModelSpec(width=128, blocks=2, heads=8, context=64),  # 467,584 parameters: three and a half times `tiny`
    "deep": ModelSpec(width=32, blocks=8, heads=2, context=64),  # 117,280 parameters, many tensors: for P = 24
    "top1": ModelSpec(width=64, blocks=2, heads=4, context=64, experts=4, top_k=1),
    "top2": ModelSpec(width=64, blocks=2, heads=4, context=64, experts=4, top_k=2),
    "quadratic": QuadraticSpec(width=4, blocks=6, context=64),  # no torch, no corpus: microseconds a step
    "quadratic24": QuadraticSpec(width=8, blocks=22, context=64),  # the same in 24 tensors of 64 values: for P = 24
}
