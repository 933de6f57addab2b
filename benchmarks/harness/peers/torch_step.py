# SPDX-License-Identifier: MIT
"""A training step of GPT-2 in PyTorch, eager: fused attention, fused AdamW."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .. import model as shared


class Attention(nn.Module):
    def __init__(self, embd: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(embd, 3 * embd)
        self.c_proj = nn.Linear(embd, embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        parts = self.c_attn(x).split(c, dim=2)
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: torch.Tensor = self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return out


class MLP(nn.Module):
    def __init__(self, embd: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(embd, 4 * embd)
        self.c_proj = nn.Linear(4 * embd, embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))
        return out


class Block(nn.Module):
    def __init__(self, embd: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(embd, shared.NORM_EPS)
        self.attn = Attention(embd, heads)
        self.ln_2 = nn.LayerNorm(embd, shared.NORM_EPS)
        self.mlp = MLP(embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        out: torch.Tensor = x + self.mlp(self.ln_2(x))
        return out


class GPT2(nn.Module):
    def __init__(self, spec: shared.Spec) -> None:
        super().__init__()
        self.checkpointing = spec.checkpointing
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(spec.vocab, spec.embd),
                "wpe": nn.Embedding(spec.seq, spec.embd),
                "h": nn.ModuleList(Block(spec.embd, spec.heads) for _ in range(spec.layers)),
                "ln_f": nn.LayerNorm(spec.embd, shared.NORM_EPS),
            }
        )

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        body = self.transformer
        x = body["wte"](ids) + body["wpe"](torch.arange(ids.shape[1]))
        for block in body["h"]:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        logits = F.linear(body["ln_f"](x), body["wte"].weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class Step:
    compiled = False

    def __init__(self, spec: shared.Spec) -> None:
        torch.set_num_threads(spec.threads)
        torch.set_float32_matmul_precision("highest")
        with torch.device("meta"):  # the first weights come from the files
            self.model = GPT2(spec)
        self.model.to_empty(device="cpu")
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(torch.from_numpy(shared.read_weight(spec, name)))
        params = list(self.model.parameters())
        groups: list[dict[str, Any]] = [
            {
                "params": [p for p in params if p.ndim >= 2],
                "weight_decay": shared.WEIGHT_DECAY,
            },
            {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups, shared.LR, betas=shared.BETAS, eps=shared.EPS, fused=True
        )
        self._loss = torch.compile(self.model) if self.compiled else self.model
        self._params = params
        self._clip = spec.clip
        self._bf16 = spec.dtype == "bf16"
        self._batch = shared.batch(spec)

    def __call__(self) -> float:
        ids, targets = (torch.from_numpy(a).long() for a in self._batch)
        with torch.autocast("cpu", torch.bfloat16) if self._bf16 else contextlib.nullcontext():
            loss = self._loss(ids, targets)
        loss.backward()
        if self._clip is not None:
            torch.nn.utils.clip_grad_norm_(self._params, self._clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())
