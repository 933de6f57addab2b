# SPDX-License-Identifier: MIT
import numpy as np
import pytest

import pyggml as pg
from pyggml.errors import FormatError
from pyggml.models import Generator, Sampling, build, generate, sample

LLAMA = {
    "vocab_size": 29, "context": 50, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_kv_head": 2,
}  # fmt: skip
SIZES = {
    "gpt2": {"vocab_size": 29, "context": 50, "n_embd": 16, "n_layer": 2, "n_head": 2},
    "llama": LLAMA,
    "llama-window": {**LLAMA, "window": 6},
    "llama-mixture": {**LLAMA, "n_expert": 3, "family": "qwen3moe", "n_head_dim": 6},
    "llama-dynamic": {
        **LLAMA,
        "rope_scaling": {"kind": "dynamic", "factor": 2.0, "original": 16},
    },
    "llama-yarn": {**LLAMA, "rope_scaling": {"kind": "yarn", "factor": 4.0, "original": 16}},
}


@pytest.fixture(scope="module", params=SIZES)
def model(request):
    pg.seed(1)
    model = build(request.param.split("-")[0], SIZES[request.param])
    for p in model.parameters():
        if p.ndim == 2:
            p.copy_(p.numpy() * 20)  # far from uniform: greedy choices are clear
    return model


def logits_of(model, ids):
    return model(pg.tensor(np.asarray([ids], np.int32))).numpy()[0, -1]


def greedy(model, ids, count):
    ids = list(ids)
    for _ in range(count):
        ids.append(int(logits_of(model, ids).argmax()))
    return ids[-count:]


def test_cached_greedy_is_full_forward_greedy(model):
    prompt = [3, 1, 4, 1, 5]
    assert generate(model, prompt, 45, temperature=0) == greedy(model, prompt, 45)


def test_a_cache_is_read_by_the_fused_attention(model):
    generator = Generator(model)
    generator.feed([1, 2, 3])
    with pg.profile() as profile:
        generator.feed([4])
    # The plain ops copy all values of the cache for each token.
    assert "FLASH_ATTN_EXT" in {record.op for record in profile.records}


def test_long_prompts_are_read_in_parts(model, monkeypatch):
    monkeypatch.setattr("pyggml.models.generator._MOST_WIDTH", 7)
    ids = np.random.default_rng(0).integers(0, 29, 40)
    got = Generator(model).feed(ids)
    np.testing.assert_allclose(got, logits_of(model, ids), rtol=1e-4, atol=1e-4)
    if getattr(model.config, "rope", None) is None or not model.config.rope.is_dynamic:
        several = Generator(model, batch=3).feed_batch([ids, ids[:8], ids[:1]])
        for logits, count in zip(several, (40, 8, 1), strict=True):
            wanted = logits_of(model, ids[:count])
            np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pieces", [[1] * 12, [12], [1, 5, 1, 4, 1], [11, 1], [33, 1, 16]])
def test_any_cut_of_the_input_gives_the_same_logits(model, pieces):
    ids = np.random.default_rng(0).integers(0, 29, sum(pieces))
    generator, done = Generator(model), 0
    for count in pieces:
        got = generator.feed(ids[done : done + count])
        done += count
        np.testing.assert_allclose(got, logits_of(model, ids[:done]), rtol=1e-4, atol=1e-4)
    assert generator.length == done


def test_a_full_context_slides(model):
    prompt = [2, 7, 1, 8]
    got = generate(model, prompt, 120, temperature=0)
    assert len(got) == 120
    # The window fills at 50 tokens; then the newest 25 are read again.
    ids, start = list(prompt), 0
    for _ in range(120):
        if len(ids) - start > 50:
            start = len(ids) - 25
        ids.append(int(logits_of(model, ids[start:]).argmax()))
    assert got == ids[4:]


def test_a_long_prompt_keeps_its_end(model):
    ids = [int(i) for i in np.random.default_rng(3).integers(0, 29, 80)]
    assert generate(model, ids, 1, temperature=0) == greedy(model, ids[-50:], 1)


def test_seeds_repeat_and_differ(model):
    first = generate(model, [1, 2], 30, seed=5)
    assert first == generate(model, [1, 2], 30, seed=5)
    assert first != generate(model, [1, 2], 30, seed=6)


def test_stopping(model):
    free = generate(model, [1, 2, 3], 20, temperature=0)
    stop = free[7]
    cut = generate(model, [1, 2, 3], 20, temperature=0, stop_ids={stop})
    assert cut == free[: free.index(stop)]
    seen = []
    assert generate(model, [1], 9, temperature=0, callback=seen.append) == seen
    got = generate(model, [1, 2, 3], 20, temperature=0, callback=lambda token: False)
    assert got == free[:1]
    assert generate(model, [1], 0) == []


