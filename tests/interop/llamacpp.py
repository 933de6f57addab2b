# SPDX-License-Identifier: MIT
"""A real llama.cpp, in a process of its own: `ask` starts one, sends requests, reads answers."""

import importlib.util
import json
import os
import subprocess
import sys
import urllib.request

HERE = importlib.util.find_spec("xllamacpp") is not None


def ask(model, requests, context=256, embedding=False, adapter=None):
    """Load a GGUF file, and an adapter's, and post each (path, body) to the server.

    Returns the answers.
    """
    job = {"model": str(model), "requests": requests, "context": context, "embedding": embedding}
    job = json.dumps({**job, "adapter": adapter and str(adapter)})
    worker = [sys.executable, __file__]
    done = subprocess.run(
        worker,
        input=job,
        # or an abort starts a debugger, which takes ten seconds
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith("ANSWERS "):
            return json.loads(line.removeprefix("ANSWERS "))
    raise AssertionError(
        f"llama.cpp gave no answer (exit {done.returncode}):\n{done.stderr[-4000:]}"
    )


def tokenize(text):
    """Return the request that tokenizes a text."""
    return "/tokenize", {"content": text, "add_special": False, "parse_special": False}


def complete(ids, count):
    """Return the request that continues tokens greedily."""
    return "/completion", {
        "prompt": [int(i) for i in ids],
        "n_predict": count,
        "temperature": 0,
        "samplers": ["temperature"],
        "repeat_penalty": 1.0,
        "ignore_eos": False,
        "cache_prompt": False,
        "return_tokens": True,
    }


def weigh(ids, count, letter):
    """Return the request for the log-probabilities of the token after `ids`, `count` of them.

    They are those before any bias; `letter` is a token of whole text to be chosen, since the
    server withholds the probabilities of others, such as half a character or the end.
    """
    path, body = complete(ids, 1)
    chosen = {"samplers": ["temperature"], "logit_bias": [[int(letter), 1000.0]]}
    return path, {**body, **chosen, "n_probs": count}


def embed(ids):
    """Return the request for a text's vector, as long as it comes."""
    return "/embedding", {"content": [int(i) for i in ids], "embd_normalize": -1}


def serve(model, context=256, embedding=False, adapter=None):
    """Start a server in this process."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = context
    params.n_parallel = 1
    params.embedding = embedding
    params.n_gpu_layers = 0
    params.warmup = False
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    # f32 throughout: half-precision keys and values would move near ties.
    params.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
    params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    if adapter:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(adapter, 1.0)]
    return xllamacpp.Server(params)


def post(server, path, body):
    """Return the server's answer to a request."""
    request = urllib.request.Request(
        server.listening_address + path,
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def main():
    """Answer the job on stdin."""
    job = json.load(sys.stdin)
    server = serve(job["model"], job["context"], job["embedding"], job["adapter"])
    answers = [post(server, path, body) for path, body in job["requests"]]
    print("ANSWERS " + json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
