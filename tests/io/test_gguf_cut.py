# SPDX-License-Identifier: MIT
"""A file that another process cuts short while it is read."""

import subprocess
import sys

import pytest

CUT = """
import os, sys
import numpy as np
from pyggml.errors import FormatError
from pyggml.io import gguf, read_gguf, write_gguf

path = sys.argv[1]
words = [f"word {i}" for i in range(2000)]
write_gguf(path, {"general.architecture": "own", "words": words}, {"w": np.ones((8, 8), "f4")})
log = gguf.capture_log

def cut():
    os.truncate(path, 4096)  # after the size was taken, before the header is parsed
    return log()

gguf.capture_log = cut
try:
    read_gguf(path, private=sys.argv[2] == "True")
except FormatError as error:
    print(error)
"""


@pytest.mark.parametrize("private", [False, True])
def test_a_file_cut_short_while_its_header_is_read_raises(private, tmp_path):
    file = tmp_path / "cut.gguf"
    done = subprocess.run(
        [sys.executable, "-c", CUT, str(file), str(private)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done
    assert done.stdout.startswith(f"read_gguf: {file}: ")
