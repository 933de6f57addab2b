# SPDX-License-Identifier: MIT
"""T5 fills gaps: an encoder reads a text with holes, a decoder writes what was in them.

    python demos/t5_denoise.py [--plot loss.png]

"Beautiful <0> better than <1>." goes in, "<0> is <1> ugly" must come out. This is how T5 learns a
language (Raffel et al. 2019, arXiv:1910.10683): each epoch has other holes. The lines are those of
"The Zen of Python". The test cuts new holes. To fill one, the decoder must find its mark in the
output of the encoder, and know the line. Muon learns this in fewer steps than Adam.
"""

import argparse
import codecs
import contextlib
import io
import sys
import time

import numpy as np

import pyggml as pg
from pyggml.data import AugmentedDataset, CorruptSpans, Documents, Loader, Tokenizer
from pyggml.models import T5, T5Config
from pyggml.optim import Muon, muon_groups
from pyggml.optim.schedules import warmup_cosine
from pyggml.recipes import plot_curves, script_options
from pyggml.train import TrainStep

parser = argparse.ArgumentParser(description="T5 fills gaps.")
options = script_options(parser, plot="the loss")
pg.seed(options.seed)
pg.set_threads(1)  # so small a model that a second thread would only be waited for
STEPS, BATCH, LENGTH, RIGHT = 400, 32, 24, 0.45

with contextlib.redirect_stdout(io.StringIO()):  # the module prints it when it is imported
    import this
zen = codecs.decode(this.s, "rot13")
tokenizer = Tokenizer.train_bpe([zen], 400)
lines = [np.array(tokenizer.encode(line), np.int32) for line in zen.splitlines() if len(line) > 20]

# Tokens of T5's own come after those of the text: what ends it, and what marks the holes.
END, PAD = tokenizer.vocab_size, tokenizer.vocab_size + 1
SENTINELS = tuple(range(PAD + 1, PAD + 5))
spans = CorruptSpans(SENTINELS, eos_id=END, rate=0.15, mean_span=2.0)
data = AugmentedDataset(Documents.of(2 * lines), LENGTH, spans, pad_id=PAD)
loader = Loader(data, BATCH, seed=options.seed)
model = T5(
    T5Config(
        vocab_size=SENTINELS[-1] + 1, context=64, n_embd=64, n_layer=2, n_head=4, n_head_dim=16,
        n_ffn=192, start_id=PAD, eos_id=END,
    )
)  # fmt: skip
print(f"{sum(map(len, lines))} tokens in {len(lines)} lines, {model.num_parameters():,} parameters")


def show(ids: np.ndarray) -> str:
    """Text with its holes as <0>, <1>, and so on."""
    parts = []
    for i in ids:
        if i in SENTINELS:
            parts.append(f"<{SENTINELS.index(i)}>")
        elif 0 <= i < END:  # not what pads it
            parts.append(tokenizer.decode([int(i)]))
    return "".join(parts)


# A batch has what the encoder reads, what the decoder must write, and, by name, what it is given:
# its own output one step late, and a mask of the tokens that are there.
batch = next(loader)
print(f"reads   {show(batch.x[0])!r}\nwrites  {show(batch.y[0])!r}")
print(f"further inputs: {', '.join(f'{n} {a.shape}' for n, a in sorted(batch.inputs.items()))}")

step = TrainStep(model, Muon(muon_groups(model, weight_decay=0.0)), clip=1.0)
rate = warmup_cosine(7e-3, STEPS // 20, STEPS)
losses = []
for i in range(STEPS):
    losses.append(step([next(loader)], lr=rate(i)).loss)
    if (i + 1) % (STEPS // 8) == 0:
        print(f"step {i + 1:3}  loss {np.mean(losses[-10:]):.3f}")

# The test: holes of another seed. A hole is right when all of its tokens are.
fresh = next(Loader(data, len(data), seed=12345))
model.eval()
right = total = 0
for x, y in zip(fresh.x, fresh.y, strict=True):
    want = [int(i) for i in y if i >= 0 and i != END]
    got = model.generate(x[x != PAD], len(want) + 4)
    holes = [dict[int, list[int]](), dict[int, list[int]]()]
    for found, ids in zip(holes, (want, got), strict=True):
        for token in ids:
            if token in SENTINELS:
                last = found.setdefault(token, [])
            elif found:
                last.append(token)
    total += len(holes[0])
    right += sum(holes[1].get(mark) == tokens for mark, tokens in holes[0].items())
print(f"reads   {show(x)!r}\nwrites  {show(np.array(got))!r}")

if options.plot:
    curves, title = {"training": losses}, "T5 fills gaps"
    plot_curves(options.plot, curves, title=title, y="nats per token", smoothed=True)
share = right / total
took = time.process_time()  # seconds of CPU time
if not share >= RIGHT:
    sys.exit(f"FAILED: {RIGHT:.0%} of the holes must be filled exactly; got {right} of {total}")
print(f"OK {right} of {total} holes filled exactly >= {RIGHT:.0%} in {took:.1f} s")
