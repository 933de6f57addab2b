# SPDX-License-Identifier: MIT
"""Handwritten digits with a convolutional network; MNIST with `--mnist`.

    pip install "pyggml[demos]"
    python demos/train_image.py [--mnist FOLDER] [--plot confusion.png]

The digits are scikit-learn's: 1797 of 8 × 8 pixels, a fifth of each kind for validation. MNIST has
70,000 of 28 × 28, ten thousand of them for validation; `--mnist` reads its files. One epoch of
MNIST took 69 s of CPU time here, and 98.91% were right. The command `pyggml train-image` does the
same, also for folders of photographs.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import pyggml as pg
from pyggml.data import ImageDataset, Loader, RandomCrop, digits_images, idx_images, split_images
from pyggml.models import CNN, CNNConfig, load
from pyggml.optim import AdamW, decay_groups
from pyggml.optim.schedules import warmup_cosine
from pyggml.recipes import plot_matrix, script_options
from pyggml.train import TrainStep, confusion_matrix

parser = argparse.ArgumentParser(description="Handwritten digits with a CNN.")
parser.add_argument("--mnist", metavar="FOLDER", help="train-images-idx3-ubyte.gz and so on")
options = script_options(parser, plot="the confusion matrix")
pg.seed(options.seed)
pg.set_threads(1)  # the same bits however many cores there are

# 1. The images: u8 arrays, or files, read when they are needed.
if options.mnist:
    train, test = (idx_images(options.mnist, part, classes=10) for part in ("train", "test"))
    BATCH, RIGHT, SHIFT = 64, 0.98, 2
    EPOCHS = max(1, 12_000 // len(train))  # of MNIST's 60,000 images once is enough
else:
    train, test = split_images(digits_images(), 0.2, seed=options.seed)
    EPOCHS, BATCH, RIGHT, SHIFT = 25, 32, 0.97, 1
size = train.image(0).shape[0]
pixels = np.stack([train.image(i) for i in range(min(len(train), 1000))])
print(f"{len(train):,} images of {size} x {size} to learn, {len(test):,} for validation")

# 2. The model. It normalises images itself, so that its file says all that is needed to use it.
config = CNNConfig(
    channels=1,
    size=size,
    widths=(24, 48),  # two stages: convolution, batch norm, activation, pooling
    hidden=128,
    dropout=0.2,
    classes=10,
    labels=tuple(map(str, range(10))),
    mean=(float(pixels.mean()),),
    std=(float(pixels.std()),),
)
model = CNN(config)
print(f"{model.num_parameters():,} parameters")

# 3. Batches (B, C, H, W) and labels (B,); images are moved about anew in each epoch.
loader = Loader(ImageDataset(train, [RandomCrop(size, padding=SHIFT)]), BATCH, seed=options.seed)
validation = Loader(ImageDataset(test), BATCH, shuffle=False, pad_last=True)
step = TrainStep(model, AdamW(decay_groups(model, 0.05)), clip=1.0)
rate = warmup_cosine(3e-3, 20, EPOCHS * len(loader))


def predict(trained: CNN) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and true classes of the validation images; the last batch's padding is -100."""
    forward = TrainStep(trained, None)
    pairs = [(forward.logits(batch).argmax(axis=-1), batch[1]) for batch in validation.once()]
    said, true = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return said[true >= 0], true[true >= 0]


# 4. The training.
done = 0
for epoch in range(EPOCHS):
    losses = []
    for _ in range(len(loader)):
        losses.append(step([next(loader)], lr=rate(done)).loss)
        done += 1
    said, true = predict(model)
    print(f"epoch {epoch + 1:2}  loss {np.mean(losses):.4f}  accuracy {np.mean(said == true):.2%}")

# 5. The file is all that is needed: read back, it says the same.
with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder, "digits.gguf"))
    again, _ = load(Path(folder, "digits.gguf"))
same = bool((predict(again)[0] == said).all())
one = pg.tensor(np.ascontiguousarray(test.image(1).transpose(2, 0, 1)[None]))  # (1, C, H, W)
shares = again.predict_proba(one).numpy()[0]
print(f"from the file: a {true[1]} is a {shares.argmax()} with probability {shares.max():.2%}")
matrix = confusion_matrix(said, true, 10)
print("confusion, true digits down, predicted ones across:")
print(matrix)

right = float(np.mean(said == true))
if options.plot:
    plot_matrix(options.plot, matrix, config.labels, title=f"{right:.2%} of {len(test):,} right")
took = time.process_time()  # seconds of CPU time
if not same:
    sys.exit("FAILED: the model from the file must say what the trained one said")
if not right > RIGHT:
    sys.exit(f"FAILED: more than {RIGHT:.0%} of the images must be right; got {right:.2%}")
print(f"OK {right:.2%} of {len(test):,} validation images right > {RIGHT:.0%} in {took:.1f} s")
