# SPDX-License-Identifier: MIT
"""Write docs/reference/options.md from the options of the recipes.

python scripts/gen_options_doc.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from generated_page import ROOT, write_or_check

from pyggml.options import Option, options_of
from pyggml.recipes import Configuration, FinetuneConfig, ImageConfig, LLMConfig
from pyggml.train.options import NAMED_SCHEDULE

PAGE = ROOT / "docs" / "reference" / "options.md"

_HEAD = """\
<!-- Written by scripts/gen_options_doc.py (`just options-doc`); a test compares. Don't edit. -->

# Options

This page lists every option of a training. An option has the same name on the command line, in
Python and in configuration files:

```bash
pyggml train-llm --text notes/ --preset tiny --steps 200
```

In Python this is `pyggml.recipes.train_llm(text="notes/", preset="tiny", steps=200)`; in a file for
`--config`:

```toml
[data]          # train-llm --config run.toml; the tables of the parts may be left out
text = ["notes/"]

[model]
preset = "tiny"

[trainer]
steps = 200
```

A flag has dashes in place of underscores. A switch has two flags, such as `--keep-best` and
`--no-keep-best`. To give a list, repeat the flag; to give a table, repeat it with NAME=VALUE. In
Python a `Trainer` takes the options of the part *trainer* as keywords.

An option that nothing would read raises an error: "needs" in the tables tells what must be there
for an option to be read.

On `--resume`, options marked *kept* cannot change. Options marked *noted* can change; the run then
prints that its rest differs from an uninterrupted run.
"""
_TITLES = {
    LLMConfig: (
        "Language models",
        "`pyggml train-llm`, `pyggml.recipes.train_llm`, `pyggml.recipes.LLMConfig`",
    ),
    FinetuneConfig: (
        "Fine-tuning",
        "`pyggml finetune`, `pyggml.recipes.finetune`, `pyggml.recipes.FinetuneConfig`",
    ),
    ImageConfig: (
        "Images",
        "`pyggml train-image`, `pyggml.recipes.train_image`, `pyggml.recipes.ImageConfig`",
    ),
}
_KINDS = {
    "switch": "switch",
    "whole": "whole number",
    "number": "number",
    "text": "text",
    "texts": "list of texts",
    "table": "table",
    "any": "text or number",
}
_ON_RESUME = {"same": "kept", "noted": "noted", "free": ""}


def _range(option: Option) -> str:
    """Return the bounds or the choices of an option."""
    if option.words and option.kind == "text":
        words = sorted(option.words) if callable(option.choices) else option.words
        return ", ".join(words)
    bounds = ((">", option.above), ("≥", option.least), ("<", option.below), ("≤", option.most))
    found = " and ".join(f"{sign} {bound}" for sign, bound in bounds if bound is not None)
    return " ".join(part for part in (found, option.unit) if part)


def _default(option: Option) -> str:
    """Return the default value, or words for what is chosen."""
    if option.is_required:
        return "required"
    value: Any = option.usual
    if value is None or (value == () and option.chosen):
        return option.chosen or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (tuple, list, dict)):
        return ", ".join(map(str, value)) or "none"
    return f"`{value}`" if value != "" else "empty"


def _needs(option: Option, known: Mapping[str, Option]) -> str:
    """Return what must be there for the option to be read, as a sentence for each value."""
    found: dict[str, list[str]] = {}
    # Recipes know schedules by name only.
    for each in (need for need in option.needs if need != NAMED_SCHEDULE):
        value, need = ("", each) if isinstance(each, str) else (f"`{each[0]}` ", each[1])
        found.setdefault(value, []).append(f"`{need}`" if need in known else need)
    told = (f"{value}needs {' and '.join(needs)}" for value, needs in found.items())
    return "".join(f" {each[0].upper()}{each[1:]}." for each in told)


def _line(option: Option, known: Mapping[str, Option]) -> str:
    flag = f"`--{(option.flag or option.name).replace('_', '-')}`"
    name = f"`{option.name}`" + (f" ({flag})" if option.flag else "")
    cells = (
        name,
        _KINDS[option.kind],
        _default(option),
        _range(option),
        option.help + _needs(option, known),
        _ON_RESUME[option.on_resume],
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _section(kind: type[Configuration], shared: dict[str, Option]) -> str:
    """Return the tables of a configuration, without the options that another page part has."""
    title, names = _TITLES[kind]
    parts = [f"\n## {title}\n\n{names}.\n"]
    own = kind.options()
    left = []
    for part, options in kind.parts().items():
        rows = [own[name] for name in options_of(options) if name in own]
        if shared:
            left += [each.name for each in rows if shared.get(each.name) == each]
            rows = [each for each in rows if shared.get(each.name) != each]
        if rows:
            parts.append(f"\n### {part}\n\n| option | kind | default | values | | on resume |\n")
            parts.append("|---|---|---|---|---|---|\n")
            parts += [_line(each, own) for each in rows]
    if left:
        listed = ", ".join(f"`{name}`" for name in left)
        parts.insert(1, f"\nThese options are those of language models: {listed}.\n")
    return "".join(parts)


def page() -> str:
    """Return the text of docs/reference/options.md."""
    llm = dict(LLMConfig.options())
    rest = (_section(kind, llm) for kind in (FinetuneConfig, ImageConfig))
    return "".join([_HEAD, _section(LLMConfig, {}), *rest])


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    return write_or_check(PAGE, page, "options-doc", __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
