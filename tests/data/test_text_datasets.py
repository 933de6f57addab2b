# SPDX-License-Identifier: MIT
"""Texts with a class or another text each: files, lists, padding, lengths, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pyggml.data import Loader, Seq2SeqDataset, TextClassificationDataset, Tokenizer, read_labelled
from pyggml.errors import FormatError

pytest.importorskip("tokenizers")
TOKENIZER = Tokenizer.chars(["abcdefgh 0123456789"])
TEXTS = ["a" * (1 + n % 30) for n in range(200)]
LABELS = ["odd" if n % 2 else "even" for n in range(200)]


def test_files_rows_and_lists_are_the_same(tmp_path):
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "t.csv").write_text(
        "text,label\n" + "".join(f"{r['text']},{r['label']}\n" for r in rows)
    )
    found = [
        TextClassificationDataset(TEXTS, TOKENIZER, LABELS),
        *(TextClassificationDataset(s, TOKENIZER) for s in (rows, tmp_path / "t.jsonl")),
        TextClassificationDataset(tmp_path / "t.csv", TOKENIZER),
    ]
    assert len({each.fingerprint() for each in found}) == 1
    assert (found[0].names, found[0].classes) == (("even", "odd"), 2)


def test_texts_of_similar_length_are_together():
    data = TextClassificationDataset(TEXTS, TOKENIZER, LABELS, seq_len=20)
    lengths = data.documents.lengths
    assert lengths.max() == 20
    for epoch in range(2):
        order = data.order(np.random.default_rng(epoch))
        assert sorted(order) == list(range(200))
    batches = list(Loader(data, 20, seed=1).once())
    spread = [np.ptp(batch.inputs["attention_mask"].sum(1)) for batch in batches]
    assert max(spread) <= 4
    assert {batch.x.shape[1] for batch in batches} == {8, 16, 20}


def test_parts_of_a_split_keep_the_names():
    rows = [
        {"text": t, "label": n} for t, n in zip(["a", "b", "c", "d"] * 3, "xy" * 6, strict=True)
    ]
    parts = [TextClassificationDataset(p, TOKENIZER) for p in read_labelled(rows).split(0.5)]
    assert [part.names for part in parts] == [("x", "y")] * 2


def test_targets_to_write_end_and_fill_up():
    data = Seq2SeqDataset([("ab", "c"), ("a", "defgh")], TOKENIZER, target_len=4)
    batch = data.batch(np.array([1, 0]))
    end = TOKENIZER.eos_id
    assert batch.y[0, :5].tolist() == [*TOKENIZER.encode("def"), end, -100]
    assert batch.y[1, :3].tolist() == [*TOKENIZER.encode("c"), end, -100]
    assert batch.inputs["attention_mask"][:, :3].tolist() == [[1, 0, 0], [1, 1, 0]]
    rows = [{"de": "a", "en": "b"}]
    assert len(Seq2SeqDataset(rows, TOKENIZER, columns=("de", "en"))) == 1


def test_what_is_wrong_is_named():
    with pytest.raises(ValueError, match="labels"):
        TextClassificationDataset(["a", "b"], TOKENIZER, ["x"])
    with pytest.raises(FormatError, match="row 1"):
        TextClassificationDataset(["a", " "], TOKENIZER, ["x", "y"])
    with pytest.raises(FormatError, match="two classes"):
        TextClassificationDataset(["a", "b"], TOKENIZER, ["x", "x"])
    with pytest.raises(TypeError, match="pair 1"):
        Seq2SeqDataset([("a", "b"), ("a", 1)], TOKENIZER)
    with pytest.raises(ValueError, match="source"):
        Seq2SeqDataset([], TOKENIZER)
