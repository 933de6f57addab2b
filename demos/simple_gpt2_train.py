# SPDX-License-Identifier: MIT
"""A small GPT-2, trained with a loop of your own.

    python demos/simple_gpt2_train.py [--plot loss.png]

The path from text to tokens, windows, a model, an optimizer and a loop. The Trainer of
gpt2_train.py does this and much more; here you see every step. The text is the manual that comes
with Python. The loss is in nats per character. The model must beat two guesses that need no
training: by the frequencies of characters, and by those of pairs of characters.
"""

import argparse
import sys
import time

import numpy as np

import pyggml as pg
from pyggml.data import Loader, RandomWindows, Tokenizer, embedded_text, split_tokens
from pyggml.models import GPT2, GPT2Config, generate
from pyggml.optim import AdamW, decay_groups
from pyggml.optim.schedules import warmup_cosine
from pyggml.recipes import plot_curves, script_options
from pyggml.train import TrainStep, eval_batches, evaluate

parser = argparse.ArgumentParser(description="A small GPT-2 in a loop of one's own.")
options = script_options(parser, plot="the loss")
pg.seed(options.seed)
pg.set_threads(1)  # so small a model that a second thread would only be waited for
STEPS, BATCH, CONTEXT = 300, 16, 64

# 1. Text to tokens: each character is one. The last part of the text is for validation.
texts = embedded_text()
tokenizer = Tokenizer.chars(texts)
train, validation = split_tokens(tokenizer.encode_documents(texts), 0.1)
validation = validation[:8000]
print(f"{len(train):,} characters to train on, {tokenizer.vocab_size} different ones")


# 2. What is known without a model: how often each character occurs, and each pair of them.
def entropies(ids: np.ndarray, test: np.ndarray, vocab: int) -> tuple[float, float]:
    """Nats per character of validation text by frequencies of characters, and of pairs."""
    pairs = np.ones((vocab, vocab))  # one each, so that none is impossible
    np.add.at(pairs, (ids[:-1], ids[1:]), 1)
    alone = pairs.sum(axis=0) / pairs.sum()
    after = pairs / pairs.sum(axis=1, keepdims=True)
    return -np.log(alone[test[1:]]).mean(), -np.log(after[test[:-1], test[1:]]).mean()


single, pair = entropies(train, validation, tokenizer.vocab_size)
print(f"by characters {single:.3f} nats, by pairs {pair:.3f}; to beat")

# 3. The model: GPT-2's architecture, far smaller. The head shares its weights with the embedding.
model = GPT2(
    GPT2Config(vocab_size=tokenizer.vocab_size, context=CONTEXT, n_embd=96, n_layer=3, n_head=3)
)
print(f"{model.num_parameters():,} parameters")

# 4. The optimizer: matrices are pulled towards zero, biases and norms are not.
optimizer = AdamW(decay_groups(model, weight_decay=0.1), betas=(0.9, 0.99))
rate = warmup_cosine(3e-3, warmup_steps=STEPS // 15, total_steps=STEPS, end=3e-4)
step = TrainStep(model, optimizer, clip=1.0)
loader = Loader(RandomWindows(train, CONTEXT), BATCH, seed=options.seed)

# 5. The loop: each batch is (x, y), both (B, T); y is x one character further on.
losses, measured = [], []
for i in range(STEPS):
    result = step([next(loader)], lr=rate(i))
    losses.append(result.loss)
    if (i + 1) % (STEPS // 10) == 0:
        batches = eval_batches(validation, CONTEXT, BATCH, max_batches=4)
        metrics = evaluate(model, batches, step)
        measured.append((i + 1, metrics.loss))
        print(
            f"step {i + 1:3}  loss {result.loss:.3f}  validation {metrics.loss:.3f}"
            f"  gradient {result.grad_norm:.2f}"
        )

# 6. What it writes: token by token, each drawn by the probabilities after those before.
prompt = "The "
added = generate(model, tokenizer.encode(prompt), 120, temperature=0.7, seed=0)
print("---\n" + prompt + tokenizer.decode(added) + "\n---")

if options.plot:
    curves = {"training": losses, "validation": tuple(map(list, zip(*measured, strict=True)))}
    title = "GPT-2 on Python's manual"
    plot_curves(options.plot, curves, title=title, y="nats per character", smoothed=True)
final = evaluate(model, eval_batches(validation, CONTEXT, BATCH), step).loss
took = time.process_time()  # seconds of CPU time
if not final < pair - 0.1:
    sys.exit(f"FAILED: validation must cost 0.1 less than {pair:.3f}, by pairs; got {final:.3f}")
print(f"OK validation {final:.3f} < {pair - 0.1:.3f}, 0.1 less than by pairs, in {took:.1f} s")
