# SPDX-License-Identifier: MIT
"""The Llama family in Hugging Face's state dicts: experts, and norms of heads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from .config import LlamaConfig

__all__ = ["to_ours", "to_theirs"]

T = TypeVar("T")

# Mixtral's names of an expert's matrices.
_MIXTRAL = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
_STACKED = re.compile(r"(.*\.)(block_sparse_moe|mlp)\.experts\.(\w+_proj)\.weight")
_SINGLE = re.compile(r"(.*\.)(block_sparse_moe|mlp)\.experts\.(\d+)\.(\w+)\.weight")
# gpt-oss: one tensor for all experts, transposed, with the rows of gate and up by turns.
_CLAMPED = re.compile(r"(.*\.mlp)\.experts\.(gate_up|down)_proj(_bias)?")
# The numbers of four bits, of which the highest is the sign.
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_FP4 = np.concatenate([_FP4, -_FP4])
# StableLM 2: a norm for each head.
_HEAD_NORM = re.compile(r"(.*\.)([qk])_layernorm\.norms\.(\d+)\.weight")


def to_theirs(config: LlamaConfig, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a state under Hugging Face's names and in its layouts."""
    if config.traits.clamped:
        return _fuse_clamped(state)
    if config.traits.qk_norm == "each":
        return _split_norms(state)
    if config.traits.renamed:
        return _renamed(state, config.traits.renamed)
    return _split_experts(state)


