# SPDX-License-Identifier: MIT
"""Random valid configurations of the models that llama.cpp has too."""

FAMILIES = (
    *("llama", "qwen2", "qwen3", "gemma", "qwen2moe", "qwen3moe", "gemma2", "gemma3", "phi3"),
    *("olmo2", "granite", "smollm3", "starcoder2", "stablelm", "gpt-oss", "phi2"),
)
TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q5_1")


def draw(rng):
    """Return an architecture, a configuration without the vocabulary's size, and a type."""
    arch = str(rng.choice(["gpt2", "t5", "llm", *["llama"] * 12]))
    dtype = str(rng.choice(TYPES)) if rng.random() < 0.5 else "f32"
    head = int(rng.choice([8, 16, 32]))
    heads = int(rng.choice([1, 2, 4, 6]))
    sizes = {
        "context": int(rng.choice([64, 96, 256])),
        "n_embd": head * heads,
        "n_head": heads,
        "n_layer": int(rng.integers(1, 4)),
    }
    if rng.random() < 0.5:
        sizes["n_ffn"] = int(rng.choice([32, 48, 96, 128]))
    if rng.random() < 0.7:
        sizes["tie"] = bool(rng.random() < 0.5)
    if arch == "gpt2":
        return arch, {**sizes, "bias": bool(rng.random() < 0.7)}, dtype
    if arch == "t5":
        more = {"gated": bool(rng.random() < 0.5), "n_decoder": int(rng.integers(1, 4))}
        return arch, {**sizes, **more, "n_head_dim": head, "dropout": 0.0}, dtype
    sizes["n_kv_head"] = int(rng.choice([n for n in (1, 2, 3, 6) if heads % n == 0]))
    if rng.random() < 0.3:
        sizes["n_head_dim"] = int(rng.choice([8, 16, 64]))
    if rng.random() < 0.4:
        sizes["rope_scaling"] = _stretched(rng)
    if rng.random() < 0.2:
        sizes["window"] = int(rng.choice([8, 64, 512]))
    if arch == "llm":
        return arch, sizes, dtype
    sizes["family"] = family = str(rng.choice(FAMILIES))
    if family.startswith("gemma"):
        sizes["tie"] = True
    if family == "phi2":
        sizes["tie"] = False
    if family in ("phi2", "phi3", "olmo2", "granite", "starcoder2", "stablelm"):
        sizes.pop("n_head_dim", None)
    if family in ("llama", "granite", "smollm3") and rng.random() < 0.3:
        sizes["attention_bias"] = True
    biased = family in ("llama", "granite", "smollm3") and rng.random() < 0.3
    if family == "gpt-oss" or family.endswith("moe") or (family == "llama" and rng.random() < 0.4):
        sizes["n_expert"] = int(rng.integers(1, 7))
        sizes["n_expert_used"] = int(rng.integers(1, sizes["n_expert"] + 1))
        if family != "llama" and rng.random() < 0.6:
            sizes["n_expert_ffn"] = int(rng.choice([32, 64]))
        if family == "qwen2moe" and rng.random() < 0.6:
            sizes["n_shared_ffn"] = int(rng.choice([32, 64]))
    elif biased:
        sizes["mlp_bias"] = True
    return arch, sizes, dtype


def _stretched(rng):
    kind = str(rng.choice(["linear", "dynamic", "llama3", "yarn"]))
    more = {}
    if kind == "yarn" and rng.random() < 0.5:
        more = {"beta_fast": 16.0, "beta_slow": float(rng.choice([1.0, 2.0]))}
    if kind == "yarn" and rng.random() < 0.5:
        more["attention"] = 1.0
    return {"kind": kind, "factor": float(rng.choice([2.0, 4.0])), "original": 32, **more}
