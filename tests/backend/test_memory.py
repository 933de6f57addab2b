# SPDX-License-Identifier: MIT
"""Memory that is given back to the system."""

from __future__ import annotations

import mmap
import sys

import numpy as np
import pytest

from pyggml.backend.memory import release_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone gives pages back")


def test_only_whole_pages_are_given_back() -> None:
    page = mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, 6 * page, flags=mmap.MAP_PRIVATE), np.uint8)
    memory[:] = 7
    release_pages(memory.ctypes.data + 8, 4 * page)
    assert (memory[page : 4 * page] == 0).all()
    assert (memory[:page] == 7).all()
    assert (memory[4 * page :] == 7).all()
    memory[page : 2 * page] = 5
    assert memory[page : 2 * page].min() == 5

    memory[:] = 7
    release_pages(memory.ctypes.data + 1, page)
    assert (memory == 7).all()


def test_what_the_system_refuses_is_an_error() -> None:
    with pytest.raises(OSError, match="stay in memory"):
        release_pages(8 * mmap.PAGESIZE, mmap.PAGESIZE)
