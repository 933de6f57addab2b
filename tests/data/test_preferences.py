# SPDX-License-Identifier: MIT
"""Preferences: rows, what is refused, and tokens."""

from __future__ import annotations

import json

import pytest

from pyggml.data import ChatTemplate, Tokenizer, read_chats
from pyggml.data.text.chat import encode_preferences, read_preferences
from pyggml.errors import FormatError

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
USER = {"role": "user", "content": "2+2?"}


def answer(text):
    return {"role": "assistant", "content": text}


TEXTS = {"prompt": "2+2?", "chosen": "4", "rejected": "5"}
MESSAGES = {"prompt": [USER], "chosen": [answer("4")], "rejected": [answer("5")]}
WHOLE = {"chosen": [USER, answer("4")], "rejected": [USER, answer("5")]}
BOTH = {"prompt": "2+2?", **WHOLE}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.chars(["<user><assistant><system>2+2?45</s> Be brief."])


@pytest.mark.parametrize("row", [TEXTS, MESSAGES, WHOLE, BOTH])
def test_all_forms_of_a_pair_give_the_same_tokens(row, tokenizer):
    template = ChatTemplate(TEMPLATE)
    encoded = encode_preferences(read_preferences([row]), tokenizer, template)
    texts = [tokenizer.decode(ids) for ids in encoded.documents]
    prompt = "<user>2+2?</s><assistant>"
    assert [text.removeprefix(prompt)[0] for text in texts] == ["4", "5"]
    for number, digit in enumerate("45"):
        ids, flags = encoded.documents[number], encoded.documents.targets(number)
        assert tokenizer.decode(ids[flags]).startswith(digit)
        assert tokenizer.decode(ids[~flags]) == prompt
    assert encoded.paired
    assert encoded.labels.tolist() == [True, False]
    assert len(encoded) == 1


def test_only_the_last_answer_is_marked(tokenizer):
    row = {"prompt": [USER, answer("5"), USER], "chosen": "4", "rejected": "5"}
    read = read_preferences([row], system="Be brief.")
    assert [m["role"] for m in read.chats[0].messages] == [
        "system", "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    encoded = encode_preferences(read, tokenizer, ChatTemplate(TEMPLATE))
    ids, flags = encoded.documents[0], encoded.documents.targets(0)
    assert tokenizer.decode(ids[flags])[0] == "4"
    assert flags.sum() <= 6


def test_labels_are_read(tokenizer, tmp_path):
    rows = [{"prompt": "2+2?", "completion": "4", "label": label} for label in (True, 0, "false")]
    read = read_preferences(rows)
    assert read.labels == [True, False, False]
    assert not read.paired
    assert len(read) == 3
    path = tmp_path / "judged.csv"
    path.write_text("prompt,completion,label\n2+2?,4,True\n2+2?,5,0\n")
    assert read_preferences(path).labels == [True, False]
    pairs = encode_preferences(read_preferences([TEXTS]).unpaired(), tokenizer)
    assert len(pairs) == 2
    assert pairs.labels.tolist() == [True, False]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"prompt": "2+2?", "chosen": "4"}, "rejected"),
        ({"prompt": "2+2?", "chosen": "4", "rejected": ""}, "empty"),
        ({"prompt": "2+2?", "chosen": "4", "rejected": 5}, "rejected"),
        ({"prompt": "2+2?", "chosen": "4", "rejected": "4"}, "differ"),
        ({"prompt": 3, "chosen": "4", "rejected": "5"}, "prompt"),
        ({"chosen": WHOLE["chosen"], "rejected": [answer("5")]}, "prompt"),
        ({"chosen": [USER], "rejected": [USER, answer("5")]}, "answer"),
        ({"chosen": [{"role": "cat", "content": ""}], "rejected": "5"}, "role"),
    ],
)
def test_bad_rows_name_their_place(row, field, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps(TEXTS) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(FormatError, match=field) as raised:
        read_preferences(path)
    assert "pairs.jsonl" in str(raised.value)
    assert "2" in str(raised.value)
    read = read_preferences(path, skip_bad=True)
    assert len(read) == 1
    assert read.bad == 1
    assert field in read.first_bad


@pytest.mark.parametrize("label", [2, "maybe", None, 0.5])
def test_bad_labels_are_refused(label):
    with pytest.raises(FormatError, match="label"):
        read_preferences([{"prompt": "2+2?", "completion": "4", "label": label}])


def test_no_preference_is_refused(tmp_path):
    with pytest.raises(FormatError, match="preference"):
        read_preferences([])
    with pytest.raises(FormatError, match="chosen"):
        read_preferences([{"text": "2+2?"}])
    path = tmp_path / "broken.jsonl"
    path.write_text('{"prompt": \n')
    with pytest.raises(FormatError, match=r"broken\.jsonl"):
        read_preferences(path)


def test_a_split_keeps_prompts_together():
    rows = [{"prompt": f"{n % 10}", "chosen": "4", "rejected": f"5{n}"} for n in range(30)]
    train, rest = read_preferences(rows).split(0.2, seed=1)
    sides = [{c.messages[0]["content"] for c in side.chats} for side in (train, rest)]
    assert not sides[0] & sides[1]
    assert len(sides[1]) == 2
    assert len(train) + len(rest) == 30
    assert train.labels[:2] == [True, False]
    with pytest.raises(ValueError, match="prompt"):
        read_preferences([TEXTS]).split(0.5)


def test_long_rows_are_cut_or_dropped(tokenizer):
    rows = [TEXTS, {**TEXTS, "rejected": "5" * 20}, {**TEXTS, "prompt": "2" * 30}]
    encoded = encode_preferences(read_preferences(rows), tokenizer)
    cut = encoded.limited(10)
    assert (len(cut), cut.cut, cut.dropped) == (2, 1, 1)
    assert cut.documents.lengths.max() == 11
    dropped = encoded.limited(10, "drop")
    assert (len(dropped), dropped.cut, dropped.dropped) == (1, 0, 2)
    assert cut.fingerprint() != dropped.fingerprint()
    with pytest.raises(FormatError, match="seq_len"):
        encoded.limited(2)


def test_tools_are_told_to_the_template(tokenizer):
    template = ChatTemplate("{% if tools %}tools {% endif %}{{ messages[-1].content }}")
    tools = [{"type": "function", "function": {"name": "f"}}]
    prompt = [{"role": "user", "content": "One?"}]
    answers = [[{"role": "assistant", "content": text}] for text in ("1", "2")]
    rows = [{"prompt": prompt, "chosen": answers[0], "rejected": answers[1], "tools": tools}]
    found = read_preferences(rows)
    assert [chat.tools for chat in found.chats] == [tools, tools]
    assert "tools" in template.render(found.chats[0].messages, found.chats[0].tools)
    [pair] = read_chats([{"prompt": prompt, "completion": answers[0], "tools": tools}])
    assert pair.tools == tools


def test_pairs_that_are_the_same_up_to_the_cut_are_left_out(tokenizer):
    rows = [
        {"prompt": "2+2?", "chosen": "2+2+2 4", "rejected": "2+2+2 5"},
        {"prompt": "2?", "chosen": "4", "rejected": "5"},
    ]
    encoded = encode_preferences(read_preferences(rows), tokenizer)
    longest = int(encoded.documents.lengths.max())
    assert len(encoded.limited(longest - 1)) == 2
    short = encoded.limited(longest - 3)
    assert (len(short), short.dropped) == (1, 1)
