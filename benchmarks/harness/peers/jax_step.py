# SPDX-License-Identifier: MIT
"""A training step of GPT-2 in JAX: one jitted function, its state donated."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import model as shared

Params = dict[str, jax.Array]


class Step:
    def __init__(self, spec: shared.Spec) -> None:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_default_matmul_precision", "highest")
        self._params = {
            name: jnp.asarray(shared.read_weight(spec, name))
            for name, _, _ in shared.parameters(spec)
        }
        self._m = {name: jnp.zeros_like(p) for name, p in self._params.items()}
        self._v = {name: jnp.zeros_like(p) for name, p in self._params.items()}
        self._count = 0
        self._batch = shared.batch(spec)
        self._update = jax.jit(partial(update, spec), donate_argnums=(0, 1, 2))

    def __call__(self) -> float:
        self._count += 1
        self._params, self._m, self._v, loss = self._update(
            self._params, self._m, self._v, np.float32(self._count), *self._batch
        )
        jax.block_until_ready((self._params, self._m, self._v))
        return float(loss)


def linear(spec: shared.Spec, x: jax.Array, w: jax.Array, bias: Any = 0.0) -> jax.Array:
    if spec.dtype == "bf16":
        x, w = x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)
    return x @ w.T + jnp.asarray(bias, x.dtype)


def norm(x: jax.Array, p: Params, name: str) -> jax.Array:
    x = x.astype(jnp.float32)
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    variance = (centred * centred).mean(-1, keepdims=True)
    y = centred * jax.lax.rsqrt(variance + shared.NORM_EPS)
    return y * p[f"{name}.weight"] + p[f"{name}.bias"]


def block(spec: shared.Spec, p: Params, x: jax.Array) -> jax.Array:
    b, t, c = x.shape
    head = (b, t, spec.heads, c // spec.heads)
    y = norm(x, p, "ln_1")
    qkv = linear(spec, y, p["attn.c_attn.weight"], p["attn.c_attn.bias"])
    q, k, v = (a.reshape(head) for a in jnp.split(qkv, 3, axis=-1))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, c)
    x = x + linear(spec, y, p["attn.c_proj.weight"], p["attn.c_proj.bias"])
    y = linear(spec, norm(x, p, "ln_2"), p["mlp.c_fc.weight"], p["mlp.c_fc.bias"])
    y = jax.nn.gelu(y, approximate=True)
    return x + linear(spec, y, p["mlp.c_proj.weight"], p["mlp.c_proj.bias"])


def loss(spec: shared.Spec, params: Params, ids: jax.Array, targets: jax.Array) -> jax.Array:
    table = params["transformer.wte.weight"]
    x = table[ids] + params["transformer.wpe.weight"][jnp.arange(ids.shape[1])]
    run = partial(block, spec)
    run = jax.checkpoint(run) if spec.checkpointing else run
    for i in range(spec.layers):
        start = f"transformer.h.{i}."
        own = {k.removeprefix(start): v for k, v in params.items() if k.startswith(start)}
        x = run(own, x)
    logits = linear(spec, norm(x, params, "transformer.ln_f"), table).astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - chosen).mean()


def update(
    spec: shared.Spec,
    params: Params,
    m: Params,
    v: Params,
    count: jax.Array,
    ids: jax.Array,
    targets: jax.Array,
) -> tuple[Params, Params, Params, jax.Array]:
    value, grads = jax.value_and_grad(partial(loss, spec))(params, ids, targets)
    if spec.clip is not None:
        total = jnp.sqrt(sum(jnp.vdot(g, g) for g in grads.values()))
        factor = jnp.minimum(1.0, spec.clip / (total + 1e-6))
        grads = {name: g * factor for name, g in grads.items()}
    b1, b2 = shared.BETAS
    new: Params = {}
    new_m: Params = {}
    new_v: Params = {}
    for name, p in params.items():
        g = grads[name]
        new_m[name] = b1 * m[name] + (1 - b1) * g
        new_v[name] = b2 * v[name] + (1 - b2) * g * g
        step = new_m[name] / (1 - b1**count)
        step = step / (jnp.sqrt(new_v[name] / (1 - b2**count)) + shared.EPS)
        decay = shared.WEIGHT_DECAY if p.ndim >= 2 else 0.0
        new[name] = p * (1 - shared.LR * decay) - shared.LR * step
    return new, new_m, new_v, value
