# SPDX-License-Identifier: MIT
"""Take the pictures of reports and of a notebook's bar that the docs show: docs/images/*.png.

    python scripts/screenshots.py                     # trains three small models first
    python scripts/screenshots.py --folder DIR        # every width and theme, to look at

Needs a headless Chromium (`chromium`, or the program that CHROMIUM names), the extras demos and
notebooks, and nbconvert.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTHS = {"phone": 400, "desk": 1400}
# What the docs show: the page, the width, the theme, and the height of the picture.
SHOWN = {
    "report-light.png": ("report", "desk", "light", 1000),
    "report-dark.png": ("report", "desk", "dark", 1000),
    "report-phone-light.png": ("report", "phone", "light", 1000),
    "report-phone-dark.png": ("report", "phone", "dark", 1000),
    "comparison.png": ("comparison", "desk", "light", 1000),
    "notebook-light.png": ("notebook-light", "desk", "light", 560),
    "notebook-dark.png": ("notebook-dark", "desk", "dark", 560),
    "notebook-phone-light.png": ("notebook-light", "phone", "light", 700),
    "notebook-phone-dark.png": ("notebook-dark", "phone", "dark", 700),
}
# The cells of the notebook whose bar is shown.
CELLS = (
    """import pyggml as pg
from pyggml.data import ArrayDataset
from pyggml.models import MLP, MLPConfig
from pyggml.train import Trainer
from sklearn.datasets import load_digits

pg.seed(0)
train, test = ArrayDataset(*load_digits(return_X_y=True)).split(0.2)
model = MLP(MLPConfig.of(train, hidden=(256,), dropout=0.2))
trainer = Trainer(model, train, test, batch_size=32, steps=400, lr=3e-3)
trainer.fit()""",
)
_LONGEST = 4000


def browser() -> str:
    """Return the program of Chromium."""
    names = [os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit("screenshots: Chromium must be there; install it, or set CHROMIUM to it")
    return found


def take(program: str, page: Path, picture: Path, width: int, height: int, theme: str) -> None:
    """Write a picture of a page."""
    scheme = ["--blink-settings=preferredColorScheme=0"] if theme == "dark" else []
    # Chromium makes no window narrower than 500 pixels: a frame is as narrow as a phone.
    with tempfile.TemporaryDirectory() as folder:
        frame = Path(folder) / "frame.html"
        frame.write_text(
            f'<body style="margin:0"><iframe src="{page.resolve().as_uri()}" '
            f'style="border:0;width:{width}px;height:{height}px"></iframe>'
        )
        shown = frame if width < 500 else page.resolve()
        subprocess.run(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                f"--user-data-dir={folder}/profile", f"--window-size={width},{height}",
                f"--screenshot={picture}", *scheme, shown.as_uri(),
            ],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip


def runs(folder: Path) -> list[Path]:
    """Train two classifiers of digits, and return their folders."""
    from pyggml.recipes import train_image

    found = []
    for name, model, epochs in (("mlp", "mlp", 12), ("cnn", "cnn", 12)):
        train_image(data="digits", model=model, epochs=epochs, artifact_dir=folder / name)
        found.append(folder / name)
    return found


def notebook(folder: Path) -> dict[str, Path]:
    """Run a notebook that trains, and return its page in both themes."""
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    found = {}
    for theme in ("light", "dark"):
        exporter = HTMLExporter(theme=theme)
        found[f"notebook-{theme}"] = page = folder / f"notebook-{theme}.html"
        page.write_text(exporter.from_notebook_node(book)[0], encoding="utf-8")
    return found


def main() -> int:
    """Take the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="every width and theme, here")
    args = parser.parse_args()
    program = browser()
    with tempfile.TemporaryDirectory() as place:
        from pyggml.recipes import write_comparison, write_report

        first, second = runs(Path(place))
        pages = {
            "report": write_report(second),
            "comparison": write_comparison(first, second),
            **notebook(Path(place)),
        }
        if args.folder is None:
            for name, (page, width, theme, height) in SHOWN.items():
                take(program, pages[page], IMAGES / name, WIDTHS[width], height, theme)
                print(IMAGES / name)
            return 0
        args.folder.mkdir(parents=True, exist_ok=True)
        for page, file in pages.items():
            for width, pixels in WIDTHS.items():
                for theme in (page.rpartition("-")[2],) if "-" in page else ("light", "dark"):
                    picture = args.folder.resolve() / f"{page}-{width}-{theme}.png"
                    take(program, file, picture, pixels, _LONGEST, theme)
                    print(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
