# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from pyggml.train import list_checkpoints, read_metrics

from .conftest import command, options, pyggml


def test_plain_output(trained):
    _, done = trained
    out = done.stdout
    assert "\x1b" not in out + done.stderr
    assert "\r" not in out
    assert done.stderr == ""
    for words in (
        "1 document, ",
        "llama: 1 layer, 2 heads, width 16",
        "parameters",
        "activations",
        "6 steps of 4 × 16",
        "step 6/6  loss ",
        "tokens/s",
        "0:00 left",
        "validation loss ",
        "perplexity ",
        "sample:\nThe",
        "written:",
        "model.gguf",
    ):
        assert words in out, words


def test_artifact_content(trained):
    folder, _ = trained
    assert sorted(p.name for p in folder.iterdir()) == [
        "checkpoints",
        "config.json",
        "config.toml",
        "loss.png",
        "metrics.jsonl",
        "model.gguf",
        "report.html",
        "tokenizer.json",
    ]
    config = json.loads((folder / "config.json").read_text())
    assert config["arch"] == "llama"
    assert config["model"]["n_embd"] == 16
    assert config["total_steps"] == 6
    assert config["train"]["trainer"]["seed"] == 1
    assert config["parameters"] > 0
    lines = read_metrics(folder / "metrics.jsonl")
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, 7))
    assert any(line["kind"] == "validation" for line in lines)
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "model.gguf").read_bytes().startswith(b"GGUF")
    latest = (folder / "checkpoints" / "latest").read_text().strip()
    assert (folder / "checkpoints" / latest / "model.safetensors").exists()


def test_the_model_file_has_the_weights_of_the_last_checkpoint(trained):
    from pyggml.models import load
    from pyggml.train import latest_checkpoint, load_checkpoint

    folder, _ = trained
    model, tokenizer = load(folder)
    saved = load_checkpoint(latest_checkpoint(folder / "checkpoints")).model
    assert tokenizer.vocab_size == model.config.vocab_size
    for name, array in model.state_dict().items():
        assert array.tobytes() == saved[name].tobytes(), name


def test_the_best_checkpoint_as_a_model_file(trained, tmp_path, cli, text_file):
    from pyggml.models import load
    from pyggml.train.checkpoints.checkpoint import load_weights

    folder, done = trained
    assert "model.gguf has the last weights, of step 6" in done.stdout
    best, file = folder / "checkpoints" / "best", tmp_path / "best.gguf"
    code, out, err = cli("export", "--checkpoint", best, "--output", file)
    assert (code, out) == (0, f"{file}\n"), err
    weights = load_weights(best)
    for name, array in load(file)[0].state_dict().items():
        assert array.tobytes() == weights[name].tobytes(), name
    assert cli("generate", "--model", file, "--prompt", "The", "--max-tokens", "4")[0] == 0
    code, _, err = cli("generate", "--model", best)
    assert code == 1
    assert "pyggml export" in err
    code, _, err = cli("export", "--checkpoint", folder, "--output", file)
    assert code == 1
    assert f"give one, such as {folder / 'checkpoints' / 'step-'}" in err


def test_the_best_is_exported_when_asked_for_or_stopped_early(tmp_path, text_file, cli):
    first = ["train-llm", "--text", text_file, *options(lr="0.9", steps=12, eval_every=1)]
    for more, which in ((["--export", "best"], "best"), (["--patience", "1"], "best")):
        code, out, err = cli(*first, *more, "--artifact-dir", tmp_path / more[0])
        assert code == 0, err
        assert f"model.gguf has the {which} weights, of step " in out
    code, out, err = cli(*first, "--artifact-dir", tmp_path / "x", "--export", "first")
    assert code == 2
    assert "--export must be one of best, last; got 'first'" in err


def test_gpt2_with_bpe_and_epochs(tmp_path, text_file, cli):
    code, out, err = cli(
        "train-llm", "--text", text_file, "--artifact-dir", tmp_path / "run", "--arch", "gpt2",
        *options(tokenizer="bpe:280", steps=None, epochs=1, warmup=None, accumulate=2),
    )  # fmt: skip
    assert code == 0, err
    assert "gpt2: 1 layer," in out
    assert "4 × 2 × 16" in out
    assert (tmp_path / "run" / "model.gguf").exists()


