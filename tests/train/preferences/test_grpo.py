# SPDX-License-Identifier: MIT
"""GRPO: rollouts, their log-probabilities, exact resume, and a task that is learned."""

from __future__ import annotations

import copy
import json
import pickle
import threading

import numpy as np
import pytest

import pyggml as pg
from pyggml.backend.buffers import last_write
from pyggml.data import Tokenizer
from pyggml.models import Llama, LlamaConfig
from pyggml.optim import AdamW
from pyggml.train import Trainer
from pyggml.train.preferences import GRPOLoss, Rollouts, group_advantages, token_logps

DIGITS = [str(digit) for digit in range(10)]


def right(completions, answer, **rest):
    """Reward an answer that is the given number."""
    return [float(text == wanted) for text, wanted in zip(completions, answer, strict=True)]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.chars(["0123456789="])


def make(tokenizer, *, size=16, groups=4, batch=3, beta=0.0, lr=1e-2, steps=3, seed=0, folder=None,
         rewards=right, **options):  # fmt: skip
    pg.seed(seed)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": size, "n_ffn": 2 * size, "context": 16}
    model = Llama(LlamaConfig(vocab_size=tokenizer.vocab_size, **sizes))
    found = []
    rollouts = Rollouts(
        model, tokenizer, [tokenizer.encode(f"{digit}=") for digit in DIGITS], rewards, batch,
        groups, columns={"answer": DIGITS}, reference=beta > 0, on_rollout=found.append,
        **{"max_tokens": 2, **options},
    )  # fmt: skip
    trainer = Trainer(
        model, rollouts, None, AdamW(model, lr=lr), loss=GRPOLoss(beta), steps=steps, warmup=0,
        schedule="constant",
        checkpoint_dir=folder, save_every=2 if folder else None,
    )  # fmt: skip
    return trainer, rollouts, found


