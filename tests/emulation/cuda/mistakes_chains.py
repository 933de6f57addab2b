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
    "rows of a chunk left out": Mistake(
        source="repeat-back",
        right="chunk    = (nrows + n_chunks - 1)/n_chunks",
        wrong="chunk    = nrows/n_chunks",
        case="REPEAT_BACK/columns-36",
        said=WRONG,
    ),
    "gradient of a gain by another row": Mistake(
        source="repeat-back",
        right="const float4 y = b[r*n4 + i];",
        wrong="const float4 y = b[i];",
        case="REPEAT_BACK/columns-132-multiplied",
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
