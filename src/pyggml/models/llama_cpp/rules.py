# SPDX-License-Identifier: MIT
"""The rules by which llama.cpp loads a file, and what it leaves out without a word."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import shown
from ...io import GGUFFile, read_gguf
from .layouts import LAYOUTS, NAMES, PRE_TOKENIZERS, TOKENIZERS, Layout

__all__ = ["Finding", "check_gguf", "check_model"]

# LLAMA_MAX_LAYERS and LLAMA_MAX_EXPERTS (src/llama-hparams.h).
_MOST_BLOCKS, _MOST_EXPERTS = 512, 1024
# What llama.cpp looks up where a model's name says Phi 3.
_PHI_3 = ("</s>", "<unk>", "<s>", "<|endoftext|>")
_STRETCHES = ("none", "linear", "yarn", "longrope")
# The types of keys; llama.cpp takes no other number for one, except where each block has its own.
_NUMBERS = {
    **dict.fromkeys(
        """context_length embedding_length block_count vocab_size attention.key_length
        attention.value_length rope.dimension_count expert_count decoder_block_count
        expert_shared_feed_forward_length attention.relative_buckets_count pooling_type
        rope.scaling.original_context_length decoder_start_token_id
        attention.sliding_window""".split(),
        np.uint32,
    ),
    **dict.fromkeys(
        """attention.layer_norm_epsilon attention.layer_norm_rms_epsilon rope.freq_base
        rope.scaling.factor rope.scale_linear rope.scaling.attn_factor rope.freq_base_swa
        logit_scale residual_scale embedding_scale attention.scale attn_logit_softcapping
        final_logit_softcapping""".split(),
        np.float32,
    ),
}
_EACH_BLOCK = {
    *("feed_forward_length", "attention.head_count", "attention.head_count_kv"),
    *("expert_used_count", "expert_feed_forward_length"),
}
_FLAGS = "add_bos_token add_eos_token add_sep_token add_space_prefix".split()


@dataclass(frozen=True)
class Finding:
    """One thing that llama.cpp says of a file, or does not say.

    Args:
        kind: "refused": it does not load the file; "differs": it loads the file and computes
            another thing than pyggml; "unchecked": the rules do not know.
        where: the key or tensor.
        reason: what is wanted, what is there.
    """

    kind: str
    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


def check_gguf(path: str | os.PathLike[str] | GGUFFile) -> list[Finding]:
    """Return what llama.cpp would refuse in a file, and where it would compute another thing.

    The rules are those of llama.cpp's build b11549, written down; no code of it runs. An empty list
    says that it loads the file and computes what pyggml computes, up to rounding.

    Args:
        path: a GGUF file, or an open one.

    Raises:
        FormatError: the file is no GGUF file, or is damaged.

    Example:
        >>> model.save("model.gguf")
        >>> [found.where for found in check_gguf("model.gguf")]
        ['tokenizer.ggml.model']
    """
    if isinstance(path, GGUFFile):
        shapes = {name: info.shape for name, info in path.tensors.items()}
        return check_model(path.typed_metadata, shapes)
    with read_gguf(path) as file:
        return check_gguf(file)


def check_model(
    metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]
) -> list[Finding]:
    """Return what llama.cpp would say of a file with these keys and tensors; see `check_gguf`.

    Args:
        metadata: typed values by key, as `write_gguf` takes them.
        tensors: shapes by name.
    """
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str) or arch not in NAMES:
        reason = f"llama.cpp has no architecture {shown(arch)}"
        return [Finding("refused", "general.architecture", reason)]
    found = [Finding("refused", *each) for each in _check_vocabulary(metadata)]
    name = (
        "llama+experts" if arch == "llama" and _is_set(metadata.get("llama.expert_count")) else arch
    )
    if name not in LAYOUTS:
        reason = f"the keys and tensors of {arch} are not checked here"
        return [*found, Finding("unchecked", "general.architecture", reason)]
    layout, read = LAYOUTS[name], _Reader(arch, metadata)
    found += [Finding("refused", *each) for each in _check_types(read)]
    if any(each.where.startswith(f"{arch}.") for each in found):
        return found
    many = [key for key in _EACH_BLOCK if isinstance(read(key), (list, np.ndarray))]
    if many:
        reason = "a value for each block: the tensors are not checked here"
        return [*found, Finding("unchecked", f"{arch}.{many[0]}", reason)]
    found += [Finding("refused", *each) for each in _check_sizes(read, layout)]
    if not any(each.where.startswith(f"{arch}.") for each in found):
        sizes = _sizes(read, tensors)
        found += [Finding("refused", *each) for each in _check_tensors(layout, sizes, tensors)]
    return found + [Finding("differs", *each) for each in _check_meaning(read, layout, tensors)]


def _is_set(value: Any) -> bool:
    """Return True for a value other than 0 and false; no key that is read so is a list."""
    return not isinstance(value, (list, np.ndarray)) and bool(value)


Said = Iterator[tuple[str, str]]


class _Reader:
    """The keys of an architecture."""

    def __init__(self, arch: str, metadata: Mapping[str, Any]) -> None:
        self.arch, self.metadata = arch, metadata

    def __call__(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"{self.arch}.{key}", default)

    def number(self, key: str, default: int) -> int:
        return int(self(key, default))


def _check_vocabulary(metadata: Mapping[str, Any]) -> Said:
    """The tokenizer's keys."""
    key = "tokenizer.ggml."
    model = metadata.get(f"{key}model")
    if not isinstance(model, str) or model not in TOKENIZERS:
        reason = "the file has no vocabulary" if model is None else f"unknown: {shown(model)}"
        yield f"{key}model", reason
        return
    for name, value in metadata.items():
        is_count = name.endswith("_token_id") or name == f"{key}token_type_count"
        if name.startswith(key) and is_count and type(value) is not np.uint32:
            yield name, f"must be u32; got {shown(value)}"
        if name.removeprefix(key) in _FLAGS and not isinstance(value, (bool, np.bool_)):
            yield name, f"must be true or false; got {shown(value)}"
    if model in ("no_vocab", "none"):
        return
    tokens = metadata.get(f"{key}tokens")
    if not isinstance(tokens, list):
        yield f"{key}tokens", "must be a list of text"
        return
    if len(set(tokens)) < len(tokens):
        yield f"{key}tokens", "must differ; some are there twice"
    if model == "gpt2":
        if not isinstance(metadata.get(f"{key}merges"), list):
            yield f"{key}merges", "must be a list of text"
        pre = metadata.get(f"{key}pre", "default")
        if not isinstance(pre, str) or pre not in PRE_TOKENIZERS:
            yield f"{key}pre", f"unknown: {shown(pre)}"
    title = metadata.get("general.name")
    if isinstance(title, str) and ("phi-3" in title.lower() or "phi3" in title.lower()):
        lacking = [token for token in _PHI_3 if token not in tokens]
        if lacking:
            reason = f"a name with phi-3 or phi3 needs tokens that are missing: {shown(lacking)}"
            yield "general.name", f"{reason}; give another name"
    vectors: dict[str, list[Any]] = {"token_type": [np.int32], "scores": [np.float32, np.int32]}
    for name, kinds in vectors.items():
        values = metadata.get(f"{key}{name}")
        if values is None:
            continue
        if not isinstance(values, np.ndarray) or values.dtype.type not in kinds:
            yield f"{key}{name}", f"must be a vector of {kinds[0].__name__}; got {shown(values)}"
        elif len(values) < len(tokens):
            yield f"{key}{name}", f"must have one of {len(tokens)} tokens each; got {len(values)}"


