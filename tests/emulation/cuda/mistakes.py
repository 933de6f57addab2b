# SPDX-License-Identifier: MIT
"""What a careless change would do to a kernel, and what the harness must say to it."""

from __future__ import annotations

from .mistake import Mistake
from .mistakes_attention import ATTENTION
from .mistakes_chains import CHAINS
from .mistakes_products import PRODUCTS
from .mistakes_rows import ROWS
from .mistakes_tiles import TILES

__all__ = ["MISTAKES"]

MISTAKES = {
    "no barrier after the sums": Mistake(
        source="cumsum-back",
        right=("            s_sum[warp_id] = sum;\n        }\n        __syncthreads();"),
        wrong=("            s_sum[warp_id] = sum;\n        }"),
        case="CUMSUM_BACK",
        said="other bits|normalized|is nan",
        fast=True,
    ),
    "no barrier before the next round": Mistake(
        source="cumsum-back",
        right=("            dst[i] = before + sum;\n        }\n        __syncthreads();"),
        wrong=("            dst[i] = before + sum;\n        }"),
        case="CUMSUM_BACK",
        said="other bits|normalized|is nan",
    ),
    "a barrier that some threads miss": Mistake(
        source="cumsum-back",
        right=("        __syncthreads();\n\n        float before"),
        wrong=(
            "        if (i >= 0) {\n            __syncthreads();\n        }\n\n        float before"
        ),
        case="CUMSUM_BACK",
        said="threads wait for others|different barriers",
        fast=True,
    ),
    "a read past the end": Mistake(
        source="elementwise-back",
        right="if (i >= n) {",
        wrong="if (i > n) {",
        case="GELU_BACK",
        said="past the end of",
        kernel="gelu-back",
        fast=True,
    ),
    "a write past the end": Mistake(
        source="sum-sqr",
        right="        *dst = (float) total;",
        wrong="        dst[1] = dst[0] = (float) total;",
        case="SUM_SQR",
        said="written .* past the end of result",
        fast=True,
    ),
    "more threads than the launch bounds": Mistake(
        source="norm-back",
        right="__launch_bounds__(block_size)",
        wrong="__launch_bounds__(block_size/2)",
        case="NORM_BACK",
        said="threads exceed __launch_bounds__",
        fast=True,
    ),
    "more elements than f32 has whole numbers": Mistake(
        source="upscale-back",
        right="if (src0->ne[k] >= ((int64_t) 1 << 24) || ",
        wrong="if (",
        case="UPSCALE_BACK/too-many-results",
        said="supports_op says yes",
    ),
    "an element that is not written": Mistake(
        source="norm-back",
        right="        dst[col*sd.s0] = r*(g - d*k);",
        wrong=("        if (col > 0) {\n            dst[col*sd.s0] = r*(g - d*k);\n        }"),
        case="NORM_BACK",
        said="is nan|is -nan",
        fast=True,
    ),
    "strides that are not used": Mistake(
        source="l2-norm-back",
        right="grad[col*sg.s0] - x[col*sx.s0]*k",
        wrong="grad[col] - x[col]*k",
        case="L2_NORM_BACK",
        said="normalized|is nan|is -nan|past the end",
    ),
    "an order that is not fixed": Mistake(
        source="conv2d-dw-back",
        right=("    if (threadIdx.x == 0) {\n        dst[i] = sum;\n    }"),
        wrong=(
            "    if (threadIdx.x == 0) {\n"
            "        dst[i] = 0.0f;\n"
            "    }\n"
            "    __syncthreads();\n"
            "    atomicAdd(dst + i, sum/256.0f*(threadIdx.x%2 ? 1.001f : 0.999f));"
        ),
        case="CONV_2D_DW_BACK",
        said="other bits",
        fast=True,
    ),
    "too much shared memory": Mistake(
        source="fattn-back",
        right="__align__(16) float w_s[C::n_tile];",
        wrong="__align__(16) float w_s[3*C::n_tile];",
        case="FLASH_ATTN_EXT_BACK",
        said="static shared memory are too many",
    ),
    "a copy that is not waited for": Mistake(
        source="fattn-back-mma",
        right=("        cp_async_wait_all();\n        __syncthreads(); // this tile"),
        wrong="        __syncthreads(); // this tile",
        case="FLASH_ATTN_EXT_BACK/bf16-long",
        said="is nan|is -nan",
    ),
    "a tile that is overwritten while it is read": Mistake(
        source="fattn-back-mma",
        right=("            load(it_next, buf ^ 1);\n        }\n\n        fattn_bf16_c w "),
        wrong=("            load(it_next, buf);\n        }\n\n        fattn_bf16_c w "),
        case="FLASH_ATTN_EXT_BACK/bf16-long",
        said="other bits|normalized|is nan|is -nan",
    ),
    "registers of a product in another order": Mistake(
        source="fattn-train-bf16",
        right=(
            "        a.x[1] = ggml_cuda_cast<nv_bfloat162>(make_float2(w0.x[2], "
            "w0.x[3]));\n"
            "        a.x[2] = ggml_cuda_cast<nv_bfloat162>(make_float2(w1.x[0], "
            "w1.x[1]));"
        ),
        wrong=(
            "        a.x[2] = ggml_cuda_cast<nv_bfloat162>(make_float2(w0.x[2], "
            "w0.x[3]));\n"
            "        a.x[1] = ggml_cuda_cast<nv_bfloat162>(make_float2(w1.x[0], "
            "w1.x[1]));"
        ),
        case="FLASH_ATTN_EXT_BACK/bf16-causal",
        said="normalized",
        kernel="fattn-back-mma",
    ),
    "tensor cores where f32 is asked for": Mistake(
        source="fattn-back-mma",
        right="ggml_get_op_params_i32(dst, 3 + i) < GGML_PREC_BF16",
        wrong="false",
        case="FLASH_ATTN_EXT_BACK/causal",
        said="normalized",
    ),
    "a block of too many threads": Mistake(
        source="dropout",
        right="<<<num_blocks, CUDA_DROPOUT_BLOCK_SIZE,",
        wrong="<<<num_blocks, 8*CUDA_DROPOUT_BLOCK_SIZE,",
        case="DROPOUT",
        said="block of 1 to 1024 threads",
        fast=True,
    ),
    "an assertion that supports_op does not know": Mistake(
        source="cross-entropy-rows",
        right="    GGML_ASSERT(logits->nb[0] == sizeof(float));",
        wrong="    GGML_ASSERT(ggml_is_contiguous(logits));",
        case="CROSS_ENTROPY_ROWS",
        said="GGML_ASSERT",
        fast=True,
    ),
    # rows
    "rows with gaps taken for rows without": Mistake(
        source="softmax",
        right=" || !ggml_is_contiguous(t)",
        wrong="",
        case="SOFT_MAX_BACK/rows",
        said="supports_op says yes",
    ),
    # where a slope jumps
    "no gradient at the lower bound": Mistake(
        source="unary-back",
        right="return min <= x &&",
        wrong="return min < x &&",
        case="UNARY_BACK/CLAMP-kinks",
        said="normalized",
    ),
    "no gradient at the upper bound": Mistake(
        source="unary-back",
        right="&& x <= max ?",
        wrong="&& x < max ?",
        case="UNARY_BACK/CLAMP-kinks",
        said="normalized",
    ),
    # weights of attention
    "a slope of 1": Mistake(
        source="softmax",
        right="mask ? slope*t2f32(mask[col])",
        wrong="mask ? t2f32(mask[col])",
        case="SOFT_MAX/alibi-f16",
        said="normalized",
    ),
    "the mask of the first head": Mistake(
        source="softmax",
        right="const int64_t i12 = i02 % p.ne12;",
        wrong="const int64_t i12 = 0;",
        case="SOFT_MAX/masks-f32",
        said="normalized",
    ),
    "a sink that is not in the sum": Mistake(
        source="softmax",
        right="tmp += expf(sinks[i02] - max_val);",
        wrong="",
        case="SOFT_MAX/sinks-only",
        said="normalized",
    ),
    "a buffer of sums written while it is read": Mistake(
        source="softmax",
        right="    if (block_size > WARP_SIZE) {",
        wrong="    if (false) {",
        case="SOFT_MAX",
        said="other bits|normalized",
    ),
    # terms of a repeated element
    "a dimension that is not counted on": Mistake(
        source="repeat-back",
        right="r1 += shape.step[1] + c0;",
        wrong="r1 += shape.step[1];",
        case="REPEAT_BACK/channels",
        said="normalized",
    ),
    "a number that is not brought back": Mistake(
        source="repeat-back",
        right="r2 -= c2 ? shape.rep[2] : 0;",
        wrong="",
        case="REPEAT_BACK/scalar",
        said="normalized|past the end",
    ),
    **ATTENTION,
    **PRODUCTS,
    **TILES,
    **ROWS,
    **CHAINS,
}
