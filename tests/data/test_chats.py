# SPDX-License-Identifier: MIT
"""Conversations of files, and their tokens."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("jinja2")
pytest.importorskip("tokenizers")
from pyggml.data import (
    Chat,
    Chats,
    ChatTemplate,
    Loader,
    PackedDataset,
    Tokenizer,
    encode_chats,
    encode_prompt,
    read_chats,
    show_sample,
)
from pyggml.errors import FormatError

from .chat_templates import tokenizer_for
from .test_vocabularies import PIECES, spm

TALK = [
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "4"},
]
ROWS = {
    "messages": {"messages": TALK},
    "sharegpt": {
        "conversations": [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "4"}]
    },
    "alpaca": {"instruction": "2 + 2?", "input": "", "output": "4"},
    "pairs": {"prompt": "2 + 2?", "completion": "4"},
}


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet"])
def test_formats_of_rows_and_files(tmp_path, kind, suffix):
    path, row = tmp_path / f"data.{suffix}", ROWS[kind]
    if suffix == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(
            pyarrow.Table.from_pylist([row, row]), path
        )
    elif suffix == "csv":
        csv = pytest.importorskip("csv")
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(row)
            flat = [v if isinstance(v, str) else json.dumps(v) for v in row.values()]
            writer.writerows([flat, flat])
    elif suffix == "json":
        path.write_text(json.dumps([row, row], indent=1))
    else:
        path.write_text(json.dumps(row) + "\n\n" + json.dumps(row) + "\n")
    chats = read_chats(path)
    assert chats.formats == {str(path): kind}
    assert [list(chat.messages) for chat in chats] == [TALK, TALK]
    assert chats[0].where.startswith(str(path))
    assert kind in chats.summary()


def test_a_json_file_of_lines_is_read_as_lines(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(ROWS["pairs"]) + "\n" + json.dumps(ROWS["pairs"]))
    assert len(read_chats(tmp_path / "a.json")) == 2


def test_hugging_face_datasets():
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([ROWS["messages"]])
    assert list(read_chats(rows)[0].messages) == TALK


def test_the_rest_of_the_formats():
    calls = {"name": "add", "arguments": {"a": 1}}
    [chat] = read_chats(
        [
            {
                "system": "Be exact.",
                "tools": json.dumps([{"type": "function"}]),
                "conversations": [
                    {"from": "human", "value": "1 + 1?"},
                    {"from": "function_call", "value": json.dumps(calls)},
                    {"from": "observation", "value": "2"},
                    {"from": "gpt", "value": "2", "weight": 0},
                    {"from": "human", "value": "And?"},
                    {"from": "gpt", "value": "No more."},
                ],
            }
        ]
    )
    roles = [message["role"] for message in chat.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert chat.messages[2]["tool_calls"] == [{"type": "function", "function": calls}]
    assert chat.messages[4]["weight"] == 0
    assert chat.tools == [{"type": "function"}]
    [chat] = read_chats(
        [{"instruction": "Add.", "input": "1, 1", "output": "2", "history": [["Hi", "Hello"]]}]
    )
    assert [m["content"] for m in chat.messages] == ["Hi", "Hello", "Add.\n\n1, 1", "2"]
    [chat] = read_chats([{"prompt": [*TALK, TALK[0]], "completion": [TALK[1]]}])
    assert [m.get("train") for m in chat.messages] == [None, False, None, None]
    [chat] = read_chats([ROWS["pairs"]], system="Be brief.")
    assert chat.messages[0] == {"role": "system", "content": "Be brief."}
    [chat] = read_chats([{"text": "All of it."}])
    assert (chat.text, list(chat.messages)) == ("All of it.", [])
    [chat] = read_chats([{"text": "x", "prompt": "a", "completion": "b"}], format="text")
    assert chat.text == "x"


def called(call, *more):
    """Return a row whose answer calls a tool, and what follows it."""
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    return {"messages": [TALK[0], answer, *more]}


ADD = {"id": "c1", "function": {"name": "add"}}
FOREIGN = {"role": "tool", "content": "2", "tool_call_id": "c2"}


BAD = [
    ({"messages": [{"role": "usr", "content": "a"}]}, r"messages\[0\]: role"),
    ({"messages": [*TALK, {"role": "user", "content": 3}]}, r"messages\[2\]: content"),
    ({"messages": [TALK[0], {"role": "assistant", "content": " "}]}, "empty"),
    ({"messages": [TALK[0], {"role": "assistant", "content": None}]}, "empty"),
    ({"messages": [TALK[0]]}, "answer"),
    ({"messages": []}, "answer"),
    ({"messages": "[1"}, "JSON"),
    ({"messages": 1}, "list"),
    ({"messages": ["hi"]}, "mapping"),
    ({"messages": [{"role": "assistant", "content": "", "tool_calls": [1]}]}, "tool_calls"),
    (called({}), r"messages\[1\]: a tool call must have function\.name"),
    (called({"function": {"name": " "}}), "function.name"),
    (
        called({"function": {"name": "add", "arguments": '{"a": 2'}}),
        "arguments of add must be JSON",
    ),
    (called({"function": {"name": "add", "arguments": [1]}}), "arguments of add must be an object"),
    (called(ADD, FOREIGN), "message 2: tool_call_id must be the id of a call before it, 'c1'"),
    ({"conversations": [{"from": "who", "value": "a"}]}, "role"),
    ({"instruction": 1, "output": "a"}, "instruction"),
    ({"prompt": "a", "completion": ""}, "empty"),
    ({"text": " "}, "text"),
    ({"body": "a"}, "body"),
]


@pytest.mark.parametrize(("row", "message"), BAD, ids=range(len(BAD)))
def test_bad_rows_raise_or_are_counted(tmp_path, row, message):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(FormatError, match=rf"^read_chats: .*a\.jsonl:1: .*{message}"):
        read_chats(path)
    good = tmp_path / "b.jsonl"
    good.write_text(json.dumps(ROWS["messages"]))
    chats = read_chats([path, good], skip_bad=True)
    assert (len(chats), chats.bad) == (1, 1)
    assert "a.jsonl:1" in chats.first_bad
    assert "1 bad row" in chats.summary()


def test_broken_lines_name_the_file_and_the_line_or_are_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    line = json.dumps(ROWS["pairs"])
    path.write_text(f"{line}\n{{broken\n[1]\n{line}\n")
    with pytest.raises(FormatError, match=r"a\.jsonl:2: not JSON"):
        read_chats(path)
    chats = read_chats(path, skip_bad=True)
    assert (len(chats), chats.bad) == (2, 2)
    path.write_text("{broken\n")
    with pytest.raises(FormatError, match="none"):
        read_chats(path, skip_bad=True)


def numbered(count: int) -> Chats:
    """Return conversations that differ."""
    return read_chats([{"prompt": f"{i}?", "completion": str(i)} for i in range(count)])


def test_duplicates_weights_and_splits():
    chats = numbered(10) + numbered(4)
    assert len(chats) == 14
    once = chats.unique()
    assert (len(once), once.duplicates) == (10, 4)
    assert "4 duplicates" in once.summary()
    assert list(once) == list(numbered(10))
    assert [len(once.repeated(w)) for w in (1, 2, 0.5, 1.5)] == [10, 20, 5, 15]
    assert list(once.repeated(0.5, seed=3)) == list(once.repeated(0.5, seed=3))
    for weight in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="weight"):
            once.repeated(weight)
    train, validation = chats.split(0.2, seed=1)
    assert len(train) + len(validation) == 14
    assert not {chat.key() for chat in train} & {chat.key() for chat in validation}
    assert len({chat.key() for chat in validation}) == 2
    with pytest.raises(ValueError, match="both parts"):
        numbered(1).split(0.5)
    assert chats.fingerprint() == (numbered(10) + numbered(4)).fingerprint() != once.fingerprint()


def trained(documents, item, tokenizer):
    """Return the trained text of a document."""
    return "".join(text for text, flag in show_sample(documents, item, tokenizer) if flag)


def test_documents_of_conversations_texts_and_bare_pairs():
    tokenizer = tokenizer_for(special=("<|im_start|>", "<|im_end|>"), eos="<eos>")
    chats = read_chats([ROWS["messages"]]) + read_chats([{"text": "plain"}])
    encoded = encode_chats(chats, tokenizer, ChatTemplate.builtin("chatml"))
    assert trained(encoded.documents, 0, tokenizer) == "4<|im_end|>"
    assert trained(encoded.documents, 1, tokenizer) == "plain<eos>"
    assert (encoded.counts.chats, encoded.counts.documents) == (2, 2)
    bare = encode_chats(read_chats([ROWS["pairs"]]), tokenizer)
    assert show_sample(bare.documents, 0, tokenizer) == [("2 + 2?", False), ("4<eos>", True)]
    whole = encode_chats(read_chats([ROWS["pairs"]]), tokenizer, train_on="all")
    assert show_sample(whole.documents, 0, tokenizer) == [("2 + 2?4<eos>", True)]
    with pytest.raises(FormatError, match="template"):
        encode_chats([Chat([*TALK, *TALK])], tokenizer)


def test_what_is_not_trained_is_an_error_or_counted():
    tokenizer = tokenizer_for(special=("<|im_start|>", "<|im_end|>"), eos="<eos>")
    template = ChatTemplate.builtin("chatml")
    chats = [Chat([TALK[0], TALK[1] | {"train": False}], where="a.jsonl:7"), Chat(TALK)]
    with pytest.raises(FormatError, match=r"a\.jsonl:7: .*train"):
        encode_chats(chats, tokenizer, template)
    encoded = encode_chats(chats, tokenizer, template, skip_bad=True)
    assert (encoded.counts.bad, encoded.counts.documents) == (1, 1)
    with pytest.raises(FormatError, match="no conversation is left"):
        encode_chats(chats[:1], tokenizer, template, skip_bad=True)


@pytest.mark.parametrize("source", ["{% for %}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"])
def test_a_template_that_fails_on_any_conversation_is_no_bad_row(source):
    with pytest.raises(FormatError, match=r"chat 0: .*template"):
        encode_chats([Chat(TALK)], tokenizer_for(), ChatTemplate(source), skip_bad=True)


def test_long_conversations_are_cut_split_or_dropped():
    tokenizer = tokenizer_for(special=("<|im_start|>", "<|im_end|>"), eos="<eos>")
    template = ChatTemplate.builtin("chatml")
    chats = [Chat(TALK), Chat([*TALK, *TALK])]
    whole = encode_chats(chats, tokenizer, template)
    short, long = whole.documents.lengths.tolist()
    assert whole.counts.longest == long
    length = short - 1
    cut = encode_chats(chats, tokenizer, template, seq_len=length)
    assert cut.documents.lengths.tolist() == [short, short]
    assert (cut.counts.cut, cut.counts.trained) == (1, 4)
    split = encode_chats(chats, tokenizer, template, seq_len=length, too_long="split")
    assert split.counts.split == 1
    # Every target is in one part, and once.
    assert split.counts.trained == whole.counts.trained == 6
    dropped = encode_chats(chats, tokenizer, template, seq_len=length, too_long="drop")
    assert (dropped.counts.dropped, dropped.counts.documents) == (1, 1)
    tiny = encode_chats([Chat([*TALK, *TALK])], tokenizer, template, seq_len=8, too_long="split")
    assert tiny.counts.untrained > 0
    with pytest.raises(FormatError, match="no conversation is left"):
        encode_chats(chats, tokenizer, template, seq_len=4)


def test_packed_conversations():
    tokenizer = tokenizer_for(special=("<|im_start|>", "<|im_end|>"), eos="<eos>")
    encoded = encode_chats(numbered(6), tokenizer, ChatTemplate.builtin("chatml"), seq_len=64)
    rows = PackedDataset(encoded.documents, 64)
    total = sum(batch.tokens for batch in Loader(rows, 1, shuffle=False, pad_last=True).once())
    assert total == encoded.counts.trained
    assert len(rows) < 6


def test_a_prompt_has_the_tokens_that_stand_before_the_answer():
    template = ChatTemplate.builtin("llama2", "<s>", "</s>")
    plain = tokenizer_for(special=("<s>", "</s>"), bos="<s>", eos="</s>")
    space = Tokenizer.from_gguf_metadata(spm(PIECES, add_bos_token=True))
    for tokenizer in (plain, space):
        document = encode_chats([Chat([*TALK, *TALK])], tokenizer, template).documents
        for count in (1, 3):
            prompt = encode_prompt([*TALK, *TALK][:count], tokenizer, template)
            assert document.ids[: prompt.size].tolist() == prompt.tolist()
            assert document.targets(0)[prompt.size]
            assert not document.targets(0)[prompt.size - 1]
        # One token begins the text, whoever writes it.
        assert document.ids[0] == tokenizer.bos_id != document.ids[1]
        assert trained(document, 0, tokenizer) == " 4 </s> 4 </s>"
        assert np.count_nonzero(document.ids == tokenizer.eos_id) == 2


@pytest.mark.parametrize(
    ("more", "named"),
    [({"weight": "x"}, "weight"), ({"weight": 0.5}, "weight"), ({"train": "false"}, "train")],
)
def test_what_is_trained_is_told_by_truth_values(more, named):
    message = {"role": "assistant", "content": "4", **more}
    rows = [{"messages": [{"role": "user", "content": "2+2?"}, message]}]
    with pytest.raises(FormatError, match=rf"messages\[1\]: {named} must be .*`skip_bad`"):
        read_chats(rows)


def test_pairs_are_asked_for_as_they_are_trained():
    tokenizer = Tokenizer.train_bpe(["2 and 2? It is 4. 12 and 12? It is 24."], 280)
    chats = read_chats([{"prompt": "12 and 2? ", "completion": "It is 14."}])
    documents = encode_chats(chats, tokenizer).documents
    asked = documents[0][: int(np.flatnonzero(documents.targets(0))[0])]
    assert encode_prompt(chats[0].messages[:1], tokenizer, None).tolist() == asked.tolist()
    with pytest.raises(FormatError, match="needs a chat template"):
        encode_prompt(chats[0].messages, tokenizer, None)


@pytest.mark.parametrize("too_long", ["cut", "drop", "split"])
def test_counts_are_of_conversations_however_many_texts_they_need(too_long):
    """An answer that a template writes in another way later has a text of its own."""
    template = ChatTemplate(
        "{% for m in messages %}{{ m.role }}: "
        "{% if loop.last %}{{ m.content }}{% else %}{{ m.content | upper }}{% endif %}\n"
        "{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    tokenizer = tokenizer_for()
    four = [TALK[0], {"role": "assistant", "content": "four"}]
    talk = [*four, {"role": "user", "content": "3 + 3?"}, {"role": "assistant", "content": "six"}]
    chats = [Chat(talk), Chat(TALK), Chat([{**TALK[0], "content": "2?"}, TALK[1]])]
    whole = encode_chats(chats, tokenizer, template)
    assert whole.counts.own_texts == 1
    sizes = sorted(ids.size for ids in whole.documents)
    counts = encode_chats(chats, tokenizer, template, seq_len=sizes[0], too_long=too_long).counts
    assert sizes[0] + 1 < sizes[1]
    assert {"cut": counts.cut, "drop": counts.dropped, "split": counts.split}[too_long] == 2


def test_flags_of_numpy_are_those_of_json():
    answer = {"role": "assistant", "content": "b", "train": np.False_, "weight": np.int64(1)}
    [chat] = read_chats([{"messages": [TALK[0], answer, *TALK]}])
    assert json.loads(chat.key())[0][1] == {**answer, "train": False, "weight": 1}
    assert chat.messages[1]["train"] is False
