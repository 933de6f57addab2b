# SPDX-License-Identifier: MIT
"""Every bad input gets one clear message, an exit code, and no traceback."""

from __future__ import annotations

import errno
import inspect
import os
import subprocess
import sys

import pytest

from pyggml.errors import FormatError
from pyggml.models import build
from pyggml.train import CheckpointError

from .conftest import options, pyggml


def check(result, code, *words):
    got, _, err = result
    assert got == code, err
    assert err.startswith("error: "), err
    assert len(err.strip().splitlines()) == 1, err
    assert "Traceback" not in err
    for word in words:
        assert str(word) in err, err


def train(cli, tmp_path, *args, **changes):
    result = cli("train-llm", "--artifact-dir", tmp_path / "run", *options(**changes), *args)
    assert not (tmp_path / "run").exists()
    return result


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["--text", "no such file"]),
        (b"", ["empty"]),
        (b"  \n ", ["empty"]),
        (b"abc\0def", ["binary", "offset 3"]),
        (b"caf\xe9 au lait", ["UTF-8", "offset 3"]),
        (b"\xff\xfea\0b\0", ["UTF-16"]),
    ],
)
def test_text(cli, tmp_path, content, words):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    check(train(cli, tmp_path, "--text", path), 1, path, *words)


def test_folder_without_text(cli, tmp_path):
    (tmp_path / "texts").mkdir()
    check(train(cli, tmp_path, "--text", tmp_path / "texts"), 1, "no text file")


def test_text_shorter_than_a_sequence(cli, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("too short")
    result = train(cli, tmp_path, "--text", path)
    check(result, 2, "--text", "--seq-len 16", "more text or a smaller --seq-len")


def test_batch_larger_than_the_text(cli, tmp_path, text_file):
    result = train(cli, tmp_path, "--text", text_file, batch_size=100_000)
    check(result, 2, "--batch-size 100000", "sequences")


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b"\xff\xfe\x00", b"[1, 2]"])
def test_tokenizer_file_that_is_none(cli, tmp_path, text_file, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    check(train(cli, tmp_path, "--text", text_file, tokenizer=path), 1, path)


def test_missing_tokenizer_file(cli, tmp_path, text_file):
    missing = tmp_path / "none.json"
    words = [f"--tokenizer {missing}", "no such file"]
    check(train(cli, tmp_path, "--text", text_file, tokenizer=missing), 1, *words)


@pytest.mark.parametrize("size", ["many", "-5", "0", "100"])
def test_bpe_size(cli, tmp_path, size):
    check(train(cli, tmp_path, tokenizer=f"bpe:{size}"), 2, "--tokenizer", f"bpe:{size}", "257")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": 3}, ["--heads must divide --embd", "3", "16"]),
        ({"heads": 4, "kv_heads": 3}, ["--kv-heads must divide --heads"]),
        ({"layers": 0}, ["--layers", "got 0"]),
        ({"embd": -16}, ["--embd", "got -16"]),
        ({"seq_len": 0}, ["--seq-len"]),
        ({"seq_len": 32, "context": 16}, ["--seq-len", "--context"]),
        ({"stride": -1}, ["--stride"]),
        ({"batch_size": 0}, ["--batch-size"]),
        ({"accumulate": 0}, ["--accumulate"]),
        ({"epochs": 2}, ["--epochs", "--steps"]),
        ({"lr": 0}, ["--lr"]),
        ({"lr": "nan"}, ["--lr", "finite"]),
        ({"lr": "1e300"}, ["--lr", "finite"]),
        ({"weight_decay": "1e300"}, ["--weight-decay", "finite"]),
        ({"accumulate": 10**9}, ["--accumulate", "65536"]),
        ({"tokenizer": "bpe:99999999999999999999"}, ["--tokenizer", "bpe:2048"]),
        ({"lr": 0.1, "min_lr": 1}, ["--min-lr"]),
        ({"beta2": 1}, ["--beta2"]),
        ({"beta2": 0.9, "optimizer": "sgd"}, ["--beta2 needs", "--optimizer sgd"]),
        ({"clip": -1}, ["--clip"]),
        ({"val_fraction": 1}, ["--val-fraction"]),
        ({"threads": 100_000}, ["--threads must", "512"]),
        ({"keep": 0}, ["--keep"]),
        ({"arch": "gpt9"}, ["--arch", "gpt9", "llama"]),
        ({"preset": "huge"}, ["--preset", "huge", "tiny"]),
        ({"device": "cuda:7"}, ["--device", "cuda:7", "cpu"]),
        ({"tokenizer": "bpe"}, ["--tokenizer", "bpe:SIZE"]),
        ({"scores": "top500"}, ["--scores", "top500"]),
        ({"scores": "f1_binary"}, ["--scores", "f1_binary"]),
        ({"prompt": "QQQ"}, ["--prompt: text", "'Q'"]),
        ({"checkpointing": 7}, ["--checkpointing 7", "--layers 1"]),
        ({"optimizer_options": "eps=-1"}, ["--optimizer-options", "adamw: eps must"]),
        ({"steps": "x"}, ["--steps"]),
        ({"device": ""}, ["--device"]),
    ],
    ids=str,
)
def test_options(cli, tmp_path, text_file, changes, words):
    check(train(cli, tmp_path, "--text", text_file, **changes), 2, *words)