def test_a_batch_holds_groups_of_completions(tokenizer):
    told = []

    def reward(prompts, completions, answer):
        told.append((prompts, completions, answer))
        return [float(len(text)) for text in completions]

    _, rollouts, found = make(tokenizer, beta=0.1, rewards=[reward, right], num_iterations=2,
                              reward_weights=[1.0, 0.5])  # fmt: skip
    batch = next(rollouts)
    prompts, completions, answers = told[0]
    assert len(completions) == batch.x.shape[0] == 12
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        ids = batch.y[row][batch.y[row] >= 0]
        assert tokenizer.decode(ids, skip_special=True) == completion
        assert tokenizer.decode(batch.x[row, :2]) == prompt == f"{answers[row]}="
        assert prompts[row] == prompts[4 * (row // 4)]
    assert np.abs(batch.inputs["advantages"].reshape(3, 4).sum(axis=1)).max() < 1e-4
    # The model has not changed: the sampler and the reference are the model.
    wanted = token_logps(rollouts.model, pg.tensor(batch.x), pg.tensor(batch.y)).numpy()
    for name in ("old_logps", "ref_logps"):
        np.testing.assert_allclose(batch.inputs[name], wanted, atol=1e-5)
    assert next(rollouts) is batch
    assert len(told) == 1
    metrics = found[0]
    assert metrics.kl == pytest.approx(0.0, abs=1e-6)
    assert set(metrics.rewards) == {"reward", "right"}
    assert metrics.reward == pytest.approx(
        metrics.rewards["reward"] + 0.5 * metrics.rewards["right"]
    )
    assert 0 < metrics.generation_s < 60
    assert metrics.tokens == (batch.y >= 0).sum()
    shapes = {name: array.shape for name, array in next(rollouts.once()).inputs.items()}
    assert shapes.keys() == batch.inputs.keys()


def test_settings_of_the_makers_do_not_change_the_sampling(tokenizer):
    _, rollouts, _ = make(tokenizer, batch=10)
    batch = next(rollouts)
    _, other, _ = make(tokenizer, batch=10)
    other.model.metadata["general.sampling.top_k"] = 1
    texts = [tokenizer.encode(f"{digit}=") for digit in DIGITS]
    again = Rollouts(other.model, tokenizer, texts, right, 10, 4, max_tokens=2,
                     columns={"answer": DIGITS})  # fmt: skip
    assert np.array_equal(next(again).x, batch.x)


def test_every_prompt_comes_once_in_an_epoch(tokenizer):
    _, rollouts, _ = make(tokenizer, batch=5, groups=2, max_tokens=1)
    seen = [tokenizer.decode(row[:1]) for _ in range(2) for row in next(rollouts).x[::2]]
    assert sorted(seen) == DIGITS


def test_the_reference_stays_while_the_model_moves(tokenizer):
    def seven(completions, **rest):
        return [float(text.startswith("7")) for text in completions]

    trainer, rollouts, found = make(tokenizer, beta=0.01, lr=5e-2, rewards=seven)
    before = {name: p.numpy() for name, p in trainer.model.named_parameters()}
    trainer.fit()
    assert found[-1].kl > found[0].kl
    batch = next(rollouts)
    after = {name: p.numpy() for name, p in trainer.model.named_parameters()}
    assert any(not np.array_equal(before[name], after[name]) for name in before)
    for name, p in trainer.model.named_parameters():
        p.copy_(before[name])
    wanted = token_logps(trainer.model, pg.tensor(batch.x), pg.tensor(batch.y)).numpy()
    np.testing.assert_allclose(batch.inputs["ref_logps"], wanted, atol=1e-5)


def test_the_reference_is_no_guest_in_the_model(tokenizer):
    _, rollouts, _ = make(tokenizer, beta=0.1)
    written = last_write(p.buffer for p in rollouts.model.parameters())
    next(rollouts)
    assert last_write(p.buffer for p in rollouts.model.parameters()) == written


def test_the_reference_shares_frozen_weights(tokenizer):
    model = make(tokenizer)[1].model
    for name, p in model.named_parameters():
        p.requires_grad = not name.endswith("embed_tokens.weight")
    prompts = [tokenizer.encode(f"{digit}=") for digit in DIGITS]
    rollouts = Rollouts(model, tokenizer, prompts, right, 3, 4, columns={"answer": DIGITS},
                        max_tokens=2, reference=True)  # fmt: skip
    for p in model.parameters():
        if not p.requires_grad:
            p.copy_(2 * p.numpy())
    batch = next(rollouts)
    wanted = token_logps(model, pg.tensor(batch.x), pg.tensor(batch.y)).numpy()
    np.testing.assert_allclose(batch.inputs["ref_logps"], wanted, atol=1e-5)
    assert any(not p.requires_grad for p in model.parameters())


def test_frozen_weights_of_the_reference_stay_frozen(tokenizer):
    model = make(tokenizer)[1].model
    first, *others = model.parameters()
    for p in others:
        p.requires_grad = False
    prompts = [tokenizer.encode(f"{digit}=") for digit in DIGITS]
    options = {"columns": {"answer": DIGITS}, "max_tokens": 2, "reference": True}
    rollouts = Rollouts(model, tokenizer, prompts, right, 3, 4, **options)
    next(rollouts)
    for p in (first, *others):
        p.requires_grad = True
    with pytest.raises(RuntimeError, match="must stay frozen, as its reference shares them"):
        next(rollouts)


def test_a_model_that_cannot_be_copied_is_told(tokenizer):
    rollouts = make(tokenizer)[1]
    rollouts.model.lock = threading.Lock()
    prompts = [tokenizer.encode("1=")]
    Rollouts(rollouts.model, tokenizer, prompts, right, 1, 2, max_tokens=2)
    with pytest.raises(TypeError, match=r"reference=True copies the model, .*lock.*take what"):
        Rollouts(rollouts.model, tokenizer, prompts, right, 1, 2, max_tokens=2, reference=True)


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy, pickle.dumps])
def test_rollouts_are_not_copied(tokenizer, copies):
    with pytest.raises(TypeError, match=r"Rollouts: .* make another one of the copied model"):
        copies(make(tokenizer)[1])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperature": 0.5}, "temperature must be as when the state was saved"),
        ({"scale_rewards": False}, "scale_rewards must be"),
        ({"reward_weights": [2.0]}, "reward_weights must be"),
        ({"top_p": 0.5}, "top_p must be"),
        ({"stop_ids": [3]}, "stop_ids must be"),
        ({"beta": 0.0}, "reference must be"),
    ],
)
def test_other_options_do_not_resume(tokenizer, changes, words):
    state = json.loads(json.dumps(make(tokenizer, beta=0.1)[1].state_dict()))
    make(tokenizer, beta=0.1)[1].load_state_dict(state)
    other = make(tokenizer, **{"beta": 0.1, **changes})[1]
    with pytest.raises(ValueError, match=words):
        other.load_state_dict(state)


def test_another_reference_is_told(tokenizer, tmp_path):
    """As where a notebook gives the trained model to new rollouts."""
    trainer, *_ = make(tokenizer, beta=0.1, folder=tmp_path, lr=5e-2)
    trainer.fit(progress=False)
    again, *_ = make(tokenizer, beta=0.1, folder=tmp_path, lr=5e-2)
    again.resume()
    trained, *_ = make(tokenizer, beta=0.1, folder=tmp_path, seed=1)
    with pytest.warns(UserWarning, match="give Rollouts the model as it was before the training"):
        trained.resume()


