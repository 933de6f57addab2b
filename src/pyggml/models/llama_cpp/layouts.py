# SPDX-License-Identifier: MIT
"""The tensors and keys that llama.cpp reads, by architecture (llama.cpp build b11549).

A tensor is a line: its name, `?` where it may be absent, and its extents as letters, in Python
order; `qkv` stands for the matrices of queries, keys and values, apart or in one, with biases.
C is the stream, V the vocabulary, T the context, F the feed-forward part, B = 2 F, H heads, G
key-value heads, D and W the widths of keys and values, Q = H D, K = G D, Z = G W, Y = C + 2 Z,
A = 3 C, J half of the rotated width, E experts, X and S the widths inside of an expert and of the
shared one, N types of tokens, O classes, P buckets.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LAYOUTS", "NAMES", "PRE_TOKENIZERS", "TOKENIZERS", "Layout"]


@dataclass(frozen=True)
class Layout:
    """The keys and tensors that llama.cpp reads of an architecture.

    Args:
        top: tensors that are there once.
        block: tensors of each block.
        eps: the key of the norms' eps.
        rotary: the heads are rotated: the widths of keys, values and rotation must be one.
        decoder: tensors of each block of the decoder, where `block` has the encoder's.
        prefix: what the names of blocks begin with.
        windowed: the window of the file is that of llama.cpp.
        keys: other keys that must be there.
    """

    top: str
    block: str
    eps: str = "attention.layer_norm_rms_epsilon"
    rotary: bool = True
    decoder: str = ""
    prefix: str = "blk"
    windowed: bool = False
    keys: tuple[str, ...] = ()


_TOP = "token_embd.weight V C; output_norm.weight C"
_HEAD = f"{_TOP}; output.weight? V C"


def _attention(q: str = "Q", k: str = "Z", v: str = "Z") -> str:
    """The matrices of queries, keys and values, and that after them."""
    return f"qkv {q} {k} {v}; attn_output.weight C {q}"


_GATED = "ffn_gate.weight F C; ffn_up.weight F C; ffn_down.weight C F"
_MLP = f"ffn_norm.weight C; {_GATED}"
_BEFORE = "attn_norm.weight C"
_AFTER = "post_attention_norm.weight C; post_ffw_norm.weight C"
_OUT_BIAS = "attn_output.bias? C"
_LONG = "rope_factors_long.weight? J; rope_factors_short.weight? J"
_LAYER_NORMS = "attn_norm.weight C; attn_norm.bias C"
_MLP_BIASES = "ffn_gate.bias? F; ffn_up.bias? F; ffn_down.bias? C"
_EXPERTS = (
    "ffn_norm.weight C; ffn_gate_inp.weight E C; ffn_gate_exps.weight E X C;"
    " ffn_up_exps.weight E X C; ffn_down_exps.weight E C X"
)
_SHARED = (
    "ffn_gate_inp_shexp.weight C; ffn_gate_shexp.weight S C; ffn_up_shexp.weight S C;"
    " ffn_down_shexp.weight C S"
)
_QK_NORM = "attn_q_norm.weight D; attn_k_norm.weight D"
_T5 = "attn_norm.weight C; attn_rel_b.weight? P H; attn_q.weight K C; attn_k.weight K C;"
_T5 += " attn_v.weight Z C; attn_o.weight C Z"
_T5_MLP = "ffn_norm.weight C; ffn_gate.weight? F C; ffn_up.weight F C; ffn_down.weight C F"
_T5_CROSS = (
    "cross_attn_norm.weight C; cross_attn_rel_b.weight? P H; cross_attn_q.weight K C;"
    " cross_attn_k.weight K C; cross_attn_v.weight Z C; cross_attn_o.weight C Z"
)

_LAYER_EPS = "attention.layer_norm_epsilon"
_FREQS = "rope_freqs.weight? J"
_WIDE = _attention("Q", "K", "Z")
LAYOUTS: dict[str, Layout] = {
    "llama": Layout(
        f"{_HEAD}; {_FREQS}", f"{_BEFORE}; {_WIDE}; {_OUT_BIAS}; {_MLP}; {_MLP_BIASES}"
    ),
    "llama+experts": Layout(f"{_HEAD}; {_FREQS}", f"{_BEFORE}; {_WIDE}; {_OUT_BIAS}; {_EXPERTS}"),
    "granite": Layout(
        f"{_HEAD}; {_FREQS}",
        f"{_BEFORE}; {_WIDE}; {_OUT_BIAS}; {_MLP}; {_MLP_BIASES}",
        keys=("logit_scale",),
    ),
    "smollm3": Layout(_HEAD, f"{_BEFORE}; {_WIDE}; {_MLP}"),
    "qwen2": Layout(f"{_HEAD}; output.bias? V", f"{_BEFORE}; {_attention('C')}; {_MLP}"),
    "qwen3": Layout(
        f"{_HEAD}; cls.output.weight? O C", f"{_BEFORE}; {_attention()}; {_QK_NORM}; {_MLP}"
    ),
    "gemma": Layout(_TOP, f"{_BEFORE}; {_WIDE}; {_MLP}", rotary=False),
    "gemma2": Layout(_TOP, f"{_BEFORE}; {_WIDE}; {_MLP}; {_AFTER}", rotary=False, windowed=True),
    "gemma3": Layout(
        _HEAD, f"{_BEFORE}; {_WIDE}; {_QK_NORM}; {_MLP}; {_AFTER}", rotary=False, windowed=True
    ),
    "phi3": Layout(
        f"{_HEAD}; {_LONG}",
        f"{_BEFORE}; {_attention('C')}; ffn_norm.weight C; ffn_up.weight B C; ffn_down.weight C F",
        rotary=False,
    ),
    "olmo2": Layout(
        f"{_TOP}; output.weight V C",
        f"{_attention('C')}; attn_q_norm.weight C; attn_k_norm.weight K; {_GATED}; {_AFTER}",
        windowed=True,
    ),
    "starcoder2": Layout(
        f"{_HEAD}; output_norm.bias C",
        f"{_LAYER_NORMS}; {_attention('C')}; attn_output.bias C; ffn_norm.weight C;"
        " ffn_norm.bias C; ffn_up.weight F C; ffn_up.bias F; ffn_down.weight C F; ffn_down.bias C",
        _LAYER_EPS,
    ),
    "phi2": Layout(
        f"{_TOP}; output_norm.bias C; output.weight V C; output.bias V",
        f"{_LAYER_NORMS}; {_attention('C')}; attn_output.bias C; ffn_up.weight F C; ffn_up.bias F;"
        " ffn_down.weight C F; ffn_down.bias C",
        _LAYER_EPS,
        rotary=False,
    ),
    "modern-bert": Layout(
        "token_embd.weight V C; token_embd_norm.weight C; output_norm.weight C;"
        " cls.weight? C C; cls.norm.weight? C; cls.output.weight? O C; cls.output.bias? O",
        # the first block has no norm before attention
        "attn_norm.weight? C; attn_qkv.weight A C; attn_output.weight C C; ffn_norm.weight C;"
        " ffn_up.weight B C; ffn_down.weight C F",
        _LAYER_EPS,
        rotary=False,
        windowed=True,
    ),
    "stablelm": Layout(
        f"{_TOP}; output_norm.bias C; output.weight V C",
        f"{_LAYER_NORMS}; {_attention('C')}; attn_q_norm.weight? H D; attn_k_norm.weight? G D;"
        f" ffn_norm.weight? C; ffn_norm.bias? C; {_GATED}",
        _LAYER_EPS,
        rotary=False,
    ),
    "gpt-oss": Layout(
        f"{_TOP}; output.weight V C",
        f"{_BEFORE}; post_attention_norm.weight C; {_WIDE}; attn_output.bias C;"
        f" attn_sinks.weight H; {_EXPERTS.removeprefix('ffn_norm.weight C; ')};"
        " ffn_gate_inp.bias E; ffn_gate_exps.bias E X; ffn_up_exps.bias E X;"
        " ffn_down_exps.bias E C",
        windowed=True,
        keys=("attention.sliding_window", "expert_feed_forward_length"),
    ),
    "qwen2moe": Layout(
        f"{_TOP}; output.weight V C", f"{_BEFORE}; {_attention('C')}; {_EXPERTS}; {_SHARED}"
    ),
    "qwen3moe": Layout(_HEAD, f"{_BEFORE}; {_attention()}; {_QK_NORM}; {_EXPERTS}"),
    "gpt2": Layout(
        f"{_HEAD}; output_norm.bias C; position_embd.weight T C",
        "attn_norm.weight C; attn_norm.bias C; attn_qkv.weight Y C; attn_qkv.bias Y;"
        " attn_output.weight C C; attn_output.bias C; ffn_norm.weight C; ffn_norm.bias C;"
        " ffn_up.weight F C; ffn_up.bias F; ffn_down.weight C F; ffn_down.bias C",
        _LAYER_EPS,
        rotary=False,
    ),
    "bert": Layout(
        "token_embd.weight V C; token_types.weight? N C; position_embd.weight T C;"
        " cls.weight? C C; cls.bias? C; cls.output.weight? O C; cls.output.bias? O;"
        " token_embd_norm.weight C; token_embd_norm.bias C",
        f"{_attention('C')}; attn_output.bias? C;"
        " attn_output_norm.weight C; attn_output_norm.bias C; ffn_up.weight F C; ffn_up.bias? F;"
        " ffn_down.weight C F; ffn_down.bias? C; layer_output_norm.weight C;"
        " layer_output_norm.bias C",
        _LAYER_EPS,
        rotary=False,
    ),
    "t5": Layout(
        "token_embd.weight V C; enc.output_norm.weight C; dec.output_norm.weight C;"
        " output.weight? V C",
        f"{_T5}; {_T5_MLP}",
        rotary=False,
        decoder=f"{_T5}; {_T5_CROSS}; {_T5_MLP}",
        prefix="enc.blk",
    ),
}
"""By architecture; "llama+experts" where a Llama has experts."""

NAMES = frozenset(
    """
    clip llama llama4 deci falcon grok gpt2 gptj gptneox mpt baichuan starcoder refact bert
    modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert bloom
    stablelm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3next qwen3vl qwen3vlmoe qwen35
    qwen35moe clef qwen4exp phi2 phi3 phimoe plamo plamo2 plamo3 codeshell orion internlm2 minicpm
    minicpm3 gemma gemma2 gemma3 gemma3n gemma4 gemma4-assistant gemma-embedding gemma-embedding2
    starcoder2 mamba mamba2 maple jamba falcon-h1 xverse command-r cohere2 cohere2moe dbrx olmo
    olmo2 olmoe muse-glimmer openelm arctic deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4
    chatglm glm4 glm4moe glm-dsa bitnet t5 t5encoder jais jais2 nemotron nemotron_h nemotron_h_moe
    exaone exaone4 exaone-moe rwkv6 rwkv6qwen2 rwkv7 arwkv7 granite granitemoe granitehybrid
    graniteswitch granite_swa chameleon wavtokenizer-dec plm bailingmoe bailingmoe2 bailingmoe3
    dots1 dots3note arcee afmoe laguna ernie4_5 ernie4_5-moe hunyuan-moe hunyuan-dense hunyuan_vl
    hy_v3 hy_v4 smollm3 gpt-oss lfm2 lfm2moe dream smallthinker llada llada-moe seed_oss grovemoe
    apertus minimax-01 hrm_text minimax-m2 minimax-m3 cogvlm rnd1 pangu-embedded mistral3 eagle3
    dflash mistral4 paddleocr mimo2 step35 spark2_5 llama-embed maincoder kimi-linear kimi-k3
    glm5-next talkie mellum nanbeige qwen3tts pockettts k2-horizon
    """.split()
)
"""llama.cpp's architectures."""