def test_a_model_that_does_not_fit(cli, tmp_path, text_file):
    result = train(cli, tmp_path, "--text", text_file, embd=65536, layers=512, heads=64)
    check(result, 1, "parameters need", "TB", "--preset")


def test_a_context_that_does_not_fit(cli, tmp_path, text_file):
    result = train(cli, tmp_path, "--text", text_file, context=10**12)
    check(result, 1, "keys and values", "--context")


def test_very_many_steps_start_at_once(tmp_path, text_file):
    from pyggml.recipes import LLMConfig, LLMRun

    config = LLMConfig(
        text=str(text_file), artifact_dir=tmp_path / "run", steps=10**12, tokenizer="chars",
        layers=1, heads=2, embd=16, seq_len=16, batch_size=4,
    )  # fmt: skip
    assert "1,000,000,000,000 steps" in dict(LLMRun.prepare(config).describe())["training"]


def test_a_terminal_without_utf8(tmp_path, text_file):
    done = pyggml(
        "train-llm", "--text", text_file, "--artifact-dir", tmp_path / "run", *options(),
        env={"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "6 steps of 4 x 16" in done.stdout


@pytest.mark.filterwarnings("error")
def test_numbers_that_are_just_finite_warn_of_nothing(cli, tmp_path, text_file):
    folder = tmp_path / "run"
    result = cli("train-llm", "--text", text_file, "--artifact-dir", folder, *options(lr="3e38"))
    check(result, 1, "must be finite", "--lr")


def test_empty_paths(cli, tmp_path, text_file, monkeypatch):
    """They are refused rather than taken for the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a text " * 200)
    check(train(cli, tmp_path, "--text", ""), 2, "--text must not be empty")
    for more in ([], ["--resume"]):
        result = cli("train-llm", "--text", text_file, "--artifact-dir", "", *options(), *more)
        check(result, 2, "--artifact-dir must not be empty")
    check(cli("generate", "--model", ""), 2, "--model must name a file or a folder")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_artifact_dir_is_a_file(cli, tmp_path, text_file):
    path = tmp_path / "file"
    path.write_text("mine")
    result = cli("train-llm", "--text", text_file, "--artifact-dir", path, *options())
    check(result, 2, path, "is a file")
    assert path.read_text() == "mine"


def test_artifact_dir_with_foreign_files(cli, tmp_path, text_file):
    (tmp_path / "thesis.tex").write_text("mine")
    for more in ([], ["--overwrite"]):
        result = cli(
            "train-llm", "--text", text_file, "--artifact-dir", tmp_path, *more, *options()
        )
        check(result, 2, "thesis.tex", "no run of pyggml")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_artifact_dir_that_cannot_be_written(cli, text_file):
    result = cli("train-llm", "--text", text_file, "--artifact-dir", "/proc/none", *options())
    check(result, 2, "/proc/none")


COMMANDS = {
    "generate": lambda model: ["generate", "--model", model],
    "eval": lambda model: ["eval", "--model", model, "--text", __file__],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_model_files(cli, tmp_path, trained, name):
    data = (trained[0] / "model.gguf").read_bytes()
    path = tmp_path / "model.gguf"
    check(cli(*COMMANDS[name](path)), 1, "--model", path, "does not exist")
    check(cli(*COMMANDS[name](tmp_path)), 1, "model.gguf")
    for content in (b"", b"GGUF", data[:100], data[: len(data) // 2], data[:-40], b"GIF89a" * 50):
        path.write_bytes(content)
        check(cli(*COMMANDS[name](path)), 1, path)
    check(cli(*COMMANDS[name](__file__)), 1, __file__)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("arch", ["cnn", "bert", "t5"])
def test_files_of_other_models(cli, tmp_path, name, arch):
    path = tmp_path / "model.gguf"
    build(arch, "tiny").save(path)
    words = (path, "general.architecture", repr(arch), "choose another file")
    if (name, arch) == ("generate", "t5"):  # it writes, of what it reads
        words = (path, "the file has no tokenizer")
    check(cli(*COMMANDS[name](path)), 1, *words)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--max-tokens", "-1"], ["--max-tokens", "-1"]),
        (["--temperature", "-0.5"], ["--temperature", "-0.5"]),
        (["--temperature", "nan"], ["--temperature"]),
        (["--top-k", "0"], ["--top-k"]),
        (["--top-p", "0"], ["--top-p"]),
        (["--top-p", "1.5"], ["--top-p", "1.5"]),
        (["--seed", "-1"], ["--seed"]),
        (["--temperature", "0", "--top-k", "3"], ["--top-k needs --temperature"]),
        (["--temperature", "0", "--top-p", ".5"], ["--top-p needs --temperature"]),
        (["--temperature", "0", "--seed", "4"], ["--seed needs --temperature"]),
        (["--prompt", "日本"], ["--prompt: text", "日"]),
        (["--threads", "0"], ["--threads"]),
    ],
)
def test_generate_options(cli, trained, args, words):
    check(cli("generate", "--model", trained[0], *args), 2, *words)


def test_generate_on_a_device_that_is_not_there(cli, trained):
    check(cli("generate", "--model", trained[0], "--device", "cuda:7"), 2, "--device", "cuda:7")


def test_eval_options(cli, trained, text_file, tmp_path):
    base = ["eval", "--model", trained[0], "--text"]
    check(cli(*base, text_file, "--seq-len", "99"), 2, "--seq-len", "16", "99")
    check(cli(*base, text_file, "--seq-len", "0"), 2, "--seq-len")
    check(cli(*base, text_file, "--batch-size", "0"), 2, "--batch-size")
    check(cli(*base, tmp_path / "none.txt"), 1, f"--text {tmp_path / 'none.txt'}")
    check(cli(*base, text_file, "--field", "z"), 2, "--field z")
    short = tmp_path / "short.txt"
    short.write_text("The")
    check(cli(*base, short, "--seq-len", "16"), 2, "--text", "--seq-len 16")
    foreign = tmp_path / "foreign.txt"
    foreign.write_text("日本" * 100)
    check(cli(*base, foreign), 1, f"--text {foreign}: ", "日")
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(
        '{"prompt": "The", "completion": "dog"}\n' * 2 + '{"prompt": "日", "completion": "x"}'
    )
    check(cli(*base, pairs, "--prompt-field", "prompt"), 1, f"--text {pairs}:3: ", "日")


def test_arguments_of_the_library_are_those_of_flags():
    from pyggml import data, models, recipes, train
    from pyggml.cli.options import named_by_flags

    arguments = [
        (train.find_lr, "steps", "--tries"),
        (train.find_lr, "start", "--start"),
        (train.find_lr, "end", "--end"),
        (models.load, "path", "--model"),
        (models.load_lora, "path", "--lora"),
        (recipes.read_config, "path", "--config"),
        (data.read_pairs, "prompt", "--prompt-field"),
        (data.read_pairs, "completion", "--completion-field"),
    ]
    for function, argument, flag in arguments:
        assert argument in inspect.signature(function).parameters
        assert named_by_flags(f"{function.__name__}: {argument} must be") == f"{flag} must be"
    assert named_by_flags("Corpus: a.txt: none") == "--text a.txt: none"
    assert named_by_flags("`eval_text`=b=a.txt: Corpus: a.txt: none") == (
        "--eval-text b=a.txt: a.txt: none"
    )


def test_the_traceback_is_there_for_those_who_ask(tmp_path, monkeypatch, cli):
    monkeypatch.setenv("PYGGML_DEBUG", "1")
    code, _, err = cli("train-llm", "--layers", "0")
    assert code == 2
    assert "Traceback" in err
    assert "error: --layers" in err


def test_without_a_command(cli):
    _, out, err = cli()
    assert "train-llm" in out + err
    check(cli("no-such-command"), 2, "no-such-command")
    check(cli("train-llm", "--no-such-flag"), 2, "--no-such-flag")


def test_cures_name_flags_of_the_command_alone(cli, text_file):
    result = cli("lr-find", "--text", text_file, "--optimizer", "lbfgs")
    check(result, 2, "--optimizer lbfgs", "`clip`=0")
    assert "--clip" not in result[2]
    result = cli("train-image", "--data", "digits", "--memory-limit", "1KB")
    check(result, 1, "--batch-size")
    assert "--seq-len" not in result[2]


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("stepps = 3", ["'stepps' (did you mean steps?)"]),
        ("resume = true", ["got 'resume'\n"]),
        ("trainer = 3", ["'trainer' (which is a table"]),
        ("batch-sise = 3", ["'batch_sise' (did you mean batch_size?)"]),
        ("xyzzy = 3", ["every option must be known; got 'xyzzy'"]),
        (
            "[optimiser_options]\nmomentum = 0.9",
            ["the table [optimiser_options] (did you mean optimizer_options?)", "[data]"],
        ),
        (
            "[training]\nsteps = 3",
            ["the table [training] (did you mean trainer?)"],
        ),
    ],
)
def test_an_unknown_option_in_a_file(cli, tmp_path, toml, words):
    (tmp_path / "run.toml").write_text(toml)
    check(train(cli, tmp_path, "--config", tmp_path / "run.toml"), 2, *words)


def test_all_that_a_line_search_cannot_have_is_told_at_once(cli, tmp_path):
    words = ["--clip 1.0, --weight-decay 0.1: give --clip 0, --weight-decay 0"]
    check(train(cli, tmp_path, "--optimizer", "lbfgs"), 2, *words)
    more = ["--lr-scale", "*norm*=0.5", "--layer-lr-decay", "0.9", "--precision", "f16"]
    words = ["give --clip 0, --weight-decay 0, --layer-lr-decay 1, no --lr-scale, --precision f32"]
    check(train(cli, tmp_path, "--optimizer", "lbfgs", *more), 2, *words)


def test_a_page_where_there_is_no_folder(cli, tmp_path, trained):
    missing = tmp_path / "missing"
    result = cli("report", trained[0], "--output", missing / "x.html")
    check(result, 2, f"--output {missing / 'x.html'}: ")
    best = trained[0] / "checkpoints" / "best"
    result = cli("export", "--checkpoint", best, "--output", missing / "x.gguf")
    check(result, 2, f"--output {missing / 'x.gguf'}: ")


def test_a_nan_is_traced_to_the_model(cli, tmp_path, text_file, monkeypatch):
    """The command line has no line of the user's own that recorded it."""
    from pyggml.recipes import LLMRun

    real = LLMRun.train

    def ruin(run):
        norm = run.model.model.norm.weight
        norm.copy_(norm.numpy() * float("nan"))
        return real(run)

    monkeypatch.setattr(LLMRun, "train", ruin)
    result = cli("train-llm", "--artifact-dir", tmp_path / "run", *options(), "--text", text_file)
    check(result, 1, "the cause: ", "recorded at ", "models/llama/model.py:")
    assert "typer" not in result[2]


def test_the_error_of_a_reader_has_the_cure_of_its_cause():
    from pyggml.cli.errors import explain

    error = FormatError("a.gguf: cannot be read: Too many open files")
    error.__cause__ = OSError(24, "Too many open files", "a.gguf")
    assert explain(error) == (f"error: {error}; raise the limit of open files (ulimit -n)", 1)


def test_a_cure_is_told_once():
    from pyggml.cli.errors import explain

    full = CheckpointError("checkpoint: x could not be written. Make room, then continue")
    full.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert explain(full) == (f"error: {full}", 1)
    bomb = OSError(errno.EFBIG, "its 3 bytes must unpack to at most 9; got more; unpack it first")
    assert explain(bomb) == (f"error: {bomb.strerror}", 1)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("MemoryError", "error: out of memory: raise the limit of the process (ulimit -v)"),
        (
            'ImportError("x.so: failed to map segment from shared object")',
            "error: x.so: failed to map segment from shared object; raise the limit of the process",
        ),
        (
            'OSError(24, "Too many open files", "x.py")',
            "error: x.py: Too many open files; raise the limit of open files (ulimit -n)",
        ),
        ("BrokenPipeError", ""),
    ],
)
def test_what_the_system_refuses_before_a_command_runs(error, said):
    """It is one line, for which nothing more is imported."""
    program = f"""
import sys
import pyggml.cli.app, pyggml.cli.errors
class NoMemory:
    def find_spec(self, name, *rest):
        raise MemoryError
def fails():
    sys.meta_path.insert(0, NoMemory())
    raise {error}
pyggml.cli.app.app = fails
from pyggml.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == bool(said)
    assert done.returncode == (1 if said else 141)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the addresses of a process")
@pytest.mark.parametrize("mib", [4, 36, 90])
def test_memory_that_would_end_while_a_command_is_imported(mib):
    """It is one line: parts of other packages would end the process."""
    program = f"""
