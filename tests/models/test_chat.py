# SPDX-License-Identifier: MIT
"""Conversations with a model: what is read once, full contexts, interruptions."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jinja2")
pytest.importorskip("tokenizers")
import pyggml as pg
from pyggml.data import ChatTemplate, encode_prompt, end_ids
from pyggml.models import ChatSession, Generator, build, generate

from ..data.chat_templates import tokenizer_for

TEMPLATE = ChatTemplate.builtin("chatml")
TOKENIZER = tokenizer_for(special=("<|im_start|>", "<|im_end|>"), eos="<eos>")


@pytest.fixture(scope="module")
def model():
    pg.seed(3)
    sizes = {"vocab_size": TOKENIZER.vocab_size, "context": 160, "n_embd": 16, "n_layer": 2}
    model = build("llama", {**sizes, "n_head": 2})
    for p in model.parameters():
        if p.ndim == 2:
            p.copy_(p.numpy() * 20)
    return model


def test_answers_are_those_of_reading_all_anew(model, monkeypatch):
    fed = []
    feed = Generator.feed

    def counted(self, ids):
        fed.append(len(ids))
        return feed(self, ids)

    monkeypatch.setattr(Generator, "feed", counted)
    session = ChatSession(model, TOKENIZER, TEMPLATE, system="Be brief.")
    messages = [{"role": "system", "content": "Be brief."}]
    for text in ("One?", "Two?"):
        fed.clear()
        pieces = []
        answer = session.answer(text, 8, temperature=0, callback=pieces.append)
        messages.append({"role": "user", "content": text})
        prompt = encode_prompt(messages, TOKENIZER, TEMPLATE)
        if len(messages) > 2:  # what was read is not read again
            assert fed[0] < prompt.size / 2
        wanted = generate(model, prompt, 8, temperature=0, stop_ids=end_ids(TOKENIZER))
        assert answer == TOKENIZER.decode(wanted, skip_special=True) == "".join(pieces)
        messages.append({"role": "assistant", "content": answer})
    assert session.messages == messages


def test_a_full_context_forgets_the_oldest_messages(model):
    session = ChatSession(model, TOKENIZER, TEMPLATE, system="S")
    for number in range(6):
        session.answer(f"Message {number} is here.", 5, temperature=0)
    assert session.dropped > 0
    assert session.messages[0] == {"role": "system", "content": "S"}
    assert session.messages[1]["role"] == "user"
    before = [*session.messages]
    with pytest.raises(ValueError, match="shorten"):
        session.answer("long " * 100, 5)
    assert session.messages[-1] == before[-1]
    session.clear()
    assert session.messages == []


def test_an_answer_that_is_stopped_stays(model):
    session = ChatSession(model, TOKENIZER, TEMPLATE)
    session.answer("One?", 20, temperature=0, callback=lambda piece: False)
    assert [message["role"] for message in session.messages] == ["user", "assistant"]

    def fail(piece):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.answer("Two?", 20, temperature=0, callback=fail)
    assert len(session.messages) == 4
    again = ChatSession(model, TOKENIZER, TEMPLATE)
    again.messages = [*session.messages]
    assert session.answer("Three?", 8, temperature=0) == again.answer("Three?", 8, temperature=0)


def test_tokens_that_end_an_answer():
    names = {TOKENIZER.token(number) for number in end_ids(TOKENIZER)}
    assert {"<eos>", "<|im_end|>", "<|endoftext|>"} == names
    assert np.all([number in TOKENIZER.special_ids for number in end_ids(TOKENIZER)])
