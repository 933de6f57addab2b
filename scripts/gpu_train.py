# SPDX-License-Identifier: MIT
"""Trains a GPT-2 with pyggml or PyTorch, from the same weights on the same tokens; prints JSON.

    python scripts/gpu_train.py pyggml --device cuda:0 --weights w.npz
    python scripts/gpu_train.py torch  --device cuda:0 --weights w.npz

AdamW, clipped at 1, one batch a step. Losses of every step, the median time of those after
`--warmup`, tokens per second, and what the device reports as used at the end.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

LR, BETAS, EPS, DECAY, CLIP = 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0
SEED = 1


def tokens_of(args: argparse.Namespace, vocab: int) -> np.ndarray:
    """(steps, B, T + 1) token numbers in which each follows from the one before, half the time."""
    rng = np.random.default_rng(SEED)
    table = rng.integers(0, vocab, vocab)
    out = rng.integers(0, vocab, (args.steps, args.batch, args.context + 1))
    follows = rng.random(out.shape) < 0.5
    for t in range(1, out.shape[-1]):
        out[..., t] = np.where(follows[..., t], table[out[..., t - 1]], out[..., t])
    return out.astype(np.int32)


def config_of(args: argparse.Namespace) -> Any:
    from pyggml.models import GPT2Config

    vocab = 50257 if args.size.startswith("gpt2") else 512
    return GPT2Config.preset(args.size, vocab_size=vocab, context=args.context)


def weights_of(args: argparse.Namespace, config: Any) -> dict[str, np.ndarray]:
    """The weights of the file, which is written if it is not there."""
    if args.weights.exists():
        with np.load(args.weights) as stored:
            return dict(stored)
    import pyggml as pg
    from pyggml.models import GPT2

    pg.seed(SEED)
    weights = dict(GPT2(config).state_dict())
    np.savez(args.weights, **weights)
    return weights


def train_pyggml(args: argparse.Namespace) -> dict[str, Any]:
    import pyggml as pg
    from pyggml import optim
    from pyggml.models import GPT2
    from pyggml.train.step import TrainStep

    config = config_of(args)
    weights = weights_of(args, config)
    pg.set_default_device(args.device)
    model = GPT2(config)
    model.load_state_dict(weights)
    optimizer = optim.AdamW(model.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    precision = None if args.precision == "f32" else args.precision
    step = TrainStep(model, optimizer, clip=CLIP, precision=precision)

    data = tokens_of(args, config.vocab_size)
    losses, times = [], []
    for batch in data:
        start = time.perf_counter()
        result = step([(batch[:, :-1].copy(), batch[:, 1:].copy())])
        losses.append(float(result.loss))
        times.append(time.perf_counter() - start)
    out = summary(args, losses, times)
    device = pg.device(args.device)
    out["device_name"] = device.description
    if device.kind != "cpu":
        out["memory_used_bytes"] = device.memory_total - device.memory_free
    if args.profile:
        with pg.profile() as profile:
            step([(data[0][:, :-1].copy(), data[0][:, 1:].copy())])
        out["ops"] = [dataclasses.asdict(op) for op in profile.by_op()]
    return out


def torch_model(config: Any, weights: dict[str, np.ndarray]) -> Any:
    import torch
    from torch import nn
    from torch.nn import functional as F

    width, heads = config.n_embd, config.n_head

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1 = nn.LayerNorm(width, config.eps)
            self.c_attn = nn.Linear(width, 3 * width)
            self.attn_proj = nn.Linear(width, width)
            self.ln_2 = nn.LayerNorm(width, config.eps)
            self.c_fc = nn.Linear(width, 4 * width)
            self.mlp_proj = nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            parts = self.c_attn(self.ln_1(x)).view(b, t, 3, heads, c // heads).unbind(2)
            q, k, v = (p.transpose(1, 2) for p in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.attn_proj(y.transpose(1, 2).reshape(b, t, c))
            h = F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")
            return x + self.mlp_proj(h)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte = nn.Embedding(config.vocab_size, width)
            self.wpe = nn.Embedding(config.context, width)
            self.h = nn.ModuleList(Block() for _ in range(config.n_layer))
            self.ln_f = nn.LayerNorm(width, config.eps)

        def forward(self, x: Any, y: Any) -> Any:
            h = self.wte(x) + self.wpe.weight[: x.shape[1]]
            for block in self.h:
                h = block(h)
            logits = F.linear(self.ln_f(h), self.wte.weight)
            return F.cross_entropy(logits.flatten(0, 1).float(), y.flatten())

    model = Model()
    names = {"attn.c_attn": "c_attn", "attn.c_proj": "attn_proj"}
    names |= {"mlp.c_fc": "c_fc", "mlp.c_proj": "mlp_proj"}
    state = {}
    for key, value in weights.items():
        name = key.removeprefix("transformer.")
        array = torch.from_numpy(value)
        for ours, theirs in names.items():
            if f".{ours}." in name:
                name = name.replace(ours, theirs)
                array = array.T.contiguous() if array.ndim == 2 else array  # Conv1D keeps (in, out)
        state[name] = array
    model.load_state_dict(state)
    return model


def train_torch(args: argparse.Namespace) -> dict[str, Any]:
    import torch

    config = config_of(args)
    model = torch_model(config, weights_of(args, config)).to(args.device)
    run = torch.compile(model) if args.compile else model
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": DECAY}, {"params": rest, "weight_decay": DECAY}]
    fused = args.device.startswith("cuda")
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, fused=fused)
    kind = torch.device(args.device).type
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}.get(args.precision)

    losses, times = [], []
    for batch in tokens_of(args, config.vocab_size):
        start = time.perf_counter()
        x = torch.from_numpy(batch[:, :-1].astype(np.int64)).to(args.device)
        y = torch.from_numpy(batch[:, 1:].astype(np.int64)).to(args.device)
        with torch.autocast(kind, dtype=dtype, enabled=dtype is not None):
            loss = run(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        times.append(time.perf_counter() - start)
    out = summary(args, losses, times)
    out["version"] = torch.__version__
    if kind == "cuda":
        free, total = torch.cuda.mem_get_info()
        out["memory_used_bytes"] = total - free
        out["memory_peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
    return out


def summary(args: argparse.Namespace, losses: list[float], times: list[float]) -> dict[str, Any]:
    step_s = statistics.median(times[args.warmup :] or times)
    return {
        "framework": args.framework + (" compiled" if args.compile else ""),
        "size": args.size,
        "precision": args.precision,
        "batch": args.batch,
        "context": args.context,
        "losses": [round(x, 6) for x in losses],
        "step_ms": round(1e3 * step_s, 3),
        "tokens_per_s": round(args.batch * args.context / step_s, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("framework", choices=("pyggml", "torch"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--size", default="gpt2-124m", help="a preset of GPT2Config")
    parser.add_argument("--precision", default="bf16", choices=("bf16", "f32"))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--weights", type=Path, required=True, help="npz; written if missing")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--profile", action="store_true", help="one more step, by op (pyggml)")
    args = parser.parse_args()
    if args.warmup >= args.steps:
        parser.error(f"--warmup must be less than --steps; got {args.warmup} and {args.steps}")
    train = train_pyggml if args.framework == "pyggml" else train_torch
    print(json.dumps(train(args)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