import resource, sys
import pyggml.cli
pages = int(open("/proc/self/statm").read().split()[0])
size = pages * resource.getpagesize() + ({mib} << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
sys.argv = ["pyggml", "inspect", "missing.gguf"]
pyggml.cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    said = "error: out of memory: raise the limit of the process (ulimit -v), or close other"
    assert done.stderr == f"{said} programs\n"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device", "a/b"), "a/b: No space left on device; make room"),
        (OSError(24, "Too many open files", "a/b"), "a/b: Too many open files; raise the limit of"),
        (PermissionError(13, "Permission denied", "c"), "c: Permission denied"),
        (
            ImportError("x.so: failed to map segment from shared object"),
            "x.so: failed to map segment from shared object; raise the limit of the process",
        ),
        (MemoryError(), "out of memory"),
        (KeyError("missing names"), "missing names"),
        (ImportError("needs the package tokenizers"), "needs the package tokenizers"),
        (ModuleNotFoundError("No module", name="safetensors"), 'pip install "pyggml[cli]"'),
        (AssertionError("odd"), "AssertionError: odd (PYGGML_DEBUG=1 shows where)"),
        (KeyboardInterrupt(), "interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_exception_has_a_message(error, words):
    from pyggml.cli.errors import explain

    message, code = explain(error)
    assert words in message
    assert code == (130 if isinstance(error, KeyboardInterrupt) else 1)
