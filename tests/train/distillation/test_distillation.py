# SPDX-License-Identifier: MIT
"""Distillation: the loss against PyTorch's, the cache, its damage, and a student that learns."""

import json

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Documents, PackedDataset, RandomWindows, TokenDataset
from pyggml.errors import DTypeError, FormatError, ShapeError
from pyggml.models import build
from pyggml.nn import functional as F
from pyggml.optim import AdamW
from pyggml.train import Trainer
from pyggml.train.distillation import (
    DistillationDataset,
    TeacherCache,
    cache_teacher,
    distillation_loss,
    top_k_kl,
)

V, T = 23, 8
SIZES = {"vocab_size": V, "context": T, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_ffn": 32}
IDS = np.random.default_rng(0).integers(0, V, 100).astype(np.int32)


def model(seed=0, **sizes):
    pg.seed(seed)
    made = build("llama", {**SIZES, **sizes})
    for p in made.parameters():
        if p.ndim == 2:
            p.copy_(4 * p.numpy())
    return made


def rows(kept, seed=0):
    """Logits, a teacher's tokens with their log-probabilities, and targets of which some count."""
    rng = np.random.default_rng(seed)
    logits, teacher = (3 * rng.standard_normal((2, 5, V)).astype(np.float32) for _ in range(2))
    targets = rng.integers(0, V, (2, 5)).astype(np.int32)
    targets[0, 3] = targets[1, 0] = -100
    said = teacher - np.log(np.exp(teacher).sum(-1, keepdims=True))
    ids = np.argsort(-said, axis=-1)[..., :kept]
    return logits, ids.astype(np.int32), np.take_along_axis(said, ids, -1), targets


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
@pytest.mark.parametrize("kept", [V, 6, 1])
def test_the_divergence_is_pytorchs(kept, temperature):
    torch = pytest.importorskip("torch")
    logits, ids, said, targets = rows(kept)
    ours = pg.tensor(logits, requires_grad=True)
    loss = top_k_kl(ours, pg.tensor(ids), pg.tensor(said), pg.tensor(targets), temperature)
    loss.backward()
    t = torch.tensor(logits, requires_grad=True)
    q = torch.log_softmax(t / temperature, -1).gather(-1, torch.tensor(ids).long())
    p = torch.softmax(torch.tensor(said) / temperature, -1)
    apart = torch.nn.functional.kl_div(q, p, reduction="none").sum(-1) * temperature**2
    want = apart[torch.tensor(targets) != -100].sum()
    want.backward()
    np.testing.assert_allclose(loss.item(), want.item(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours.grad.numpy(), t.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_gradients_are_those_of_differences():
    logits, ids, said, targets = rows(4)
    fixed = [pg.tensor(value) for value in (ids, said, targets)]
    assert pg.check_grads(lambda x: top_k_kl(x, *fixed, 2.0), logits) < 1e-2


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"teacher_ids": np.zeros((2, 4, 3), "i4")}, ShapeError, "teacher_ids"),
        ({"teacher_logprobs": np.zeros((2, 5, 4), "f4")}, ShapeError, "teacher_logprobs"),
        ({"targets": np.zeros((2, 4), "i4")}, ShapeError, "targets"),
        ({"teacher_ids": np.full((2, 5, 3), V, "i4")}, ShapeError, "row"),
        ({"teacher_ids": np.zeros((2, 5, 3), "f4")}, DTypeError, "teacher_ids"),
        ({"temperature": 0.0}, ValueError, "temperature"),
        ({"temperature": "hot"}, TypeError, "temperature"),
    ],
)
def test_mistakes(change, error, said):
    logits, ids, logprobs, targets = rows(3)
    given = {"teacher_ids": ids, "teacher_logprobs": logprobs, "targets": targets, **change}
    heat = given.pop("temperature", 1.0)
    with pytest.raises(error, match=said):
        top_k_kl(pg.tensor(logits), *(pg.tensor(v) for v in given.values()), heat)
    with pytest.raises(ValueError, match="alpha"):
        distillation_loss(alpha=1.5)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_the_cache_has_the_teachers_log_probabilities(dtype, tmp_path):
    teacher, dataset = model().eval(), TokenDataset(IDS, seq_len=T)
    cache = cache_teacher(teacher, dataset, tmp_path / "c", top_k=5, batch_size=5, dtype=dtype)
    items = np.array([3, 0, len(dataset) - 1])
    x, y = dataset.batch(items)
    ids, said = cache.read(items, x, y)
    logits = teacher(pg.tensor(x)).numpy().astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_array_equal(ids, np.argsort(-logprobs, axis=-1)[..., :5])
    want = np.sort(logprobs, axis=-1)[..., ::-1][..., :5]
    np.testing.assert_allclose(said, want, atol=1e-5 if dtype == "f32" else 1e-2)
    size = (tmp_path / "c" / "logprobs.bin").stat().st_size
    assert size == len(dataset) * T * 5 * (4 if dtype == "f32" else 2)


