# SPDX-License-Identifier: MIT
"""llama.cpp's C interface in the xllamacpp wheel: loads a file and gives logits in milliseconds.

`answers` starts one process for many files; in it each file has a fork of its own, so that an
abort of llama.cpp is an answer too.
"""

import ctypes
import json
import os
import subprocess
import sys
from ctypes import c_bool, c_float, c_int32, c_size_t, c_uint32, c_void_p

from . import llamacpp

HERE = llamacpp.HERE and hasattr(os, "fork")

# include/llama.h of the build that vendor/ggml.toml names.
_PARAMS = [
    *[("devices", c_void_p), ("overrides", c_void_p), ("n_gpu_layers", c_int32)],
    *[("split_mode", c_int32), ("load_mode", c_int32), ("lazy_mode", c_int32)],
    *[("main_gpu", c_int32), ("tensor_split", c_void_p), ("progress", c_void_p)],
    *[("progress_data", c_void_p), ("kv_overrides", c_void_p)],
    *[
        (name, c_bool)
        for name in "vocab_only check_tensors extra_bufts no_host no_alloc mtp".split()
    ],
]
_CONTEXT = [
    *[(name, c_uint32) for name in "n_ctx n_batch n_ubatch n_seq_max n_rs n_out n_out_seq".split()],
    *[(name, c_int32) for name in "n_threads n_threads_batch ctx_type rope pooling".split()],
    *[(name, c_int32) for name in "attention flash".split()],
    *[(name, c_float) for name in "base scale ext attn fast slow".split()],
    *[("orig", c_uint32), ("defrag", c_float), ("cb", c_void_p), ("cb_data", c_void_p)],
    *[("type_k", c_int32), ("type_v", c_int32), ("moe_cache", c_size_t)],
    *[("abort", c_void_p), ("abort_data", c_void_p)],
    *[(name, c_bool) for name in "embeddings offload no_perf op_offload swa_full unified".split()],
    *[("samplers", c_void_p), ("n_samplers", c_size_t), ("other", c_void_p)],
]
_BATCH = [
    *[("n_tokens", c_int32), ("token", c_void_p), ("embd", c_void_p), ("pos", c_void_p)],
    *[("n_seq", c_void_p), ("seq", c_void_p), ("logits", c_void_p)],
]


def _struct(fields):
    return type("Struct", (ctypes.Structure,), {"_fields_": fields})


_Params, _Context, _Batch = _struct(_PARAMS), _struct(_CONTEXT), _struct(_BATCH)
_Log = ctypes.CFUNCTYPE(None, c_int32, ctypes.c_char_p, c_void_p)


def answers(jobs):
    """Return what llama.cpp says of each (path, ids): {"logits": [...]} or {"refused": reason}.

    With ids None the file is loaded, and no more.
    """
    asked = [[str(path), None if ids is None else [int(i) for i in ids]] for path, ids in jobs]
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(asked),
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
        cwd=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def library(file=None):
    """The wheel's library, or a libllama.so, with the types of what is called."""
    if file is None:
        import xllamacpp.xllamacpp as module

        file = module.__file__
    lib = ctypes.CDLL(file)
    lib.llama_model_default_params.restype = _Params
    lib.llama_context_default_params.restype = _Context
    lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, _Params]
    lib.llama_init_from_model.argtypes = [c_void_p, _Context]
    for name in "model_load_from_file init_from_model model_get_vocab get_memory".split():
        getattr(lib, f"llama_{name}").restype = c_void_p
    lib.llama_get_memory.argtypes = [c_void_p]
    lib.llama_memory_clear.argtypes = [c_void_p, c_bool]
    for name in ("llama_decode", "llama_encode"):
        getattr(lib, name).argtypes = [c_void_p, _Batch]
    lib.llama_batch_get_one.argtypes = [c_void_p, c_int32]
    lib.llama_batch_get_one.restype = _Batch
    lib.llama_get_logits_ith.argtypes = [c_void_p, c_int32]
    lib.llama_get_logits_ith.restype = ctypes.POINTER(c_float)
    for name in ("has_encoder", "decoder_start_token", "get_vocab"):
        getattr(lib, f"llama_model_{name}").argtypes = [c_void_p]
    lib.llama_model_has_encoder.restype = c_bool
    lib.llama_vocab_n_tokens.argtypes = [c_void_p]
    return lib


def begin(lib, said):
    """Start the library; what it logs goes to a list. Keep the result as long as it runs."""
    log = _Log(lambda level, text, data: said.append(text.decode("utf-8", "replace")))
    lib.llama_log_set(log, None)
    lib.llama_backend_init()
    return log


def _logits(lib, path, ids):
    """The logits after ids, or the reason why there are none."""
    said = []
    log = begin(lib, said)  # noqa: F841
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(path.encode(), params)
    reasons = lambda: "".join(t for t in said if "rror" in t or "fail" in t)[-600:]  # noqa: E731
    if not model:
        return {"refused": reasons()}
    if ids is None:
        return {"logits": []}
    settings = lib.llama_context_default_params()
    settings.n_ctx, settings.n_seq_max = 1024, 1
    settings.n_threads = settings.n_threads_batch = 1
    settings.type_k = settings.type_v = 0  # f32: half-precision keys would move near ties
    settings.flash = 0
    context = lib.llama_init_from_model(model, settings)
    if not context:
        return {"refused": reasons()}

    def run(how, tokens):
        kept = (c_int32 * len(tokens))(*tokens)
        return how(context, lib.llama_batch_get_one(ctypes.addressof(kept), len(tokens)))

    if lib.llama_model_has_encoder(model):
        failed = run(lib.llama_encode, ids)
        failed = failed or run(lib.llama_decode, [lib.llama_model_decoder_start_token(model)])
    else:
        failed = run(lib.llama_decode, ids)
    if failed:
        return {"refused": f"decoding: {failed} {reasons()}"}
    size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    found = lib.llama_get_logits_ith(context, -1)
    return {"logits": [found[i] for i in range(size)]}


def main():
    """Answer the jobs on stdin, a line of JSON each."""
    jobs = json.load(sys.stdin)
    lib = library()
    for path, ids in jobs:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            with os.fdopen(writer, "w") as file:
                json.dump(_logits(lib, path, ids), file)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as file:
            text = file.read()
        _, status = os.waitpid(child, 0)
        if status:
            text = json.dumps({"refused": f"llama.cpp ended with status {status}"})
        print(text, flush=True)


if __name__ == "__main__":
    main()