def test_grpo_resumes_to_the_same_bits(tokenizer, tmp_path):
    whole, _, found = make(tokenizer, steps=4, folder=tmp_path / "whole")
    whole.fit()
    again, _, more = make(tokenizer, steps=4, folder=tmp_path / "whole")
    again.resume(tmp_path / "whole" / "step-000002")
    again.fit()
    assert [each.rollout for each in more] == [2, 3]
    assert [each.reward for each in more] == [each.reward for each in found[2:]]
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert np.array_equal(one.numpy(), other.numpy())


@pytest.mark.slow
def test_grpo_learns_to_answer_with_a_given_number(tokenizer):
    """Two tokens are to be right, the digit and the end: by chance 1 of 144 answers is."""
    trainer, _, found = make(tokenizer, size=32, groups=32, batch=10, lr=5e-3, steps=180)
    trainer.fit()
    assert found[0].reward < 0.03
    assert np.mean([each.reward for each in found[-5:]]) >= 0.9


@pytest.mark.parametrize(
    ("reward", "error"),
    [
        (lambda completions, **rest: [1.0], ValueError),
        (lambda completions, **rest: [np.nan] * len(completions), ValueError),
        (lambda completions, **rest: [1e308, -1e308], ValueError),
        (lambda completions, **rest: None, (TypeError, ValueError)),
        (lambda completions, **rest: ["good"] * len(completions), TypeError),
    ],
)
def test_rewards_must_be_numbers(tokenizer, reward, error):
    _, rollouts, _ = make(tokenizer, rewards=reward, batch=1, groups=2, max_tokens=1)
    with pytest.raises(error, match="reward"):
        next(rollouts)


def test_large_rewards_have_advantages(tokenizer):
    large = group_advantages([3e38, -3e38, 1e38, 2e38], 2)
    assert large == pytest.approx([2**-0.5, -(2**-0.5), -(2**-0.5), 2**-0.5])
    for rewards in ([1e308, -1e308], [np.inf, 1.0], [4e38, 4e38]):
        with pytest.raises(ValueError, match="rewards must be finite in f32"):
            group_advantages(rewards, 2)
    with pytest.raises(ValueError, match="give scale_rewards"):
        group_advantages([3e38, -3e38, -3e38], 3, scale_rewards=False)
    with pytest.raises(TypeError, match="rewards must hold"):
        group_advantages(["a", "b"], 2)

    def far(completions, **rest):
        return [3e38, -3e38]

    _, rollouts, found = make(tokenizer, rewards=far, batch=1, groups=2, max_tokens=1)
    assert next(rollouts).inputs["advantages"] == pytest.approx([2**-0.5, -(2**-0.5)])
    assert found[0].reward_std == pytest.approx(3e38)
    heavy = make(tokenizer, rewards=far, batch=1, groups=2, max_tokens=1, reward_weights=[3e38])
    with pytest.raises(ValueError, match="lower their weights"):
        next(heavy[1])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"groups": 1}, "num_generations"),
        ({"batch": 11}, "batch_size"),
        ({"max_tokens": 15}, "max_tokens"),
        ({"temperature": 0.0}, "temperature"),
        ({"reward_weights": [1.0, 2.0]}, "reward_weights"),
        ({"rewards": []}, "rewards"),
    ],
)
def test_wrong_options_raise(tokenizer, options, name):
    with pytest.raises(ValueError, match=name):
        make(tokenizer, **options)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"reward_weights": 5}, "reward_weights"),
        ({"texts": 5}, "texts"),
        ({"columns": 5}, "columns"),
        ({"columns": {1: ["a"]}}, "columns"),
        ({"columns": {"answer": 5}}, "answer"),
        ({"stop_ids": ["a"]}, "stop_ids"),
        ({"on_rollout": 5}, "on_rollout"),
        ({"top_p": "a"}, "top_p"),
    ],
)
def test_options_of_another_kind_raise(tokenizer, options, name):
    model = make(tokenizer)[1].model
    with pytest.raises(TypeError, match=f"^Rollouts: .*{name}"):
        Rollouts(model, tokenizer, [[1, 2]], right, 1, 2, **{"max_tokens": 1, **options})


def test_a_batch_that_no_memory_has_room_for_is_refused(tokenizer):
    with pytest.raises(pg.OutOfMemoryError, match="lower num_generations"):
        make(tokenizer, groups=10**12)


def test_a_state_of_other_prompts_is_refused(tokenizer):
    _, rollouts, _ = make(tokenizer)
    state = rollouts.state_dict()
    _, other, _ = make(tokenizer, batch=2)
    with pytest.raises(ValueError, match="batch_size"):
        other.load_state_dict(state)