def test_a_cache_is_made_once(tmp_path, monkeypatch):
    teacher, dataset = model(), TokenDataset(IDS, seq_len=T)
    first = cache_teacher(teacher, dataset, tmp_path / "c", top_k=3)
    monkeypatch.setattr("pyggml.train.distillation.cache.TrainStep", None)  # computes no more
    again = cache_teacher(teacher, dataset, tmp_path / "c", top_k=3)
    assert again.teacher == first.teacher
    with pytest.raises(ValueError, match="teacher"):
        cache_teacher(model(1), dataset, tmp_path / "c", top_k=3)
    with pytest.raises(ValueError, match="top_k"):
        cache_teacher(teacher, dataset, tmp_path / "c", top_k=4)
    with pytest.raises(ValueError, match="data"):
        cache_teacher(teacher, TokenDataset(IDS[:50], seq_len=T), tmp_path / "c", top_k=3)
    other = IDS.copy()
    other[40] = (other[40] + 1) % V
    changed = TokenDataset(other, seq_len=T)
    with pytest.raises(ValueError, match=r"item 4 .*changed"):
        cache_teacher(teacher, changed, tmp_path / "c", top_k=3)
    both = DistillationDataset(changed, first)
    both.batch(np.array([0, 1]))
    with pytest.raises(ValueError, match="changed"):
        both.batch(np.array([0, 5]))
    with pytest.raises(ValueError, match="items"):
        DistillationDataset(TokenDataset(IDS[:50], seq_len=T), first)


@pytest.mark.parametrize("name", ["ids.bin", "logprobs.bin", "items.bin", "teacher.json"])
def test_damage_is_found(name, tmp_path):
    cache_teacher(model(), TokenDataset(IDS, seq_len=T), tmp_path / "c", top_k=3)
    file = tmp_path / "c" / name
    whole = file.read_bytes()
    for broken in (bytes([*whole[:7], whole[7] ^ 4, *whole[8:]]), whole[:-1], b""):
        file.write_bytes(broken)
        with pytest.raises(FormatError, match=name):
            TeacherCache(tmp_path / "c")
    file.unlink()
    with pytest.raises(FormatError, match=name):
        TeacherCache(tmp_path / "c")
    file.write_bytes(json.dumps({"format": "x"}).encode())
    with pytest.raises(FormatError, match=name):
        TeacherCache(tmp_path / "c")


def test_data_without_fixed_items(tmp_path):
    with pytest.raises(ValueError, match="dataset"):
        cache_teacher(model(), RandomWindows(IDS, T), tmp_path / "c", top_k=2)
    with pytest.raises(TypeError, match="dataset"):
        cache_teacher(model(), IDS, tmp_path / "c", top_k=2)
    with pytest.raises(TypeError, match="teacher"):
        cache_teacher(pg.nn.Linear(2, 2), TokenDataset(IDS, seq_len=T), tmp_path / "c")
    with pytest.raises(ValueError, match="top_k"):
        cache_teacher(model(), TokenDataset(IDS, seq_len=T), tmp_path / "c", top_k=V + 1)
    assert not (tmp_path / "c").exists()


def test_the_loss_of_a_batch_is_the_mixture(tmp_path):
    teacher, student = model().eval(), model(5).eval()
    dataset = TokenDataset(IDS, seq_len=T)
    both = DistillationDataset(dataset, cache_teacher(teacher, dataset, tmp_path / "c", top_k=V))
    batch = both.batch(np.arange(3))
    x, y = pg.tensor(batch.x), pg.tensor(batch.y)
    more = {name: pg.tensor(value) for name, value in batch.inputs.items()}
    summed, count = distillation_loss(2.0, alpha=0.3)(student, x, y, **more)
    assert count(batch) == batch.y.size
    logits, said = (m(x).numpy().astype(np.float64) / 2 for m in (student, teacher))
    q, p = (z - np.log(np.exp(z).sum(-1, keepdims=True)) for z in (logits, said))
    apart = 4 * (np.exp(p) * (p - q)).sum()
    plain = F.cross_entropy(student(x), y, reduction="sum").item()
    np.testing.assert_allclose(summed.item(), 0.7 * plain + 0.3 * apart, rtol=1e-5)
    alone, _ = distillation_loss(2.0, alpha=0.3)(student, x, y)
    np.testing.assert_allclose(alone.item(), plain, rtol=1e-6)


@pytest.mark.parametrize("packed", [False, True])
def test_a_student_learns_what_its_teacher_says(packed, tmp_path):
    """By the trainer, with accumulation and a resumed run of the same bits; packed rows, too."""
    teacher = model()
    if packed:
        cuts = np.split(IDS, [5, 17, 20, 40, 41, 60])
        dataset = PackedDataset(Documents.of(cuts), seq_len=T)
    else:
        dataset = TokenDataset(IDS, seq_len=T)
    cache = cache_teacher(teacher, dataset, tmp_path / "said", top_k=8)

    def trainer(folder, seed=7):
        student = model(seed, n_embd=16)
        return Trainer(
            student, DistillationDataset(dataset, cache), TokenDataset(IDS, seq_len=T),
            AdamW(student, lr=1e-2), loss=distillation_loss(2.0, 1.0), batch_size=2, steps=40,
            accumulate=2, save_every=15, checkpoint_dir=folder, keep=5, prefetch=1,
        )  # fmt: skip

    first = trainer(tmp_path / "a")
    losses = []

    class Notes(pg.train.Callback):
        def on_step(self, trainer, metrics):
            losses.append(metrics.loss)

    first.callbacks.append(Notes())
    first.fit()
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])
    second = trainer(tmp_path / "b", seed=8)
    second.resume(tmp_path / "a" / "step-000015")
    second.fit()
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
