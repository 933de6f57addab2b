# SPDX-License-Identifier: MIT
"""ggml's log, its abort, and what the import brings."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import pyggml as pg
from pyggml import ffi, lib
from pyggml.backend.library import capture_log, ggml_version, pass_interrupt, patch_count

ROOT = Path(__file__).resolve().parents[2]


def log(level: int, text: str) -> None:
    """Say something as ggml's own code does: through the callback that is set."""
    callback, data = ffi.new("ggml_log_callback *"), ffi.new("void **")
    lib.ggml_log_get(callback, data)
    callback[0](level, ffi.new("char[]", text.encode()), data[0])


def run(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=900, check=False
    )


def test_versions() -> None:
    assert ggml_version().startswith("0.")
    patches = list((ROOT / "patches").glob("[0-9]*.patch"))
    assert patch_count() == len(patches) or not patches


def test_struct_layout_is_ggmls() -> None:
    assert ffi.sizeof("struct ggml_tensor") == lib.GGML_TENSOR_SIZE
    assert len(ffi.new("struct ggml_tensor *").op_params) * 4 == lib.GGML_MAX_OP_PARAMS


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (lib.GGML_LOG_LEVEL_DEBUG, logging.DEBUG),
        (lib.GGML_LOG_LEVEL_INFO, logging.INFO),
        (lib.GGML_LOG_LEVEL_NONE, logging.INFO),
        (lib.GGML_LOG_LEVEL_WARN, logging.WARNING),
        (lib.GGML_LOG_LEVEL_ERROR, logging.ERROR),
    ],
)
def test_levels(level: int, expected: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="pyggml.ggml"):
        log(level, "words: 100%s\n")
    assert caplog.record_tuples == [("pyggml.ggml", expected, "words: 100%s")]


def test_continued_lines_are_joined(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="pyggml.ggml"):
        log(lib.GGML_LOG_LEVEL_WARN, "one")
        log(lib.GGML_LOG_LEVEL_CONT, " two")
        log(lib.GGML_LOG_LEVEL_CONT, " three\n")
        log(lib.GGML_LOG_LEVEL_INFO, "unfinished")
        log(lib.GGML_LOG_LEVEL_ERROR, "next\n")
    assert [(r.levelno, r.message) for r in caplog.records] == [
        (logging.WARNING, "one two three"),
        (logging.INFO, "unfinished"),
        (logging.ERROR, "next"),
    ]


def test_capture_tells_why_a_file_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"no GGUF at all, and long enough")
    params = ffi.new("struct gguf_init_params *")
    with capture_log() as messages:
        context = lib.gguf_init_from_file(str(path).encode(), params[0])
    assert context == ffi.NULL
    assert any("magic" in message for message in messages)
    assert caplog.records == []


def test_capture_nests_and_ends() -> None:
    with capture_log() as outer:
        log(lib.GGML_LOG_LEVEL_INFO, "a\n")
        with capture_log() as inner:
            log(lib.GGML_LOG_LEVEL_INFO, "b, not finished")
        log(lib.GGML_LOG_LEVEL_INFO, "c\n")
    log(lib.GGML_LOG_LEVEL_INFO, "d\n")
    assert outer == ["a", "c"]
    assert inner == ["b, not finished"]


def test_capture_is_of_one_thread(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="pyggml.ggml"), capture_log() as messages:
        thread = threading.Thread(target=log, args=(lib.GGML_LOG_LEVEL_INFO, "elsewhere\n"))
        thread.start()
        thread.join()
    assert messages == []
    assert [record.message for record in caplog.records] == ["elsewhere"]


def test_text_that_is_not_utf8() -> None:
    callback, data = ffi.new("ggml_log_callback *"), ffi.new("void **")
    lib.ggml_log_get(callback, data)
    with capture_log() as messages:
        callback[0](lib.GGML_LOG_LEVEL_INFO, ffi.new("char[]", b"caf\xe9\n"), data[0])
    assert messages == ["caf�"]


def test_abort_prints_the_python_stack(tmp_path: Path) -> None:
    done = run(
        """
        import pyggml
        def the_culprit():
            print("said before", end="")
            pyggml.lib.ggml_abort(b"file.c", 7, b"sorry")
        the_culprit()
        """,
        tmp_path,
    )
    assert done.returncode == -signal.SIGABRT
    assert "file.c:7: sorry" in done.stderr
    assert "in the_culprit" in done.stderr
    assert "pyggml_abort" not in done.stderr
    assert done.stdout == "said before"


