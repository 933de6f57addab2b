# SPDX-License-Identifier: MIT
"""GPT-2 and Llama train as in PyTorch, and compute the same for every shape."""

from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Loader, RandomWindows, Tokenizer
from pyggml.models import GPT2, GPT2Config, build
from pyggml.optim import AdamW, decay_groups, schedules
from pyggml.train import TrainStep

torch = pytest.importorskip("torch")
F = torch.nn.functional

from ..models.references import gpt2, llama  # noqa: E402 - needs torch

TEXT = Path(__file__).parents[3] / "shared" / "data" / "tinyshakespeare.txt"
BATCH, LENGTH, STEPS = 3, 17, 50
LR, BETAS, EPS, DECAY, CLIP = 3e-3, (0.9, 0.95), 1e-8, 0.1, 1.0
# Sizes share no common factor by accident: V, T and the feed-forward width are odd.
CASES = {
    "gpt2": ("gpt2", {"n_embd": 48, "n_layer": 2, "n_head": 4}),
    "gpt2-untied": ("gpt2", {"n_embd": 36, "n_layer": 2, "n_head": 3, "tie": False, "n_ffn": 77}),
    "gpt2-without-bias": ("gpt2", {"n_embd": 48, "n_layer": 2, "n_head": 4, "bias": False}),
    "llama": ("llama", {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_ffn": 111}),
    "llama-grouped": ("llama", {"n_embd": 48, "n_layer": 2, "n_head": 6, "n_kv_head": 2}),
    "llama-untied": (
        "llama",
        {"n_embd": 40, "n_layer": 2, "n_head": 4, "n_kv_head": 1, "tie": False},
    ),
}


FORWARD = {"gpt2": gpt2, "llama": llama}


class Pair:
    """One model here and in PyTorch, with the same weights and the same batch."""

    def __init__(self, name, shape=(BATCH, LENGTH), **overrides):
        arch, sizes = CASES[name]
        pg.seed(2)
        self.model = build(arch, {"vocab_size": 101, "context": 23, **sizes, **overrides})
        rng = np.random.default_rng(3)
        # Larger than fresh weights: every part then has a gradient that can be told from noise.
        for _, p in self.model.named_parameters():
            noise = rng.standard_normal(p.shape) * (0.15 if p.ndim > 1 else 0.3)
            p.copy_((p.numpy() * (p.ndim == 1) + noise).astype(np.float32))
        self.weights = {
            key: torch.nn.Parameter(torch.from_numpy(array))
            for key, array in self.model.state_dict().items()
        }
        self.forward = FORWARD[arch]
        self.shape = shape
        self.x, self.y = (pg.zeros(shape, dtype="i32") for _ in range(2))

    def batch(self, seed, ignore=0.0):
        rng = np.random.default_rng(seed)
        data = rng.integers(0, 101, (self.shape[0], self.shape[1] + 1)).astype(np.int32)
        x, y = data[:, :-1].copy(), data[:, 1:].copy()
        y[rng.random(y.shape) < ignore] = -100
        self.x.copy_(x)
        self.y.copy_(y)
        logits = self.forward(self.weights, self.model.config, torch.from_numpy(x).long())
        targets = torch.from_numpy(y).long().flatten()
        return F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=-100)

    def layout(self, key, array):
        """A parameter's array in Hugging Face's layout: the model's own state dict shows how."""
        own = dict(self.model.named_parameters())[key]
        kept = own.numpy()
        own.copy_(array)
        turned = self.model.state_dict()[key]
        own.copy_(kept)
        return turned


def gradients(pair, ignore=0.0):
    """Check the loss; yield (name, our gradient, PyTorch's) of every parameter."""
    want = pair.batch(seed=1, ignore=ignore)
    want.backward()
    loss = pair.model.loss(pair.x, pair.y)
    optimizer = AdamW(decay_groups(pair.model))
    graph = pg.Graph([loss], loss=loss, grads=optimizer.grads)
    graph.run()
    assert graph.read(loss).item() == pytest.approx(want.item(), rel=1e-4)
    named = list(pair.model.named_parameters())
    assert len(named) == len(pair.weights)
    for key, parameter in named:
        ours = pair.layout(key, optimizer.grads[parameter].numpy())
        yield key, ours, pair.weights[key].grad.numpy()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ignore", [0.0, 0.3])
def test_loss_and_every_gradient(name, ignore):
    for key, ours, theirs in gradients(Pair(name), ignore):
        error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
        assert error < 1e-4, f"{key}: {error}"


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1)])
@pytest.mark.parametrize("n_head", [1, 2])
def test_extents_of_one(name, shape, n_head):
    """A permuted tensor with an extent of one has strides that look both ways."""
    pair = Pair(name, shape, n_head=n_head)
    for key, ours, theirs in gradients(pair):
        # With a single token the queries' and keys' gradients are zero: no relative error there.
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", ["gpt2", "llama-grouped"])
def test_fifty_steps(name):
    pair = Pair(name)
    theirs = torch.optim.AdamW(
        [
            {"params": [w for w in pair.weights.values() if w.ndim > 1], "weight_decay": DECAY},
            {"params": [w for w in pair.weights.values() if w.ndim == 1], "weight_decay": 0.0},
        ],
        lr=LR,
        betas=BETAS,
        eps=EPS,
    )
    groups = decay_groups(pair.model, DECAY, decay_embeddings=True)  # every matrix, as above
    ours = AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    loss = pair.model.loss(pair.x, pair.y)
    graph = pg.Graph([loss], loss=loss, grads=ours.grads)
    losses, clipped = [], 0
    for step in range(STEPS):
        theirs.zero_grad()
        want = pair.batch(seed=step % 5)
        want.backward()
        their_norm = float(torch.nn.utils.clip_grad_norm_(list(pair.weights.values()), CLIP))
        theirs.step()
        ours.zero_grad()
        graph.run()
        norm = ours.step(clip=CLIP)
        assert norm == pytest.approx(their_norm, rel=1e-4)
        clipped += norm > CLIP
        losses.append((graph.read(loss).item(), want.item()))
    worst = max(abs(a - b) for a, b in losses)
    assert worst < 1e-3, f"losses differ by {worst}: {losses}"
    assert losses[-1][0] < 0.8 * losses[0][0]
    assert clipped > 0