def test_updates_in_the_backward_keep_no_gradients(tmp_path, text_file, cli):
    first = ["train-llm", "--text", text_file, "--artifact-dir", tmp_path / "run", *options()]
    code, _, err = cli(*first, "--fused-update")
    assert code == 2
    assert "--fused-update excludes --clip" in err
    assert "--clip 0" in err
    code, out, err = cli(*first, "--fused-update", "--clip", "0")
    assert code == 0, err
    assert "gradients 0 B" in out
    assert "updates in the backward" in out
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert all(line["grad_norm"] > 0 for line in lines if line["kind"] == "train")


@pytest.mark.slow
def test_blocks_computed_twice_and_a_limit(tmp_path, text_file, cli):
    base = ["train-llm", "--text", text_file, "--artifact-dir", tmp_path / "run", "--overwrite"]
    for given, words in (
        (["--checkpointing", *options()], ", every block computed twice"),
        ([*options(), "--checkpointing"], ", every block computed twice"),
        ([*options(layers=2), "--checkpointing", "2"], ", 1 block in 2 computed twice"),
        ([*options(), "--memory-limit", "1GiB"], "seed 1\n"),
    ):
        code, out, err = cli(*base, *given)
        assert code == 0, err
        assert words in out, given
    code, _, err = cli(*base, *options(), "--memory-limit", "1kB")
    assert code == 1
    assert "must fit into 1.0 kB" in err


def test_without_validation(tmp_path, text_file, cli):
    code, out, err = cli(
        "train-llm", "--text", text_file, "--artifact-dir", tmp_path / "run",
        *options(val_fraction=0, sample_tokens=0),
    )  # fmt: skip
    assert code == 0, err
    assert "validation loss" not in out
    assert "sample" not in out


def test_a_vocabulary_without_the_prompt(tmp_path, cli):
    text = tmp_path / "numbers.txt"
    text.write_text("0123456789 " * 200)
    code, out, err = cli(
        "train-llm", "--text", text, "--artifact-dir", tmp_path / "run", *options()
    )
    assert code == 0, err
    assert "sample:" in out


def test_another_run_is_not_overwritten(trained, text_file, cli, tmp_path):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    before = (folder / "model.gguf").read_bytes()
    arguments = ["train-llm", "--text", text_file, "--artifact-dir", folder, *options(seed=2)]
    code, _, err = cli(*arguments)
    assert code == 2
    for word in (str(folder), "another run", "--resume", "--overwrite"):
        assert word in err
    # A mistake found before the training leaves the old run alone, even when asked to replace it.
    code, _, err = cli(*arguments, "--overwrite", "--text", tmp_path / "missing.txt")
    assert code == 1
    assert (folder / "model.gguf").read_bytes() == before
    code, _, err = cli(*arguments, "--overwrite")
    assert code == 0, err
    assert (folder / "model.gguf").read_bytes() != before


def test_resume_extends_a_finished_run(trained, cli, tmp_path):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    code, out, err = cli("train-llm", "--artifact-dir", folder, "--resume")
    assert code == 0, err
    assert "finished (step 6)" in out
    code, out, err = cli("train-llm", "--artifact-dir", folder, "--resume", "--steps", "8")
    assert code == 0, err
    assert "--steps was 6 and is now 8" in out
    assert "continuing after step 6" in out
    assert "step 8/8" in out
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if line["kind"] == "train"]
    assert [line["step"] for line in lines] == list(range(1, 9))


@pytest.mark.parametrize(
    ("option", "value"),
    [("--embd", 32), ("--layers", 2), ("--seq-len", 8), ("--batch-size", 2), ("--seed", 9),
     ("--tokenizer", "bpe:300"), ("--arch", "gpt2"), ("--val-fraction", 0.3)],
)  # fmt: skip
def test_resume_refuses_another_run(trained, cli, option, value):
    code, _, err = cli("train-llm", "--artifact-dir", trained[0], "--resume", option, value)
    assert code == 2
    assert f"{option} cannot change when a run is resumed" in err
    assert str(value) in err