def test_abort_in_a_worker_thread_prints_the_callers_stack(tmp_path: Path) -> None:
    done = run(
        """
        import pyggml
        from pyggml import ffi, lib

        @ffi.callback("void(struct ggml_tensor *, const struct ggml_tensor *, int, int, void *)")
        def fail(dst, a, ith, nth, data):
            if ith == nth - 1:
                lib.ggml_abort(b"op.c", 3, b"in a worker")

        def compute_it():
            params = ffi.new("struct ggml_init_params *", dict(mem_size=1 << 20))
            ctx = lib.ggml_init(params[0])
            a = lib.ggml_new_tensor_1d(ctx, lib.GGML_TYPE_F32, 8)
            b = lib.ggml_map_custom1(ctx, a, fail, lib.GGML_N_TASKS_MAX, ffi.NULL)
            graph = lib.ggml_new_graph(ctx)
            lib.ggml_build_forward_expand(graph, b)
            lib.ggml_graph_compute_with_ctx(ctx, graph, 2)

        compute_it()
        """,
        tmp_path,
    )
    assert done.returncode == -signal.SIGABRT
    assert "op.c:3: in a worker" in done.stderr
    assert "in compute_it" in done.stderr


def test_import_is_light(tmp_path: Path) -> None:
    done = run(
        """
        import sys
        import pyggml
        heavy = {"typer", "rich", "tokenizers", "safetensors", "matplotlib", "torch", "json"}
        heavy |= {f"pyggml.{name}" for name in ("data", "debug", "models", "nn", "optim", "train")}
        print(sorted(heavy & set(sys.modules)))
        assert {"nn", "debug", "load", "profile"} <= set(dir(pyggml))
        assert pyggml.profile is pyggml.debug.profile
        """,
        tmp_path,
    )
    assert done.stdout == "[]\n", done.stderr


def test_no_search_path_needed() -> None:
    folder = Path(sys.modules["pyggml._ggml"].__file__ or "").parent
    names = {p.name.split(".")[0] for p in (folder / "lib").iterdir()}
    assert names >= {"libpyggml", "libpyggml-base"}
    assert any(name.startswith("libpyggml-cpu") for name in names)


@pytest.mark.parametrize(
    ("watch", "module", "inside"),
    [(pg.detect_anomaly, "anomaly", "read_floats"), (pg.profile, "profiler", "count_flops")],
)
def test_ctrl_c_while_ggml_calls_python(
    watch: Any, module: str, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def interrupted(ptr: Any) -> None:
        calls.append(ptr)
        signal.raise_signal(signal.SIGINT)

    x = pg.ones((4, 4))
    with monkeypatch.context() as patch:
        patch.setattr(f"pyggml.debug.{module}.{inside}", interrupted)
        with pytest.raises(KeyboardInterrupt), watch():
            ((x @ x) * 2.0 + x).numpy()
    assert len(calls) == 1  # the graph ended there
    with watch():
        assert ((x @ x) + x).numpy().sum() == 80
    assert (x @ x).numpy().sum() == 64


def test_ctrl_c_while_ggml_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(level: int, text: str) -> None:
        signal.raise_signal(signal.SIGINT)

    def captured() -> None:
        with capture_log(), monkeypatch.context() as patch:
            patch.setattr("pyggml.backend.library._log.add", interrupted)
            log(lib.GGML_LOG_LEVEL_INFO, "words\n")
        pass_interrupt()

    with pytest.raises(KeyboardInterrupt):
        captured()


def test_free_threaded_python_is_refused(tmp_path: Path) -> None:
    done = run(
        """
        import sys
        sys._is_gil_enabled = lambda: False
        try:
            import pyggml
        except ImportError as error:
            print(error)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "free-threaded" in done.stdout


@pytest.mark.parametrize("first", ["", "import pyggml"])
def test_subinterpreters_are_refused(tmp_path: Path, first: str) -> None:
    """Whether or not the main one has imported the package; and the process ends."""
    done = run(
        f"""
        {first}
        try:
            import _interpreters as interpreters
            kind = ["legacy"]
        except ImportError:  # Python 3.12 and before
            import _xxsubinterpreters as interpreters
            kind = []
        code = (
            "import warnings\\n"
            "warnings.simplefilter('ignore')\\n"  # of NumPy
            "try: import pyggml\\n"
            "except ImportError as error: print('refused:', error, flush=True)\\n"
        )
        interpreters.run_string(interpreters.create(*kind), code)
        print("done")
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    refused, last = done.stdout.splitlines()
    assert refused.startswith("refused")
    assert first or "subinterpreter" in refused  # else NumPy may have refused before
    assert last == "done"
