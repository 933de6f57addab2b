# SPDX-License-Identifier: MIT
"""Mistakes in kernels that compute several ops."""

from __future__ import annotations

from .mistake import Mistake

__all__ = ["CHAINS"]

WRONG = "other bits|normalized|is nan|is -nan"

CHAINS = {
    "bias of another column": Mistake(
        source="fuse-train",
        right="w[col]), b[col]);",
        wrong="w[col]), b[0]);",
        case="NORM/in-one-768-alone",
        said=WRONG,
        fast=True,
    ),
    "rounded result left out": Mistake(
        source="fuse-train",
        right="        if (dst16) {",
        wrong="        if (dst16 && col > 0) {",
        case="NORM/in-one-768-rounded",
        said=WRONG,
    ),
    "sum that is still read left out": Mistake(
        source="fuse-train",
        right="    if (h) {",
        wrong="    if (h && i > 0) {",
        case="ADD/in-one-768-rounded-gelu",
        said=WRONG,
    ),
    "columns of a bias in steps of one": Mistake(
        source="fuse-train",
        right="init_fastdiv_values(x->ne[0]/4)",
        wrong="init_fastdiv_values(x->ne[0]/4 - 1)",
        case="ADD/in-one-768-both-gelu",
        said=WRONG,
    ),
    "residual of another row": Mistake(
        source="fuse-train",
        right="const float4 ri = r[i];",
        wrong="const float4 ri = r[bi.x > 0.0f ? i : 0];",
        case="ADD/in-one-residual-36",
        said=WRONG,
    ),
    "sum with a bias that is read left out": Mistake(
        source="fuse-train",
        right="if (!ggml_can_fuse_subgraph(cgraph, i, { GGML_OP_ADD, GGML_OP_ADD }, { i + 1 })) {",
        wrong="if (i + 1 >= cgraph->n_nodes || cgraph->nodes[i + 1]->op != GGML_OP_ADD) {",
        case="ADD/in-one-residual-twice",
        said=WRONG,
    ),
    "rows of a chunk left out": Mistake(
        source="repeat-back",
        right="chunk    = (nrows + n_chunks - 1)/n_chunks",
        wrong="chunk    = nrows/n_chunks",
        case="REPEAT_BACK/columns-36",
        said=WRONG,
    ),
    "gradient of a gain by another row": Mistake(
        source="repeat-back",
        right="y = b[r*n4 + i];",
        wrong="y = b[i];",
        case="REPEAT_BACK/columns-132-multiplied",
        said=WRONG,
    ),
    "gradient of a norm by the gain of another column": Mistake(
        source="norm-back",
        right="__fmul_rn(grad[col], w[col])",
        wrong="__fmul_rn(grad[col], w[0])",
        case="NORM_BACK/in-one-36",
        said=WRONG,
    ),
    "another gradient of another row": Mistake(
        source="norm-back",
        right="more[(int64_t) row*ncols + col]",
        wrong="more[col]",
        case="NORM_BACK/in-one-768",
        said=WRONG,
    ),
    "sums of a gain over those of a bias": Mistake(
        source="repeat-back",
        right="chunks + (n_sums - 1)*n_chunks*n4",
        wrong="chunks",
        case="NORM_BACK/in-one-36",
        said=WRONG,
    ),
    "chunks of a bias for those of a gain": Mistake(
        source="repeat-back",
        right="        a  += nrows*n4;",
        wrong="",
        case="NORM_BACK/in-one-36",
        said=WRONG,
    ),
    "sums where the gradient of a norm is still read": Mistake(
        source="fuse-sums",
        right="if (sum && !is_disjoint_from_all(sum,",
        wrong="if (false && !is_disjoint_from_all(sum,",
        case="NORM_BACK/in-one-sum-over-gradient",
        said=WRONG,
    ),
    "gradient of a norm over its gain": Mistake(
        source="fuse-sums",
        right="|| !is_disjoint(dst, w)) {",
        wrong=") {",
        case="NORM_BACK/in-one-gain-under-result",
        said=WRONG,
    ),
    "gradient of a norm that is read left out": Mistake(
        source="fuse-sums",
        right="return ggml_can_fuse_subgraph(cgraph, i, n, ops, outputs, n_outputs);",
        wrong="return true;",
        case="NORM_BACK/in-one-read-twice",
        said=WRONG,
    ),
    "rounded gradient left out": Mistake(
        source="repeat-back",
        right="            if (a16) {",
        wrong="            if (a16 && r > 0) {",
        case="REPEAT_BACK/rounded-132",
        said=WRONG,
    ),
    "gradient of GELU that is read left out": Mistake(
        source="fuse-sums",
        right="const bool written = gelu && !alone;",
        wrong="const bool written = false;",
        case="REPEAT_BACK/rounded-gelu-read",
        said=WRONG,
    ),
    "rounded gradient over what it is computed of": Mistake(
        source="fuse-sums",
        right="is_disjoint_from_all(cpy, { dy, h,",
        wrong="is_disjoint_from_all(cpy, { dy,",
        case="REPEAT_BACK/rounded-gelu-over",
        said=WRONG,
    ),
    "slope of GELU at its gradient": Mistake(
        source="repeat-back",
        right="gelu_back(x.w, y.w)",
        wrong="gelu_back(x.w, x.w)",
        case="REPEAT_BACK/rounded-gelu-36",
        said=WRONG,
    ),
    "steps of the parameter before": Mistake(
        source="fuse-train",
        right="if (steps.first_block[mid] <= blockIdx.x) {",
        wrong="if (steps.first_block[mid] < blockIdx.x) {",
        case="OPT_STEP_ADAMW/many",
        said=WRONG,
        fast=True,
    ),
    "a step beside the one whose result it reads": Mistake(
        source="fuse-train",
        right="            apart = is_apart(node, ",
        wrong="            apart = true || is_apart(node, ",
        case="OPT_STEP_ADAMW/many-that-read-each-other",
        said=WRONG,
    ),
    "the factor of steps left out": Mistake(
        source="fuse-train",
        right="has_factor ? pars[7] : 1.0f;",
        wrong="1.0f;",
        case="OPT_STEP_ADAMW/many-factor",
        said=WRONG,
    ),
    "elements of steps behind the last one": Mistake(
        source="fuse-train",
        right="j < ne && j < i + 4",
        wrong="j <= ne && j < i + 4",
        case="OPT_STEP_ADAMW/many",
        said="past the end of",
    ),
}
