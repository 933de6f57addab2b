# SPDX-License-Identifier: MIT
"""`pyggml chat`, `generate --chat` and `eval` of answers, with a small model that knows three."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("typer")
from typer.testing import CliRunner

import pyggml as pg
from pyggml.cli.app import app
from pyggml.data import ChatTemplate, Loader, PackedDataset, encode_chats, read_chats
from pyggml.models import build
from pyggml.nn import apply_lora

from ..data.chat_templates import tokenizer_for

KNOWN = {"One?": "the answer", "Two?": "here", "Six?": "nothing at all"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model, an adapter of nothing, and the chats that the model knows."""
    folder = tmp_path_factory.mktemp("chat")
    rows = [{"prompt": question, "completion": answer} for question, answer in KNOWN.items()]
    (folder / "known.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tokenizer = tokenizer_for(special=("<|im_start|>", "<|im_end|>"), eos="<|im_end|>")
    template = ChatTemplate.builtin("chatml")
    documents = encode_chats(read_chats(folder / "known.jsonl"), tokenizer, template).documents
    pg.seed(1)
    sizes = {"vocab_size": tokenizer.vocab_size, "context": 96, "n_embd": 32, "n_layer": 1}
    model = build("llama", {**sizes, "n_head": 2})
    rows = PackedDataset(documents, 48)
    step = pg.train.TrainStep(model, pg.optim.AdamW(model.parameters(), lr=1e-2))
    for number in range(120):
        for batch in Loader(rows, len(rows), seed=number).once():
            step([batch])
    model.metadata["tokenizer.chat_template"] = template.source
    model.save(folder / "model.gguf", tokenizer)
    apply_lora(model, rank=2, targets="all-linear")
    pg.models.save_lora(model, folder / "adapter.gguf")
    return folder


def run(*args, typed=""):
    """Run a command with lines on stdin."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], input=typed)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_a_conversation(folder, tmp_path):
    saved = tmp_path / "talk.jsonl"
    typed = f"One?\n/nothing\n/clear\nT\\\nwo?\n/retry\n/clear\nTwo?\n/save {saved}\n/exit\nSix?\n"
    code, out, err = run(
        "chat", folder / "model.gguf", "--temperature", 0, "--max-tokens", 20, typed=typed
    )
    assert code == 0, err
    answers = out.splitlines()
    assert answers[0] == KNOWN["One?"]
    assert answers[-1] == KNOWN["Two?"]
    assert KNOWN["Six?"] not in out
    assert "/nothing: no such command" in err
    [chat] = read_chats(saved)
    assert [m["content"] for m in chat.messages] == ["Two?", KNOWN["Two?"]]


def test_the_options_of_chat(folder, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ raise_exception('no') }}")
    given = ["chat", folder / "model.gguf", "--temperature", 0, "--max-tokens", 20]
    code, out, _ = run(*given, "--lora", folder / "adapter.gguf", typed="Six?\n")
    assert (code, out) == (0, KNOWN["Six?"] + "\n")
    code, out, err = run(*given, "--chat-template", tmp_path / "t.jinja", typed="Six?\n")
    assert (code, out) == (1, "")  # no message was answered
    assert "t.jinja:1: the template fails: no" in err
    code, _, err = run(*given, "--chat-template", "nothing", typed="Six?\n")
    assert code == 2
    assert "--chat-template" in err
    saved = tmp_path / "talk.jsonl"
    typed = f"/help\n/system Be brief.\n/retry\n{'x' * 300}\n/save\n/save {saved}\n"
    code, out, err = run(*given, typed=typed)
    assert code == 1
    assert "/save FILE" in err
    assert "no message was answered" in err
    assert "/save: nothing was answered yet" in err
    assert not saved.exists()
    assert "shorten" in err
    code, out, err = run(*given, typed=f"{'x' * 300}\nSix?\n")
    assert (code, out) == (0, KNOWN["Six?"] + "\n")
    assert "shorten" in err


def test_generate_answers_a_prompt(folder):
    given = ["generate", "--model", folder / "model.gguf", "--temperature", 0, "--max-tokens", 20]
    code, out, _ = run(*given, "--chat", "--prompt", "One?", "--lora", folder / "adapter.gguf")
    assert (code, out) == (0, KNOWN["One?"] + "\n")
    code, _, err = run(*given, "--prompt", "One?", "--system", "Be brief.")
    assert code == 2
    assert "--chat" in err


def test_a_model_without_a_template_needs_one(tmp_path):
    tokenizer = tokenizer_for(eos="<eos>")
    sizes = {"vocab_size": tokenizer.vocab_size, "context": 64, "n_embd": 16, "n_layer": 1}
    build("llama", {**sizes, "n_head": 2}).save(tmp_path / "model.gguf", tokenizer)
    code, _, err = run("chat", tmp_path / "model.gguf", typed="Hi\n")
    assert code == 2
    assert "--chat-template" in err
    code, _, err = run(
        "chat",
        tmp_path / "model.gguf",
        "--chat-template",
        "zephyr",
        "--max-tokens",
        2,
        typed="Hi\n",
    )
    assert code == 0, err


def test_eval_compares_answers(folder, tmp_path):
    rows = (folder / "known.jsonl").read_text() + '\n{"prompt": "One?", "completion": "wrong"}\n'
    (tmp_path / "asked.jsonl").write_text(rows)
    given = ["eval", "--model", folder / "model.gguf", "--answers", tmp_path / "asked.jsonl"]
    code, out, err = run(*given, "--max-tokens", 20, "--json", "--lora", folder / "adapter.gguf")
    assert code == 0, err
    assert json.loads(out) == {"questions": 4, "exact_match": 0.75}
    (tmp_path / "asked.jsonl").write_text(rows + '{"prompt": "Two?"}\n')
    code, _, err = run(*given)
    assert code == 1
    assert "asked.jsonl:5: " in err
    assert "leave it out with --skip-bad" in err
    code, out, err = run(*given, "--limit", 3, "--skip-bad")
    assert "1 bad row left out" in err
    assert out.split() == ["questions", "3", "exact_match", "1.0000"]


def test_eval_chooses_the_likeliest_choice(folder, tmp_path):
    rows = [{"question": "a?", "choices": ["b", "c", "d"], "answer": n} for n in range(3)]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = ["eval", "--model", folder / "model.gguf", "--choices", tmp_path / "q.jsonl"]
    code, out, err = run(*given, "--json")
    assert code == 0, err
    found = json.loads(out)
    # Of the same question with each answer once, one is right.
    assert (found["questions"], round(found["acc"], 6)) == (3, round(1 / 3, 6))
    code, _, err = run(*given, "--answers", tmp_path / "q.jsonl")
    assert code == 2
    assert "--choices and --answers" in err
    for option, value, needed in (
        ("--max-tokens", 8, "--answers"), ("--seq-len", 8, "--text"),
        ("--scores", "accuracy", "--text"), ("--skip-bad", None, "--answers"),
    ):  # fmt: skip
        code, _, err = run(*given, option, *[value] * (value is not None))
        assert code == 2
        assert f"{option} needs {needed}" in err
    code, _, err = run("eval", "--model", folder / "model.gguf")
    assert code == 2
    assert "--text" in err
