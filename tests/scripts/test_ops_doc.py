# SPDX-License-Identifier: MIT
"""Every op of ggml has a row with a gradient or a reason; docs/reference/ops.md is true."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import ModuleType

import pytest

from pyggml import ops
from pyggml.testing import CASES, ELSEWHERE, reasons

from .loading import load

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "gen_ops_doc.py"
SOURCES = ROOT / "vendor" / "ggml" / "src"

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="scripts/ is not here")
needs_source = pytest.mark.skipif(not SOURCES.is_dir(), reason="vendor/ggml is not here")


@pytest.fixture(scope="module")
def gen() -> ModuleType:
    return load(SCRIPT)


@pytest.fixture(scope="module")
def rows(gen: ModuleType) -> dict:
    return gen.rows()


def test_every_op_of_the_enum_is_in_the_table_or_has_a_reason(gen: ModuleType, rows: dict) -> None:
    assert gen.problems(rows) == []


def test_an_op_in_neither_is_named(
    gen: ModuleType, rows: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(reasons.NO_GRADIENT, "ARGMAX")
    (problem,) = gen.problems(rows)
    assert problem.startswith("ARGMAX: neither differentiated by a row of the table nor in")


def test_an_op_in_both_is_named(
    gen: ModuleType, rows: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(reasons.NO_GRADIENT, "MUL_MAT", "some reason")
    (problem,) = gen.problems(rows)
    assert problem.startswith("MUL_MAT: a row of the table differentiates it")


def test_a_lost_row_is_noticed(gen: ModuleType, rows: dict) -> None:
    less = dict(rows)
    less["SQR"] = dataclasses.replace(rows["SQR"], gradients={})
    (problem,) = gen.problems(less)
    assert problem.startswith("SQR: neither")


def test_an_op_that_ggml_does_not_have_is_named(
    gen: ModuleType, rows: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(reasons.NO_FUNCTION, "NO_SUCH_OP", "some reason")
    assert gen.problems(rows) == ["NO_SUCH_OP: no op of this ggml"]


def test_names_are_unique_over_the_enums(gen: ModuleType) -> None:
    names = [name for kind in gen.enum().values() for name in kind]
    assert len(names) == len(set(names)) > 100


def test_functions_with_stored_state_are_recorded_too(gen: ModuleType) -> None:
    assert set(gen.STATEFUL) == ELSEWHERE
    assert {case.name for case in CASES} | set(gen.STATEFUL) == set(ops.__all__)


@needs_source
def test_reasons_agree_with_the_backward_in_ggml(gen: ModuleType, rows: dict) -> None:
    """What "has no gradient" has none in C either, and the rest has one."""
    has = gen.differentiated()
    assert has & set(reasons.NO_GRADIENT) == set()
    assert set(reasons.NO_ROW) - has == set()
    # A gradient of zero: nothing is passed on.
    flat = {"FLOOR", "CEIL", "ROUND", "TRUNC", "SGN", "STEP", "FILL"}
    assert {name for name, op in rows.items() if op.gradients} - has <= flat


@needs_source
def test_the_page_is_fresh(gen: ModuleType) -> None:
    assert gen.main(["--check"]) == 0


@needs_source
@pytest.mark.slow
def test_a_stale_page_is_told(
    gen: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(gen, "PAGE", tmp_path / "ops.md")
    assert gen.main(["--check"]) == 1
    assert gen.main([]) == 0
    assert gen.main(["--check"]) == 0
    text = gen.PAGE.read_text("utf-8")
    gen.PAGE.write_text(text.replace("| SQR |", "| SQUARE |"), "utf-8")
    assert gen.main(["--check"]) == 1
    assert "run `just ops-doc`" in capsys.readouterr().err


SWITCH = """
static bool other(const struct ggml_tensor * op) { return true; }
bool supports(dev_t dev, const struct ggml_tensor * op) {
    for (int i = 0; i < 4; i++) { if (op->src[i]) { return false; } }
    switch (op->op) {
        case GGML_OP_ADD: // case GGML_OP_SUB: return false;
        case GGML_OP_MUL:
            return true;
        case GGML_OP_DIV:
            return has_simdgroup && op->src[0]->type == GGML_TYPE_F32;
        case GGML_OP_SUM: return has_simdgroup;
        case GGML_OP_GET_ROWS:
            {
                switch (op->src[0]->type) {
                    case GGML_TYPE_F32: return true;
                    default: return false;
                }
            } break;
        case GGML_OP_UNARY:
            switch (ggml_get_unary_op(op)) {
                case GGML_UNARY_OP_ABS:
                case GGML_UNARY_OP_NEG: return true;
                default: return false;
            }
            break;
        case GGML_OP_SET:
        default: return false;
    }
}
"""


def test_what_a_backend_answers(gen: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "backend.c"
    path.write_text(SWITCH)
    assert gen.supported(path, "supports") == {
        "GGML_OP_ADD": "yes",
        "GGML_OP_MUL": "yes",
        "GGML_OP_DIV": "partly",
        "GGML_OP_SUM": "yes",
        "GGML_OP_GET_ROWS": "partly",
        "GGML_UNARY_OP_ABS": "yes",
        "GGML_UNARY_OP_NEG": "yes",
        "default_unary": "no",
        "GGML_OP_SET": "no",
        "default": "no",
    }
    with pytest.raises(ValueError, match="has no supported_by"):
        gen.supported(path, "supported_by")
