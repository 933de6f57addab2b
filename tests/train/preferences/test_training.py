# SPDX-License-Identifier: MIT
"""Training by preferences: log-probabilities, the reference, margins, and exact resume."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.data import Documents, Loader
from pyggml.data.text.chat import EncodedPreferences
from pyggml.errors import FormatError
from pyggml.models import Llama, LlamaConfig
from pyggml.optim import AdamW
from pyggml.train import Trainer
from pyggml.train.preferences import (
    METHODS,
    JudgedDataset,
    PairDataset,
    PreferenceLoss,
    document_logps,
    mismatched,
    reference_logps,
    sequence_logps,
)
from tests.train.tiny import VOCAB, make_model


def make_pairs(count=12, seed=0):
    """Prompts whose chosen answer goes up, and whose rejected answer goes down."""
    rng = np.random.default_rng(seed)
    ids, flags = [], []
    for start in rng.integers(3, VOCAB - 4, count):
        for sign in (1, -1):
            answer = start + sign * np.arange(1, rng.integers(2, 4))
            ids.append([0, start, *answer])
            flags.append([False, False, *([True] * answer.size)])
    labels = np.tile([True, False], count)
    return EncodedPreferences(Documents.of(ids, flags), labels, paired=True)


def make_dataset(model, method, encoded):
    documents = encoded.documents
    loss = PreferenceLoss(method)
    if method == "kto":
        single = EncodedPreferences(documents, encoded.labels, paired=False)
        others = mismatched(documents)
        first, second = (reference_logps(model, each) for each in (documents, others))
        return JudgedDataset(single, first, others, second)
    return PairDataset(encoded, reference_logps(model, documents) if loss.needs_reference else None)


def make_trainer(model, method, steps=12, **options):
    dataset = make_dataset(model, method, make_pairs())
    return Trainer(
        model, Loader(dataset, 4), dataset, AdamW(model, lr=2e-2), loss=PreferenceLoss(method),
        steps=steps, eval_every=0, **options,
    )  # fmt: skip


def test_log_probabilities_are_those_of_the_logits():
    model, encoded = make_model(), make_pairs(3)
    found = document_logps(model, encoded.documents, batch_size=4)
    for number, ids in enumerate(encoded.documents):
        logits = model(pg.tensor(ids[None, :-1])).numpy()[0].astype(np.float64)
        logps = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        picked = logps[np.arange(ids.size - 1), ids[1:]]
        wanted = picked[encoded.documents.targets(number)[1:]].sum()
        np.testing.assert_allclose(found[number], wanted, rtol=1e-5)
    x = pg.tensor(encoded.documents[0][None, :-1])
    y = pg.tensor(encoded.documents[0][None, 1:])
    total, mean = (sequence_logps(model, x, y, average).item() for average in (False, True))
    assert total == pytest.approx(mean * y.shape[1], rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_preferences_move_the_margin(method):
    # KTO's gradient is a quarter of DPO's where training begins.
    trainer = make_trainer(make_model(), method, steps=24 if method == "kto" else 12)
    before = trainer.evaluate().metrics
    trainer.fit()
    after = trainer.last_evaluation
    assert after.metrics["margin"] > before["margin"] + 0.1
    assert after.metrics["accuracy"] >= 0.75 > before["accuracy"] - 0.25
    assert after.perplexity is None
    if method in ("dpo", "kto"):
        assert before["margin"] == pytest.approx(0, abs=1e-5)
    if method == "kto":
        assert after.metrics["kl"] >= 0


def test_adapters_need_no_second_model():
    model, encoded = make_model(), make_pairs()
    base = reference_logps(model, encoded.documents)
    pg.seed(1)
    nn.apply_lora(model, 4, targets="all-linear")
    np.testing.assert_allclose(reference_logps(model, encoded.documents), base, rtol=1e-5)
    dataset = PairDataset(encoded, base)
    trainer = Trainer(
        model, Loader(dataset, 4), dataset, AdamW(model, lr=2e-2), loss=PreferenceLoss(), steps=15
    )
    assert trainer.evaluate().metrics["margin"] == pytest.approx(0, abs=1e-4)
    trainer.fit()
    assert trainer.last_evaluation.metrics["accuracy"] > 0.9


def test_dpo_resumes_to_the_same_bits(tmp_path):
    def make(folder):
        return make_trainer(make_model(), "dpo", 6, checkpoint_dir=tmp_path / folder, save_every=3)

    whole = make("whole")
    whole.fit()
    half = make("half")
    half.fit()
    resumed = make("half")
    resumed.resume(tmp_path / "half" / "step-000003")
    assert resumed.step == 3
    resumed.fit()
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert np.array_equal(one.numpy(), other.numpy())
    other = PairDataset(make_pairs(), np.zeros(24))
    trainer = Trainer(
        make_model(), Loader(other, 4), loss=PreferenceLoss(), steps=6,
        checkpoint_dir=tmp_path / "half",
    )  # fmt: skip
    with pytest.raises(FormatError, match="data"):
        trainer.resume()


def test_the_reference_is_cached_and_damage_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "reference.json"
    model, documents = make_model(), make_pairs(3).documents
    first = reference_logps(model, documents, path)
    computed = []
    monkeypatch.setattr(
        "pyggml.train.preferences.reference.document_logps",
        lambda *given: computed.append(1) or document_logps(*given),
    )
    assert np.array_equal(reference_logps(model, documents, path), first)
    assert not computed
    assert not np.array_equal(reference_logps(make_model(seed=3), documents, path), first)
    reference_logps(model, make_pairs(3, seed=2).documents, path)
    reference_logps(model, documents, path, options={"precision": "bf16"})
    assert len(computed) == 3
    data = bytearray(path.read_bytes())
    for place in (5, len(data) // 2, len(data) - 90):
        broken = data.copy()
        broken[place] ^= 1
        path.write_bytes(broken)
        with pytest.raises(
            FormatError, match=r"must be a file of a reference, and whole; .*: move it away"
        ):
            reference_logps(model, documents, path, options={"precision": "bf16"})
    path.write_bytes(data[:-1])
    with pytest.raises(
        FormatError, match=r"must be a file of a reference, and whole; .*: move it away"
    ):
        reference_logps(model, documents, path)


def test_wrong_data_raise():
    encoded = make_pairs(3)
    single = EncodedPreferences(encoded.documents, encoded.labels, paired=False)
    with pytest.raises(ValueError, match="pairs"):
        PairDataset(single)
    with pytest.raises(ValueError, match="reference"):
        PairDataset(encoded, np.zeros(2))
    with pytest.raises(ValueError, match="seq_len"):
        PairDataset(encoded, seq_len=1)
    with pytest.raises(ValueError, match="others"):
        JudgedDataset(single, np.zeros(6), make_pairs(2).documents, np.zeros(4))
    with pytest.raises(ValueError, match="desirable_weight"):
        PreferenceLoss("dpo", desirable_weight=2.0)
    with pytest.raises(ValueError, match="method"):
        PreferenceLoss("ppo")
    model = make_model()
    trainer = Trainer(model, PairDataset(encoded), loss=PreferenceLoss(), batch_size=2, steps=1)
    with pytest.raises(ValueError, match="reference"):
        trainer.fit()


def test_mismatched_answers_answer_other_prompts():
    documents = make_pairs(6, seed=3).documents
    prompts = [tuple(documents.part(i, 0, 2)) for i in range(len(documents))]
    answers = [tuple(documents.part(i, 2)) for i in range(len(documents))]
    given = [(tuple(ids[:2]), tuple(ids[2:])) for ids in mismatched(documents)]
    assert [prompt for prompt, _ in given] == prompts
    own = {(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)}
    assert not own.intersection(given)
    assert sorted(answer for _, answer in given) == sorted(answers)
    same = Documents.of([[1, 2], [1, 3], [1, 4]], [[False, True]] * 3)
    assert [ids.tolist() for ids in mismatched(same)] == [[1, 3], [1, 4], [1, 2]]


@pytest.mark.parametrize("method", ["dpo", "kto"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_an_untouched_quantised_base_is_its_own_reference(method, size):
    """Quantised weights are multiplied in another way for few tokens than for many."""
    pg.seed(4)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 256, "n_ffn": 256, "context": 256}
    model = Llama(LlamaConfig(vocab_size=VOCAB, **sizes))
    weights = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    model.replace_tensors([(p, pg.tensor(p.numpy(), "q4_K")) for p in weights])
    nn.apply_lora(model, 2, targets="all-linear")
    rng = np.random.default_rng(1)
    ids = [rng.integers(0, VOCAB, n).tolist() for n in rng.integers(5, 60, 12)]
    documents = Documents.of(ids, [[False, *([True] * (len(each) - 1))] for each in ids])
    encoded = EncodedPreferences(documents, np.tile([True, False], 6), paired=method != "kto")
    rows = size * (1 if method == "kto" else 2)
    if method == "kto":
        others = mismatched(documents, 59)
        logps = [document_logps(model, each, rows, 59) for each in (documents, others)]
        dataset = JudgedDataset(encoded, logps[0], others, logps[1], 59)
    else:
        dataset = PairDataset(encoded, document_logps(model, documents, rows, 59), 59)
    trainer = Trainer(
        model, Loader(dataset, size), dataset, AdamW(model, lr=1e-3), loss=PreferenceLoss(method),
        steps=1,
    )  # fmt: skip
    assert trainer.evaluate().metrics["margin"] == pytest.approx(0, abs=2e-5)


def test_documents_that_the_model_cannot_read_are_named():
    documents = Documents.of([list(range(10)) * 20], [[True] * 200])
    with pytest.raises(ValueError, match=r"at most \d+ inputs; got 199"):
        document_logps(make_model(), documents)


def test_a_file_that_is_no_reference_is_not_to_be_deleted(tmp_path):
    file, encoded = tmp_path / "chats.jsonl", make_pairs(2)
    file.write_text('{"prompt": "a", "completion": "b"}\n')
    with pytest.raises(FormatError, match="must be a file of a reference") as raised:
        reference_logps(make_model(), encoded.documents, file)
    assert "delete" not in str(raised.value)
