# SPDX-License-Identifier: MIT
"""Rewrites CUDA's own syntax in a .cu or .cuh file for include/cuda_runtime.h.

    kernel<T><<<grid, block, shared, stream>>>(args);   a call of emu::launch with copies of args
    __shared__ float s[32];                             a reference into the block's shared memory
    extern __shared__ float s[];                        a pointer to its dynamic part
    asm("mma.sync... {%0}, {%1};" : "+r"(d) : "r"(a));  a call of emu::ptx with its operands
    __launch_bounds__(256) k(float * x) {  a body that begins with emu::bound(256)

Nothing else is touched, no line is added or removed.
"""

from __future__ import annotations

import re
import zlib

_OPEN = {"(": ")", "[": "]", "{": "}"}


def _closing(text: str, start: int) -> int:
    """The index of the bracket that closes the one at start."""
    close = _OPEN[text[start]]
    depth = 0
    for i in range(start, len(text)):
        if text[i] == text[start]:
            depth += 1
        elif text[i] == close:
            depth -= 1
            if depth == 0:
                return i
    raise ValueError(f"no {close} for {text[start : start + 40]!r}")


def _kernel_start(text: str, end: int) -> int:
    """Where the name of the kernel begins, template arguments included, that ends before end."""
    i = end
    while text[i - 1].isspace():
        i -= 1
    if text[i - 1] == ">":
        depth = 0
        while True:
            i -= 1
            if text[i] == ">":
                depth += 1
            elif text[i] == "<":
                depth -= 1
                if depth == 0:
                    break
    while text[i - 1].isalnum() or text[i - 1] in "_:":
        i -= 1
    return i


def _launches(text: str) -> str:
    while (at := text.find("<<<")) >= 0:
        start = _kernel_start(text, at)
        end_config = text.index(">>>", at)
        open_args = text.index("(", end_config)
        close_args = _closing(text, open_args)
        kernel = text[start:at].strip()
        config = text[at + 3 : end_config]
        args = text[open_args : close_args + 1]
        name = " ".join(kernel.split()).replace('"', "'")
        inner = f", {args[1:-1]}" if args[1:-1].strip() else ""
        call = f"[=](auto... emu_args) {{ {kernel}(emu_args...); }}"
        new = f'::emu::launch("{name}", ::emu::launch_config({config}), {call}{inner})'
        gap = text[end_config + 3 : open_args].count("\n")
        text = text[:start] + new + "\n" * gap + text[close_args + 1 :]
    return text


_ASM = re.compile(r"\basm\s*(?:volatile\s*)?\(")
_STRING = re.compile(r'\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
_OPERAND = re.compile(r'\s*"[=+]?[a-z]"\s*(?=\()')
_COMMA = re.compile(r"\s*,")


def _operands(text: str, at: int) -> tuple[list[str], int]:
    """The expressions of a list of operands, and where it ends."""
    found = []
    while match := _OPERAND.match(text, at):
        end = _closing(text, match.end())
        found.append(text[match.end() + 1 : end])
        at = end + 1
        if match := _COMMA.match(text, at):
            at = match.end()
    return found, at


def _asm(text: str) -> str:
    """Inline PTX; what is not of this form, such as AMD's, is left for the preprocessor to drop."""
    at = 0
    while match := _ASM.search(text, at):
        end = _closing(text, match.end() - 1)
        at = end
        template = _STRING.match(text, match.end())
        if not template:
            continue
        operands: list[list[str]] = []
        place = template.end()
        while place < end and text[place] == ":":
            found, place = _operands(text, place + 1)
            operands.append(found)
            place += len(text[place:end]) - len(text[place:end].lstrip())
        if place != end or len(operands) > 2:
            continue
        outputs, inputs = [*operands, [], []][:2]
        outs = ", ".join(f"::emu::ptx_out({x})" for x in outputs)
        ins = ", ".join(f"::emu::ptx_in({x})" for x in inputs)
        old = text[match.start() : end]
        new = f"::emu::ptx({template[1].rstrip()}, {{ {outs} }}, {{ {ins} }}"
        new += ("\\\n" if "\\\n" in old else "\n") * (old.count("\n") - new.count("\n")) + ")"
        text = text[: match.start()] + new + text[end + 1 :]
        at = match.start() + len(new)
    return text


def _bounds(text: str) -> str:
    """What a launch may have in threads is looked at by the kernel itself."""
    at = 0
    while (at := text.find("__launch_bounds__(", at)) >= 0:
        open_bounds = text.index("(", at)
        at = _closing(text, open_bounds)
        most = f"::emu::bound_of({text[open_bounds + 1 : at]})"
        body = _closing(text, text.index("(", at)) + 1
        body += len(text[body:]) - len(text[body:].lstrip())
        if text[body] == "{":
            text = f"{text[:body]}{{ ::emu::bound({most});{text[body + 1 :]}"
    return text


_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:__align__\(\w+\)\s+)?([\w:]+(?:\s*\*)?)\s+(\w+)\s*\[\s*\]\s*;"
)
_STATIC = re.compile(
    r"__shared__\s+(?:__align__\(\w+\)\s+)?((?:const\s+|typename\s+)?[\w:]+(?:<[^;=]*?>)?)\s+(\w[^;]*);"
)


def _shared(text: str, name: str) -> str:
    text = _DYNAMIC.sub(r"\1 * \2 = (\1 *) ::emu::dynamic_shared();", text)
    key = zlib.crc32(name.encode()) & 0x7FFF

    def declare(match: re.Match[str]) -> str:
        nonlocal key
        kind, out = match[1], []
        for declarator in match[2].split(","):
            var, dims = re.fullmatch(r"\s*(\w+)\s*((?:\[[^\]]*\]\s*)*)", declarator, re.S).groups()
            key += 1
            alias = f"emu_shared_{var}"
            place = f'::emu::static_shared({key}, sizeof({alias}), alignof({kind}), "{var}")'
            out.append(f"typedef {kind} {alias} {dims}; {alias} & {var} = *({alias} *) {place};")
        return " ".join(out)

    key <<= 12
    return _STATIC.sub(declare, text)


def translate(text: str, name: str) -> str:
    """The text of the CUDA file `name` as C++."""
    return _shared(_launches(_bounds(_asm(text))), name)
