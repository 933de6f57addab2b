# SPDX-License-Identifier: MIT
"""Find the learning rate: raise it step by step, and see where the loss falls fastest.

    python demos/lr_finder.py [--plot rates.png]

A rate that is too low wastes time; one that is too high diverges. The range test (Smith 2017,
arXiv:1506.01186) takes a hundred steps at rates from 1e-5 to 1e1, and restores the model. Then
three short trainings check the suggestion: at the suggested rate, at a thirtieth of it, and at
thirty times it.
"""

import argparse
import math
import sys
import time

import numpy as np

import pyggml as pg
from pyggml.data import Loader, RandomWindows, Tokenizer, embedded_text
from pyggml.models import GPT2, GPT2Config
from pyggml.optim import AdamW
from pyggml.recipes import plot_curves, script_options
from pyggml.train import NonFiniteError, TrainStep, find_lr

parser = argparse.ArgumentParser(description="Find the learning rate.")
options = script_options(parser, plot="loss over rate")
TRIES, STEPS, CONTEXT, BATCH = 100, 60, 32, 8
pg.set_threads(1)  # so small a model that a second thread would only be waited for

texts = embedded_text()[:100]  # of the manual that comes with Python
tokenizer = Tokenizer.chars(texts)
ids = tokenizer.encode_documents(texts)
config = GPT2Config(
    vocab_size=tokenizer.vocab_size, context=CONTEXT, n_embd=64, n_layer=2, n_head=2
)


def make() -> tuple[GPT2, AdamW, Loader]:
    """The same model, optimizer and batches each time."""
    pg.seed(options.seed)
    model = GPT2(config)
    optimizer = AdamW(model.parameters(), lr=1.0)
    return model, optimizer, Loader(RandomWindows(ids, CONTEXT), BATCH, seed=options.seed)


model, optimizer, loader = make()
before = model.state_dict()
found = find_lr(model, optimizer, loader, start=1e-5, end=10.0, steps=TRIES)
after = model.state_dict()
restored = all(np.array_equal(before[name], after[name]) for name in before)
print("rate       loss, smoothed")
for i in range(0, len(found.rates), 5):
    print(f"{found.rates[i]:<9.2e}  {found.smoothed[i]:.3f}")
print(f"ended after {len(found.rates)} of {TRIES} rates: the loss had diverged")
print(f"suggested {found.suggested:.2e}, where it falls fastest; lowest at {found.lowest:.2e}")

ends = {}
for name, factor in (("a thirtieth", 1 / 30), ("suggested", 1.0), ("thirty times", 30.0)):
    model, optimizer, loader = make()
    step = TrainStep(model, optimizer)
    losses = [math.inf]
    try:
        losses = [step([next(loader)], lr=factor * found.suggested).loss for _ in range(STEPS)]
    except NonFiniteError as error:
        print(f"{name:<13} rate {factor * found.suggested:.1e}: {error}")
    ends[name] = float(np.mean(losses[-10:]))
    print(
        f"{name:<13} rate {factor * found.suggested:.1e}: loss after {STEPS} steps {ends[name]:.3f}"
    )

if options.plot:
    rates = np.array(found.rates)
    curves = {"loss of one batch": (rates, found.losses), "smoothed": (rates, found.smoothed)}
    plot_curves(
        options.plot,
        curves,
        title="range test",
        x="learning rate",
        log="x",
        points=["loss of one batch"],
        marks={"suggested": found.suggested},
        most=1.1 * max(found.smoothed),  # what diverges leaves the picture
    )
took = time.process_time()  # seconds of CPU time
if not restored:
    sys.exit("FAILED: the test must leave the model as it was")
if not ends["suggested"] < min(ends["a thirtieth"], ends["thirty times"]):
    sys.exit(f"FAILED: the suggested rate must be the best of the three; got {ends}")
print(f"OK loss {ends['suggested']:.3f}, best of the three, in {took:.1f} s")