TOKENIZERS = frozenset(
    "no_vocab none llama bert gpt2 hybriddna whitespace t5 rwkv test plamo2 plamo3 gemma4".split()
)
"""llama.cpp's kinds of vocabularies."""

PRE_TOKENIZERS = frozenset(
    """
    default minicpm5 a.x-4.0 afmoe bailingmoe bailingmoe2 bloom chameleon chatglm-bpe codeshell
    cohere2moe command-r dbrx deepseek-coder deepseek-llm deepseek-r1-qwen deepseek-v3 exaone
    exaone-moe exaone4 f2llmv2 falcon falcon-h1 falcon3 gemma4 gigachat glm4 glm5 gpt-2 gpt-4o
    gpt3-finnish granite-docling granite-embed-multi-311m granite-embed-multi-97m grok-2 hunyuan
    hunyuan-dense hy_v4 jais jais-2 jina-de jina-es jina-v1-en jina-v2-code jina-v2-de jina-v2-es
    jina-v5-nano joyai-llm k2-horizon kanana2 kimi-k2 kormo laguna lfm2 llada-moe llama-bpe
    llama-v3 llama3 llama4 megrez mellum mellum2 midm-2.0 minerva-7b minimax-m2 mmbert modern-bert
    mpt olmo phi-2 pixtral poro-chat qwen2 qwen35 refact roberta-bpe sarvam-moe seed-coder
    smaug-bpe smollm solar-open spark2_5 stablelm2 starcoder superbpe talkie tekken tiny_aya
    trillion ufakzeka viking whitespace youtu
    """.split()
)
"""llama.cpp's names of ways to split text before byte-level BPE."""
