# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys

import pytest

import pyggml as pg
from pyggml.cli.training.live import format_seconds
from pyggml.data import Tokenizer
from pyggml.models import build

from .conftest import pyggml


def test_version(cli):
    code, out, _ = cli("--version")
    assert code == 0
    assert (
        out == f"pyggml {pg.__version__} (ggml {pg.ggml_version()}, {pg.patch_count()} patches)\n"
    )


def test_devices(cli):
    code, out, _ = cli("devices")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["name", "free", "total", "description"]
    assert any(line.startswith("cpu") for line in lines[1:])
    assert sum("(auto)" in line for line in lines) == 1


def test_devices_tell_what_leaves_them(cli):
    code, out, _ = cli("devices", "--ops")
    assert code == 0
    lines = out.splitlines()
    start = lines.index("ops of a training step that cpu leaves to the CPU")
    told = dict(line.strip().rsplit(None, 1) for line in lines[start + 1 :] if line)
    assert told == dict.fromkeys(told, "none")
    assert {"gpt2", "llama", "llama with experts", "bert-mlm", "t5", "cnn", "resnet"} <= set(told)


def test_every_option_is_a_flag_of_its_command():
    import typer

    from pyggml.cli.app import app
    from pyggml.cli.options import flag_of
    from pyggml.recipes import ImageConfig, LLMConfig

    own = {
        "train-llm": {"--config", "--resume", "--overwrite"},
        "train-image": {"--config", "--resume", "--overwrite"},
    }
    commands = typer.main.get_command(app).commands
    for name, kind in (("train-llm", LLMConfig), ("train-image", ImageConfig)):
        flags = {flag_of(each) for each in kind.options().values()}
        assert {each.opts[0] for each in commands[name].params} == flags | own[name]


def test_words_for_what_is_chosen_tell_the_real_sizes():
    from pyggml.recipes import LLMConfig
    from pyggml.recipes.sizes import model_config

    options = LLMConfig.options()
    _, sizes = model_config(LLMConfig(), 300)
    real = {"layers": sizes.n_layer, "heads": sizes.n_head, "embd": sizes.n_embd}
    assert {name: options[name].chosen for name in real} == {n: str(v) for n, v in real.items()}
    assert options["seq_len"].chosen.startswith(f"{sizes.context};")


def test_messages_name_flags():
    from pyggml.cli.options import named_by_flags

    said = "TrainerOptions: `lr` must be > 0; got `lr`=-1: leave `keep_best`=False and `x` out"
    assert named_by_flags(said) == (
        "--lr must be > 0; got --lr -1: leave --no-keep-best and `x` out"
    )
    assert named_by_flags("`metrics` must be known") == "--scores must be known"


def test_generate_writes_the_text_alone(trained):
    folder, _ = trained
    done = pyggml("generate", "--model", folder, "--prompt", "The ", "--max-tokens", 12,
                  "--temperature", 0, "--threads", 1)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("The ")
    assert done.stdout.endswith("\n")
    assert 4 <= len(done.stdout) - 1 <= 16


def test_generate_repeats_itself_with_a_seed(trained, cli):
    base = ["generate", "--model", trained[0] / "model.gguf", "--prompt", "The", "--max-tokens", 30]
    texts = [
        cli(*base, *more)[1]
        for more in (
            ["--seed", 1],
            ["--seed", 1],
            ["--seed", 2],
            ["--temperature", 0],
            ["--top-k", 1],
            ["--top-p", 1e-9],
        )
    ]
    assert texts[0] == texts[1] != texts[2]
    assert texts[3] == texts[4] == texts[5]


def test_generate_and_eval_with_another_tokenizer(trained, cli, text_file, tmp_path):
    (tmp_path / "words.json").write_text((trained[0] / "tokenizer.json").read_text())
    given = ("--model", trained[0] / "model.gguf", "--tokenizer")
    code, out, err = cli("generate", *given, tmp_path / "words.json", "--max-tokens", 0)
    assert (code, err) == (0, "")
    code, _, err = cli("generate", *given, tmp_path / "gone.json")
    assert (code, "gone.json" in err) == (1, True)
    code, out, err = cli("eval", *given, tmp_path / "words.json", "--text", text_file, "--json")
    assert (code, err) == (0, "")
    want = cli("eval", "--model", trained[0], "--text", text_file, "--json")[1]
    assert out == want


def test_generate_without_prompt_or_tokens(trained, cli):
    code, out, err = cli("generate", "--model", trained[0], "--max-tokens", 5, "--seed", 0)
    assert (code, err) == (0, "")
    code, out, _ = cli("generate", "--model", trained[0], "--prompt", "The", "--max-tokens", 0)
    assert (code, out) == (0, "The\n")


def test_generate_beyond_the_context(trained, cli):
    code, out, err = cli(
        "generate", "--model", trained[0], "--prompt", "The quick brown foxes jump",
        "--max-tokens", 60, "--seed", 3,
    )  # fmt: skip
    assert code == 0, err
    assert len(out) > 30


