# SPDX-License-Identifier: MIT
"""A fine-tuning step in PyTorch: Transformers' model, PEFT's LoRA on all linear layers."""

from __future__ import annotations

from typing import Any

import torch

from .. import tuned
from ..contract import NotSupportedError


class Step:
    """Does steps on a folder of bf16 weights."""

    def __init__(self, order: dict[str, Any]) -> None:
        try:
            from peft import LoraConfig, get_peft_model
            from transformers import AutoModelForCausalLM
        except ModuleNotFoundError as error:
            raise NotSupportedError(f"needs {error.name}") from error
        spec = tuned.Spec(**order["spec"])
        torch.set_num_threads(order["threads"])
        torch.manual_seed(spec.seed)
        dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[spec.torch_dtype]
        model = AutoModelForCausalLM.from_pretrained(order["path"], dtype=dtype)
        if spec.checkpointing:
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
        config = LoraConfig(
            r=spec.rank, lora_alpha=spec.rank, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        self._model = get_peft_model(model, config).train()
        trained = [p for p in self._model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(trained, lr=spec.lr, weight_decay=0.0)
        x, y = tuned.batch(spec)
        self._ids, self._targets = torch.from_numpy(x).long(), torch.from_numpy(y).long()

    def __call__(self) -> float:
        """Do a step, and return its loss."""
        logits = self._model(self._ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), self._targets.flatten()
        )
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.detach())