def test_sampling_follows_the_distribution():
    rng, logits = np.random.default_rng(0), np.log([0.5, 0.3, 0.15, 0.05])

    def share(**settings):
        drawn = [sample(logits, rng, **settings) for _ in range(2000)]
        return np.bincount(drawn, minlength=4) / 2000

    np.testing.assert_allclose(share(), [0.5, 0.3, 0.15, 0.05], atol=0.03)
    hot = np.array([0.5, 0.3, 0.15, 0.05]) ** 0.5
    np.testing.assert_allclose(share(temperature=2.0), hot / hot.sum(), atol=0.03)
    np.testing.assert_allclose(share(top_k=2), [0.625, 0.375, 0, 0], atol=0.03)
    np.testing.assert_allclose(share(top_p=0.75), [0.625, 0.375, 0, 0], atol=0.03)
    np.testing.assert_allclose(share(top_p=0.81), np.array([50, 30, 15, 0]) / 95, atol=0.03)
    assert share(top_p=1e-9)[0] == 1.0
    assert share(top_k=99)[3] > 0
    assert share(temperature=1e-30)[0] == 1.0
    assert sample([1.0, 2.0, 2.0], rng, temperature=0) == 1
    assert sample([-np.inf, 0.0], rng) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt_ids": []}, "at least one integer"),
        ({"prompt_ids": [1.5]}, "at least one integer"),
        ({"prompt_ids": [1, 29]}, "must be from 0 to 28; got 1 to 29"),
        ({"prompt_ids": [-1]}, "must be from 0 to 28"),
        ({"max_tokens": -1}, "max_tokens must be"),
        ({"temperature": -0.5}, "temperature must be"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"top_k": 0}, "top_k must be"),
        ({"top_p": 0.0}, "top_p must be"),
        ({"top_p": 1.5}, "top_p must be"),
    ],
)
def test_bad_settings_are_named(model, arguments, message):
    given = {"prompt_ids": [1], "max_tokens": 2, **arguments}
    with pytest.raises(ValueError, match=message):
        generate(model, **given)


def test_bad_capacity_and_overflow_are_named(model):
    with pytest.raises(ValueError, match=r"capacity .*50"):
        Generator(model, 51)
    generator = Generator(model, 4)
    generator.feed([1, 2, 3])
    with pytest.raises(ValueError, match="got 2 after 3"):
        generator.feed([1, 2])
    generator.reset()
    assert generator.feed([1, 2, 3, 4]).shape == (29,)


def test_nan_logits_are_an_error():
    with pytest.raises(FormatError, match="logits must be finite"):
        sample([0.0, np.nan], np.random.default_rng(0))


def test_a_dynamic_scaling_does_not_depend_on_the_room_for_tokens():
    pg.seed(1)
    scaling = {"kind": "dynamic", "factor": 2.0, "original": 16}
    model = build("llama", {**LLAMA, "rope_scaling": scaling})
    for p in model.parameters():
        if p.ndim == 2:
            p.copy_(p.numpy() * 20)
    few = generate(model, [1, 2, 3], 20, temperature=0)
    assert generate(model, [1, 2, 3], 45, temperature=0)[:20] == few


