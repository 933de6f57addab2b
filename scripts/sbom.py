# SPDX-License-Identifier: MIT
"""Write the list of what a wheel contains (CycloneDX 1.6, JSON): the package, ggml and its patches.

The build installs it into the wheel's `.dist-info/sboms/` (PEP 770). It depends on name and version
and on the stamp of vendor/ggml alone: no time, no random number.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STAMP = ROOT / "vendor" / "ggml" / ".vendor-stamp.json"


# What ggml took from others: name, licence, notice, and the files that hold it.
PARTS = (
    (
        "FP16", "MIT", "Copyright (c) 2017 Facebook Inc. Copyright (c) 2017 Georgia Institute of"
        " Technology Copyright 2019 Google LLC", ["ggml-impl.h"],
    ),
    ("llamafile", "MIT", "Copyright 2024 Mozilla Foundation", ["ggml-cpu/llamafile/sgemm.cpp"]),
    (
        "YaRN", "MIT", "Copyright (c) 2023 Jeffrey Quesnelle and Bowen Peng",
        ["ggml-cpu/ops.cpp", "ggml-cuda/rope.cu", "ggml-metal/kernels/rope.metal"],
    ),
    ("Arm Optimized Routines", "MIT", "Copyright (c) 2019-2025, Arm Limited", ["ggml-cpu/vec.h"]),
    # For SVE alone: in the libraries of aarch64.
    ("OpenVINO", "Apache-2.0", "Copyright (C) 2018-2025 Intel Corporation", ["ggml-cpu/vec.h"]),
)  # fmt: skip


def sha256(digest: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digest}]


def package(name: str, version: str) -> str:
    """The package URL of a project on PyPI."""
    return f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{version}"


def expression(name: str) -> str:
    """The licences of a package of this project, as its metadata has them."""
    folder = ROOT / "packages" / name if "-" in name else ROOT
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'^license = "(.+)"', text, re.MULTILINE)[0]


def parts(name: str) -> list[dict[str, Any]]:
    """What ggml took from others in the package's libraries: the backend's that its name ends with.

    pyggml itself has the base's and the CPU's, and on macOS Metal's.
    """
    backend = name.partition("-")[2]
    folders = (f"ggml-{backend}/",) if backend else ("ggml-cpu/", "ggml-metal/", "ggml-impl.h")
    found = []
    for part, licence, notice, files in PARTS:
        if here := [file for file in files if file.startswith(folders)]:
            about = {"licenses": [{"license": {"id": licence}}], "copyright": notice}
            found.append(
                {"type": "library", "name": part, "description": f"in {', '.join(here)}", **about}
            )
    return found


def bill(name: str, version: str, stamp: dict[str, Any]) -> dict[str, Any]:
    """The list, of the package's name and version, and what vendor/ggml was made of."""
    source, ggml = stamp["pin"]["source"], stamp["pin"]["ggml"]
    ours = {
        "type": "library",
        "bom-ref": package(name, version),
        "name": name,
        "version": version,
        "purl": package(name, version),
        "licenses": [{"expression": expression(name)}],
    }
    # The archive that is pinned: ggml is a folder of it.
    archive = {
        "type": "file",
        "name": source["file"],
        "version": source["version"],
        "purl": f"{package(source['package'], source['version'])}?file_name={source['file']}",
        "hashes": sha256(source["sha256"]),
    }
    release = f"pkg:github/ggml-org/llama.cpp@{ggml['llama_cpp']}"
    patched = {
        "type": "library",
        "bom-ref": f"{release}#ggml",
        "name": "ggml",
        "version": ggml["version"],
        "description": f"ggml of llama.cpp {ggml['llama_cpp']}, patched",
        "purl": f"{release}#ggml",
        "licenses": [{"license": {"id": ggml["licence"]}}],
        "pedigree": {
            "ancestors": [archive],
            "patches": [
                {"type": "unofficial", "diff": {"url": f"patches/{name}"}}
                for name in sorted(stamp["patches"])
            ],
            "notes": f"{len(stamp['patches'])} patches, applied in the order of their numbers",
        },
        "components": parts(name)
        + [
            {"type": "file", "name": f"patches/{name}", "hashes": sha256(digest)}
            for name, digest in sorted(stamp["patches"].items())
        ],
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": ours},
        "components": [patched],
        "dependencies": [
            {"ref": ours["bom-ref"], "dependsOn": [patched["bom-ref"]]},
            {"ref": patched["bom-ref"]},
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", help="of the package, such as pyggml")
    parser.add_argument("version", help="of the package")
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    found = bill(args.name, args.version, json.loads(STAMP.read_text(encoding="utf-8")))
    args.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