def test_generate_writes_with_what_reads_first(cli, tmp_path):
    tokenizer = Tokenizer.chars(["what a t5 reads"])
    pg.seed(1)
    model = build("t5", "tiny", vocab_size=tokenizer.vocab_size)
    model.save(tmp_path / "t5.gguf", tokenizer)
    options = ("--model", tmp_path / "t5.gguf", "--temperature", "1", "--seed", "5")
    code, said, errors = cli("generate", *options, "--prompt", "read a what")
    assert code == 0, errors
    # What it read is not shown.
    ends = {tokenizer.eos_id, model.config.eos_id}
    read = tokenizer.encode("read a what")
    want = model.generate(read, temperature=1.0, seed=5, stop_ids=ends)
    assert len(want) > 3
    assert said == tokenizer.decode(want) + "\n"
    code, _, errors = cli("generate", *options)
    assert (code, "--prompt must not be empty: this model writes of what it reads" in errors) == (
        2,
        True,
    )
    build("bert", "tiny", vocab_size=tokenizer.vocab_size).save(tmp_path / "bert.gguf", tokenizer)
    code, _, errors = cli("generate", "--model", tmp_path / "bert.gguf")
    assert (code, "must be that of a model that continues text; got 'bert'" in errors) == (1, True)


# Left alone, a model that draws its end soon would be done before the pipe is closed.
ENDLESS = """
from pyggml import models
from pyggml.cli import main

generate = models.generate
models.generate = lambda *args, **options: generate(*args, **{**options, "stop_ids": ()})
main()
"""


def test_generate_into_a_closed_pipe(trained):
    options = ("--model", str(trained[0]), "--prompt", "The", "--max-tokens", str(10**9))
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, "generate", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    process.stdout.read(3)
    process.stdout.close()
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(timeout=300) == 141
    assert err == ""


def test_eval(trained, text_file, cli):
    base = ["eval", "--model", trained[0], "--text", text_file]
    code, out, err = cli(*base)
    assert code == 0, err
    found = dict(line.split() for line in out.splitlines())
    code, out, _ = cli(*base, "--json", "--batch-size", 3)
    values = json.loads(out)
    assert values["seq_len"] == 16
    assert values["tokens"] == text_file.stat().st_size  # every character, and the end of text
    assert float(found["loss"]) == pytest.approx(values["loss"], abs=1e-4)
    assert values["perplexity"] == pytest.approx(math.exp(values["loss"]))
    assert 0 < values["bits_per_byte"] < values["loss"] / math.log(2) * 1.1
    code, out, _ = cli(*base, "--json", "--scores", "accuracy", "--scores", "top3")
    assert 0 <= json.loads(out)["accuracy"] <= json.loads(out)["top3"] <= 1
    code, _, err = cli(*base, "--scores", "best")
    assert code == 2
    assert "--scores must be accuracy" in err
    code, out, _ = cli(*base, "--json", "--seq-len", 1)
    assert json.loads(out)["loss"] != values["loss"]


def test_eval_agrees_with_the_training(trained, cli, text_file, tmp_path):
    """The validation loss that the run reported is that of its model on the held-back text."""
    from pyggml.data import Tokenizer, read_text

    folder, done = trained
    tokenizer = Tokenizer.from_file(folder / "tokenizer.json")
    ids = tokenizer.encode_documents(read_text(text_file))
    cut = ids.size - int(ids.size * 0.1)
    validation = tmp_path / "validation.txt"
    validation.write_text(tokenizer.decode(ids[cut:], skip_special=True))
    _, out, _ = cli("eval", "--model", folder, "--text", validation, "--json")
    reported = re.findall(r"validation loss ([\d.]+)", done.stdout)[-1]
    assert json.loads(out)["loss"] == pytest.approx(float(reported), abs=2e-4)


def test_seconds_for_people():
    assert [format_seconds(s) for s in (0, 59.6, 61, 3723, -5)] == [
        "0:00",
        "1:00",
        "1:01",
        "1:02:03",
        "0:00",
    ]


def test_without_typer_there_is_one_line():
    code = (
        "import sys; sys.modules['typer'] = None\n"
        "from pyggml.cli import main\n"
        "sys.argv = ['pyggml', 'devices']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == 'error: the command line needs typer: pip install "pyggml[cli]"\n'


def test_importing_pyggml_is_light():
    code = (
        "import sys, pyggml, pyggml.train\n"
        "heavy = {'typer', 'rich', 'matplotlib', 'tokenizers', 'safetensors'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_lr_find(tmp_path, text_file, cli):
    file = tmp_path / "run.toml"
    file.write_text(
        'tokenizer = "chars"\nlayers = 1\nheads = 2\nembd = 16\nseq-len = 16\n'
        f'artifact-dir = "{tmp_path / "run"}"\n'
    )
    base = ["lr-find", "--config", file, "--text", text_file, "--batch-size", 4, "--threads", 1]
    code, out, err = cli(*base, "--tries", 30)
    assert code == 0, err
    assert re.search(r"suggested   --lr [\d.e-]+, where the loss falls fastest", out)
    code, out, _ = cli(*base, "--tries", 30, "--json")
    found = json.loads(out)
    assert len(found["rates"]) == len(found["losses"]) <= 30
    assert found["suggested"] in found["rates"]
    assert not (tmp_path / "run").exists()
    for more, words in (
        (["--tries", 2], "--tries must be a whole number >= 5"),
        (["--start", 2], "--end must be a finite number > 2"),
        (["--optimizer", "best"], "--optimizer must be one of"),
    ):
        code, _, err = cli(*base, *more)
        assert code == 2, err
        assert words in err


def test_train_llm_takes_no_option_at_all():
    """As the README's first command has it; and `--checkpointing` without a value."""
    from typer.main import get_command

    from pyggml.cli.app import app

    command = get_command(app).commands["train-llm"]
    for args, wanted in (
        ([], None),
        (["--checkpointing", "--steps", "3"], "all"),
        (["--steps", "3", "--checkpointing"], "all"),
        (["--checkpointing", "2"], "2"),
    ):
        assert command.make_context("train-llm", list(args)).params["checkpointing"] == wanted
