# SPDX-License-Identifier: MIT
"""nanoGPT's `train_shakespeare_char`: its CPU settings, and its GPU settings with fewer batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pyggml as pg
from pyggml.data import RandomWindows, Tokenizer, split_tokens
from pyggml.models import GPT2, GPT2Config
from pyggml.optim import AdamW, decay_groups
from pyggml.train import Trainer, TrainerOptions, read_metrics

from .conftest import pyggml

TEXT = Path(__file__).parents[3] / "shared" / "data" / "tinyshakespeare.txt"
# nanoGPT reports 1.88 for its CPU settings, of 20 sampled batches; here the whole split is read.
LOSS_MAX = 1.90
# Against regressions: at its own rate PyTorch ends between 1.891 and 1.922, by the seed, and a
# quarter of the runs at 1.90 or below, PyTorch's as ours; see docs/internals/benchmarks.md.
OWN_RATE_LOSS_MAX = 1.93
# A bound against regressions: one run ended at 1.980. Other seeds and machines were not tried.
GPU_LOSS_MAX = 2.0
SIZES = (
    "--tokenizer chars --layers 4 --heads 4 --embd 128 --context 64 --batch-size 12 --steps 2000 "
    "--warmup 100 --beta2 0.99 --weight-decay 0.1 --clip 1.0 --val-fraction 0.1 --eval-every 1000"
)


@pytest.mark.slow
@pytest.mark.skipif(not TEXT.exists(), reason="needs ../shared/data/tinyshakespeare.txt")
@pytest.mark.parametrize(
    ("arch", "precision", "lr"),
    [
        ("gpt2", "f32", 1e-3),
        ("gpt2", "f32", 2e-3), ("gpt2", "bf16", 2e-3), ("gpt2", "f16", 2e-3),
        ("llama", "f32", 1e-3),
    ],
)  # fmt: skip
def test_validation_loss(tmp_path, arch, precision, lr):
    """nanoGPT's CPU settings, also with the command's own rate; see the page of benchmarks."""
    bound = OWN_RATE_LOSS_MAX if (arch, lr) == ("gpt2", 1e-3) else LOSS_MAX
    folder = tmp_path / "run"
    settings = f"{SIZES} --lr {lr} --min-lr {lr / 10} --seed 1337".split()
    done = pyggml(
        "train-llm",
        "--text",
        TEXT,
        "--arch",
        arch,
        "--precision",
        precision,
        "--artifact-dir",
        folder,
        *settings,
        timeout=3000,
    )
    assert done.returncode == 0, done.stderr
    last = [line for line in read_metrics(folder / "metrics.jsonl") if line["kind"] != "train"][-1]
    assert last["step"] == 2000
    assert last["tokens"] == 111_538
    assert last["loss"] <= bound
    done = pyggml("eval", "--model", folder, "--text", TEXT, "--json")
    assert json.loads(done.stdout)["loss"] <= bound


def train_as_nanogpt(
    preset: str, seq_len: int, decay_embeddings: bool, options: TrainerOptions, **sizes: object
) -> float:
    """Return the loss of the whole validation split after a run of these settings."""
    text = TEXT.read_text("utf-8")
    tokenizer = Tokenizer.chars([text])
    train, validation = split_tokens(tokenizer.encode(text), 0.1)
    pg.seed(options.seed)
    model = GPT2(GPT2Config.preset(preset, vocab_size=tokenizer.vocab_size, bias=False, **sizes))
    groups = decay_groups(model, 0.1, decay_embeddings=decay_embeddings)
    optimizer = AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
    windows = RandomWindows(train, seq_len)
    trainer = Trainer(model, windows, validation, optimizer, options=options)
    trainer.fit()
    found = trainer.evaluations["validation"]
    print(f"validation loss {found.loss:.4f} of {found.tokens} tokens in {trainer.elapsed_s:.0f} s")
    assert found.step == options.steps
    return found.loss


@pytest.mark.slow
@pytest.mark.skipif(not TEXT.exists(), reason="needs ../shared/data/tinyshakespeare.txt")
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_the_cpu_settings_at_their_own_rate(precision):
    """nanoGPT's CPU settings to the letter: embeddings decay, and the rate is half of ours."""
    options = TrainerOptions(
        batch_size=12, steps=2000, min_lr=1e-4, warmup=100, clip=1.0, eval_every=0,
        precision=precision, seed=203,
    )  # fmt: skip
    sizes = {"n_layer": 4, "n_head": 4, "n_embd": 128, "context": 64}
    threads = pg.get_threads()
    pg.set_threads(1)  # the number of threads changes how sums round, and with it the whole run
    try:
        assert train_as_nanogpt("tiny", 64, True, options, **sizes) <= OWN_RATE_LOSS_MAX
    finally:
        pg.set_threads(threads)


@pytest.mark.slow
@pytest.mark.skipif(not TEXT.exists(), reason="needs ../shared/data/tinyshakespeare.txt")
def test_the_gpu_settings_on_two_cores():
    """Sizes, dropout and rates are nanoGPT's; the batch is an eighth, the run a fifth as long."""
    options = TrainerOptions(
        batch_size=8, steps=1000, min_lr=1e-4, warmup=100, clip=1.0, eval_every=0,
        precision="bf16", seed=1337,
    )  # fmt: skip
    sizes = GPT2Config.preset("small", vocab_size=65)
    assert (sizes.n_layer, sizes.n_head, sizes.n_embd, sizes.context) == (6, 6, 384, 256)
    assert train_as_nanogpt("small", 256, False, options, dropout=0.2) <= GPU_LOSS_MAX
