# SPDX-License-Identifier: MIT
"""A model that writes, watched while it learns.

    python demos/train_text_generation.py [--plot loss.png]

The tokens are characters, and the text is "The Zen of Python", which comes with Python. The model
learns so short a text by heart: it first writes spaces and letters, then syllables, words, and at
last whole lines. This is also a test: a model that cannot learn it by heart has a bug.
"""

import argparse
import codecs
import contextlib
import io
import sys
import time

import numpy as np

import pyggml as pg
from pyggml.data import RandomWindows, Tokenizer
from pyggml.models import Llama, LlamaConfig, generate
from pyggml.optim import AdamW
from pyggml.recipes import plot_curves, script_options
from pyggml.train import Callback, Sampler, Trainer

parser = argparse.ArgumentParser(description="A model that writes, watched while it learns.")
options = script_options(parser, plot="the loss")
pg.seed(options.seed)
pg.set_threads(1)  # so small a model that a second thread would only be waited for
STEPS, SAMPLES, RIGHT = 400, 10, 0.85

with contextlib.redirect_stdout(io.StringIO()):  # the module prints it when it is imported
    import this
zen = codecs.decode(this.s, "rot13")
tokenizer = Tokenizer.chars([zen])
ids = np.array(tokenizer.encode(zen))
print(f"{len(zen)} characters, {tokenizer.vocab_size} tokens")

# Key and value heads serve two query heads each, as in the larger models of this kind.
config = LlamaConfig(
    vocab_size=tokenizer.vocab_size, context=64, n_embd=96, n_layer=3, n_head=4, n_kv_head=2
)
model = Llama(config)
print(f"{model.num_parameters():,} parameters, {model.num_parameters() // len(zen)} a character")


def write(prompt: str, characters: int, temperature: float = 0.0) -> str:
    """What the model puts after a prompt; at temperature 0 always the likeliest character."""
    start = tokenizer.encode(prompt)
    added = generate(model, start, characters, temperature=temperature, seed=0)
    return prompt + tokenizer.decode(added)


class Show(Callback):
    """Prints what the sampler hears, and keeps the losses."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_step(self, trainer: Trainer, metrics: object) -> None:
        self.losses.append(metrics.loss)

    def on_sample(self, trainer: Trainer, text: str) -> None:
        print(f"step {trainer.step:3}  loss {self.losses[-1]:.3f}  {text!r}")


# The Trainer takes the steps; callbacks look on. The sampler comes after those that hear of it.
show = Show()
trainer = Trainer(
    model,
    RandomWindows(ids, seq_len=48),
    optimizer=AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.99)),
    batch_size=8,
    steps=STEPS,
    warmup=20,
    seed=options.seed,
    callbacks=[show, Sampler(STEPS // SAMPLES, lambda: write("Beautiful is", 50))],
)
trainer.fit()

# The test: from the beginning of each line that is long enough, does the rest of it come?
lines = [line for line in zen.splitlines() if len(line) > 24]
same = total = 0
for line in lines:
    written = write("\n" + line[:14], len(line) - 14)[1:]
    same += sum(a == b for a, b in zip(written[14:], line[14:], strict=True))
    total += len(line) - 14
print(f"by heart: {same} of {total} characters in the ends of {len(lines)} lines")
# Heat makes it less sure of what it knows: the text is then drawn, and another each time.
for temperature in (0.5, 1.0, 2.0):
    print(f"temperature {temperature}: {write('Now is', 44, temperature)!r}")

if options.plot:
    title = "The Zen of Python, by heart"
    curves = {"training": show.losses}
    plot_curves(options.plot, curves, title=title, y="nats per character", smoothed=True)
share = same / total
took = time.process_time()  # seconds of CPU time
if not share > RIGHT:
    sys.exit(f"FAILED: more than {RIGHT:.0%} must be known by heart; got {share:.1%}")
print(f"OK {share:.1%} by heart > {RIGHT:.0%} in {took:.1f} s")
