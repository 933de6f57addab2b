# SPDX-License-Identifier: MIT
"""demos/README.md: every demo with what it says of itself and what it printed here.

    python scripts/gen_demos_readme.py [NAME ...]

Runs the demos, all of them or those named, and writes the page; the others keep their output.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEMOS = ROOT / "demos"
PAGE = DEMOS / "README.md"
# From the simple to the involved, as they are best read.
ORDER = [
    "simple_mlp",
    "enhanced_mlp",
    "test_opt",
    "gpu_neural",
    "custom_op",
    "lr_finder",
    "train_image",
    "simple_gpt2_train",
    "train_text_generation",
    "gpt2_train",
    "baby_llama",
    "finetune_bert",
    "t5_denoise",
]
HEAD = """# Demos

Each demo is one file of fewer than 120 lines; read it from top to bottom. It takes
less than half a minute of one core and needs no network. It prints `OK` and its result; if the
result is not good enough, it prints the reason and exits with 1.

```sh
pip install ".[demos]"
python demos/simple_mlp.py --plot loss.png    # --plot draws the curve, --seed changes the start
pyggml demo                                   # lists them, also without the source folder
pyggml demo baby_llama --plot waves.png
```

The output of each demo is below, written by `scripts/gen_demos_readme.py`. Seconds are CPU time,
imports included. `pytest tests/test_demos.py` runs each demo and compares.
"""


def parts(path: Path) -> tuple[str, str]:
    """First line of a demo's docstring, and the rest without the command."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first, _, rest = text.partition("\n")
    paragraphs = [p.strip("\n") for p in re.split(r"\n[ ]*\n", rest) if p.strip()]
    return first, "\n\n".join(p for p in paragraphs if not p.startswith("    "))


def outputs() -> dict[str, str]:
    """What the page says that each demo printed."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    found = re.findall(r"^## (\w+)\.py\n.*?```text\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    return dict(found)


def run(name: str) -> str:
    """What a demo prints; it must end well."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [sys.executable, str(DEMOS / f"{name}.py")],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env=environment,
    )
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stdout}{done.stderr}")
    # What a model writes may hold anything; a page shall not.
    return re.sub(r"[^\S\n]+\n", "\n", done.stdout.replace("```", "'''"))


def page(printed: dict[str, str]) -> str:
    """The page."""
    rows = [f"| [`{name}.py`](#{name}py) | {parts(DEMOS / f'{name}.py')[0]} |" for name in ORDER]
    sections = []
    for name in ORDER:
        first, rest = parts(DEMOS / f"{name}.py")
        sections.append(f"## {name}.py\n\n{first}\n\n{rest}\n\n```text\n{printed[name]}```\n")
    return "\n".join([HEAD, "| | |\n|---|---|", *rows, "", *sections])


def main() -> None:
    parser = argparse.ArgumentParser(description="Write demos/README.md.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="demos to run; all by default")
    names = parser.parse_args().names or ORDER
    unknown = sorted(set(names) - set(ORDER))
    if unknown:
        sys.exit(f"no such demo: {', '.join(unknown)}")
    printed = outputs()
    for name in names:
        print(name, flush=True)
        printed[name] = run(name)
    PAGE.write_text(page(printed), encoding="utf-8")


if __name__ == "__main__":
    main()
