# SPDX-License-Identifier: MIT
"""Write tests/tensors/torch_numbers.npz: PyTorch's numbers for the calls of tests/tensors/calls.py.

Needs `torch`.
"""

from __future__ import annotations

import sys

from generated_page import ROOT

sys.path.insert(0, str(ROOT))
from tests.tensors.theirs import FILE, write

if __name__ == "__main__":
    write()
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size:,} bytes")