@pytest.mark.parametrize(
    ("option", "value"),
    [("--arch", "llama"), ("--kv-heads", 2), ("--context", 16), ("--ffn", None), ("--seq-len", 16),
     ("--batch-size", 4), ("--layers", 1)],
)  # fmt: skip
def test_resume_takes_what_the_run_had_chosen_itself(trained, cli, tmp_path, option, value):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    before = json.loads((folder / "config.json").read_text())
    if value is None:
        value = before["model"]["n_ffn"]
    code, out, err = cli("train-llm", "--artifact-dir", folder, "--resume", option, value)
    assert code == 0, err
    assert "finished (step 6)" in out
    after = json.loads((folder / "config.json").read_text())
    for record in (before, after):
        del record["train"]["output"], record["options"]["output"]
    assert after == before


@pytest.mark.parametrize(
    ("option", "value"), [("--kv-heads", 1), ("--context", 32), ("--stride", 16), ("--ffn", 40)]
)
def test_resume_refuses_what_the_run_had_chosen_otherwise(trained, cli, option, value):
    code, _, err = cli("train-llm", "--artifact-dir", trained[0], "--resume", option, value)
    assert code == 2
    assert f"{option} cannot change" in err
    assert f"not given and is now {value}" in err


def test_resume_refuses_fewer_steps_and_changed_text(trained, cli, tmp_path):
    code, _, err = cli("train-llm", "--artifact-dir", trained[0], "--resume", "--steps", "3")
    assert code == 1
    assert "--steps 6" in err
    other = tmp_path / "other.txt"
    other.write_text("The fox is gone. " * 200)
    code, _, err = cli("train-llm", "--artifact-dir", trained[0], "--resume", "--text", other)
    assert code == 1
    assert "the text has changed" in err


def test_resume_needs_a_run(tmp_path, cli):
    code, _, err = cli("train-llm", "--artifact-dir", tmp_path / "none", "--resume")
    assert code == 2
    assert "holds no run" in err
    code, _, err = cli("train-llm", "--resume", "--overwrite")
    assert code == 2
    assert "exclude each other" in err


def test_resume_with_damaged_files(trained, cli, tmp_path):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    newest = list_checkpoints(folder / "checkpoints")[-1]
    state = newest / "state.json"
    whole = state.read_text()
    state.write_text(whole[:50])
    code, _, err = cli("train-llm", "--artifact-dir", folder, "--resume")
    assert code == 1
    assert str(state) in err
    assert "is whole: resume(" in err
    state.write_text(whole)
    (folder / "tokenizer.json").write_text("{}")
    code, _, err = cli("train-llm", "--artifact-dir", folder, "--resume")
    assert code == 1
    assert "tokenizer.json" in err
    (folder / "config.json").write_text('{"kind": "pyggml training run", "format": 1, "train": 3}')
    code, _, err = cli("train-llm", "--artifact-dir", folder, "--resume")
    assert code == 1
    assert "config.json" in err


# A step of the small run takes about a millisecond, too short for another process to meet it.
# It never ends by itself: a test that is kept waiting by a busy machine finds it at work.
SLOWLY = """
import time
from pyggml.cli import main
from pyggml.train.loop import Loop

step = Loop._one_step

def one_step(self, *args):
    time.sleep(0.02 if self._run.step < 150 else 1e6)
    return step(self, *args)

Loop._one_step = one_step
main()
"""


