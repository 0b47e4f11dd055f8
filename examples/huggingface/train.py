"""A language model trained by Hugging Face's Trainer on one processor, with nothing of diloco-chaos in it.

    python train.py FOLDER      trains to the end; its checkpoints are in FOLDER, and it goes on from the newest
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

STEPS = 160
BATCH_S = 0.015     # to read a sample's share of a batch takes this long: a step takes as long as that of a model
VOCABULARY = 61


class Text(Dataset):
    """Sequences in which each token is the one before plus one, two or three."""

    def __init__(self, length: int) -> None:
        steps = torch.randint(1, 4, (length, 17), generator=torch.Generator().manual_seed(0))
        self.tokens = torch.cumsum(steps, dim=1) % VOCABULARY

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(BATCH_S / 4)
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Steps(TrainerCallback):
    """Print what Trainer logs, with the number of the step, which its own lines lack."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        """Print one step's line."""
        if "loss" in logs:
            print(f"step={state.global_step} loss={logs['loss']} lr={logs['learning_rate']}", flush=True)


def trainer(folder: Path) -> Trainer:
    """Everything that is to be trained, and how."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=STEPS, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        learning_rate=1e-2, warmup_steps=20, save_steps=20, logging_steps=1, logging_nan_inf_filter=False,
        disable_tqdm=True, report_to="none", use_cpu=True, enable_jit_checkpoint=True)
    return Trainer(model, arguments, train_dataset=Text(400), callbacks=[Steps()])


def main() -> None:
    """See the module."""
    folder = Path(sys.argv[1])
    trainer(folder).train(resume_from_checkpoint=any(folder.glob("checkpoint-*")))


if __name__ == "__main__":
    main()
