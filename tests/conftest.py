# SPDX-License-Identifier: MIT
import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Compute on one thread: test graphs are tiny, and parallel workers share the cores."""
    import pyggml

    pyggml.set_threads(1)
