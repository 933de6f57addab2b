# SPDX-License-Identifier: MIT
"""Train GPT-2 on text with the Trainer; interrupt it, resume it, and get the same bits.

    python demos/gpt2_train.py [--plot loss.png]

The options are those of a long training: a schedule, accumulated gradients, matmuls in bf16, blocks
that are computed again to save memory, clipping, evaluation, checkpoints. A process that is killed
loses the steps since its last checkpoint; the resumed run ends with the bits of an unbroken one.
`pyggml train-llm --arch gpt2` does the same; OpenAI's sizes are presets such as "gpt2-124m".
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import pyggml as pg
import pyggml.train as training
from pyggml import recipes
from pyggml.data import RandomWindows, Tokenizer, embedded_text, split_tokens
from pyggml.models import GPT2, GPT2Config, generate, load
from pyggml.optim import Muon, muon_groups

parser = argparse.ArgumentParser(description="GPT-2 with the full recipe.")
options = recipes.script_options(parser)
STEPS, BATCH, LENGTH, WIDTH = 60, 4, 64, 96

texts = embedded_text()  # the manual that every Python carries
tokenizer = Tokenizer.train_bpe(texts, 512)
train, rest = split_tokens(tokenizer.encode_documents(texts), 0.1)
validation, vocab = rest[:2048], tokenizer.vocab_size
counts = np.bincount(train, minlength=vocab) + 1
by_count = -np.log(counts / counts.sum())[validation].mean()
print(f"nats per token of guessing: {np.log(vocab):.2f}, by the frequencies {by_count:.2f}")
LOSS = by_count - 0.6  # what must be reached

sizes = GPT2Config(vocab, context=LENGTH, n_embd=WIDTH, n_layer=3, n_head=4, dropout=0.05)
recipe = training.TrainerOptions(
    steps=STEPS,
    batch_size=BATCH,
    accumulate=2,  # two batches of BATCH windows are one step
    precision="bf16",  # of matmuls; sums, norms, loss and updates stay f32
    checkpointing=2,  # every second block keeps only its inputs, and computes the rest twice
    schedule="warmup_cosine",  # a tenth of the steps up, the others down to a tenth of lr
    warmup=STEPS // 10,
    clip=1.0,
    eval_every=STEPS // 3,
    seed=options.seed,
)
pg.set_threads(1)  # so small a model that a second one would only be waited for


class Watch(training.Callback):
    """Prints, and sends the interrupt that Ctrl-C would send."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.losses: dict[int, float] = {}
        self.interrupt_at = interrupt_at

    def on_step(self, trainer: training.Trainer, metrics: training.StepMetrics) -> None:
        self.losses[metrics.step] = metrics.loss
        if metrics.step == self.interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)

    def on_evaluation(self, trainer: training.Trainer, metrics: training.EvalMetrics) -> None:
        print(f"step {metrics.step:3}  validation loss {metrics.loss:.3f}")


def prepare(folder: Path | None, *callbacks: training.Callback) -> training.Trainer:
    """Make everything anew, as another process would."""
    pg.seed(options.seed)
    model = GPT2(sizes)
    return training.Trainer(
        model,
        RandomWindows(train, LENGTH),
        validation,
        Muon(muon_groups(model, weight_decay=0.1), lr=2e-2),  # AdamW trains what is no matrix
        options=recipe if folder is None else recipe.replace(save_every=STEPS // 3),
        checkpoint_dir=folder and folder / "checkpoints",
        callbacks=callbacks,
    )


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    metrics = training.MetricsWriter(folder / "metrics.jsonl")
    trainer = prepare(folder, metrics, Watch(interrupt_at=STEPS // 2))
    print(f"{trainer.model.num_parameters():,} parameters, {trainer.plan().total:,} bytes planned")
    with contextlib.suppress(training.TrainingInterrupted):
        trainer.fit()
    print(f"interrupted after step {trainer.step}")
    rest, again = Watch(), Watch()
    trainer = prepare(folder, metrics, rest)
    print(f"resumed after step {trainer.resume()}")
    loss = trainer.fit().validation.loss
    trainer.model.save_gguf(folder / "model.gguf", tokenizer)  # llama.cpp runs it, too
    model, reader = load(folder / "model.gguf")
    text = reader.decode(generate(model, reader.encode("The "), 30, temperature=0.7, seed=0))
    print(f"from the file: {'The ' + text!r}")
    if options.plot:
        lines = training.read_metrics(folder / "metrics.jsonl")
        recipes.plot_loss(lines, options.plot, "GPT-2 on Python's manual")
    trainer = prepare(None, again)  # the last third once more, from its checkpoint
    first = trainer.resume(folder / "checkpoints" / f"step-{2 * STEPS // 3:06}")
    trainer.fit()

took = time.process_time()  # seconds of CPU time
if any(again.losses[step] != rest.losses[step] for step in range(first + 1, STEPS + 1)):
    sys.exit("FAILED: a resumed run must have the losses of one that did not stop, bit for bit")
if not loss < LOSS:
    sys.exit(f"FAILED: validation must cost less than {LOSS:.3f} nats per token; got {loss:.3f}")
print(f"OK validation {loss:.3f} < {LOSS:.3f} nats per token, and the same bits, in {took:.1f} s")
