# SPDX-License-Identifier: MIT
"""Questions with choices: the formats of rows, and the tokens of the choices."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("tokenizers")
from pyggml.data import Question, Tokenizer, encode_choices, read_choices
from pyggml.errors import FormatError

ARC = {
    "question": "Which is hot?",
    "choices": {"text": ["ice", "fire"], "label": ["1", "2"]},
    "answerKey": "2",
}
HELLASWAG = {
    "activity_label": "Cooking",
    "ctx_a": "A man cooks.",
    "ctx_b": "he",
    "endings": ["eats [step] it.", "flies."],
    "label": "0",
}
PIQA = {"goal": "To open", "sol1": "pull", "sol2": "sleep", "label": 0}


def test_formats():
    arc, hellaswag, piqa = read_choices([ARC, HELLASWAG, PIQA])
    assert arc == Question("Question: Which is hot?\nAnswer:", (" ice", " fire"), 1, "row 0")
    assert hellaswag.prompt == "Cooking: A man cooks. He"
    assert hellaswag.choices == (" eats it.", " flies.")
    assert (piqa.prompt, piqa.answer) == ("Question: To open\nAnswer:", 0)
    for answer, number in ((1, 1), ("B", 1), ("b", 1), ("0", 0), ("y", 1)):
        row = {"context": "c", "choices": ["x", "y"], "answer": answer}
        assert read_choices([row])[0] == Question("c", (" x", " y"), number, "row 0")


@pytest.mark.parametrize(
    "row",
    [
        {**ARC, "answerKey": "C"},
        {**ARC, "choices": {"text": ["ice"], "label": ["1"]}},
        {**HELLASWAG, "label": ""},
        {**PIQA, "goal": ""},
        {"question": "a", "choices": "b", "answer": 0},
        {"question": "a", "choices": ["b", "c"], "answer": True},
        {"text": "a"},
    ],
)
def test_bad_rows(tmp_path, row):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(FormatError, match=r"q\.jsonl:1"):
        read_choices(path)
    assert len(read_choices([row, ARC], skip_bad=True)) == 1
    with pytest.raises(FormatError, match="none"):
        read_choices([row], skip_bad=True)


def test_the_choice_counts():
    tokenizer = Tokenizer.train_bpe(["the answer is here"] * 3, 270)
    question = Question("the answer", (" is here", " is"), 0)
    documents = encode_choices([question], tokenizer)
    for item, choice in enumerate(question.choices):
        ids, counted = documents[item], documents.targets(item)
        assert tokenizer.decode(ids[counted]) == choice
        assert tokenizer.decode(ids[~counted]) == question.prompt
    with pytest.raises(FormatError, match="question 0"):
        encode_choices([question], Tokenizer.chars(["abc"]))


@pytest.mark.parametrize(
    ("row", "got"),
    [
        ({"question": "1+1?", "choices": ["2", "3"], "answer": "C"}, "'C'"),
        ({"question": "1+1?", "choices": ["2", "3"], "answer": "7"}, "'7'"),
        (
            {
                "question": "?",
                "choices": {"text": ["a", "b"], "label": ["A", "B"]},
                "answerKey": "E",
            },
            "'E'",
        ),
    ],
)
def test_an_answer_that_is_no_choice_is_told_as_the_file_has_it(row, got, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(FormatError, match=f"got {got}$"):
        read_choices(file)