def to_ours(config: LlamaConfig, state: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    """Return a state under the model's names; the inverse of `to_theirs`.

    Raises:
        KeyError: an expert or a head between two others is missing.
    """
    if config.traits.clamped:
        return _part_clamped(state)
    if config.traits.qk_norm == "each":
        return _merge_norms(state)
    if config.traits.renamed:
        return _renamed(state, {there: own for own, there in config.traits.renamed.items()})
    return _merge_experts(state)


def _renamed(state: Mapping[str, T], parts: Mapping[str, str]) -> dict[str, T]:
    """Return a state with parts of its names replaced."""
    renamed: dict[str, T] = {}
    for name, array in state.items():
        found = next((part for part in parts if part in name), None)
        renamed[name if found is None else name.replace(found, parts[found])] = array
    return renamed


def _split_experts(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Name the matrices of experts one by one, as Hugging Face's files do."""
    split: dict[str, np.ndarray] = {}
    for name, array in state.items():
        found = _STACKED.fullmatch(name)
        if found is None:
            split[name] = array
            continue
        layer, part, own = found.groups()
        own = _MIXTRAL[own] if part == "block_sparse_moe" else own
        for j, matrix in enumerate(array):
            split[f"{layer}{part}.experts.{j}.{own}.weight"] = np.ascontiguousarray(matrix)
    return split


def _merge_experts(state: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    """Stack the matrices of experts; the inverse of `_split_experts`.

    Raises:
        KeyError: an expert between two others is missing.
    """
    own_names = {theirs: own for own, theirs in _MIXTRAL.items()}
    merged: dict[str, ArrayLike] = {}
    stacks: dict[str, dict[int, ArrayLike]] = {}
    for name, array in state.items():
        found = _SINGLE.fullmatch(name)
        if found is None:
            merged[name] = array
            continue
        layer, part, number, own = found.groups()
        stack = f"{layer}{part}.experts.{own_names.get(own, own)}.weight"
        stacks.setdefault(stack, {})[int(number)] = array
    return {**merged, **_stacked(stacks, "experts")}


def _fuse_clamped(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Name and lay out gpt-oss's experts as Hugging Face does."""
    fused: dict[str, np.ndarray] = {}
    for name, given in state.items():
        array, (layer, _, own) = given, name.partition(".mlp.")
        if own.startswith("gate."):
            fused[f"{layer}.mlp.router.{own.removeprefix('gate.')}"] = array
            continue
        if not own.startswith("experts."):
            fused[name] = array
            continue
        _, part, kind = own.split(".")
        if part == "up_proj":
            continue  # with the gate
        there = f"{layer}.mlp.experts.{part.replace('gate_', 'gate_up_')}"
        if part == "gate_proj":
            up = state[f"{layer}.mlp.experts.up_proj.{kind}"]
            both = np.stack([array, up], axis=2)  # (E, F, 2) or (E, F, 2, C)
            array = both.reshape(array.shape[0], -1, *array.shape[2:])
        if kind == "bias":
            fused[f"{there}_bias"] = array
        else:
            fused[there] = np.ascontiguousarray(array.swapaxes(1, 2))
    return fused


def _part_clamped(state: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    """Lay out gpt-oss's experts as the model has them; the inverse of `_fuse_clamped`."""
    parted: dict[str, ArrayLike] = {}
    for name, given in _unpacked(state):
        found = _CLAMPED.fullmatch(name)
        if found is None:
            parted[name.replace(".mlp.router.", ".mlp.gate.")] = given
            continue
        layer, part, bias = found.groups()
        array = np.asarray(given)
        kind = "bias" if bias else "weight"
        array = array if bias else array.swapaxes(1, 2)
        if part == "down":
            parted[f"{layer}.experts.down_proj.{kind}"] = np.ascontiguousarray(array)
            continue
        for offset, own in enumerate(("gate_proj", "up_proj")):
            parted[f"{layer}.experts.{own}.{kind}"] = np.ascontiguousarray(array[:, offset::2])
    return parted


def _unpacked(state: Mapping[str, ArrayLike]) -> Iterator[tuple[str, ArrayLike]]:
    """Yield the tensors of a state, those of MXFP4 as numbers.

    Their blocks (E, M, C / 32, 16) have two numbers in a byte, the first in the low half, and their
    scales (E, M, C / 32) are exponents of 2 with a bias of 127.

    Raises:
        KeyError: blocks without scales.
    """
    for key, given in state.items():
        if key.endswith("_scales"):
            continue
        if not key.endswith("_blocks"):
            yield key, given
            continue
        name = key.removesuffix("_blocks")
        if f"{name}_scales" not in state:
            raise KeyError(f"load_state_dict: {name}_blocks: its {name}_scales are missing")
        packed = np.asarray(given, np.uint8)
        halves = np.stack([packed & 15, packed >> 4], axis=-1)
        numbers = _FP4[halves].reshape(*packed.shape[:-1], 32)
        exponents = np.asarray(state[f"{name}_scales"], np.int32) - 127
        wide = np.ldexp(numbers, exponents[..., None]).reshape(*packed.shape[:2], -1)
        yield name, wide.swapaxes(1, 2)


def _split_norms(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Name the norms of heads one by one."""
    split: dict[str, np.ndarray] = {}
    for name, array in state.items():
        path, _, own = name.rpartition(".self_attn.")
        if own not in ("q_norm.weight", "k_norm.weight"):
            split[name] = array
            continue
        for j, row in enumerate(array):
            split[f"{path}.self_attn.{own[0]}_layernorm.norms.{j}.weight"] = row.copy()
    return split


def _merge_norms(state: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    """Stack the norms of heads; the inverse of `_split_norms`."""
    merged: dict[str, ArrayLike] = {}
    stacks: dict[str, dict[int, ArrayLike]] = {}
    for name, array in state.items():
        found = _HEAD_NORM.fullmatch(name)
        if found is None:
            merged[name] = array
            continue
        path, own, number = found.groups()
        stacks.setdefault(f"{path}{own}_norm.weight", {})[int(number)] = array
    return {**merged, **_stacked(stacks, "heads")}


def _stacked(stacks: Mapping[str, Mapping[int, ArrayLike]], what: str) -> dict[str, ArrayLike]:
    """Stack numbered tensors; raise where one is missing."""
    made: dict[str, ArrayLike] = {}
    for name, parts in stacks.items():
        missing = [j for j in range(max(parts) + 1) if j not in parts]
        if missing:
            raise KeyError(f"load_state_dict: {name}: the {what} {missing} are missing")
        made[name] = np.stack([np.asarray(parts[j]) for j in sorted(parts)])
    return made
