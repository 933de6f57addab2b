# SPDX-License-Identifier: MIT
"""Inference: prompt and decode speed, load time and memory of pyggml and llama.cpp.

    python benchmarks/inference.py --library LLAMA_CPP/build/bin/libllama.so

A random Llama is written in each type. `--library` is a libllama built from the same sources with
native instructions; without it the wheel xllamacpp competes alone, whose build knows AVX2 only.
"same-kernels" is that library with the weights as the file has them: by default llama.cpp reorders
some quantised types at loading, for kernels of their own. All take turns; a table gives medians.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness import options, report
from harness.contenders import Contender, Field, interleave
from harness.contract import OK

PEERS = ("pyggml", "llama.cpp", "same-kernels", "xllamacpp")
TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "q4_K_M": "Q4_K_M"}
# Characters that the vocabulary is made of: CJK and Hangul, one after another.
_CHARACTERS = [*range(0x4E00, 0x9FA6), *range(0xAC00, 0xD7A4)]


def write_model(folder: Path, args: Any) -> Path:
    """Write the random model in f32."""
    import pyggml as pg
    from pyggml.data import Tokenizer
    from pyggml.models import build

    tokenizer = Tokenizer.chars(["".join(map(chr, _CHARACTERS[: args.vocab]))])
    pg.seed(0)
    sizes = {"n_layer": args.layers, "n_embd": args.embd, "n_head": args.heads}
    sizes |= {"n_kv_head": args.kv_heads, "vocab_size": tokenizer.vocab_size}
    path = folder / "f32.gguf"
    build("llama", {**sizes, "context": args.context, "tie": False}).save(path, tokenizer)
    return path


def measure(path: Path, args: Any) -> list[dict[str, Any]]:
    """Measure one file by all contenders, in turns."""
    order = {"path": str(path), "context": args.context, "library": args.library}
    natives = ("llama.cpp", "same-kernels")
    found = []
    with Field() as field:
        for peer in args.only:
            if peer not in natives or args.library:
                own_kernels = {"reorders": peer != "same-kernels"}
                library = "llama.cpp" if peer in natives else peer
                field.add(library, "infer", args.threads, peer, **order, **own_kernels)
        load = interleave(field.contenders, [{"do": "load"}] * args.loads)
        logits = interleave(field.contenders, [{"do": "logits", "ids": [1, 2, 3, 4, 5]}])
        some = {"vocab": args.vocab}
        prompt = {"do": "prompt", "tokens": args.prompt, **some}
        decode = {"do": "decode", "tokens": args.decode, "depth": args.depth, **some}
        interleave(field.contenders, [prompt, decode])  # records, and warms the caches
        turns = interleave(field.contenders, [prompt, decode] * args.rounds)
        for i, contender in enumerate(field.contenders):
            own: dict[str, Any] = {"peer": contender.name, "status": contender.status}
            if contender.status == OK:
                own |= _figures(contender, load[i], turns[i])
                own["difference"] = _difference(logits[i], logits[0])
            found.append(own)
    return found


def _figures(contender: Contender, load: list[Any], turns: list[Any]) -> dict[str, Any]:
    """Return the medians of a contender."""
    prompt, decode = turns[0::2], turns[1::2]

    def median(answers: list[Any], what: str) -> float:
        return statistics.median(answer[what] for answer in answers)

    return {
        "load_s": median(load, "seconds"),
        "first_s": median(load, "first"),
        "prompt_tokens_s": 1 / median(prompt, "seconds"),
        "prompt_cpu_ms": 1e3 * median(prompt, "cpu"),
        "decode_tokens_s": 1 / median(decode, "seconds"),
        "decode_cpu_ms": 1e3 * median(decode, "cpu"),
        "rss_mib": turns[-1]["rss_mib"],
        "import_mib": contender.started["import_mib"],
    }


def _difference(own: list[Any], first: list[Any]) -> float | None:
    """Return the largest difference of the logits from those of the first contender."""
    if not own or not first:
        return None
    return float(np.abs(np.subtract(own[0]["logits"], first[0]["logits"])).max())


def print_results(results: list[dict[str, Any]], args: Any) -> None:
    shape = f"{args.layers} layers of {args.embd}, vocabulary {args.vocab}"
    print(f"Llama, {shape}, {args.threads} threads; {report.machine()}")
    print(f"prompt {args.prompt}, decode {args.decode} after {args.depth}, rounds {args.rounds}\n")
    head = [
        *("type, library", "prompt/s", "CPU ms", "decode/s", "CPU ms", "load ms", "to 1st ms"),
        *("peak MiB", "difference"),
    ]
    rows = []
    for r in results:
        name = f"{r['type']} {r['peer']}"
        if r["status"] != OK:
            rows.append([name, r["status"]])
            continue
        figures = [
            *(report.number(r["prompt_tokens_s"]), report.number(r["prompt_cpu_ms"], 2)),
            *(report.number(r["decode_tokens_s"]), report.number(r["decode_cpu_ms"], 2)),
            *(report.number(1e3 * r["load_s"], 0), report.number(1e3 * r["first_s"], 0)),
            report.number(r["rss_mib"], 0),
        ]
        rows.append([name, *figures, f"{r['difference']:.1e}"])
    report.print_table(head, rows)


def parse() -> Any:
    parser = options.parser(__doc__.splitlines()[0])
    for name, default, what in (
        ("layers", 12, "blocks"),
        ("embd", 768, "width of the stream"),
        ("heads", 12, "attention heads"),
        ("kv-heads", 12, "key-value heads"),
        ("vocab", 32000, "tokens of the vocabulary, at most 32000"),
        ("context", 1024, "tokens of the cache"),
        ("prompt", 512, "tokens of the prompt"),
        ("decode", 128, "tokens that are read one by one"),
        ("rounds", 5, "turns of each"),
        ("loads", 3, "times that each loads the file"),
    ):
        parser.add_argument(
            f"--{name}", type=options.positive, default=default, metavar="N", help=what
        )
    parser.add_argument("--depth", type=int, default=0, help="tokens read before the decoded (0)")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=["f16", "q8_0", "q4_K_M"])
    parser.add_argument("--library", metavar="FILE", help="a libllama.so of the same sources")
    options.add_threads(parser)
    options.add_only(parser, PEERS)
    args = parser.parse_args()
    options.check_threads(parser, args.threads)
    if args.vocab > 32000:
        parser.error(f"argument --vocab: must be at most 32000; got {args.vocab}")
    if max(args.prompt, args.depth + args.decode) > args.context:
        parser.error("argument --context: must hold --prompt, and --depth with --decode")
    if args.library and not Path(args.library).is_file():
        parser.error(f"argument --library: no such file: {args.library}")
    return args


def main() -> int:
    args = parse()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        plain = write_model(Path(folder), args)
        for name in args.types:
            path = Path(folder) / f"{name}.gguf"
            if name != "f32":
                from pyggml.models.quantization import quantize_gguf

                quantize_gguf(plain, path, TYPES[name])
            found = [{"type": name, **r} for r in measure(path, args)]
            if args.json:
                report.print_json(found)
            results += found
    if not args.json:
        print_results(results, args)
    return 0 if any(r["status"] == OK for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
