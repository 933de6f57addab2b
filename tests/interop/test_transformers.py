# SPDX-License-Identifier: MIT
"""Hugging Face folders, both ways: transformers and pyggml compute the same from each."""

import json

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Tokenizer, embedded_text
from pyggml.errors import FormatError
from pyggml.io import load_safetensors, save_safetensors
from pyggml.models import build, load

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

BASE = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
WIDE = {**BASE, "head_dim": 16}
GEMMA = {**WIDE, "query_pre_attn_scalar": 16, "sliding_window": 5}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LLAMA_3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
BERT = {key: BASE[key] for key in list(BASE) if "key_value" not in key and "eos" not in key}
T5 = {
    "vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
# transformers' class without "Config", and what differs from its defaults.
CASES = {
    "llama": ("Llama", BASE),
    "llama-3": ("Llama", {**BASE, "rope_parameters": LLAMA_3, "tie_word_embeddings": True}),
    "llama-biases": ("Llama", {**BASE, "attention_bias": True, "mlp_bias": True}),
    "llama-linear": ("Llama", {**BASE, "rope_parameters": {"rope_type": "linear", "factor": 2.0}}),
    "mistral": ("Mistral", {**BASE, "sliding_window": 5}),
    "mixtral": ("Mixtral", {**BASE, "num_local_experts": 4}),
    "qwen2": ("Qwen2", BASE),
    "qwen2-yarn": ("Qwen2", {**BASE, "rope_parameters": YARN}),
    "qwen3": ("Qwen3", WIDE),
    "gemma": ("Gemma", WIDE),
    "gemma2": ("Gemma2", GEMMA),
    "gemma3": ("Gemma3Text", {**GEMMA, "num_hidden_layers": 7}),
    "phi2": ("Phi", {**BASE, "hidden_act": "gelu_new"}),
    "phi": ("Phi", BASE),
    "phi3": ("Phi3", {**BASE, "num_key_value_heads": 4}),
    "phi3-longrope": (
        "Phi3",
        {
            **BASE, "original_max_position_embeddings": 16,
            "rope_parameters": {
                "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.1, 1.2, 1.3],
                "long_factor": [2.0, 2.5, 3.0, 4.0],
            },
        },
    ),
    "olmo2": ("Olmo2", BASE),
    "olmo3": ("Olmo3", {**BASE, "sliding_window": 5}),
    "granite": (
        "Granite",
        {
            **BASE, "embedding_multiplier": 3.0, "residual_multiplier": 0.5,
            "attention_multiplier": 0.2, "logits_scaling": 2.0,
        },
    ),
    "smollm3": ("SmolLM3", BASE),
    "starcoder2": ("Starcoder2", BASE),
    "stablelm": ("StableLm", {**BASE, "use_qkv_bias": True}),
    "gpt-oss": (
        "GptOss",
        {**WIDE, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5},
    ),
    "qwen2-moe": ("Qwen2Moe", {**BASE, **MOE, "shared_expert_intermediate_size": 48}),
    "qwen3-moe": ("Qwen3Moe", {**WIDE, **MOE, "norm_topk_prob": True}),
    "gpt2": (
        "GPT2", {"vocab_size": 96, "n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 4}
    ),
    "t5": ("T5", T5),
    "t5-gated": ("T5", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}  # fmt: skip
LABELS = {"id2label": {0: "no", 1: "yes", 2: "maybe"}}
MODERN = {**BERT, "local_attention": 8}
# transformers' class, its configuration's, and what differs from the defaults.
HEADS = {
    "BertModel": ("BertConfig", BERT),
    "BertForMaskedLM": ("BertConfig", BERT),
    "BertForSequenceClassification": ("BertConfig", {**BERT, **LABELS}),
    "BertForTokenClassification": ("BertConfig", {**BERT, **LABELS}),
    "ModernBertModel": ("ModernBertConfig", MODERN),
    "ModernBertForMaskedLM": ("ModernBertConfig", MODERN),
    "ModernBertForSequenceClassification": (
        "ModernBertConfig", {**MODERN, **LABELS, "classifier_pooling": "mean"}
    ),
    "Qwen3ForSequenceClassification": ("Qwen3Config", {**WIDE, **LABELS}),
}  # fmt: skip
IDS = (np.arange(60).reshape(3, 20) * 7 % 96).astype(np.int32)


def randomized(model):
    """Weights far from fresh, so that every part tells in the result."""
    torch.manual_seed(0)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def theirs(name):
    kind, fields = CASES[name]
    config = getattr(transformers, f"{kind}Config")(**fields)
    if kind == "T5":
        model = transformers.T5ForConditionalGeneration(config)
        if not config.scale_decoder_outputs:  # a head of its own
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
        return randomized(model)
    return randomized(transformers.AutoModelForCausalLM.from_config(config))


def their_output(model):
    ids = torch.from_numpy(IDS).long()
    more = {"decoder_input_ids": ids[:, :7]} if model.config.model_type == "t5" else {}
    with torch.no_grad():
        found = model(ids, **more)
    return (found.logits if hasattr(found, "logits") else found.last_hidden_state).numpy()


def our_output(model):
    model.eval()
    more = {"decoder_ids": pg.tensor(IDS[:, :7].copy())} if model.arch == "t5" else {}
    return model(pg.tensor(IDS), **more).numpy()


def compare(model, folder):
    """Save there, load here, save here, load there."""
    model.save_pretrained(folder / "theirs")
    ours, _ = load(folder / "theirs")
    want = their_output(model)
    np.testing.assert_allclose(our_output(ours), want, atol=5e-6 * np.abs(want).max())
    ours.save_pretrained(folder / "ours")
    again = type(model).from_pretrained(folder / "ours", dtype=torch.float32)
    np.testing.assert_array_equal(their_output(again.eval()), want)
    assert load(folder / "ours")[0].config == ours.config
    return ours


@pytest.mark.parametrize("name", CASES)
def test_both_ways(name, tmp_path):
    compare(theirs(name), tmp_path)


def test_experts_of_four_bits(tmp_path):
    """gpt-oss's folders have blocks of 32 numbers with an exponent."""
    model, _ = load_of(theirs("gpt-oss"), tmp_path)
    state, rng = model.hf_state(), np.random.default_rng(0)
    wanted = {}
    for name in [n for n in state if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, inside, out = state.pop(name).shape
        numbers = rng.integers(0, 16, (experts, out, inside // 32, 32), np.uint8)
        scales = rng.integers(122, 127, (experts, out, inside // 32), np.uint8)
        state[f"{name}_blocks"] = numbers[..., ::2] | numbers[..., 1::2] << 4
        state[f"{name}_scales"] = scales
        table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
        table = np.concatenate([table, -table])
        wide = table[numbers] * np.exp2(scales.astype(np.float32) - 127)[..., None]
        wanted[name] = wide.reshape(experts, out, inside).swapaxes(1, 2)
    save_safetensors(tmp_path / "theirs" / "model.safetensors", state)
    file = tmp_path / "theirs" / "config.json"
    method = {"quantization_config": {"quant_method": "mxfp4"}}
    file.write_text(json.dumps({**json.loads(file.read_text()), **method}))
    for keep_types in (False, True):
        again, _ = load(tmp_path / "theirs", keep_types=keep_types)
        found = again.hf_state()
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)


def load_of(model, folder):
    """The model here that transformers saved."""
    model.save_pretrained(folder / "theirs")
    return load(folder / "theirs")


@pytest.mark.parametrize("name", HEADS)
def test_heads(name, tmp_path):
    kind, fields = HEADS[name]
    config = getattr(transformers, kind)(**fields)
    ours = compare(randomized(getattr(transformers, name)(config)), tmp_path)
    if "id2label" in fields:
        assert ours.config.labels == ("no", "yes", "maybe")


def test_tokenizer_and_template(tmp_path):
    tokenizer = Tokenizer.train_bpe(embedded_text()[:5], 300)
    model = build("llama", "tiny", vocab_size=tokenizer.vocab_size)
    model.metadata["tokenizer.chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
    model.save_pretrained(tmp_path, tokenizer, dtype="bf16", max_shard_bytes=200_000)
    assert (tmp_path / "model.safetensors.index.json").exists()
    text = "Hello, wörld 123 <|endoftext|>"
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert auto(text, add_special_tokens=False)["input_ids"] == list(
        tokenizer.encode(text, parse_special=True)
    )
    assert auto.eos_token_id == tokenizer.eos_id
    assert auto.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi"
    there = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert there.dtype == torch.bfloat16
    assert there.generation_config.eos_token_id == tokenizer.eos_id
    again, read = load(tmp_path)
    assert again.metadata["tokenizer.chat_template"] == model.metadata["tokenizer.chat_template"]
    assert read.to_json() == tokenizer.to_json()
    kept, _ = load(tmp_path, keep_types=True)
    matrix = kept.model.layers[0].mlp.up_proj.weight
    assert (matrix.dtype.name, matrix.requires_grad) == ("bf16", False)
    np.testing.assert_array_equal(
        matrix.numpy(), load_safetensors(tmp_path)["model.layers.0.mlp.up_proj.weight"]
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model_type": "mamba"}, "model_type"),
        ({"model_type": None}, "model_type"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "32"}, "hidden_size"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"rope_scaling": {"rope_type": "magic", "factor": 2.0}}, "rope_type"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "mscale": 1.0}}, "mscale"),
        ({"rope_scaling": [1]}, "rope_scaling"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"quantization_config": {"load_in_4bit": True}}, "quantization_config"),
        ({"quantization_config": [1]}, "quantization_config"),
        ({"num_attention_heads": 3}, "n_head"),
        ({"num_hidden_layers": 3}, "unexpected"),
        ({"num_hidden_layers": 5}, "missing"),
        ({"intermediate_size": 65}, "shape"),
        ({"tie_word_embeddings": False}, "lm_head"),
        ({"pad_token_id": "0"}, "pad_token_id"),
        ({"pad_token_id": 2**32}, "pad_token_id"),
    ],
)
def test_a_config_that_asks_for_more_is_an_error(change, field, tmp_path):
    build("llama", "tiny", vocab_size=65).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(FormatError, match=field):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("gemma2", "query_pre_attn_scalar", None),
        ("gemma2", "attn_logit_softcapping", 0.0),
        ("gemma3", "sliding_window", None),
        ("gemma3", "layer_types", ["sliding_attention"] * 7),
        ("smollm3", "no_rope_layers", [0, 1, 1, 1]),
        ("olmo3", "rope_parameters", None),
        ("gpt-oss", "rope_parameters", None),
        ("qwen3-moe", "norm_topk_prob", None),
    ],
)
def test_a_field_of_a_config_is_read_or_refused(name, key, value, tmp_path):
    """None takes the key away, so that transformers' default counts."""
    theirs(name).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    fields = {**json.loads(file.read_text()), key: value}
    file.write_text(json.dumps({k: v for k, v in fields.items() if v is not None or k != key}))
    try:
        ours, _ = load(tmp_path)
    except FormatError as error:
        assert key in str(error)  # noqa: PT017
        return
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    want = their_output(model.eval())
    np.testing.assert_allclose(our_output(ours), want, atol=5e-6 * np.abs(want).max())


