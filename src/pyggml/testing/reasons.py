# SPDX-License-Identifier: MIT
"""Why an op of ggml has no row with a gradient in the table, and why no function records it.

Names are ggml's, without GGML_OP_, GGML_UNARY_OP_ or GGML_GLU_OP_. An op of ggml must either be
differentiated by a row of the table, or stand in NO_GRADIENT or, where ggml has a gradient, in
NO_ROW. tests/test_ops_doc.py compares all three, and NO_FUNCTION with what the rows record.
"""

from __future__ import annotations

__all__ = ["NO_FUNCTION", "NO_GRADIENT", "NO_ROW"]

_SECOND = "the backward of {}; gradients of gradients are not built"
_BACKWARD_OF = {
    "CUMSUM_BACK": "CUMSUM",
    "SILU_BACK": "SILU",
    "GELU_BACK": "GELU, GELU_ERF and GELU_QUICK",
    "UNARY_BACK": "the other activations, LEAKY_RELU and CLAMP",
    "NORM_BACK": "NORM and GROUP_NORM",
    "RMS_NORM_BACK": "RMS_NORM",
    "L2_NORM_BACK": "L2_NORM",
    "MUL_MAT_ID_BACK": "MUL_MAT_ID",
    "GET_ROWS_BACK": "GET_ROWS",
    "SOFT_MAX_BACK": "SOFT_MAX",
    "ROPE_BACK": "ROPE",
    "IM2COL_BACK": "IM2COL",
    "IM2COL_3D_BACK": "IM2COL_3D",
    "CONV_2D_DW_BACK": "CONV_2D_DW",
    "POOL_1D_BACK": "POOL_1D",
    "POOL_2D_BACK": "POOL_2D",
    "UPSCALE_BACK": "UPSCALE",
    "FLASH_ATTN_EXT_BACK": "FLASH_ATTN_EXT",
    "CROSS_ENTROPY_LOSS_BACK": "CROSS_ENTROPY_LOSS",
    "CROSS_ENTROPY_ROWS_BACK": "CROSS_ENTROPY_ROWS",
    "GLU_BACK": "the gated units",
}
_INTEGERS = "its result is whole numbers"
_CALLBACK = "runs a C function of the caller, whose derivative ggml cannot know"
_UPDATE = "an optimizer's step, which writes parameters and ends the graph"
_DSV4 = "hyper-connections of DeepSeek V4, fused for inference; MUL and SUM_ROWS have gradients"
_WKV = "a fused recurrence of RWKV, for inference; ggml has no backward of it"

NO_GRADIENT: dict[str, str] = {
    "NONE": "stored data, not an op",
    **{name: _SECOND.format(what) for name, what in _BACKWARD_OF.items()},
    "ARGMAX": _INTEGERS,
    "COUNT_EQUAL": _INTEGERS,
    "ARGSORT": _INTEGERS + "; GET_ROWS by them has a gradient",
    "TOP_K": _INTEGERS + "; GET_ROWS by them has a gradient",
    "ARANGE": "has no source",
    "TIMESTEP_EMBEDDING": "its source is the number of a diffusion step, which is not trained",
    "COL2IM_1D": "the second half of a transposed convolution; CONV_TRANSPOSE_1D has a gradient",
    "CONV_3D": "the direct form; IM2COL_3D with MUL_MAT computes the same and has gradients",
    "PAD_REFLECT_1D": "ggml has no backward of it; GET_ROWS of the columns has a gradient",
    "FLASH_ATTN_BACK": "the backward of an attention op that upstream removed; recording it"
    " aborts, and FLASH_ATTN_EXT_BACK replaces it",
    "SSM_CONV": "a convolution of Mamba, for inference; CONV_2D_DW does the same with gradients",
    "SSM_SCAN": "the fused recurrence of Mamba, for inference; ggml has no backward of it",
    "RWKV_WKV6": _WKV,
    "RWKV_WKV7": _WKV,
    "GATED_LINEAR_ATTN": "a fused recurrence, for inference; ggml has no backward of it",
    "GATED_DELTA_NET": "a fused recurrence, for inference; ggml has no backward of it",
    "LIGHTNING_INDEXER": "scores that only choose tokens for sparse attention, through TOP_K",
    "DSV4_HC_COMB": _DSV4,
    "DSV4_HC_PRE": _DSV4,
    "DSV4_HC_POST": _DSV4,
    "GET_REL_POS": "picks rows of a table of relative positions; GET_ROWS does it with a gradient",
    "ADD_REL_POS": "adds relative positions to scores in place; ADD does it with a gradient",
    "MAP_CUSTOM1": _CALLBACK,
    "MAP_CUSTOM2": _CALLBACK,
    "MAP_CUSTOM3": _CALLBACK,
    "CUSTOM": _CALLBACK,
    "OPT_STEP_ADAMW": _UPDATE,
    "OPT_STEP_SGD": _UPDATE,
}

# Differentiated by ggml, but by no row of ours, for no function records it.
NO_ROW: dict[str, str] = {
    "DUP": "its gradient is that of CONT",
    "TRANSPOSE": "its gradient is that of PERMUTE",
    "SWIGLU_CLAMP": "checked by `test-backend-ops grad`",
}

# Why no function of pyggml.ops records it.
NO_FUNCTION: dict[str, str] = {
    "NONE": "tensors are made by `pyggml.tensor`",
    "DUP": "`cont` and `cast` record CONT and CPY, which copy as well",
    "TRANSPOSE": "`transpose` takes any two axes, by PERMUTE",
    "SWIGLU_CLAMP": "no model here uses it; `clamp` and `swiglu` record the same in parts",
    **{name: f"recorded by the backward of {what}" for name, what in _BACKWARD_OF.items()},
    "COUNT_EQUAL": "metrics count in NumPy",
    "TOP_K": "`top_k` records ARGSORT, whose order is fixed",
    "ARANGE": "`pyggml.tensor` of `numpy.arange`, stored once",
    "TIMESTEP_EMBEDDING": "no diffusion model here; computed once in NumPy",
    "COL2IM_1D": "`conv_transpose_1d` does both halves",
    "CONV_3D": "`conv_3d` records IM2COL_3D and MUL_MAT",
    "PAD_REFLECT_1D": "`pad_reflect` records GET_ROWS of the columns, which has a gradient",
    "FLASH_ATTN_BACK": "recording it aborts",
    "SSM_CONV": "no Mamba here",
    "SSM_SCAN": "no Mamba here",
    "RWKV_WKV6": "no RWKV here",
    "RWKV_WKV7": "no RWKV here",
    "GATED_LINEAR_ATTN": "no model here uses it",
    "GATED_DELTA_NET": "no model here uses it",
    "LIGHTNING_INDEXER": "no model here uses it",
    "DSV4_HC_COMB": "no model here uses it",
    "DSV4_HC_PRE": "no model here uses it",
    "DSV4_HC_POST": "no model here uses it",
    "GET_REL_POS": "`get_rows`",
    "ADD_REL_POS": "`add`",
    "MAP_CUSTOM1": "needs a C function; `pyggml.lib` has it",
    "MAP_CUSTOM2": "needs a C function; `pyggml.lib` has it",
    "MAP_CUSTOM3": "needs a C function; `pyggml.lib` has it",
    "CUSTOM": "needs a C function; `pyggml.lib` has it",
}