class Running:
    """A training in a process of its own, read line by line."""

    def __init__(self, *args, slowly=False, verb="train-llm"):
        start = [sys.executable, "-c", SLOWLY, verb, *map(str, args)]
        self.process = subprocess.Popen(
            start if slowly else command(verb, *args),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def wait_for(self, pattern):
        for line in self.process.stdout:
            if re.search(pattern, line):
                return
        raise AssertionError(self.process.stderr.read())

    def finish(self):
        out, err = self.process.communicate(timeout=900)
        return self.process.returncode, out, err


def long_run(folder, text_file, steps=40, **changes):
    settings = {"steps": steps, "save_every": 5, "eval_every": 10, "sample_tokens": 0, **changes}
    return ["--text", text_file, "--artifact-dir", folder, *options(**settings)]


def weights(folder):
    newest = list_checkpoints(folder / "checkpoints")[-1]
    return newest.name, [
        (newest / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")
    ]


def test_kill_and_resume_equals_an_uninterrupted_run(tmp_path, text_file):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    done = pyggml("train-llm", *long_run(whole, text_file, steps=200))
    assert done.returncode == 0, done.stderr
    running = Running(*long_run(broken, text_file, steps=200), slowly=True)
    running.wait_for(r"^step 20/200")
    time.sleep(random.random() * 0.2)
    running.process.kill()
    code, _, _ = running.finish()
    assert code == -signal.SIGKILL
    done = pyggml("train-llm", "--artifact-dir", broken, "--resume")
    assert done.returncode == 0, done.stderr
    found = re.search(r"continuing after step (\d+)\n", done.stdout)
    assert found, done.stdout
    assert int(found[1]) in range(15, 155, 5)
    assert weights(broken) == weights(whole)
    assert weights(whole)[0] == "step-000200"
    assert (broken / "model.gguf").read_bytes() == (whole / "model.gguf").read_bytes()
    pick = ("kind", "step", "loss", "lr", "grad_norm", "tokens", "perplexity")
    lines = [
        [{name: line.get(name) for name in pick} for line in read_metrics(f / "metrics.jsonl")]
        for f in (whole, broken)
    ]
    assert lines[0] == lines[1]
    assert not [p for p in (broken / "checkpoints").iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(
    "signum", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_ctrl_c_writes_a_checkpoint(tmp_path, text_file, cli, signum):
    folder = tmp_path / "run"
    running = Running(*long_run(folder, text_file, steps=100_000, warmup=0))
    running.wait_for(r"^step 1/")
    running.process.send_signal(signum)
    code, _, err = running.finish()
    assert code == 128 + signum
    assert "Traceback" not in err
    assert "interrupted: training stopped after step" in err
    assert "--resume" in err
    newest = list_checkpoints(folder / "checkpoints")[-1]
    assert str(newest) in err
    assert (folder / "model.gguf").exists()
    step = int(newest.name.split("-")[1])
    code, out, err = cli("train-llm", "--artifact-dir", folder, "--resume", "--steps", step + 2)
    assert code == 0, err
    assert f"continuing after step {step}" in out


def test_ctrl_c_before_the_first_step(tmp_path, text_file):
    # So many steps that it cannot end before the signal, however late that is.
    settings = {"steps": 100_000, "tokenizer": "bpe:400"}
    running = Running(*long_run(tmp_path / "run", text_file, **settings))
    running.wait_for("tokenizer: ")
    running.process.send_signal(signal.SIGINT)
    code, _, err = running.finish()
    assert code == 130
    assert "Traceback" not in err


def limit_file_size():
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (25_000, 25_000))


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs RLIMIT_FSIZE")
def test_full_disk(tmp_path, text_file):
    """A limit on the size of files stands in for a full disk: the system refuses the write."""
    folder = tmp_path / "run"
    small = pyggml("train-llm", *long_run(folder, text_file, steps=5))
    assert small.returncode == 0, small.stderr
    before = weights(folder)
    done = pyggml(
        "train-llm", "--artifact-dir", folder, "--resume", "--steps", "10",
        preexec_fn=limit_file_size,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for words in ("step-000010 could not be written", "step-000005 is whole", "--resume"):
        assert words in done.stderr
    assert weights(folder) == before
    left = sorted(p.name for p in (folder / "checkpoints").iterdir())
    assert left == ["best", "latest", "step-000005"]
    again = pyggml("train-llm", "--artifact-dir", folder, "--resume")
    assert again.returncode == 0, again.stderr


def test_a_terminal_sees_a_bar(tmp_path, text_file):
    pty = pytest.importorskip("pty")
    main, side = pty.openpty()
    process = subprocess.Popen(
        command("train-llm", "--text", text_file, "--artifact-dir", tmp_path / "r", *options()),
        stdout=side, stderr=side, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(side)
    shown = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    assert process.wait(timeout=300) == 0
    os.close(main)
    text = shown.decode(errors="replace")
    assert "6/6" in text
    assert "tokens/s" in text
    assert "\x1b[" in text
    assert "validation loss" in text


@pytest.mark.slow
def test_a_closed_stdout_is_no_error(tmp_path, text_file):
    folder = tmp_path / "run"
    args = command("train-llm", "--text", text_file, "--artifact-dir", folder, *options())
    for closed in (">&-", ">&- 2>&-"):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", *args, "--overwrite"],
            capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert (folder / "model.gguf").read_bytes().startswith(b"GGUF")
        shutil.rmtree(folder)


@pytest.mark.slow
def test_a_full_disk_at_a_line_of_metrics_names_run_and_checkpoint(tmp_path, text_file):
    folder = tmp_path / "run"
    small = pyggml("train-llm", *long_run(folder, text_file, steps=5))
    assert small.returncode == 0, small.stderr
    with (folder / "metrics.jsonl").open("a") as file:  # so that it is the largest file
        file.write(json.dumps({"kind": "note", "step": 0, "text": "x" * 300_000}) + "\n")
    size = (folder / "metrics.jsonl").stat().st_size

    def limit():
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, size + 300))

    done = pyggml(
        "train-llm", "--artifact-dir", folder, "--resume", "--steps", "10", preexec_fn=limit
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for words in (folder / "metrics.jsonl", "step-000005 is whole", "--resume"):
        assert str(words) in done.stderr


def test_a_full_disk_at_the_first_file_names_the_folder(trained, tmp_path):
    folder = shutil.copytree(trained[0], tmp_path / "run")

    def limit():
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    done = pyggml("train-llm", "--artifact-dir", folder, "--resume", preexec_fn=limit)
    assert done.returncode == 1
    assert str(folder) in done.stderr
    assert json.loads((folder / "config.json").read_text())["arch"] == "llama"


def test_a_file_of_options(tmp_path, text_file, cli):
    """What a run leaves is given back; options beside it win."""
    file = tmp_path / "run.toml"
    file.write_text(
        f'text = ["{text_file}"]\ntokenizer = "chars"\nlayers = 1\nheads = 2\nembd = 16\n'
        "seq-len = 16\nbatch-size = 4\nepochs = 9\nthreads = 1\nsample-tokens = 0\n"
        'optimizer = "sgd"\nschedule = "constant"\n[optimizer-options]\nmomentum = 0.5\n'
    )
    base = ["train-llm", "--artifact-dir", tmp_path / "a"]
    code, out, err = cli(*base, "--config", file, "--steps", 3, "--sample-every", 2,
                         "--sample-tokens", 4, "--scores", "top2", "--eval-text",
                         f"again={text_file}", "--keep-best")  # fmt: skip
    assert code == 0, err
    for words in ("3 steps of 4 × 16", "SGD, learning rate 0.002 to 0.002", "sample after step 2",
                  "again loss ", "bits per byte ", "top2 "):  # fmt: skip
        assert words in out, words
    left = tmp_path / "a" / "config.toml"
    assert "momentum = 0.5" in left.read_text()
    assert "epochs" not in left.read_text()
    code, _, err = cli("train-llm", "--config", left, "--artifact-dir", tmp_path / "b")
    assert code == 0, err
    files = [folder / "checkpoints" / "step-000003" / "model.safetensors"
             for folder in (tmp_path / "a", tmp_path / "b")]  # fmt: skip
    assert files[0].read_bytes() == files[1].read_bytes()
    code, out, err = cli("report", tmp_path / "b", "--output", tmp_path / "r.html")
    assert code == 0, err
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    code, _, err = cli(*base, "--config", tmp_path / "none.toml", "--overwrite")
    assert code == 2
    assert "cannot be read" in err
