# SPDX-License-Identifier: MIT
"""A system that grants neither memory nor threads."""

from __future__ import annotations

import sys

import pytest

from .programs import script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")

LIMIT = """
import logging, resource
def limit(size_bytes):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + size_bytes,) * 2)
"""


@pytest.mark.parametrize("mb", [0, 3, 8, 28])
def test_small_tensors_until_the_memory_is_full(mb: int) -> None:
    text = """
logging.disable()
pg.set_threads(1)
product()
kept = []
limit(MB * 2**20)
try:
    while True:
        kept.append(pg.ones((1000,)))
except MemoryError:
    kept.clear()
    print("refused")
"""
    assert script(LIMIT + text.replace("MB", str(mb))) == "refused\n"


THREADS = """
a = pg.tensor(big)
want = big @ big
messages = []
class Keep(logging.Handler):
    def emit(self, record):
        messages.append(record.getMessage())
logging.getLogger("pyggml.ggml").addHandler(Keep())
pg.set_threads(16)
"""


def test_threads_that_the_memory_has_no_stacks_for() -> None:
    text = """
limit(40 * 2**20)
assert np.allclose((a @ a).numpy(), want, rtol=1e-4)
assert any("could not be started" in text for text in messages), messages
print("fewer")
"""
    assert script(LIMIT + THREADS + text) == "fewer\n"


def test_threads_beyond_the_limit_of_processes() -> None:
    text = """
if os.getuid() == 0:  # whom the limit does not bind
    os.setgid(54321)
    os.setuid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, (2, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
assert np.allclose((a @ a).numpy(), want, rtol=1e-4)
assert any("could not be started" in text for text in messages), messages
print("fewer")
"""
    assert script(LIMIT + THREADS + text) == "fewer\n"
