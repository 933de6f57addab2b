# SPDX-License-Identifier: MIT
"""Trains a GPT-2 with pyggml or PyTorch, from the same weights on the same tokens; prints JSON.

    python scripts/gpu_train.py weights --weights w.npz       made on the CPU, by pyggml
    python scripts/gpu_train.py pyggml --device cuda:0 --weights w.npz
    python scripts/gpu_train.py torch  --device cuda:0 --weights w.npz    needs no pyggml
    python scripts/gpu_train.py qlora  --device cuda:0        adapters on a q4_K model, by pyggml

The last one has no peer here: it trains LoRA of rank 16 on every linear layer of a model of
Qwen2.5-1.5B's sizes, whose matrices are random and q4_K, and stay so.

Both sides: AdamW with decay of all parameters, gradients clipped at 1, one batch a step that is
copied to the device within the step's time, the loss read in every step, attention that stores no
T x T scores, a head tied to the embedding, f32 weights and moments; f32 products without TF32, or
bf16 products by each side's autocast. A step's time ends when the device has done all of it.

Each line that is printed is the whole of what is known so far, the last one is the result: losses
of all steps, the median time of those after `--warmup`, tokens per second, and the most memory that
the device reported as used after a step.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

LR, BETAS, EPS, DECAY, CLIP = 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0
SEED = 1
# what is taken where it is not told: the GPT-2, and the quantised model
SIZES = {"gpt2": ("gpt2-124m", 16, 50), "qlora": ("qwen2-1.5b", 8, 30)}
RANK, ALPHA, LORA_LR = 16, 32.0, 1e-3
# tokens that the quantised model sees: few, as a frozen random table can tell little of many
SEEN = 64
# random blocks of 256 numbers that are quantised, and of which all matrices are put together
BLOCKS = 2**16


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
    return GPT2Config.preset(
        args.size, vocab_size=vocab, context=args.context, attention=args.attention
    )


def write_weights(args: argparse.Namespace) -> None:
    """Write the file of weights, with the sizes of their model."""
    import pyggml as pg
    from pyggml.models import GPT2

    config = config_of(args)
    pg.seed(SEED)
    weights = dict(GPT2(config).state_dict())
    part = args.weights.with_suffix(".part.npz")  # one that is cut short is not taken for whole
    np.savez(part, config=json.dumps(dataclasses.asdict(config)), **weights)
    part.replace(args.weights)


def weights_of(args: argparse.Namespace) -> tuple[Any, dict[str, np.ndarray]]:
    """The sizes and the weights of the file, which is written if it is not there."""
    if not args.weights.exists():
        write_weights(args)
    with np.load(args.weights) as stored:
        weights = dict(stored)
    config = SimpleNamespace(**json.loads(str(weights.pop("config"))))
    if config.context != args.context:
        raise SystemExit(
            f"gpu_train: {args.weights} has a context of {config.context}; got --context"
            f" {args.context}: name another file"
        )
    return config, weights


class Run:
    """What is known of a training, told as it grows: one that is ended early has told the rest."""

    def __init__(self, args: argparse.Namespace, memory_used: Callable[[], int] | None) -> None:
        self.args = args
        self.more: dict[str, Any] = {}
        self._losses: list[float] = []
        self._times: list[float] = []
        self._memory_used = memory_used
        if memory_used:
            self.more["memory_before_bytes"] = memory_used()
            self.more["memory_used_bytes"] = 0

    def add(self, loss: float, seconds: float) -> None:
        self._losses.append(loss)
        self._times.append(seconds)
        if self._memory_used:
            used = self._memory_used()
            self.more["memory_used_bytes"] = max(self.more["memory_used_bytes"], used)
        if len(self._losses) in (1, self.args.steps) or len(self._losses) % 10 == 0:
            self.tell()

    def tell(self) -> None:
        args = self.args
        warm = self._times[args.warmup :]
        step_s = statistics.median(warm or self._times)
        framework = args.framework.replace("qlora", "pyggml qlora")
        framework += " compiled" if args.compile else ""
        told = {
            "framework": framework + (" plain" if args.attention == "plain" else ""),
            "model": "llama of q4_K" if args.framework == "qlora" else "gpt2",
            "size": args.size,
            "precision": args.precision,
            "batch": args.batch,
            "context": args.context,
            "steps": len(self._losses),
            "wanted_steps": args.steps,
            "is_warm": bool(warm),
            # JSON has no NaN: null, by which scripts/gpu_judge.py fails the training
            "losses": [round(x, 6) if math.isfinite(x) else None for x in self._losses],
            "first_step_ms": round(1e3 * self._times[0], 3),
            "step_ms": round(1e3 * step_s, 3),
            "step_ms_range": [round(1e3 * f(warm or self._times), 3) for f in (min, max)],
            "tokens_per_s": round(args.batch * args.context / step_s, 1),
        }
        print(json.dumps(told | self.more, allow_nan=False), flush=True)


def started(args: argparse.Namespace) -> Run:
    """A run of pyggml on its device."""
    import pyggml as pg

    pg.set_default_device(args.device)
    device = pg.device(args.device)
    on_gpu = device.kind != "cpu"
    run = Run(args, (lambda: device.memory_total - device.memory_free) if on_gpu else None)
    run.more["device_name"] = device.description
    run.more["variables"] = {k: v for k, v in os.environ.items() if k.startswith("GGML_")}
    return run


def train_pyggml(args: argparse.Namespace) -> None:
    from pyggml import optim
    from pyggml.models import GPT2

    _, weights = weights_of(args)
    config = config_of(args)
    run = started(args)
    model = GPT2(config)
    model.load_state_dict(weights)
    optimizer = optim.AdamW(model.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    take_steps(args, run, model, optimizer, tokens_of(args, config.vocab_size))


def take_steps(
    args: argparse.Namespace, run: Run, model: Any, optimizer: Any, data: np.ndarray
) -> None:
    """Train, a batch of data for each step, and tell of it."""
    import pyggml as pg
    from pyggml.train.step import TrainStep

    precision = None if args.precision == "f32" else args.precision
    step = TrainStep(model, optimizer, clip=CLIP, precision=precision)
    for batch in data:
        start = time.perf_counter()
        # returns when the update is done: ggml's scheduler waits for the device after each graph
        result = step([(batch[:, :-1].copy(), batch[:, 1:].copy())])
        loss_now = float(result.loss)
        seconds = time.perf_counter() - start
        run.more["fallbacks"] = step.fallbacks
        run.add(loss_now, seconds)
    if args.profile:
        with pg.profile() as profile:
            step([(data[0][:, :-1].copy(), data[0][:, 1:].copy())])
        run.more["ops"] = [dataclasses.asdict(op) for op in profile.by_op()]
        run.tell()
        if args.trace:
            profile.save_trace(args.trace)


def train_qlora(args: argparse.Namespace) -> None:
    import pyggml as pg
    from pyggml import nn, optim
    from pyggml.models import Llama, LlamaConfig

    more: dict[str, Any] = {"context": args.context, "attention": args.attention}
    if args.size == "tiny":  # rows of q4_K are multiples of 256
        more |= {"n_embd": 256, "n_head": 4, "n_kv_head": 2, "n_ffn": 512, "vocab_size": 512}
        more |= {"family": "qwen2", "n_layer": 2}
    config = LlamaConfig.preset(args.size, **more)
    run = started(args)
    start = time.perf_counter()
    with nn.init.empty_weights("q4_K"):
        model = Llama(config)
    fill(model)
    pg.seed(SEED)
    paths = nn.apply_lora(model, RANK, ALPHA, targets="all-linear")
    run.more |= {
        "weights_s": round(time.perf_counter() - start, 3),
        "parameters": model.num_parameters(),
        "weights_bytes": sum(p.nbytes for p in model.parameters() if not p.requires_grad),
        "adapters": len(paths),
        "trained": model.num_parameters(trainable_only=True),
    }
    optimizer = optim.AdamW(model.parameters(), lr=LORA_LR, betas=BETAS, eps=EPS, weight_decay=0.0)
    take_steps(args, run, model, optimizer, tokens_of(args, SEEN))


def fill(model: Any) -> None:
    """Give each quantised matrix random blocks, without a whole one of f32 at any time."""
    from pyggml.backend import dtypes

    rng = np.random.default_rng(SEED)
    drawn = 0.02 * rng.standard_normal((BLOCKS, 256), np.float32)
    pools: dict[str, np.ndarray] = {}
    for name, p in list(model.named_parameters()):
        if not p.dtype.quantized:
            continue
        kind = p.dtype
        if kind.name not in pools:
            pools[kind.name] = dtypes.encode(drawn, kind).reshape(BLOCKS, -1)
        at = rng.integers(0, BLOCKS, (p.shape[0], p.shape[1] // 256))
        rows = pools[kind.name][at].reshape(p.shape[0], -1)
        model.load_state_dict({name: rows}, strict=False)


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


def train_torch(args: argparse.Namespace) -> None:
    import torch

    on_gpu = torch.device(args.device).type == "cuda"
    torch.set_float32_matmul_precision("high" if args.precision == "tf32" else "highest")
    if on_gpu:
        torch.cuda.set_device(args.device)
        torch.backends.cuda.enable_math_sdp(False)  # an error rather than T x T scores unseen

    def memory_used() -> int:
        free, total = torch.cuda.mem_get_info()
        return int(total - free)

    config, weights = weights_of(args)
    run = Run(args, memory_used if on_gpu else None)
    run.more["version"] = torch.__version__
    model = torch_model(config, weights).to(args.device)
    compute = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY, fused=on_gpu
    )
    dtype = torch.bfloat16 if args.precision == "bf16" else None

    for batch in tokens_of(args, config.vocab_size):
        start = time.perf_counter()
        x = torch.from_numpy(batch[:, :-1].astype(np.int64)).to(args.device)
        y = torch.from_numpy(batch[:, 1:].astype(np.int64)).to(args.device)
        with torch.autocast("cuda" if on_gpu else "cpu", dtype=dtype, enabled=dtype is not None):
            loss = compute(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss_now = loss.item()
        if on_gpu:
            torch.cuda.synchronize()
            run.more["memory_peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        run.add(loss_now, time.perf_counter() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("framework", choices=("weights", "pyggml", "torch", "qlora"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--size", help="a preset: of GPT2Config, gpt2-124m; of qlora qwen2-1.5b")
    parser.add_argument("--precision", default="bf16", choices=("bf16", "tf32", "f32"))
    parser.add_argument("--steps", type=int, help="50; of qlora 30")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--batch", type=int, help="16; of qlora 8")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--attention", default="flash", choices=("flash", "plain"))
    parser.add_argument("--weights", type=Path, help="npz; written if missing; not of qlora")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--profile", action="store_true", help="one more step, by op (pyggml)")
    parser.add_argument("--trace", type=Path, help="where the profile goes, for chrome://tracing")
    args = parser.parse_args()
    size, batch, steps = SIZES["qlora" if args.framework == "qlora" else "gpt2"]
    args.size, args.batch, args.steps = args.size or size, args.batch or batch, args.steps or steps
    if args.framework != "qlora" and args.weights is None:
        parser.error(f"--weights must name a file for {args.framework}")
    if args.warmup >= args.steps:
        parser.error(f"--warmup must be less than --steps; got {args.warmup} and {args.steps}")
    work = {"weights": write_weights, "pyggml": train_pyggml, "torch": train_torch}
    work["qlora"] = train_qlora
    work[args.framework](args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