def test_null_is_no_window_and_no_scale(tmp_path):
    """Where transformers' own default is another."""
    theirs("gemma2").save_pretrained(tmp_path / "g")
    file = tmp_path / "g" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "sliding_window": None}))
    with pytest.raises(FormatError, match="sliding_window"):  # transformers raises at the forward
        load(tmp_path / "g")
    theirs("t5-gated").save_pretrained(tmp_path / "t")
    file = tmp_path / "t" / "config.json"
    fields = {**json.loads(file.read_text()), "scale_decoder_outputs": None}
    file.write_text(json.dumps(fields))
    model = transformers.T5ForConditionalGeneration.from_pretrained(
        tmp_path / "t", dtype=torch.float32
    )
    ours, _ = load(tmp_path / "t")
    want = their_output(model.eval())
    np.testing.assert_allclose(our_output(ours), want, atol=5e-6 * np.abs(want).max())


def test_dynamic_positions_of_another_context_are_not_written(tmp_path):
    sizes = {"vocab_size": 65, "context": 64}
    scaling = {"kind": "dynamic", "factor": 2.0, "original": 16}
    with pytest.raises(ValueError, match="rope_scaling"):
        build("llama", "tiny", **sizes, rope_scaling=scaling).save_pretrained(tmp_path)


def test_special_tokens_are_written_again(tmp_path):
    """Those that a vocabulary has no place for: of padding, masks, unknown words."""
    words = Tokenizer.train_bpe(embedded_text()[:5], 300)
    build("llama", "tiny", vocab_size=300).save_pretrained(tmp_path / "a", words)
    beside = tmp_path / "a" / "tokenizer_config.json"
    named = {"eos_token": words.token(0), "bos_token": None, "padding_side": "left"}
    named |= {"pad_token": {"content": words.token(7)}, "unk_token": words.token(8)}
    beside.write_text(json.dumps(named))
    config = tmp_path / "a" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "pad_token_id": 7}))
    model, tokenizer = load(tmp_path / "a")
    model.save(tmp_path / "m.gguf", tokenizer)
    for source in ("a", "m.gguf"):
        model, tokenizer = load(tmp_path / source)
        model.save_pretrained(tmp_path / "b", tokenizer)
        auto = transformers.AutoTokenizer.from_pretrained(tmp_path / "b")
        assert (auto.pad_token_id, auto.unk_token_id, auto.bos_token_id) == (7, 8, None)
        assert (auto.eos_token_id, auto.padding_side) == (0, "left")
        assert transformers.AutoConfig.from_pretrained(tmp_path / "b").pad_token_id == 7


def test_what_transformers_lacks_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="MLP"):
        build("mlp", "tiny", inputs=4, classes=2).save_pretrained(tmp_path)
    model = build("llama", "tiny", vocab_size=65, window=8, attention_bias=True)
    with pytest.raises(ValueError, match="attention_bias"):
        model.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())
