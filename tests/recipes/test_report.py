# SPDX-License-Identifier: MIT
"""The page of a run, and the pictures in it."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from pyggml.errors import FormatError
from pyggml.recipes import plot_loss, system_info, write_comparison, write_report
from pyggml.recipes.report import WorstExamples
from pyggml.recipes.report.training_curves import curves_svg, loss_svg, smooth

SVG = "{http://www.w3.org/2000/svg}"
ODD = "run\udce9"


class Page(HTMLParser):
    """Looks whether every element ends, and what the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str | None] = []
        self.ids: list[str | None] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.look(tag, attrs)
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.look(tag, attrs)

    def look(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe")
        given = [v or "" for k, v in attrs if k in ("src", "href", "data", "srcset")]
        self.loads += [v for v in given if not v.startswith("data:image/png;base64,")]
        self.ids += [v for k, v in attrs if k == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page_of(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    assert page.open == []
    assert page.loads == []
    assert len(set(page.ids)) == len(page.ids)
    return page


def run_folder(folder: Path, lines: list[dict], samples: Any = (), **record: Any) -> Path:
    content = {
        "kind": "pyggml training run", "format": 1, "arch": "<b>llama", "parameters": 1234,
        "total_steps": 200, "model": {"n_layer": 2}, "system": system_info(),
        "options": {"prompt": "<script>alert(1)</script>", "lr": 1e-3, "text": ["a", "b"]},
        **record,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(content))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
    return folder


def lines_of(steps: int = 120) -> list[dict]:
    return [
        {"kind": "train", "step": n, "loss": 5 / n, "lr": 1e-3, "grad_norm": None, "mfu": 0.3,
         "tokens": n * 10, "tokens_per_s": 1e3 + n, "elapsed_s": n / 3}
        for n in range(1, steps + 1)
    ]  # fmt: skip


def test_the_page_of_a_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = lines_of() + [
        {"kind": "validation", "step": n, "loss": 6 / n, "accuracy": n / 120, "bits_per_byte": 2.0,
         "perplexity": 2.5}
        for n in (40, 80, 120)
    ]  # fmt: skip
    samples = [{"step": 60, "text": "a & b < c"}, {"step": 120, "text": "naïve"}]
    path = write_report(run_folder(tmp_path, lines, samples))
    text = " ".join(page_of(path).text)
    for words in (
        "<b>llama, 1,234 parameters", "120 of 200", "loss per token", "learning rate", "accuracy",
        "bits per byte", "model FLOP utilisation", "tokens per second", "a & b < c", "naïve",
        "<script>alert(1)", "validation loss, lowest", "0.05 nats per token", "40.0 s",
        "validation bits per byte", '["a", "b"]', "ggml", "threads",
        "validation, last 0.050 (perplexity 2.5)",
    ):  # fmt: skip
        assert words in text, words
    assert "gradient norm" not in text  # nothing of it was finite
    assert write_report(tmp_path, tmp_path / "other.html").read_text() == path.read_text()


def test_the_page_of_a_run_on_images_speaks_of_images(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    last = {"kind": "validation", "step": 30, "loss": 0.1, "perplexity": 1.1, "tokens": 359}
    lines = [*lines_of(30), {**last, "accuracy": 0.975}]
    text = " ".join(page_of(write_report(run_folder(tmp_path, lines, task="image"))).text)
    for words in (
        "loss per image (nats)", "images per second", "validation images", "validation accuracy",
        "validation, last 0.100 (accuracy 97.5%)",
    ):  # fmt: skip
        assert words in text, words
    assert "token" not in text
    assert "perplexity" not in text
    assert plot_loss(lines, tmp_path / "loss.png", images=True)


def test_the_page_fits_a_phone(tmp_path: Path) -> None:
    """A browser showed that nothing is wider than 320 pixels; this is what it comes from."""
    pytest.importorskip("matplotlib")
    text = write_report(run_folder(tmp_path, lines_of(3))).read_text()
    assert '<meta name="viewport" content="width=device-width' in text
    assert "minmax(min(100%," in text
    assert "overflow-wrap: anywhere" in text
    assert re.findall(r"<svg[^>]*\b(?:width|height)=", text) == []  # but a viewBox, and CSS
    assert text.count("<svg") == text.count("viewBox=")


def test_without_matplotlib_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    text = " ".join(page_of(write_report(run_folder(tmp_path, lines_of(3)))).text)
    assert 'pip install "pyggml[cli]"' in text
    assert "3 of 200" in text


def test_the_page_of_a_run_that_has_done_nothing(tmp_path: Path) -> None:
    assert "0 of 200" in " ".join(page_of(write_report(run_folder(tmp_path, []))).text)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="holds no run"):
        write_report(tmp_path)


def colours(element: ElementTree.Element) -> list[str]:
    """The colours of an element's lines, those of axes and grid aside."""
    styles = [each.get("style", "") for each in element.iter(f"{SVG}path")]
    found = [match[1] for style in styles if (match := re.search(r"stroke: (#\w+)", style))]
    return [colour for colour in found if colour not in ("#444444", "#bbbbbb", "#e6e6e6")]


def test_the_legend_has_the_colours_of_the_curves() -> None:
    pytest.importorskip("matplotlib")
    names = {"one & two": [(1, 2.0), (2, 1.0)], "三": [(1, 1.0), (2, 3.0)]}
    tree = ElementTree.fromstring(curves_svg("a < b", names))
    texts = [each.text for each in tree.iter(f"{SVG}text")]
    assert {"a < b", *names} <= set(texts)
    # The first is wider, so that both show where they have the same values.
    widths = re.findall(r"stroke: #1f77b4; stroke-width: (\S+?);", curves_svg("a < b", names))
    assert set(widths) == {"3"}
    drawn = colours(tree)
    # Each twice at least: the curve and its line in the legend.
    assert all(drawn.count(colour) >= 2 for colour in ("#1f77b4", "#d95f02"))


def test_nothing_of_a_picture_is_cut() -> None:
    """Labels at the ends of axes stay within the picture, with 0.6 em for each letter."""
    pytest.importorskip("matplotlib")
    picture = curves_svg("t", {"a": [(n, 10.0**6 + n) for n in range(0, 100001, 1000)]})
    tree = ElementTree.fromstring(picture)
    left, _, right, _ = map(float, (tree.get("viewBox") or "").split())
    labels = [each for each in tree.iter(f"{SVG}text") if "middle" in each.get("style", "")]
    assert len(labels) > 3
    for label in labels:
        half = 0.3 * 10 * len(label.text or "")
        assert left <= float(label.get("x", 0)) - half
        assert float(label.get("x", 0)) + half <= right


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "points",
    [
        [(1, 2.0)],
        [(1, 2.0), (2, 2.0)],
        [(0, 0.0), (1, 0.0)],
        [(1, -1e30), (2, 1e30)],
        [(1, 1e-30), (2, 2e-30)],
        [(n, n**0.5) for n in range(5000)],
        [(1, float("nan")), (2, 1.0), (3, float("inf"))],
    ],
    ids=range(7),
)
def test_curves_are_well_formed(points: list[tuple[float, float]]) -> None:
    pytest.importorskip("matplotlib")
    picture = curves_svg("a $x^{$ < b", {"one": points, "none": []})
    assert "a $x^{$ < b" in [e.text for e in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert len(picture) < 60_000  # thousands of points are thinned


def test_nothing_to_draw() -> None:
    assert curves_svg("x", {}) == curves_svg("x", {"a": [(1, float("nan"))]}) == ""
    assert loss_svg([]) == loss_svg([{"kind": "train", "step": 1, "loss": None}]) == ""


def test_an_average_does_not_lag() -> None:
    """A curve that falls fast at the start has an average that falls with it."""
    steps = np.arange(1000)
    falling = 3 + 7 * np.exp(-steps / 40)
    averages = np.array(smooth(falling.tolist()))
    assert averages[0] == falling[0]
    # Of a fall of 7. The running average over as many steps lies 1.17 above the curve.
    assert np.abs(averages - falling).max() < 0.25
    line = np.linspace(5, 1, 300)
    np.testing.assert_allclose(smooth(line.tolist()), line, rtol=1e-12)
    noisy = falling + np.random.default_rng(0).normal(0, 1, 1000)
    assert np.std(np.array(smooth(noisy.tolist())) - falling) < 0.25
    assert smooth([3.0, 1.0]) == [3.0, 1.0]


def test_the_page_is_light_and_dark(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    text = write_report(run_folder(tmp_path, lines_of(3))).read_text()
    style, body = text.split("</style>")
    drawn = set(re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", body))
    assert {"stroke: #1f77b4", "fill: #444444", "fill: #ffffff"} <= drawn
    dark = style[style.index("@media screen and (prefers-color-scheme:") :]
    for colour in drawn:
        assert f'[style*="{colour}"]' in dark, colour


def test_every_option_is_on_the_page(tmp_path: Path) -> None:
    options = {"lr": 1e-3, "clip": None, "data": {"text": ["a"], "val": 0.1}}
    folder = run_folder(tmp_path, lines_of(3), options=options, planned_bytes=2_500_000)
    text = page_of(write_report(folder)).text
    for name, value in (("lr", "0.001"), ("clip", "–"), ("text", '["a"]'), ("val", "0.1")):
        assert text[text.index(name) + 1] == value
    assert text[text.index("memory of tensors, as planned") + 1] == "2.5 MB"


def test_the_memory_of_tensors_and_of_the_process_have_two_names(tmp_path: Path) -> None:
    lines = [line | {"memory_bytes": 7_000_000} for line in lines_of(3)]
    text = page_of(write_report(run_folder(tmp_path, lines, planned_bytes=2_500_000))).text
    assert text[text.index("memory of tensors, as planned") + 1] == "2.5 MB"
    assert text[text.index("memory of the whole process, at most") + 1] == "7.0 MB"


def test_values_are_short_and_have_units(tmp_path: Path) -> None:
    model = {"mean": [0.25] * 64, "size": [8, 8, 8], "theta": 10000.0}
    text = page_of(write_report(run_folder(tmp_path, lines_of(300), model=model))).text
    assert text[text.index("mean") + 1] == "64 × 0.25"
    assert text[text.index("size") + 1] == "[8, 8, 8]"
    assert text[text.index("theta") + 1] == "10,000"
    assert text[text.index("time") + 1] == "1 min 40 s"
    assert text[text.index("training loss") + 1] == "0.0166667 nats per token"


def test_a_name_breaks_no_word_and_a_matrix_scrolls_below_its_names(tmp_path: Path) -> None:
    """What pictures of a page at 400 pixels showed."""
    style = write_report(run_folder(tmp_path, lines_of(3))).read_text().split("</style>")[0]
    assert "td:first-child { overflow-wrap: break-word; }" in style
    assert ".matrix th:first-child {position: sticky;" in style
    assert "@media (max-width: 600px) {.matrix { font-size:" in style


def results_of(counts: list[list[int]]) -> dict[str, Any]:
    worst = WorstExamples(["cat", "<i>dog"])
    logits = np.array([[2.0, 0.0], [0.0, 2.0], [0.0, 4.0]])
    worst.add(np.zeros((3, 1, 4, 4), np.float32), logits, np.array([0, 0, 0]))
    return {"classes": {"cat": 0.5, "<i>dog": 1.0}, "confusion": counts, "worst": worst.to_list()}


def test_classes_and_the_worst_examples_are_on_the_page(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, lines_of(3), task="image")
    results = results_of([[1, 2], [0, 1400]])
    assert [each["item"] for each in results["worst"]] == [2, 1]
    (folder / "results.json").write_text(json.dumps(results))
    page = page_of(write_report(folder))
    for words in ("Classes", "<i>dog", "1,400", "33.3%", "cat, taken for <i>dog, 1.8%"):
        assert words in page.text, words
    (folder / "results.json").write_text('{"classes": ["cat"], "confusion": [[1, 2]], "worst": 3}')
    assert "Classes" not in page_of(write_report(folder)).text
    (folder / "results.json").write_text("{")
    with pytest.raises(FormatError, match=r"results\.json.*JSON"):
        write_report(folder)


def two_runs(folder: Path, **second: Any) -> tuple[Path, Path]:
    for name in ("a", "b"):
        (folder / name).mkdir()
    sample = [{"step": 3, "text": "once & twice"}]
    first = run_folder(folder / "a", lines_of(3), sample, options={"lr": 1e-3, "clip": 1.0})
    other = {"options": {"lr": 2e-3, "clip": 1.0, "text": "x" * 300}, **second}
    return first, run_folder(folder / "b", lines_of(5), **other)


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, second = two_runs(tmp_path)
    path = write_comparison(first, second)
    assert path == first / "comparison.html"
    text = page_of(path).text
    assert text[0] == "a and b"
    at = text.index("lr")
    assert text[at + 1 : at + 3] == ["0.001", "0.002"]
    assert "clip" not in text
    assert "1 are the same in both." in text
    assert "x" * 100 + " …" in text
    assert "once & twice" in text
    assert text[text.index("steps") + 1 :][:2] == ["3 of 200", "5 of 200"]
    assert text[text.index("training loss") + 1 :][:2] == [
        f"{5 / n:.6g} nats per token" for n in (3, 5)
    ]
    assert "training loss per token (nats)" in text
    assert path.read_text().count("<svg") >= 3


def test_runs_that_cannot_be_compared(tmp_path: Path) -> None:
    first, second = two_runs(tmp_path, task="image")
    with pytest.raises(FormatError, match="train-llm and image"):
        write_comparison(first, second)
    with pytest.raises(FormatError, match="another one than the first"):
        write_comparison(first, tmp_path / "b" / ".." / "a")
    (tmp_path / "c").mkdir()
    with pytest.raises(FormatError, match="c: holds no run"):
        write_comparison(first, tmp_path / "c")


def test_curves_of_a_folder_whose_name_is_not_unicode() -> None:
    curves = {ODD: [(1.0, 2.0), (2.0, 1.0)], "other": [(1.0, 3.0)]}
    assert ElementTree.fromstring(curves_svg(ODD, curves)).tag == f"{SVG}svg"
