# SPDX-License-Identifier: MIT
"""What a method cannot take is refused in words, not by Python, NumPy or cffi below it."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import data, debug, distributed, models, nn, optim, recipes, train
from pyggml.train import preferences

from .fuzz.refusals import accident

SIZES = {"vocab_size": 16, "context": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}
RNG = np.random.default_rng(0)
CACHE = nn.LayerCache(pg.zeros((1, 4, 8)), pg.zeros((1, 4, 8)))
IDS = data.Documents.of([[1, 2], [3]])
TEMPLATE = data.ChatTemplate.builtin("chatml")
MADE: list[Any] = [
    data.TokenDataset(np.arange(20), 4),
    data.RandomWindows(np.arange(20), 4),
    data.PackedDataset(IDS, 4),
    data.LabelledDataset(IDS, [0, 1]),
    data.AugmentedDataset(IDS, 4),
    data.ImageDataset(data.ArrayImages(np.zeros((3, 8, 8), np.uint8), [0, 1, 0])),
]
LOADER = data.Loader(data.ArrayDataset(np.ones((5, 4), np.float32), np.zeros(5, np.int32)), 2)


REFUSALS = (TypeError, ValueError, IndexError, pg.RecordingError, pg.OutOfMemoryError)


def cached(k: Any, v: Any = None, length: Any = 2) -> object:
    return CACHE.update(k, k if v is None else v, pg.tensor([0, 1]), length)


def turned(x: Any, length: Any = 2) -> object:
    return nn.Rope().rotate(x, pg.tensor([0, 1]), length)


MODEL = models.build("gpt2", SIZES)
ADAM = optim.AdamW(MODEL, lr=1e-3)
PAIR = (np.ones((2, 4), np.int32), np.ones(3, np.int32))
DEEP: list[Any] = []
for _ in range(3000):
    DEEP = [DEEP]


# A call, and what its error tells: who, what, and what came.
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: pg.ones(3).end(), "Tensor.end: the tensor must be"),
    ((pg.ones(3) * 2).end, "Tensor.end: the tensor must be"),
    (lambda: pg.ones(3).keep(3), "Tensor.keep: value must be an array .*got 3"),
    (lambda: pg.ones(3).copy_([[1], [2, 3]]), "copy_: values must be .*ragged"),
    (lambda: pg.default_device().computes_into(np.inf), "computes_into: node must be .*got inf"),
    (lambda: pg.default_device().supports(pg.ffi.NULL), "supports: node must be .*NULL"),
    (lambda: pg.default_device().has_memory({1, 2}), r"size_bytes must be a number; got \{1, 2\}"),
    (lambda: pg.default_device().has_memory(-1), "size_bytes must be .*>= 0; got -1"),
    (lambda: train.accuracy(np.ones((3, 4)), ((1, 2), (3,))), "accuracy: targets .*ragged"),
    (lambda: train.accuracy(["a"], [1]), "accuracy: predicted must hold .*got <U1"),
    (lambda: train.metrics.top_k_accuracy([[1], [2, 3]], [1]), "top_k_accuracy: logits .*ragged"),
    (lambda: train.metrics.confusion_matrix([0], [None]), "targets must be whole .*got object"),
    (lambda: train.metrics.subset_accuracy([["a"]], [[1]]), "predicted must hold .*got <U1"),
    (lambda: models.sample(np.ones((3, 4)), RNG), r"sample: logits must have 1 axes; got .*3, 4"),
    (lambda: models.sample(np.ones(0), RNG), "sample: logits must have a number .*got none"),
    (lambda: models.sample("x", RNG), "sample: logits must hold .*got <U1"),
    (lambda: models.sample(np.ones(3), np.arange(4)), "sample: rng must be .*default_rng"),
    (lambda: models.sample(np.ones(3), RNG, top_k="a"), "sample: top_k must be .*got 'a'"),
    (lambda: models.sample(np.ones(3), RNG, zzz=1), "sample: got an unexpected .*it takes"),
    (
        lambda: models.Sampling(repetition_penalty=2.0).choose(np.ones(3), RNG, prompt=[3]),
        "the tokens of prompt must be from 0 to 2; got 3",
    ),
    (
        lambda: models.Sampling(presence_penalty=2.0).choose(np.ones(3), RNG, added=["a"]),
        "sample: added must hold integers",
    ),
    (lambda: nn.LayerCache(pg.ones((3, 4)), pg.ones((3, 4))), r"LayerCache: keys .*got \(3, 4\)"),
    (lambda: nn.LayerCache(pg.ones((1, 2, 4, 4)), pg.ones(3)), "LayerCache: keys and values must"),
    (lambda: cached(pg.ones((3, 4))), r"update: k must be .*got \(3, 4\)"),
    (lambda: cached(pg.ones((1, 2, 2, 4)), pg.ones(3)), r"update: v must be as k.*got \(3,\)"),
    (lambda: cached(pg.ones((1, 2, 2, 4)), length=0), "length must be .*>= 1; got 0"),
    (lambda: LOADER.rest_of(float("nan")), "Loader.rest_of: epoch must be a whole .*got nan"),
    (lambda: LOADER.rest_of(["a", 1]), r"Loader.rest_of: epoch must be .*got \['a', 1\]"),
    (lambda: LOADER.rest_of(0, -1), "Loader.rest_of: position must be .*got -1"),
    (lambda: data.LabelledTexts(["ab"], np.True_, 2), "LabelledTexts: labels must"),
    (lambda: data.LabelledTexts(["ab"], [2], 2), "labels must be from 0 to 1; got 2"),
    (lambda: data.LabelledTexts(["ab"], [0, 1], 2), "labels must have 1 items"),
    (lambda: data.LabelledTexts(["ab"], [0], 2, ()), "names must have 2 items"),
    (lambda: data.LabelledTexts(3, [0], 2), "texts must be a list; got 3"),
    (lambda: data.MaskTokens(1, 4)("ab", RNG), "MaskTokens: ids must be .*integer"),
    (lambda: data.MaskTokens(1, 4)([2**40], RNG), "MaskTokens: ids must lie between"),
    (lambda: data.CorruptSpans((7, 8))(None, RNG), "CorruptSpans: ids must be"),
    (lambda: data.CorruptSpans((7, 8)).sizes([3]), r"CorruptSpans.sizes: tokens .*got \[3\]"),
    (lambda: data.FillInTheMiddle(1, 2, 3)([1, 2], 0), "FillInTheMiddle: rng must .*default_rng"),
    (lambda: recipes.LLMConfig.merged({}, "x"), "LLMConfig.merged: given must be a dict; got 'x'"),
    (lambda: models.build("llama", SIZES).hf_arrays([1]), r"state must be a dict; got \[1\]"),
    (lambda: models.build("gpt2", SIZES).hf_arrays({1: 2}), "names of state must"),
    (lambda: distributed.world().first(3), "first: function must be a function .*got 3"),
    (lambda: distributed.world().wait_until(True), "wait_until: is_done must be .*got True"),
    (lambda: turned(3), "Rope.rotate: x must be a Tensor; got int"),
    (lambda: turned(pg.ones((2, 4))), r"Rope.rotate: x must be \(B, T, H, D\); got \(2, 4\)"),
    (lambda: turned(pg.ones((1, 2, 1, 4)), "a"), "Rope.rotate: length must be .*got 'a'"),
    (lambda: optim.schedules.Joined(abs, 2, starts=2), "Joined: parts must be a list; got 2"),
    (lambda: optim.schedules.Joined(abs, [abs], [0, 1]), "Joined: starts must have 1 items"),
    (lambda: optim.schedules.Joined(abs, [], []), "Joined: parts must have a schedule"),
    *[(partial(each.order, 3), r"order: rng must be a Generator; got int") for each in MADE],
    *[(partial(each.batch, "ab"), "batch: items must hold integers") for each in MADE],
    *[(partial(each.batch, [0.5]), "batch: items must hold integers") for each in MADE],
    *[(partial(each.batch, [-1]), "batch: items must be from 0.*; got -1") for each in MADE],
    *[(partial(each.batch, 0), "batch: items must have 1 axes") for each in MADE],
    (lambda: MADE[0].batch([99]), "TokenDataset.batch: items must be from 0 to 3; got 99"),
    (lambda: MADE[3].batch(np.zeros(0, int)), "items must be 1 number or more; got none"),
    (lambda: data.Chats([]).repeated(1.0, "a"), "Chats.repeated: seed must be .*got 'a'"),
    (lambda: TEMPLATE.examples([], "x"), "examples: tools must be a list; got 'x'"),
    (lambda: TEMPLATE.examples([], [3]), "examples: each of tools must be a dict; got 3"),
    (lambda: TEMPLATE.examples([3]), "examples: each of messages must be a dict; got 3"),
    (
        lambda: data.Tokenizer.chars("ab").encode_chunks(0.5, False),
        "encode_chunks: chunks must be .*got 0.5",
    ),
    (
        lambda: models.Generator(models.build("gpt2", SIZES)).reset(np.ones(2)),
        "Generator.reset: sequence must be a whole number",
    ),
    (lambda: debug.progress(np.array(3)), "progress: items must be iterable; got ndarray"),
    (lambda: data.ChatTemplate.of("chatml", 3), "ChatTemplate: tokenizer must be a Tokenizer"),
    (lambda: data.ChatTemplate.of_model({}, 3), "of_model: tokenizer must be a Tokenizer"),
    (lambda: nn.KVCache(1, 4, 1, 2).layers[0].update(1, 2, 3, 4), "update: k must be a Tensor"),
    (lambda: nn.KVCache(2**31, 2**20, 2, 2), "KVCache: 2,147,483,648 layers take .*more than"),
    (lambda: nn.Rope().wavelengths("a", 2), "Rope.wavelengths: dim must be .*got 'a'"),
    (lambda: pg.io.read_regular("a", 1j), "read_regular: most_bytes must be .*got 1j"),
    (lambda: nn.Rope().wavelengths(2**31, 2), "dim must be .*1048576.*got 2147483648"),
    (lambda: nn.Rope(dims=2**31), "Rope: dims must be .*1048576.*got 2147483648"),
    (lambda: nn.Rope().sharpen(3, 1.0), "Rope.sharpen: q must be a Tensor"),
    (lambda: nn.RopeScaling("linear", 2.0).divisors(4, 0.0, 2), "divisors: base must be .*> 0"),
    (lambda: models.LlamaConfig().layer_window("a"), "layer_window: i must be .*got 'a'"),
    (lambda: models.ModernBERTConfig().sees_all(1j), "sees_all: i must be .*got 1j"),
    (lambda: models.GPT2.from_gguf(3), "from_gguf: file must be a GGUFFile; got 3"),
    (lambda: models.build("t5", {**SIZES, "n_ffn": 8}).new_cache(3, 2), "new_cache: encoded must"),
    (lambda: pg.ones(1).dtype.row_bytes("a"), "row_bytes: n must be .*got 'a'"),
    (lambda: pg.DropoutStream(0).seek("a"), "DropoutStream.seek: offset must be .*got 'a'"),
    (lambda: pg.DropoutStream(0).take({}), "DropoutStream.take: device must be a Device"),
    (
        lambda: pg.io.GGUFFile.open("none.bin", np.ones(2)),
        "read_gguf: private must be True",
    ),
    (lambda: debug.Peaks(1.0, 1.0).share(3), "Peaks.share: op must be an OpSummary"),
    (lambda: train.ChoiceScores(1.0, 1.0, 2).error(3), "ChoiceScores.error: share must .*<= 1"),
    (lambda: train.MetricsFile("x").begin("a"), "MetricsFile.begin: step must be .*got 'a'"),
    (lambda: train.TrainerOptions(steps=2).value("zzz"), "name must be one of .*got 'zzz'"),
    (lambda: distributed.world().maxima(1e300), "maxima: each value must be a whole"),
    (lambda: [*nn.Linear(2, 2).named_modules(np.ones(2))], "named_modules: prefix must be a str"),
    (lambda: train.TrainStep(MODEL, ADAM, seed="1"), "TrainStep: seed must be .*got '1'"),
    (lambda: train.TrainStep(MODEL, ADAM, seed=None), "TrainStep: seed must be .*got None"),
    (lambda: train.TrainStep(MODEL, ADAM, group=3), "TrainStep: group must be a Group; got int"),
    (lambda: train.TrainStep(MODEL, ADAM, clip=np.ones(2)), "TrainStep: clip must be a number"),
    (lambda: train.TrainStep(MODEL, ADAM, clip_value=[]), "clip_value must be a number; got"),
    (lambda: train.predict(MODEL, [PAIR]), "predict: data must be an array; got ragged"),
    (lambda: train.evaluate(MODEL, [PAIR], token_bytes=[[1], [2, 3]]), "token_bytes .*ragged"),
    (lambda: train.evaluate(MODEL, np.array(3)), r"batches must be iterable; got array\(3\)"),
    (lambda: nn.lora.apply_lora(MODEL, targets=np.array(3)), r"names of layers; got array\(3\)"),
    (
        lambda: models.MLPConfig(mean=np.array(0.5), std=np.array(1.0)),
        r"mean\[0\] must be a number",
    ),
    (lambda: train.GradScaler(growth_factor=10**400), "growth_factor must be a finite number"),
    (lambda: pg.io.f32(10**400), "f32: value must be a finite number"),
    (lambda: pg.io.GGUFFile(np.zeros(9, np.uint8)[::2]), "GGUFFile: data must be contiguous"),
    (lambda: pg.io.GGUFFile(memoryview(bytes(9))[::2]), "GGUFFile: data must be contiguous"),
    (lambda: nn.Linear(DEEP, 3), "Linear: in_features must be .*got list"),
    (lambda: optim.ClipValue([MODEL.parameters()[0]], 1.0), "ClipValue: tensors must be gradients"),
    (lambda: copy.deepcopy(models.Generator(MODEL)), "^Generator: .*cannot be copied"),
    (lambda: train.token_bytes(MODEL), "token_bytes: tokenizer must be a Tokenizer; got"),
    (
        lambda: preferences.reward_loss([0.5], [0.1]),
        "reward_loss: chosen must be a Tensor; got list",
    ),
    (lambda: preferences.token_logps("m", 1, 2), "token_logps: model must be a language model"),
    (
        lambda: preferences.mismatched(np.inf),
        "mismatched: documents must be a Documents; got float",
    ),
    (
        lambda: models.quantization.write_importance("a.gguf", {1: 2}),
        "write_importance: importance must be an Importance; got dict",
    ),
]


@pytest.mark.parametrize(("call", "told"), REFUSED, ids=[told[:40] for _, told in REFUSED])
def test_errors_tell_what_was_expected(call: Callable[[], Any], told: str) -> None:
    with pytest.raises(REFUSALS, match=told) as found:
        call()
    assert accident(found.value) is None
    assert re.match(r"[A-Za-z_][\w.]*: ", str(found.value))


def test_a_computed_result_ends() -> None:
    doubled = pg.ones(3, requires_grad=True) * 2
    doubled.numpy()
    doubled.end()
    assert doubled.tolist() == [2.0, 2.0, 2.0]
    assert doubled.is_stored
