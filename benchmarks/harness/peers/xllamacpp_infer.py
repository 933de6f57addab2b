# SPDX-License-Identifier: MIT
"""Inference in the llama.cpp of the xllamacpp wheel."""

from __future__ import annotations

from . import llama_cpp_infer


class Model(llama_cpp_infer.Model):
    LIBRARY = False