@pytest.mark.slow  # the import of transformers; test_parity has the same formula
def test_greedy_with_a_dynamic_scaling_is_hugging_faces():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=29, hidden_size=16, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16,
            rms_norm_eps=1e-5, rope_parameters=rope, tie_word_embeddings=True,
        )
    ).eval()  # fmt: skip
    model = build(
        "llama",
        {**LLAMA, "n_ffn": 64, "rope_scaling": {"kind": "dynamic", "factor": 2.0, "original": 16}},
    )
    pg.seed(1)
    rng = np.random.default_rng(1)
    state = {
        name: value if value.ndim < 2 else rng.standard_normal(value.shape).astype(np.float32)
        for name, value in model.state_dict().items()
    }
    model.load_state_dict(state)
    loaded = theirs.load_state_dict({n: torch.tensor(a) for n, a in state.items()}, strict=False)
    assert loaded.missing_keys == ["lm_head.weight"]
    theirs.tie_weights()
    prompt = [3, 1, 4, 1, 5]
    with torch.no_grad():
        # A cache of theirs keeps the keys as they were turned; only without one are its logits
        # those of a pass over all tokens.
        want = theirs.generate(
            torch.tensor([prompt]), max_new_tokens=40, do_sample=False, use_cache=False,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        logits = theirs(want, use_cache=False).logits[0, -1].numpy()
    got = generate(model, prompt, 40, temperature=0)
    assert got == want[0, 5:].tolist()
    assert len(set(got)) > 5
    np.testing.assert_allclose(logits_of(model, prompt + got), logits, rtol=1e-4, atol=1e-4)


def test_prompts_side_by_side_are_continued_as_alone(model):
    prompts = [[3, 1, 4, 1, 5], [2], list(range(20)), [7] * 44]
    seen = []
    together = generate(
        model, prompts, 40, temperature=0, callback=lambda i, token: seen.append((i, token))
    )
    assert together == [generate(model, prompt, 40, temperature=0) for prompt in prompts]
    assert [token for i, token in seen if i == 2] == together[2]


def test_prompts_end_by_themselves(model):
    first = generate(model, [3, 1, 4], 30, temperature=0)
    stop = first[5]
    together = generate(model, [[3, 1, 4], [2, 2]], 30, temperature=0, stop_ids=[stop])
    assert together[0] == first[: first.index(stop)]
    assert together[1] == generate(model, [2, 2], 30, temperature=0, stop_ids=[stop])


def test_choices_of_a_prompt_have_their_own_seed():
    model = build("llama", LLAMA)
    two = generate(model, [[1, 2], [1, 2]], 20, seed=3)
    assert two[0] != two[1]
    assert two == generate(model, [[1, 2], [1, 2]], 20, seed=3)


def test_stop_strings():
    tokenizer = pg.data.Tokenizer.chars(["abcdefghij"])
    sizes = {**LLAMA, "vocab_size": tokenizer.vocab_size, "tie": False}
    model = build("llama", sizes)
    text = tokenizer.decode(generate(model, [1], 40, temperature=0))
    stop = text[3:5]
    added = generate(model, [1], 40, temperature=0, stop_strings=stop, tokenizer=tokenizer)
    assert tokenizer.decode(added) == text[: text.index(stop) + 2]
    for arguments in ({"stop_strings": "a"}, {"stop_strings": [""], "tokenizer": tokenizer}):
        with pytest.raises(ValueError, match="stop_strings"):
            generate(model, [1], 4, **arguments)
    with pytest.raises(TypeError, match="stop_strings"):
        generate(model, [1], 4, stop_strings=[3], tokenizer=tokenizer)


SAMPLERS = {
    "top_k": ("TopKLogitsWarper", {"top_k": 5}),
    "top_p": ("TopPLogitsWarper", {"top_p": 0.7}),
    "min_p": ("MinPLogitsWarper", {"min_p": 0.2}),
    "typical_p": ("TypicalLogitsWarper", {"mass": 0.6}),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_samplers_keep_what_transformers_keeps(name, temperature):
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    kind, arguments = SAMPLERS[name]
    rng = np.random.default_rng(0)
    for _ in range(5):
        logits = 3 * rng.standard_normal(40)
        scores = torch.from_numpy(logits)[None] / temperature
        kept = getattr(process, kind)(**arguments)(None, scores)[0].softmax(-1).numpy()
        fields = {name: next(iter(arguments.values())), "temperature": temperature}
        draws = [sample(logits, rng, **fields) for _ in range(400)]
        assert set(draws) <= set(np.flatnonzero(kept))
        counts = np.bincount(draws, minlength=40) / len(draws)
        assert np.abs(counts - kept).sum() < 0.25


def test_penalties_are_those_of_transformers():
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    logits, rng = np.random.default_rng(1).standard_normal(20), np.random.default_rng(0)
    prompt, added = [3, 4], [5, 5, 6]
    scores = process.RepetitionPenaltyLogitsProcessor(1.7)(
        torch.tensor([prompt + added]), torch.from_numpy(logits)[None].clone()
    )[0].numpy()
    sampling = Sampling(temperature=0, repetition_penalty=1.7)
    assert sampling.choose(logits, rng, prompt, added) == scores.argmax()
    once, twice = np.zeros(20), np.zeros(20)
    once[[5, 6, 7]], twice[[5, 7]] = [3.0, 2.5, 0.9], [3.0, 1.9]
    choose = {"rng": rng, "prompt": prompt, "added": added}
    assert Sampling(temperature=0, presence_penalty=2.5).choose(once, **choose) == 7
    assert Sampling(temperature=0, frequency_penalty=0.5).choose(twice, **choose) == 5
    assert Sampling(temperature=0, frequency_penalty=0.6).choose(twice, **choose) == 7
    assert Sampling(temperature=0, logit_bias={2: 9.0, 5: -99.0}).choose(once, **choose) == 2


@pytest.mark.parametrize(
    ("arguments", "kind", "name"),
    [
        ({"min_p": 0}, ValueError, "min_p"),
        ({"typical_p": 2}, ValueError, "typical_p"),
        ({"repetition_penalty": 0}, ValueError, "repetition_penalty"),
        ({"frequency_penalty": float("nan")}, ValueError, "frequency_penalty"),
        ({"logit_bias": [1]}, TypeError, "logit_bias"),
        ({"logit_bias": {"a": 1.0}}, TypeError, "logit_bias"),
        ({"logit_bias": {29: 1.0}}, ValueError, "logit_bias"),
        ({"nucleus": 0.9}, TypeError, "nucleus"),
    ],
)
def test_wrong_choices_are_named(arguments, kind, name):
    model = build("llama", LLAMA)
    with pytest.raises(kind, match=name):
        generate(model, [1], 2, **arguments)


def test_a_cache_of_several_sequences():
    with pytest.raises(ValueError, match="batch"):
        Generator(build("llama", SIZES["llama-dynamic"]), batch=2)
    generator = Generator(build("llama", LLAMA), batch=2)
    with pytest.raises(ValueError, match="feed_batch"):
        generator.feed([1])
    with pytest.raises(ValueError, match="ids"):
        generator.feed_batch([[1]])
    assert generator.feed_batch([[1], [1, 2]]).shape == (2, 29)
    assert generator.lengths == [1, 2]