def _check_types(read: _Reader) -> Said:
    """The types of the numbers, and the numbers that must be there."""
    for key in ("context_length", "embedding_length", "block_count", "attention.head_count"):
        if read(key) is None:
            yield f"{read.arch}.{key}", "is missing"
    for key, kind in _NUMBERS.items():
        value = read(key)
        if value is not None and type(value) is not kind:
            wanted = "u32" if kind is np.uint32 else "f32"
            yield f"{read.arch}.{key}", f"must be {wanted}; got {shown(value)}"
    for key in _EACH_BLOCK:
        value = read(key)
        if value is not None and getattr(value, "dtype", None) not in (np.uint32, np.int32):
            yield f"{read.arch}.{key}", f"must be u32, or a vector of it; got {shown(value)}"


def _check_sizes(read: _Reader, layout: Layout) -> Said:
    """The numbers that llama.cpp asserts, beside the tensors."""
    arch = read.arch
    for name in (layout.eps, *layout.keys):
        if read(name) is None:
            yield f"{arch}.{name}", "is missing"
    if read.number("attention.head_count", 0) < 1:
        yield f"{arch}.attention.head_count", "must be at least 1"
        return
    blocks = read.number("block_count", 0)
    if not 0 < blocks <= _MOST_BLOCKS:
        yield f"{arch}.block_count", f"must be 1 to {_MOST_BLOCKS}; got {blocks}"
    if read.number("decoder_block_count", blocks) > blocks:
        yield f"{arch}.decoder_block_count", f"must be at most block_count, {blocks}"
    experts, used = read.number("expert_count", 0), read.number("expert_used_count", 0)
    if experts > _MOST_EXPERTS:
        yield f"{arch}.expert_count", f"must be at most {_MOST_EXPERTS}; got {experts}"
    if not (0 < used <= experts or used == experts == 0):
        yield f"{arch}.expert_used_count", f"must be 1 to {experts}; got {used}"
    if "E X C" in layout.block and experts == 0:
        yield f"{arch}.expert_count", "must be at least 1"
    kind = read("rope.scaling.type", "linear")
    if not isinstance(kind, str) or kind not in _STRETCHES:
        yield f"{arch}.rope.scaling.type", f"unknown: {shown(kind)}"
    key = read.number("embedding_length", 0) // read.number("attention.head_count", 1)
    width = read.number("attention.key_length", key)
    if "qkv C" in layout.block and layout.rotary and width != key:
        reason = f"must be embedding_length / head_count, {key}, for {arch}; got {width}"
        yield f"{arch}.attention.key_length", reason
    for name, usual in (("attention.value_length", key), ("rope.dimension_count", width)):
        got = read.number(name, usual)
        if layout.rotary and got != width:
            yield f"{arch}.{name}", f"must be the width of a key, {width}; got {got}"


