# SPDX-License-Identifier: MIT
"""Make the pictures of the README: a training in the terminal, and speed beside others.

    python scripts/gen_readme_pictures.py            # both, into docs/images
    python scripts/gen_readme_pictures.py speed      # one of them

The training is real: `pyggml train-llm` runs in a terminal of 100 columns, and its last
screen becomes the picture. The figures of the chart are those of docs/guide/performance.md, Zen 5.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
COMMAND = (
    "train-llm --tokenizer chars --layers 2 --embd 96 --seq-len 64 --steps 600 --eval-every 100"
    " --eval-batches 16 --sample-tokens 240"
).split()
COLUMNS, ROWS = 100, 60

# GPT-2 124M, 4 × 256 tokens, two cores of a Zen 5, 2026-11-22: tokens per second and MiB, least and
# most of several runs.
SPEED = {
    "pyggml bf16": (734, 734),
    "torch.compile bf16": (500, 500),
    "pyggml f32": (449, 449),
    "JAX f32": (221, 227),
    "torch.compile f32": (186, 217),
    "PyTorch f32": (179, 179),
}
MEMORY = {
    "pyggml bf16": (2388, 2388),
    "torch.compile bf16": (3084, 3084),
    "pyggml f32": (2395, 2395),
    "JAX f32": (4088, 4088),
    "PyTorch f32": (3739, 3739),
}


def output_of(command: list[str], folder: str) -> bytes:
    """Return what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    if process.wait():
        sys.exit(f"{command} failed:\n{written.decode(errors='replace')}")
    return written


def screen_of(written: bytes) -> list[str]:
    """Return the lines of the screen, with their colours, after what a terminal was sent.

    It follows what rich sends: the cursor up, lines cleared, and modes, which are left out.
    """
    lines, row = [""], 0
    tokens = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r|\n|[^\x1b\r\n]+|\x1b.")
    for token in tokens.findall(written.decode(errors="replace")):
        if token == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif token == "\r":
            pass
        elif token.endswith("A") and token.startswith("\x1b["):
            row = max(0, row - int(token[2:-1] or 1))
        elif token == "\x1b[2K":
            lines[row] = ""
        elif not token.startswith("\x1b") or (token[1] == "[" and token[-1] == "m"):
            lines[row] += token
    return lines


def training() -> None:
    """Run a training and export the screen."""
    from rich.console import Console
    from rich.text import Text

    with tempfile.TemporaryDirectory() as folder:
        written = output_of([sys.executable, "-m", "pyggml", *COMMAND], folder)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ pyggml " + " ".join(COMMAND), style="bold"))
    for line in screen_of(written):
        console.print(Text.from_ansi(line.rstrip()))
    svg = console.export_svg(title="pyggml", unique_id="pyggml")
    # The reader's own fonts serve: nothing is loaded from elsewhere.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    (IMAGES / "training.svg").write_text(svg, encoding="utf-8")


def speed() -> None:
    """Draw speed and memory beside PyTorch and JAX."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "pyggml", "font.size": 10})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 2.9), layout="constrained")
    for ax, figures, title in (
        (axes[0], SPEED, "tokens per second (more is better)"),
        (axes[1], MEMORY, "peak memory, MiB (less is better)"),
    ):
        names, ranges = list(figures)[::-1], list(figures.values())[::-1]
        values = [high for _, high in ranges]
        labels = [f"{low:,}" if low == high else f"{low:,}–{high:,}" for low, high in ranges]
        colours = ["#d9480f" if name.startswith("pyggml") else "#8a94a6" for name in names]
        bars = ax.barh(names, values, color=colours)
        ax.bar_label(bars, labels, padding=3)
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_xlim(0, max(values) * 1.17)
        ax.spines[["top", "right", "bottom"]].set_visible(False)
        ax.xaxis.set_visible(False)
    figure.suptitle("A training step of GPT-2 124M on two cores (Zen 5)", fontsize=11)
    figure.savefig(IMAGES / "speed.svg", metadata={"Date": None}, facecolor="white")


def main() -> int:
    """Make the pictures that are named, or all."""
    makers = {"training": training, "speed": speed}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pictures", nargs="*", choices=[*makers, []], help="all when none is named")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in parser.parse_args().pictures or makers:
        makers[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
