# SPDX-License-Identifier: MIT
"""BERT: learn a language from hidden words, then fine-tune it with twelve labelled sentences.

    python demos/finetune_bert.py [--plot loss.png]

Labels are expensive, text is not. The text here has words of four topics and words that all topics
share; one word in ten is of another topic. First the model reads paragraphs with a seventh of the
words hidden, and predicts them: it learns which words occur together. Then its encoder gets a head
with four classes and is fine-tuned on twelve labelled sentences, in which most words do not occur.
A model that has read nothing is fine-tuned too, and a thousand other sentences compare the two.
"""

import argparse
import itertools
import sys
import time

import numpy as np

import pyggml as pg
from pyggml.data import AugmentedDataset, Batch, Documents, Loader, MaskTokens
from pyggml.models import BERTConfig, BERTForMaskedLM, BERTForSequenceClassification
from pyggml.optim import AdamW, Muon, Optimizer, muon_groups
from pyggml.optim.schedules import warmup_cosine
from pyggml.recipes import plot_curves, script_options
from pyggml.train import TrainStep

TOPICS = {  # things, deeds and qualities
    "kitchen": """kettle oven spoon soup loaf onion butter plate recipe dough cheese pepper
        | boiled fried baked stirred tasted peeled | salty crisp warm sweet greasy spicy""",
    "sea": """anchor harbour sail wave captain lighthouse deck tide gull net rope island
        | moored hauled sighted steered rowed boarded | foggy stormy briny rusty tidal distant""",
    "music": """violin drum choir melody chorus piano flute concert singer rhythm trumpet tune
        | played sang rehearsed directed hummed composed | loud solemn shrill gentle lively calm""",
    "forest": """oak moss fox owl path fern badger root mushroom deer stream nest
        | climbed hunted gnawed sniffed shaded buried | mossy hollow shady wild leafy damp""",
}
FORMS = "the Q T D a Q T|somebody D the T and the Q T|a T and a Q T were Q|the T D it near a Q T"
PARAGRAPHS, LENGTH, STRAY, READING, BATCH = 3000, 40, 0.1, 450, 16
LABELLED, TEST, DRAWS, TUNING, WORTH = 12, 1000, 4, 60, 0.10  # WORTH: what must be gained
parser = argparse.ArgumentParser(description="Fine-tune BERT with few labelled sentences.")
options = script_options(parser)
pg.set_threads(1)  # so small a model that a second thread would only be waited for
rng = np.random.default_rng(options.seed)
names = tuple(TOPICS)
words = [dict(zip("TDQ", map(str.split, t.split("|")), strict=True)) for t in TOPICS.values()]


def sentence(topic: int) -> list[str]:
    """One of the forms, filled with a topic's words, or now and then with one of any topic."""
    strays = np.where(rng.random(9) < STRAY, rng.integers(len(names), size=9), topic)
    form = FORMS.split("|")[rng.integers(4)].split()
    kinds = [words[at].get(kind, [kind]) for kind, at in zip(form, strays, strict=False)]
    return [kind[rng.integers(len(kind))] for kind in kinds]


def encode(text: list[str]) -> np.ndarray:
    """Tokens, one a word, behind one that stands for the whole."""
    return np.array([CLS, *(vocabulary[word] for word in text)], np.int32)


def labelled(count: int) -> Batch:
    """Sentences and their classes; the mask tells which tokens are there."""
    labels = np.arange(count, dtype=np.int32) % len(names)
    rows = [encode(sentence(topic)) for topic in labels]
    ids = np.stack([np.pad(row, (0, 10 - len(row)), constant_values=PAD) for row in rows])
    return Batch(ids, labels, attention_mask=(ids != PAD).astype(np.int32))


def fit(model: object, optimizer: Optimizer, batches: object, steps: int, lr: float) -> list[float]:
    """Losses of a training."""
    step, rate = TrainStep(model, optimizer, clip=1.0), warmup_cosine(lr, steps // 10, steps)
    return [step([next(batches)], lr=rate(i)).loss for i in range(steps)]


used = {word for topic in words for kind in topic.values() for word in kind} | set(FORMS.split())
used = sorted({each for word in used for each in word.split("|")} - set("TDQ"))
vocabulary = {word: i for i, word in enumerate(used)}
PAD, CLS, MASK = range(len(used), len(used) + 3)
config = BERTConfig(MASK + 1, LENGTH, 64, 2, 4, n_ffn=128, types=1, classes=4, labels=names)

# 1. Reading: no labels. Each epoch hides other words.
pg.seed(options.seed)
reader = BERTForMaskedLM(config)
fours = ([i % len(names)] * 4 for i in range(PARAGRAPHS))  # sentences of one topic
paragraphs = [encode([word for topic in four for word in sentence(topic)]) for four in fours]
hide = MaskTokens(MASK, PAD, special=(CLS,))
text = Loader(AugmentedDataset(Documents.of(paragraphs), LENGTH, hide, pad_id=PAD), BATCH, seed=0)
muon = Muon(muon_groups(reader, weight_decay=0.0))
read = fit(reader, muon, text, READING, 2e-2)
print(f"{len(used)} words; a hidden one costs {np.log(len(used)):.2f} nats by guessing")
for i in range(0, READING, READING // 9):
    print(f"step {i + 50:3}  a hidden word costs {np.mean(read[i : i + 50]):.2f} nats")

# 2. Tuning: the same body with another head, and once a body that has read nothing. What comes out
#    hangs on which sentences are the labelled ones: several draws.
test = labelled(TEST)
right, curves = {"from scratch": [], "fine-tuned": []}, {}
for draw in range(DRAWS):
    few = labelled(LABELLED)
    for name, scores in right.items():
        pg.seed(options.seed + draw)
        model = BERTForSequenceClassification(config)
        if name == "fine-tuned":
            model.bert.load_state_dict({**model.bert.state_dict(), **reader.bert.state_dict()})
        curves[name] = fit(model, AdamW(model.parameters()), itertools.repeat(few), TUNING, 1e-3)
        scores.append(float((TrainStep(model, None).logits(test).argmax(-1) == test.y).mean()))
    print(f"{LABELLED} labels: " + ", ".join(f"{n} {s[-1]:.1%} right" for n, s in right.items()))

if options.plot:
    title = "BERT: twelve labels, without reading and after it"
    plot_curves(options.plot, curves, title=title, y="nats")
scratch, tuned = (float(np.mean(scores)) for scores in right.values())
took = time.process_time()  # seconds of CPU time
if not tuned - scratch >= WORTH:
    sys.exit(f"FAILED: reading must add {WORTH:.0%}; from {scratch:.1%} it came to {tuned:.1%}")
print(
    f"OK reading took {scratch:.1%} right to {tuned:.1%}, by more than {WORTH:.0%}, in {took:.1f} s"
)