def _sizes(read: _Reader, tensors: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The extents that the letters of a layout stand for."""
    tokens = read.metadata.get("tokenizer.ggml.tokens")
    table = tensors.get("token_embd.weight", (0,))
    labels = read("classifier.output_labels")
    kinds = read.metadata.get("tokenizer.ggml.token_type_count")
    stream, heads = read.number("embedding_length", 0), read.number("attention.head_count", 1)
    groups = read.number("attention.head_count_kv", heads)
    key = read.number("attention.key_length", stream // heads)
    value = read.number("attention.value_length", stream // heads)
    inner = read.number("feed_forward_length", 0)
    expert = inner
    if read.arch != "llama":  # which has experts as wide as n_ffn
        usual = inner // max(1, read.number("expert_used_count", 1))
        expert = read.number("expert_feed_forward_length", 0) or usual
    return {
        "V": len(tokens) if isinstance(tokens, list) else table[0],
        "C": stream,
        "T": read.number("context_length", 0),
        "F": inner,
        "B": 2 * inner,
        "A": 3 * stream,
        "H": heads,
        "G": groups,
        "D": key,
        "Q": key * heads,
        "K": key * groups,
        "Z": value * groups,
        "Y": stream + 2 * value * groups,
        "J": read.number("rope.dimension_count", key) // 2,
        "E": read.number("expert_count", 0),
        "X": expert,
        "S": read.number("expert_shared_feed_forward_length", 0) or inner,
        "N": int(kinds) if isinstance(kinds, np.uint32) else 0,
        "O": len(labels) if labels is not None else 1,
        "P": read.number("attention.relative_buckets_count", 0),
        "L": read.number("block_count", 0),
        "M": read.number("decoder_block_count", read.number("block_count", 0)),
    }


def _wanted(
    layout: Layout, sizes: dict[str, int], there: Mapping[str, Any]
) -> Iterator[tuple[str, bool, tuple[int, ...]]]:
    """Name, whether it must be there, and shape of each tensor that llama.cpp looks for."""
    parts = [(layout.top, "")]
    parts += [(layout.block, f"{layout.prefix}.{i}.") for i in range(sizes["L"])]
    if layout.decoder:
        parts += [(layout.decoder, f"dec.blk.{i}.") for i in range(sizes["M"])]
    for lines, prefix in parts:
        for line in lines.split(";"):
            name, *letters = line.split()
            shape = tuple(sizes[letter] for letter in letters)
            if name == "qkv":
                yield from _projections(prefix, shape, sizes["C"], there)
                continue
            yield prefix + name.removesuffix("?"), not name.endswith("?"), shape


def _projections(
    prefix: str, widths: tuple[int, ...], stream: int, there: Mapping[str, Any]
) -> Iterator[tuple[str, bool, tuple[int, ...]]]:
    """The matrices of queries, keys and values, in one where that is there; biases may be."""
    parts = dict(zip("qkv", widths, strict=True))
    if f"{prefix}attn_qkv.weight" in there:
        yield f"{prefix}attn_qkv.weight", True, (sum(widths), stream)
        if f"{prefix}attn_qkv.bias" in there:
            yield f"{prefix}attn_qkv.bias", True, (sum(widths),)
            return
    else:
        for part, width in parts.items():
            yield f"{prefix}attn_{part}.weight", True, (width, stream)
    for part, width in parts.items():
        yield f"{prefix}attn_{part}.bias", False, (width,)


def _check_tensors(
    layout: Layout, sizes: dict[str, int], tensors: Mapping[str, tuple[int, ...]]
) -> Said:
    """The tensors: each that is wanted, in its shape, and no other."""
    left = dict(tensors)
    for name, needed, shape in _wanted(layout, sizes, tensors):
        got = left.pop(name, None)
        if got is None:
            if needed:
                yield name, f"must be there, {shape}"
        elif _plain(got) != _plain(shape):
            yield name, f"must have the shape {shape} by the file's own keys; got {got}"
    if "rope_freqs.weight" in left:
        reason = "divisors of angles (llama3, table) are for llama and granite: use yarn or linear"
        yield "rope_freqs.weight", reason
    elif left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        yield next(iter(left)), f"llama.cpp reads no such tensor{more} for this architecture"


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without leading ones, which GGUF does not keep."""
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape


def _check_meaning(read: _Reader, layout: Layout, tensors: Mapping[str, tuple[int, ...]]) -> Said:
    """Return findings on keys of pyggml whose effect llama.cpp lacks."""
    metadata = read.metadata
    window, context = metadata.get("pyggml.window"), read.number("context_length", 0)
    if isinstance(window, (int, np.integer)) and window < context and not layout.windowed:
        yield (
            "pyggml.window",
            f"llama.cpp has no window for {read.arch}: texts of more than {window} tokens get other"
            " results there",
        )
    try:
        scaling = json.loads(metadata.get("pyggml.rope_scaling", "{}"))
    except (TypeError, ValueError):
        scaling = {}
    if isinstance(scaling, dict) and scaling.get("kind") == "dynamic":
        yield (
            "pyggml.rope_scaling",
            "llama.cpp has no dynamic positions: it leaves them unstretched",
        )
    if isinstance(scaling, dict) and scaling.get("kind") == "yarn":
        betas = (scaling.get("beta_fast", 32.0), scaling.get("beta_slow", 1.0))
        if betas != (32.0, 1.0):
            yield (
                "pyggml.rope_scaling",
                f"llama.cpp has beta_fast=32 and beta_slow=1 for {read.arch}; got {betas}",
            )
    sharper, window = read("rope.scaling.attn_factor"), read("attention.sliding_window", 0)
    if (
        read.arch == "gemma3"
        and _is_set(window)
        and isinstance(sharper, np.floating)
        and sharper != 1.0
    ):
        yield (
            "gemma3.rope.scaling.attn_factor",
            f"llama.cpp scales the scores of layers with a window, too; got {sharper}",
        )
    tied = read.arch == "t5" and "output.weight" not in tensors
    if tied and not _is_set(metadata.get("pyggml.scaled_norm")):
        yield "output.weight", "llama.cpp leaves out the scale of a tied head"
