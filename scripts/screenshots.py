# SPDX-License-Identifier: MIT
"""Take the pictures of reports and of a notebook's bar that the docs show: docs/images/*.webp.

    python scripts/screenshots.py                       # trains four small models first
    python scripts/screenshots.py --folder DIR          # all pictures and pages go there, as PNG
    python scripts/screenshots.py --folder DIR --pages  # pictures of the pages that are there

Each page is shown whole, at 400 and 1,400 pixels, light and dark. Needs a headless Chromium
(`chromium`, or the program that CHROMIUM names), the extras demos and notebooks, and nbconvert.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTHS = {"phone": 400, "desk": 1400}
# Pages, and the themes that each of their files is shown in.
PAGES = {
    "report-text": ("light", "dark"),
    "report-images": ("light", "dark"),
    "comparison": ("light", "dark"),
    "notebook-light": ("light",),
    "notebook-dark": ("dark",),
}
# The pictures in the docs.
SHOWN = (
    "report-text-desk-light", "report-text-phone-dark",
    "report-images-desk-dark", "report-images-phone-light",
    "comparison-desk-light", "comparison-phone-dark",
    "notebook-desk-light", "notebook-desk-dark", "notebook-phone-light", "notebook-phone-dark",
)  # fmt: skip
# The cells of the notebook whose bar is shown.
CELLS = (
    """import pyggml as pg
from pyggml.data import ArrayDataset
from pyggml.models import MLP, MLPConfig
from pyggml.train import Trainer
from sklearn.datasets import load_breast_cancer

pg.seed(0)
train, test = ArrayDataset(*load_breast_cancer(return_X_y=True)).split(0.2)
model = MLP(MLPConfig.of(train, hidden=(256,), dropout=0.2))
trainer = Trainer(model, train, test, batch_size=32, steps=400, lr=3e-3)
trainer.fit()""",
)
# A frame is as narrow as a phone, as a window is not; the page's height is its own attribute.
_FRAME = """<!DOCTYPE html><meta name="color-scheme" content="light dark">
<body style="margin:0"><iframe style="border:0;display:block;width:{width}px;height:{height}px"
 onload="this.dataset.height = this.contentDocument.documentElement.scrollHeight"
 srcdoc="{page}"></iframe>"""
# Chromium takes away from a window what its bars would need, and makes none below 500 pixels.
_BARS, _NARROWEST = 200, 500
_COLOURS = 128


def browser() -> str:
    """Return the program of Chromium."""
    names = [os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit("screenshots: Chromium must be there; install it, or set CHROMIUM to it")
    return found


def take(program: str, page: Path, picture: Path, width: int, theme: str) -> None:
    """Write a picture of a whole page."""
    with tempfile.TemporaryDirectory() as folder:

        def show(height: int, *options: str) -> str:
            frame = Path(folder) / "frame.html"
            text = html.escape(page.read_text("utf-8"))
            frame.write_text(_FRAME.format(width=width, height=height, page=text), "utf-8")
            size = f"{max(width, _NARROWEST)},{height + _BARS}"
            command = [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                f"--user-data-dir={folder}/profile", f"--window-size={size}",
                f"--blink-settings=preferredColorScheme={int(theme == 'light')}",
                *options, frame.as_uri(),
            ]  # fmt: skip
            return subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=180
            ).stdout

        found = re.search(r'data-height="(\d+)"', show(100, "--dump-dom"))
        if found is None:
            raise SystemExit(f"screenshots: {page}: the browser told no height of the page")
        height = int(found[1])
        whole = Path(folder) / "whole.png"
        show(height, f"--screenshot={whole}")
        with Image.open(whole) as image:
            shown = image.convert("RGB").crop((0, 0, width, height))
        few = shown.quantize(_COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        few.convert("RGB").save(picture, lossless=True, method=6, quality=100, optimize=True)


def make_pages(folder: Path) -> None:
    """Train a language model and two classifiers of digits, and write their pages."""
    from pyggml.recipes import train_image, train_llm, write_comparison, write_report

    os.chdir(folder)  # a page shows the folder of its run
    runs = {name: Path("artifacts") / name for name in ("text", "mlp", "cnn")}
    train_llm(preset="tiny", steps=200, sample_every=100, artifact_dir=runs["text"])
    for model in ("mlp", "cnn"):
        train_image(data="digits", model=model, epochs=12, artifact_dir=runs[model])
    write_report(runs["text"], folder / "report-text.html")
    write_report(runs["cnn"], folder / "report-images.html")
    write_comparison(runs["mlp"], runs["cnn"], folder / "comparison.html")
    run_notebook(folder)


def run_notebook(folder: Path) -> None:
    """Run a notebook that trains, and write its page in both themes."""
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    for theme in ("light", "dark"):
        page = HTMLExporter(theme=theme).from_notebook_node(book)[0]
        (folder / f"notebook-{theme}.html").write_text(page, "utf-8")


def main() -> int:
    """Take the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="of the pictures and pages")
    parser.add_argument("--pages", action="store_true", help="the pages are in DIR: train nothing")
    args = parser.parse_args()
    program = browser()
    # A number that is given, so that no page speaks of other programs that use the cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) if args.folder is None else args.folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if not args.pages:
            make_pages(folder)
        for page, themes in PAGES.items():
            for width, pixels in WIDTHS.items():
                for theme in themes:
                    name = f"{page.removesuffix('-' + theme)}-{width}-{theme}"
                    if args.folder is not None:
                        picture = folder / f"{name}.png"
                    elif name in SHOWN:
                        picture = IMAGES / f"{name}.webp"
                    else:
                        continue
                    take(program, folder / f"{page}.html", picture, pixels, theme)
                    print(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
