# SPDX-License-Identifier: MIT
"""Words with a label each: which token counts, where texts are cut, refusals; F1 of spans."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Loader, TokenClassificationDataset, Tokenizer
from pyggml.errors import FormatError, ShapeError
from pyggml.models import BERTConfig, BERTForTokenClassification
from pyggml.train import predict, span_f1_score

tokenizers = pytest.importorskip("tokenizers")
TOKENIZER = Tokenizer.chars(["abcdefgh"])
WORDS = [["ab", "c"], ["d"], ["efgh", "a", "b"]]
TAGS = [["B-x", "O"], ["O"], ["B-y", "I-y", "O"]]


def wordpiece():
    """A tokenizer as BERT's: words in pieces, [CLS] before a text and [SEP] behind it."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##know", "##n", "word", ",", "go", "##ne"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return backend


def roberta():
    """A byte-level one whose words begin with a space, as Hugging Face's guide asks for."""
    backend = tokenizers.Tokenizer.from_str(
        Tokenizer.train_bpe(["un known gone, word go"], 270).to_json()
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    return backend


@pytest.mark.parametrize("make", [wordpiece, roberta])
def test_the_first_token_of_a_word_counts_as_in_hugging_faces_guide(make):
    words, labels = ["unknown", "word,", "gone", "go"], [0, 1, 2, 1]
    encoded = make().encode(words, is_pretokenized=True)
    targets, before = [], None
    for word in encoded.word_ids:
        targets.append(-100 if word is None or word == before else labels[word])
        before = word
    batch = TokenClassificationDataset([words], Tokenizer(make()), [labels]).batch(np.array([0]))
    assert batch.x[0, : len(targets)].tolist() == encoded.ids
    assert batch.y[0].tolist() == targets + [-100] * (batch.y.shape[1] - len(targets))
    assert batch.inputs["attention_mask"].sum() == len(targets)


def test_whole_words_are_cut_off_and_the_end_is_kept():
    words = [["unknown", "word", "gone"]]
    data = TokenClassificationDataset(words, Tokenizer(wordpiece()), [["a", "b", "a"]], seq_len=7)
    assert data.batch(np.array([0])).x[0].tolist() == [2, 4, 5, 6, 7, 3, *[0] * 1][:6]
    assert (data.words, data.tags) == ([["unknown", "word"]], [["a", "b"]])
    with pytest.raises(FormatError, match=r"row 0.*seq_len=3"):
        TokenClassificationDataset(words, Tokenizer(wordpiece()), [["a", "b", "a"]], seq_len=3)


def test_files_rows_and_lists_are_the_same(tmp_path):
    rows = [{"tokens": w, "tags": t} for w, t in zip(WORDS, TAGS, strict=True)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    other = [{"w": row["tokens"], "ner": row["tags"]} for row in rows]
    letters = Tokenizer.chars(["abcdefgh "])
    found = [
        TokenClassificationDataset(WORDS, letters, TAGS),
        TokenClassificationDataset(rows, letters),
        TokenClassificationDataset(tmp_path / "t.jsonl", letters),
        TokenClassificationDataset(other, letters, columns=("w", "ner")),
    ]
    assert len({each.fingerprint() for each in found}) == 1
    assert found[0].names == ("B-x", "B-y", "I-y", "O")
    assert (found[0].words, found[0].tags) == (WORDS, TAGS)
    numbered = TokenClassificationDataset([["a"], ["b"]], TOKENIZER, [[1], [0]], names=["O", "x"])
    assert numbered.tags == [["x"], ["O"]]
    bare = TokenClassificationDataset([["a"], ["b"]], TOKENIZER, [[np.int64(2)], [0]])
    assert (bare.names, bare.classes, bare.tags) == (None, 3, [[2], [0]])


def test_predictions_of_batches_of_any_length_come_back_to_their_words():
    pg.seed(0)
    letters = Tokenizer.chars(["abcdefgh "])
    words = [["ab"] * (1 + n % 9) for n in range(20)]
    tags = [["x", *["O"] * (len(row) - 1)] for row in words]
    data = TokenClassificationDataset(words, letters, tags)
    sizes = {"vocab_size": letters.vocab_size, "classes": 2, "labels": data.names}
    model = BERTForTokenClassification(BERTConfig.preset("tiny", **sizes))
    assert len({batch.x.shape for batch in Loader(data, 3, shuffle=False).once()}) > 2
    found = data.of_words(predict(model, data, batch_size=3))
    assert [len(row) for row in found] == [len(row) for row in words]
    alone = model(pg.tensor(data.batch(np.array([8])).x[:, : data.documents.lengths[8]])).numpy()
    first = data.targets[8] != -100
    assert found[8] == [data.names[n] for n in alone[0].argmax(-1)[first]]


def test_what_is_wrong_is_named():
    data = TokenClassificationDataset([["a"], ["b"]], TOKENIZER, [["x"], ["y"]])
    with pytest.raises(ShapeError, match="predicted"):
        data.of_words(np.zeros((3, 8), np.int64))
    with pytest.raises(ValueError, match="classes"):
        BERTForTokenClassification(BERTConfig.preset("tiny", vocab_size=9, classes=1))
    for words, tags, names, message in [
        ([["a"]], [["x"], ["y"]], None, "labels must be a list for each text"),
        ([["a", "b"]], [["x"]], None, "row 0: must have a label for each word"),
        ([["a"], [" "]], [["x"], ["y"]], None, "row 1: a word"),
        ([["a"], ["b"]], [["x"], ["x"]], None, "two classes"),
        ([["a"], ["b"]], [["x"], [1]], None, "all names or all numbers"),
        ([["a"], ["b"]], [[0], [-1]], None, "from 0"),
        ([["a"], ["b"]], [["x"], ["z"]], ["x", "y"], "row 1: a label must be one of x, y"),
        ([["a"], ["b"]], [[0], [2]], ["x", "y"], "row 1: a label must be one of 0 to 1"),
        (["ab"], [["x"]], None, "tokens must be a list"),
    ]:
        with pytest.raises(ValueError, match=message):
            TokenClassificationDataset(words, TOKENIZER, tags, names=names)
    with pytest.raises(FormatError, match=r"tags is missing.*columns"):
        TokenClassificationDataset([{"tokens": ["a"], "ner_tags": [1]}], TOKENIZER)


def test_spans_count_whole():
    wanted = [["B-a", "I-a", "O", "B-b"], ["I-a", "B-a", "I-b"]]
    assert span_f1_score(wanted, wanted) == 1.0
    # Of the six spans here and there, (0, 0, 2, a), (1, 0, 1, a) and (1, 2, 3, b) are in both.
    found = [["B-a", "I-a", "O", "O"], ["B-a", "O", "B-b"]]
    assert span_f1_score(found, wanted) == pytest.approx(2 * 3 / (3 + 5))
    assert span_f1_score([["O"]], [["O"]]) == 0.0
    with pytest.raises(ShapeError, match="targets"):
        span_f1_score([["O"]], [["O", "O"]])
    with pytest.raises(ValueError, match="B-kind"):
        span_f1_score([["name"]], [["O"]])