@pytest.mark.slow
@pytest.mark.skipif(not TEXT.exists(), reason="needs ../shared/data/tinyshakespeare.txt")
def test_nanogpts_recipe_takes_pytorchs_course():
    """The first 300 steps of its CPU settings, from the same weights, on the same batches."""
    text = TEXT.read_text("utf-8")
    tokenizer = Tokenizer.chars([text])
    pg.seed(1337)
    pg.set_threads(1)
    model = GPT2(GPT2Config.preset("tiny", vocab_size=tokenizer.vocab_size, bias=False))
    weights = {
        key: torch.nn.Parameter(torch.from_numpy(array))
        for key, array in model.state_dict().items()
    }
    ours = AdamW(decay_groups(model, 0.1, decay_embeddings=True), betas=(0.9, 0.99))
    groups = [
        {"params": [w for w in weights.values() if w.ndim > 1], "weight_decay": 0.1},
        {"params": [w for w in weights.values() if w.ndim == 1], "weight_decay": 0.0},
    ]
    theirs = torch.optim.AdamW(groups, betas=(0.9, 0.99))
    step, lr = TrainStep(model, ours, clip=1.0), schedules.warmup_cosine(1e-3, 100, 2000, 1e-4)
    loader = Loader(RandomWindows(tokenizer.encode(text), 64), 12, seed=1337)
    worst = 0.0
    for i in range(300):
        x, y = next(loader)
        got = step([(x, y)], lr=lr(i)).loss
        for group in theirs.param_groups:
            group["lr"] = lr(i)
        logits = gpt2(weights, model.config, torch.from_numpy(x).long())
        want = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(y).long().flatten())
        theirs.zero_grad()
        want.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        theirs.step()
        worst = max(worst, abs(got - want.item()))
    assert got < 2.6  # from log(65) = 4.2
    assert worst < 1e-3
