# SPDX-License-Identifier: MIT
import gc
import os
import random
import signal

import hypothesis
import pytest

# A busy machine is no failure: examples have no time limit, tests have the runner's. And no run
# draws others than the run before: PYGGML_TEST_SEED=random looks for new ones.
SEED = os.environ.get("PYGGML_TEST_SEED", "0")
hypothesis.settings.register_profile(
    "pyggml",
    deadline=None,
    derandomize=SEED != "random",
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("pyggml")


def pytest_configure():
    """Let ggml's last words reach the terminal: what pytest captured dies with the process."""
    import pyggml.backend.library

    pyggml.backend.library._abort_fd = os.dup(2)


def pytest_collection_finish():
    """Take the tests themselves from what the garbage collector looks through each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Seed what initialises weights: what a test draws must not depend on the tests before it.

    With several workers these are others in each run, as each takes the next one when it is done.
    """
    import pyggml

    pyggml.seed(random.getrandbits(32) if SEED == "random" else int(SEED))


@pytest.fixture(scope="session", autouse=True)
def another_folder(tmp_path_factory):
    """Run elsewhere: what a test writes without a path must not lie in the project."""
    os.chdir(tmp_path_factory.mktemp("cwd"))


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Compute on one thread: test graphs are tiny, and parallel workers share the cores."""
    import pyggml

    pyggml.set_threads(1)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """Leave files in the page cache: tests that cut the power or fail a sync run other programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


# A shell without job control starts what it puts in the background with SIGINT ignored, and
# programs hand that on: tests that send it would then wait for nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
