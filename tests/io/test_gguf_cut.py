# SPDX-License-Identifier: MIT
"""A file that another process cuts short while it is read."""

import os
import subprocess
import sys

import numpy as np
import pytest

from pyggml.errors import FormatError
from pyggml.io import read_gguf, write_gguf

CUT = """
import os, sys
import numpy as np
from pyggml.errors import FormatError
from pyggml.io import gguf_header, read_gguf, write_gguf

path = sys.argv[1]
words = [f"word {i}" for i in range(2000)]
write_gguf(path, {"general.architecture": "own", "words": words}, {"w": np.ones((8, 8), "f4")})
log = gguf_header.capture_log

def cut():
    os.truncate(path, 4096)  # after the size was taken, before the header is parsed
    return log()

gguf_header.capture_log = cut
try:
    read_gguf(path, private=sys.argv[2] == "True")
except FormatError as error:
    print(error)
"""


@pytest.mark.parametrize("share", [0.002, 0.02, 0.3, 0.6, 0.999])
def test_a_truncated_file_tells_its_bytes_and_a_cure(share, tmp_path):
    file = tmp_path / "whole.gguf"
    words = [f"word {i}" for i in range(200)]
    tensors = {"a": np.ones((8, 64), "f4"), "b": np.ones((8, 64), "f4")}
    write_gguf(file, {"general.architecture": "own", "words": words}, tensors)
    whole = file.stat().st_size
    kept = int(whole * share)
    os.truncate(file, kept)
    with pytest.raises(FormatError) as error:
        read_gguf(file)
    message = str(error.value)
    assert message.startswith(f"read_gguf: {file}: the file is truncated")
    assert f"it has {kept:,} bytes" in message
    assert message.endswith("fetch or write it again")
    if share > 0.5:  # the header is whole, and tells where the last tensor ends
        assert f"its tensors end at byte {whole:,}" in message


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
