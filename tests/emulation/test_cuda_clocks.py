# SPDX-License-Identifier: MIT
"""How long shared memory takes for attention in f32, counted on the emulated device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .build import REPOSITORY, Builder, default_cache
from .test_cuda import TREE, pytestmark, text_of, told

pytestmark = [*pytestmark, pytest.mark.slow]

TILES = "fattn-train-f32"
MATMULS = {"fattn_f32": 2, "fattn_back_q": 3, "fattn_back_kv": 4}


@pytest.fixture(scope="module")
def builder() -> Builder:
    return Builder(TREE, default_cache())


def clocks_of_tiles(program: Path, size: int) -> dict[str, float]:
    """Clocks of shared memory for each clock of multiplications, by kernel, for heads of `size`."""
    found = {}
    for op in ("FLASH_ATTN_EXT_BACK", "FLASH_ATTN_EXT"):  # the gradient has scores of fattn_f32
        lines = told(program, f"{op}/whole-{size}")
        assert not [line for line in lines if line.startswith("FAIL")]
        for match in filter(None, (re.match(r"clocks (\d+) .* (\d+): (\w+)", s) for s in lines)):
            if match[3] in MATMULS:
                multiplied = MATMULS[match[3]] * 128 * 128 * size / 128  # 128 in a clock
                found[match[3]] = int(match[1]) / int(match[2]) / multiplied
    assert found.keys() == MATMULS.keys()
    return found


def test_shared_memory_is_not_the_limit_of_attention(builder: Builder) -> None:
    """As counted, and as docs/internals/gpu.md says."""
    texts = {kernel: text_of(kernel, TILES) for kernel in ("fattn-f32", "fattn-back")}
    program = builder.counted(texts)
    columns = [clocks_of_tiles(program, size) for size in (64, 128)]
    page = (REPOSITORY / "docs" / "internals" / "gpu.md").read_text()
    for kernel in MATMULS:
        counted = [column[kernel] for column in columns]
        assert max(counted) < 1
        row = re.search(rf"^ *\| `{kernel}`, .*\| (\S+) \| \S+ \| (\S+) \| \S+ \|$", page, re.M)
        assert row, f"{kernel} is not in the table"
        assert [row[1], row[2]] == [f"{ratio:.2f}" for ratio in counted]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(FATTN_TRAIN_TILE + 4)", "FATTN_TRAIN_TILE"),
        ("4*(l % 2 + ((l >> 1) & (tx - 2)))", "4*(l % tx)"),
    ],
    ids=["rows without padding", "columns by bit 1 of a lane"],
)
def test_clocks_of_shared_memory_are_seen(builder: Builder, right: str, wrong: str) -> None:
    text = text_of("fattn-back", TILES)
    assert text.count(right) == 1, "fattn-train-f32.cuh has changed: this test must follow"
    if "tx" in wrong:  # rows by the bits that are left
        rows = "(l >> 1) % 2 + (tx == 8 ? 2*(l/16) : 0)"
        assert text.count(rows) == 1, "fattn-train-f32.cuh has changed: this test must follow"
        text = text.replace(rows, "l/tx")
    texts = {"fattn-f32": text_of("fattn-f32", TILES), "fattn-back": text.replace(right, wrong)}
    found = clocks_of_tiles(builder.counted(texts, right), 64)
    assert found["fattn_f32"] < 1 < found["fattn_back_kv"]
