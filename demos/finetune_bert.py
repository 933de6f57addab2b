# SPDX-License-Identifier: MIT
"""BERT: learn a language from hidden words, then fine-tune it to sort sentences.

    python demos/finetune_bert.py [--plot loss.png]

The sentences begin the docstrings of Python's own library: about numbers, files or networks? First
the model reads all of them, a seventh of the tokens hidden, and learns to say what they were. Then
its body gets a head for three classes and is fine-tuned on labelled sentences. The same without the
first part shows what a thousand sentences are worth: not much. BERT had read three billion words.
"""

import argparse
import importlib
import inspect
import re
import sys
import time

import numpy as np

import pyggml as pg
from pyggml.data import AugmentedDataset, Batch, Documents, Loader, MaskTokens, Tokenizer
from pyggml.models import BERTConfig, BERTForMaskedLM, BERTForSequenceClassification
from pyggml.optim import AdamW
from pyggml.optim.schedules import warmup_cosine
from pyggml.train import TrainStep

TOPICS = {
    "numbers": "math cmath statistics decimal fractions random numbers",
    "files": "os shutil pathlib tempfile glob zipfile tarfile io gzip",
    "network": "socket ssl http.client http.server urllib.request smtplib ftplib imaplib ipaddress",
}
parser = argparse.ArgumentParser(description="Fine-tune BERT to sort sentences.")
parser.add_argument("--plot", metavar="FILE", help="draw the losses as PNG")
parser.add_argument("--quick", action="store_true", help="fewer steps, for a test")
options = parser.parse_args()
began = time.perf_counter()
READING, TUNING, RIGHT = (10, 60, 0.45) if options.quick else (400, 120, 0.70)
LENGTH, BATCH = 24, 32


def sentences(module: str) -> set[str]:
    """First sentences of the docstrings of a module's functions, classes and methods."""
    own = vars(importlib.import_module(module))
    things = [x for name, x in own.items() if name[0] != "_" and not inspect.ismodule(x)]
    things += [each for thing in things if inspect.isclass(thing) for each in vars(thing).values()]
    texts = [text for thing in things if isinstance(text := getattr(thing, "__doc__", 0), str)]
    found = {" ".join(re.split(r"[.:]\s|\n\s*\n", text.strip())[0].split()) for text in texts}
    return {sentence for sentence in found if 20 < len(sentence) < 160}


topics = [set[str]().union(*map(sentences, modules.split())) for modules in TOPICS.values()]
both = topics[0] & topics[1] | topics[1] & topics[2] | topics[0] & topics[2]
examples = sorted((text, label) for label in range(3) for text in topics[label] - both)
tokenizer = Tokenizer.train_bpe([text for text, _ in examples], 800)
PAD, CLS, MASK = (tokenizer.vocab_size + i for i in range(3))  # BERT's own, after the others
ids = np.full((len(examples), LENGTH), PAD, np.int32)
for row, (text, _) in zip(ids, examples, strict=True):
    tokens = [CLS, *tokenizer.encode(text)][:LENGTH]
    row[: len(tokens)] = tokens
labels = np.array([label for _, label in examples], np.int32)
order = np.random.default_rng(0).permutation(len(examples))
test, train = order[: len(order) // 4], order[len(order) // 4 :]
share = np.bincount(labels[test]).max() / len(test)
print(
    f"{len(train)} sentences to learn, {len(test)} held back; always the same answer: {share:.0%}"
)

names = tuple(TOPICS)
config = BERTConfig(MASK + 1, LENGTH, 64, 2, 4, types=1, dropout=0.1, classes=3, labels=names)


def fit(model: object, batches: object, steps: int, lr: float) -> list[float]:
    """Losses of a training."""
    step = TrainStep(model, AdamW(model.parameters()), clip=1.0)
    rate = warmup_cosine(lr, 10, steps)
    return [step([next(batches)], lr=rate(i)).loss for i in range(steps)]


def labelled(rows: np.ndarray) -> Batch:
    """Sentences and classes; the mask tells which tokens are there."""
    return Batch(ids[rows], labels[rows], attention_mask=(ids[rows] != PAD).astype(np.int32))


# 1. Reading: all sentences, no labels. Each epoch hides other tokens.
pg.seed(0)
reader = BERTForMaskedLM(config)
documents = Documents.of([row[row != PAD] for row in ids])
crops = AugmentedDataset(documents, LENGTH, MaskTokens(MASK, PAD, special=(CLS,)), pad_id=PAD)
curves = {"hidden words": fit(reader, Loader(crops, BATCH, seed=0), READING, 3e-3)}
last = np.mean(curves["hidden words"][-10:])
print(f"hidden words: loss {last:.2f}, by guessing {np.log(config.vocab_size):.2f}")

# 2. Tuning: the same body with another head, and once with a body that has read nothing.
right = {}
for name in ("from scratch", "fine-tuned")[options.quick :]:
    pg.seed(1)
    model = BERTForSequenceClassification(config)
    if name == "fine-tuned":
        model.bert.load_state_dict({**model.bert.state_dict(), **reader.bert.state_dict()})
    rng = np.random.default_rng(0)
    batches = iter(lambda rng=rng: labelled(rng.choice(train, BATCH)), None)
    curves[name] = fit(model, batches, TUNING, 2e-3)
    said = TrainStep(model, None).logits(labelled(test)).argmax(axis=-1)
    right[name] = float((said == labels[test]).mean())
    print(f"{name:<12}  loss {np.mean(curves[name][-10:]):.3f}  held back right {right[name]:.1%}")
for i, guess in list(zip(test, said, strict=True))[:4]:
    print(f"  {names[guess]:<8} {examples[i][0]!r}")

if options.plot:
    from pyggml.train import plot_curves

    plot_curves(options.plot, curves, title="BERT: hidden words, then classes", y="nats")
took = time.perf_counter() - began
got = right["fine-tuned"]
if not got > RIGHT:
    sys.exit(f"FAILED: more than {RIGHT:.0%} must be right; got {got:.1%}")
print(f"OK {got:.1%} of held-back sentences right > {RIGHT:.0%} in {took:.1f} s")
