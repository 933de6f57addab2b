# SPDX-License-Identifier: MIT
"""GPT-2 on text with the full recipe, interrupted on the way and resumed to the same bits.

    python demos/gpt2_train.py [--plot loss.png]

What a long training needs, each in a line of the configuration: a rate that rises and falls,
gradients accumulated over batches, products in bf16, blocks computed twice to save memory,
clipping, evaluation, checkpoints. A process that dies loses the steps since its last checkpoint;
one that goes on from there has the same numbers, to the last bit, as one that never stopped.
`pyggml train-llm --arch gpt2` is this as a command; OpenAI's sizes are presets such as "gpt2-124m".
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
from pyggml.data import Loader, RandomWindows, Tokenizer, embedded_text, split_tokens
from pyggml.models import GPT2, GPT2Config, generate, load

parser = argparse.ArgumentParser(description="GPT-2 with the full recipe.")
options = training.script_options(parser)
STEPS, BATCH, LENGTH, WIDTH = 60, 4, 64, 96

texts = embedded_text()  # the manual that every Python carries
tokenizer = Tokenizer.train_bpe(texts, 512)
train, rest = split_tokens(tokenizer.encode_documents(texts), 0.1)
held_back, uniform = rest[:2048], np.log(tokenizer.vocab_size)
counts = np.bincount(train, minlength=tokenizer.vocab_size) + 1
by_count = -np.log(counts / counts.sum())[held_back].mean()
print(f"guessing costs {uniform:.2f} nats per token, by the tokens' frequencies {by_count:.2f}")
LOSS = by_count - 0.6  # what must be reached

vocab = tokenizer.vocab_size
sizes = GPT2Config(vocab, context=LENGTH, n_embd=WIDTH, n_layer=3, n_head=4, dropout=0.05)
config = training.TrainConfig(
    steps=STEPS,
    batch_size=BATCH,
    threads=1,  # so small a model that a second one would only be waited for
    accumulate=2,  # two batches of BATCH windows are one step
    precision="bf16",  # what products multiply; sums, norms, loss and updates stay f32
    checkpointing=2,  # every second block keeps but its inputs
    optimizer="muon",  # of matrices; AdamW of the others
    schedule="warmup_cosine",  # a tenth of the steps up, the others down to a tenth of lr
    lr=2e-2,
    warmup=STEPS // 10,
    weight_decay=0.1,  # of matrices alone
    clip=1.0,
    eval_every=STEPS // 3,
    save_every=STEPS // 3,
)


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
        print(f"step {metrics.step:3}  held back {metrics.loss:.3f}")


def prepare(folder: Path, *callbacks: training.Callback) -> training.Trainer:
    """Everything anew, as another process would make it."""
    pg.seed(options.seed)
    model, loader = GPT2(sizes), Loader(RandomWindows(train, LENGTH), BATCH, seed=options.seed)
    optimizer = training.make_optimizer(config, model)
    parts = (model, optimizer, loader, held_back, config)
    return training.Trainer(*parts, checkpoint_dir=folder / "checkpoints", callbacks=callbacks)


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
        training.plot_loss(lines, options.plot, "GPT-2 on Python's manual")
    # The last third once more, from its checkpoint: what did the interrupted run lose? Nothing.
    trainer = prepare(folder, again)
    first = trainer.resume(folder / "checkpoints" / f"step-{2 * STEPS // 3:06}")
    trainer.checkpoint_dir = None
    trainer.fit()

took = time.process_time()  # seconds of CPU time
if any(again.losses[step] != rest.losses[step] for step in range(first + 1, STEPS + 1)):
    sys.exit("FAILED: a resumed run must have the losses of one that did not stop, bit for bit")
if not loss < LOSS:
    sys.exit(f"FAILED: held back must cost less than {LOSS:.3f} nats per token; got {loss:.3f}")
print(f"OK held back {loss:.3f} < {LOSS:.3f} nats per token, and the same bits, in {took:.1f} s")
