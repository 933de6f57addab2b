# SPDX-License-Identifier: MIT
"""What is no right argument is refused by name; NumPy's numbers are numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyggml import data
from pyggml.data import (
    ArrayDataset,
    ArrayImages,
    AugmentedDataset,
    BucketLoader,
    CenterCrop,
    Chat,
    Chats,
    ChatTemplate,
    ColorJitter,
    Corpus,
    CorruptSpans,
    Documents,
    FillInTheMiddle,
    HorizontalFlip,
    ImageDataset,
    ImageFolder,
    ImageSubset,
    LabelledDataset,
    LabelledTexts,
    Loader,
    MaskTokens,
    Normalize,
    PackedDataset,
    Prefetch,
    Question,
    RandomCrop,
    RandomResizedCrop,
    RandomWindows,
    Resize,
    ResizedCenterCrop,
    Seq2SeqDataset,
    TextClassificationDataset,
    TokenClassificationDataset,
    TokenDataset,
    Tokenizer,
    TokenStore,
    best_fit,
    class_weights,
    encode_chats,
    encode_choices,
    encode_pairs,
    read_chats,
    read_choices,
    read_table,
    read_text,
    split_tokens,
)
from pyggml.data.images.pipeline import Pipeline

pytest.importorskip("tokenizers")
JUNK: list[Any] = [
    "text", "", b"bytes", 1.5, -3, 10**30, float("nan"), None, True, [], ["a"], [1.5], {}, {"a": 1},
    object(), int, np.float32(0.5), np.array("a"), np.array([[1, 2]]), np.datetime64("2020"), "a\ud800",
]  # fmt: skip
DOCUMENTS = Documents.of([np.arange(9), np.arange(30)])
LABELLED = LabelledTexts(["a", "b"] * 3, [0, 1] * 3, 2)
IMAGES = ArrayImages(np.zeros((4, 8, 8), np.uint8), [0, 1, 0, 1])
TOKENIZER = Tokenizer.chars(["hello world"])

# fmt: off
# ruff: noqa: E501
PAIR = {"prompt": "hello", "completion": "world"}
CHAT = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]
ROW = {"question": "a", "choices": ["b", "c"], "answer": 0}
# A right call of each; every argument is then replaced by junk.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "TokenDataset": (TokenDataset, {"ids": np.arange(41), "seq_len": 4, "stride": 4, "keep_tail": True}),
    "RandomWindows": (RandomWindows, {"ids": np.arange(41), "seq_len": 4}),
    "split_tokens": (split_tokens, {"ids": np.arange(41), "validation": 0.5}),
    "Documents": (Documents, {"ids": np.arange(4), "offsets": np.array([0, 1, 4]), "counted": np.ones(4, bool)}),
    "Documents.of": (Documents.of, {"sequences": [[1, 2]], "counted": [[True, False]]}),
    "Documents.split": (DOCUMENTS.split, {"validation": 0.5}),
    "Documents.part": (DOCUMENTS.part, {"item": 1, "start": 1, "end": 3}),
    "LabelledTexts.split": (LABELLED.split, {"validation": 0.4}),
    "LabelledDataset": (LabelledDataset, {"documents": DOCUMENTS, "labels": [0, 1], "seq_len": 40}),
    "PackedDataset": (PackedDataset, {"documents": DOCUMENTS, "seq_len": 8, "overlong": "split"}),
    "BucketLoader": (BucketLoader, {"documents": DOCUMENTS, "max_tokens": 64, "seq_len": 8, "buckets": 2, "overlong": "drop", "shuffle": True, "seed": 1}),
    "best_fit": (best_fit, {"lengths": np.array([3, 5]), "capacity": 8}),
    "Loader": (Loader, {"dataset": TokenDataset(np.arange(41), 4), "batch_size": 2, "shuffle": True, "seed": 0, "drop_last": False, "pad_last": False}),
    "Loader.load_state_dict": (Loader(TokenDataset(np.arange(41), 4), 2).load_state_dict, {"state": Loader(TokenDataset(np.arange(41), 4), 2).state_dict()}),
    "Prefetch": (Prefetch, {"loader": Loader(TokenDataset(np.arange(41), 4), 2), "depth": 2}),
    "MaskTokens": (MaskTokens, {"mask_id": 9, "vocab_size": 10, "rate": 0.2, "special": (1, 2)}),
    "CorruptSpans": (CorruptSpans, {"sentinels": (8, 9), "eos_id": 1, "rate": 0.2, "mean_span": 2}),
    "FillInTheMiddle": (FillInTheMiddle, {"prefix_id": 1, "middle_id": 2, "suffix_id": 3, "rate": 0.5, "spm_rate": 0.5, "eos_id": 0}),
    "AugmentedDataset": (AugmentedDataset, {"documents": DOCUMENTS, "seq_len": 8, "transform": MaskTokens(9, 10), "target_len": 8, "pad_id": 0}),
    "Resize": (Resize, {"size": 4}),
    "CenterCrop": (CenterCrop, {"size": 4}),
    "ResizedCenterCrop": (ResizedCenterCrop, {"size": 4}),
    "RandomCrop": (RandomCrop, {"size": 4, "padding": 1}),
    "RandomResizedCrop": (RandomResizedCrop, {"size": 4, "scale": (0.5, 1), "ratio": (0.5, 2)}),
    "HorizontalFlip": (HorizontalFlip, {"p": 0.5}),
    "ColorJitter": (ColorJitter, {"brightness": 0.1, "contrast": 0.1, "saturation": 0.1, "hue": 0.1}),
    "Normalize": (Normalize, {"mean": (0.5,), "std": (0.5,)}),
    "ArrayImages": (ArrayImages, {"images": np.zeros((4, 8, 8), np.uint8), "labels": [0, 1, 0, 1], "classes": ["a", "b"]}),
    "class_weights": (class_weights, {"labels": [0, 1], "classes": 2}),
    "ImageDataset": (ImageDataset, {"source": IMAGES, "transforms": [CenterCrop(4)], "mixup": 0.1, "weights": [1, 1, 1, 1]}),
    "ArrayDataset": (ArrayDataset, {"x": np.ones((3, 2)), "y": [0, 1, 2], "task": "classification", "labels": ["a", "b", "c"]}),
    "read_table": (read_table, {"source": [{"a": 1, "b": 0.5}, {"a": 2, "b": 1.5}], "target": "b", "task": "regression", "columns": ["a"], "labels": None}),
    "TextClassificationDataset": (TextClassificationDataset, {"source": ["hello", "world"], "tokenizer": TOKENIZER, "labels": ["a", "b"], "seq_len": 9, "names": ["a", "b"]}),
    "TokenClassificationDataset": (TokenClassificationDataset, {"source": [["hello", "world"]], "tokenizer": TOKENIZER, "labels": [["a", "b"]], "seq_len": 16, "names": ["a", "b"], "columns": ("tokens", "tags")}),
    "Seq2SeqDataset": (Seq2SeqDataset, {"source": [("hello", "world")], "tokenizer": TOKENIZER, "seq_len": 9, "target_len": 9, "columns": ("prompt", "completion")}),
    "ImageSubset": (ImageSubset, {"source": IMAGES, "items": [0, 2]}),
    "ImageFolder": (ImageFolder, {"path": "nowhere", "channels": 3, "check": "header"}),
    "Corpus": (Corpus, {"paths": "nowhere", "field": "text", "separator": "|"}),
    "Corpus.of": (Corpus.of, {"texts": ["one"]}),
    "Tokenizer.train_bpe": (Tokenizer.train_bpe, {"texts": ["one"], "vocab_size": 257}),
    "Tokenizer.chars": (Tokenizer.chars, {"texts": ["one"]}),
    "Tokenizer.from_file": (Tokenizer.from_file, {"path": "nowhere"}),
    "Tokenizer.from_spec": (Tokenizer.from_spec, {"spec": "chars", "texts": ["one"]}),
    "Tokenizer.encode": (TOKENIZER.encode, {"text": "hello"}),
    "Tokenizer.encode_documents": (TOKENIZER.encode_documents, {"documents": ["hello"]}),
    "Tokenizer.decode": (TOKENIZER.decode, {"ids": [1, 2]}),
    "Tokenizer.token": (TOKENIZER.token, {"token_id": 1}),
    "Tokenizer.token_id": (TOKENIZER.token_id, {"token": "h"}),
    "StreamDecoder.push": (TOKENIZER.stream().push, {"token_id": 1}),
    "TokenStore": (TokenStore, {"path": "nowhere"}),
    "TokenStore.build": (TokenStore.build, {"paths": "nowhere", "tokenizer": TOKENIZER, "cache": "nowhere", "separator": "|", "field": "text"}),
    "encode_pairs": (encode_pairs, {"pairs": [("hello", "world")], "tokenizer": TOKENIZER}),
    "Chat": (Chat, {"messages": CHAT, "tools": None, "text": None, "where": "here"}),
    "Chats": (Chats, {"items": [Chat(CHAT)], "formats": {}, "bad": 0, "duplicates": 0, "first_bad": ""}),
    "Chats.split": (read_chats([PAIR, {**PAIR, "prompt": "b"}]).split, {"validation": 0.5}),
    "Chats.repeated": (read_chats([PAIR]).repeated, {"weight": 2}),
    "ChatTemplate": (ChatTemplate, {"source": "a", "bos_token": "", "eos_token": "", "name": "a"}),
    "ChatTemplate.of": (ChatTemplate.of, {"spec": "chatml"}),
    "ChatTemplate.builtin": (ChatTemplate.builtin, {"name": "chatml", "bos_token": ""}),
    "read_chats": (read_chats, {"source": [PAIR], "format": None, "system": None, "skip_bad": False}),
    "encode_chats": (encode_chats, {"chats": [Chat(CHAT)], "tokenizer": TOKENIZER, "template": None, "train_on": "answers", "seq_len": None, "too_long": "cut", "skip_bad": False}),
    "Question": (Question, {"prompt": "a", "choices": ("b", "c"), "answer": 0, "where": ""}),
    "read_choices": (read_choices, {"source": [ROW], "skip_bad": False}),
    "encode_choices": (encode_choices, {"questions": [Question("he", ("l", "o"), 0)], "tokenizer": TOKENIZER}),
    "read_text": (read_text, {"paths": "nowhere"}),
}  # fmt: skip
# Messages may speak of the part that is at fault.
ALSO = {
    "read_table": ["read_records", "ArrayDataset"], "Seq2SeqDataset": ["read_records", "read_pairs"],
    "TextClassificationDataset": ["read_records", "read_labelled"],
    "TokenClassificationDataset": ["read_records"],
    "Tokenizer.from_spec": ["Tokenizer."], "Loader": ["TokenDataset"], "TokenStore": ["store.json"],
    "TokenStore.build": ["Corpus"], "encode_pairs": ["Tokenizer."], "read_chats": ["read_records"],
    "read_choices": ["read_records"],
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_junk_is_refused_by_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name in ("ImageFolder", "Resize", "RandomResizedCrop"):
        pytest.importorskip("PIL.Image")
    call, good = CALLS[name]
    known = [name, name.split(".", maxsplit=1)[0], *ALSO.get(name, [])]
    unclear = []
    for argument in good:
        for junk in JUNK:
            try:
                call(**{**good, argument: junk})
            except (ValueError, TypeError, IndexError) as error:
                if not any(part in str(error) for part in known):
                    unclear.append((argument, junk, error))
            # Anything else, an AttributeError or an OverflowError, ends the test.
    assert not unclear


@pytest.mark.parametrize("name", CALLS)
def test_numbers_of_numpy_are_numbers(name: str) -> None:
    call, good = CALLS[name]
    kinds = {int: np.int64, float: np.float32}
    changed = {k: kinds[type(v)](v) if type(v) in kinds else v for k, v in good.items()}
    if changed == good or any(v == "nowhere" for v in good.values() if isinstance(v, str)):
        return
    made = call(**changed)
    for key, value in good.items():
        if type(value) is int and isinstance(getattr(made, key, None), (int, np.integer)):
            assert type(getattr(made, key)) is int or key in ("size",), key


@pytest.mark.parametrize(
    "image", [np.zeros((4, 4)), np.zeros((4, 4, 3), np.uint8), np.zeros((0, 4, 3)), [[1]], None]
)
def test_what_is_no_image_is_refused_by_name(image: Any) -> None:
    pytest.importorskip("PIL.Image")
    for transform in (
        Resize(2), CenterCrop(2), RandomCrop(2), RandomCrop(2, padding=1), RandomResizedCrop(2),
        HorizontalFlip(), ColorJitter(0.1), Normalize((0.5,) * 3, (0.5,) * 3),
    ):  # fmt: skip
        name = type(transform).__name__
        call = Pipeline("test", [transform])
        if isinstance(image, np.ndarray) and image.dtype == np.uint8:
            if name in ("Resize", "RandomResizedCrop", "ColorJitter"):
                with pytest.raises(TypeError, match=f"{name}: .*uint8"):
                    call(image, np.random.default_rng(0))
            continue
        with pytest.raises(ValueError, match=f"{name}: an image"):
            call(image, np.random.default_rng(0))


def test_the_table_has_all_classes() -> None:
    skipped = {"ChatCounts", "EncodedChats", "LabelledTexts"}  # results
    skipped |= {"Batch", "StreamDecoder", "Tokenizer", "TextTransform", "Dataset", "ImageSource"}
    classes = {n for n in data.__all__ if inspect.isclass(getattr(data, n))} - skipped
    assert classes - {"ImageTransform"} <= set(CALLS)
