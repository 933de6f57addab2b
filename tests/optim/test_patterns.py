# SPDX-License-Identifier: MIT
import re

import pytest

from pyggml import nn
from pyggml.models import GPT2, GPT2Config, build
from pyggml.optim import AdamW, Muon, decay_groups, layerwise_lr, muon_groups, param_groups
from pyggml.recipes import make_optimizer
from pyggml.recipes.options import OptimizerOptions


def gpt(tie=True):
    return GPT2(GPT2Config(16, context=4, n_embd=8, n_layer=3, n_head=2, tie=tie))


def options(groups):
    """What holds for each parameter."""
    return {
        name: {k: v for k, v in group.items() if k not in ("params", "names")}
        for group in groups
        for name in group["names"]
    }


def test_norms_biases_and_embeddings_do_not_decay():
    model = gpt()
    decays = {n: o["weight_decay"] for n, o in options(param_groups(model, 0.1)).items()}
    assert set(decays) == {name for name, _ in model.named_parameters()}
    for name, decay in decays.items():
        kept = name.endswith("weight") and not re.search(r"ln_|wte|wpe", name)
        assert decay == (0.1 if kept else 0.0), name
    assert options(param_groups(model, 0.1, decay_embeddings=True))["transformer.wte.weight"] == {
        "weight_decay": 0.1,
        "lr_scale": 1.0,
    }


@pytest.mark.parametrize("arch", ["gpt2", "llama"])
@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("kind", ["sgd", "adamw", "adafactor", "lion", "muon"])
@pytest.mark.parametrize("rules", [{}, {"no_decay": ("*.1.*",)}, {"lr_scale": ("*.1.*=0.5",)}])
def test_runs_and_groups_decay_the_same_parameters(arch, tie, kind, rules):
    """A tied head is the embedding table and does not decay; a head of its own is a matrix."""
    model = build(arch, {"vocab_size": 16, "n_embd": 8, "n_layer": 2, "n_head": 2, "tie": tie})
    no_decay = re.compile(r"ln_|norm|bias|wte|wpe|embed_tokens")
    want = {name for name, _ in model.named_parameters() if not no_decay.search(name)}
    assert ("lm_head.weight" in want) is not tie
    optimizer = make_optimizer(
        OptimizerOptions(optimizer=kind, weight_decay=0.1, **rules), model, 1e-3
    )
    decayed = {n for group in optimizer.groups if group.weight_decay for n in group.names}
    assert decayed == {n for n in want if "no_decay" not in rules or ".1." not in n}
    assert set(decay_groups(model, 0.1)[0]["names"]) == want
    more = set(decay_groups(model, 0.1, decay_embeddings=True)[0]["names"]) - want
    tables = {"gpt2": {"transformer.wte.weight", "transformer.wpe.weight"}}
    assert more == tables.get(arch, {"model.embed_tokens.weight"})


def test_rules_by_glob_and_expression():
    rules = [
        ("*.attn.*", {"lr_scale": 0.5}),
        (re.compile(r"h\.[12]\..*weight$"), {"weight_decay": 0.3}),
        ("transformer.h.2.attn.c_attn.weight", {"lr_scale": 0.1}),
    ]
    groups = param_groups(gpt(), 0.1, rules)
    got = options(groups)
    assert got["transformer.h.0.attn.c_attn.weight"] == {"weight_decay": 0.1, "lr_scale": 0.5}
    assert got["transformer.h.0.attn.c_attn.bias"] == {"weight_decay": 0.0, "lr_scale": 0.5}
    assert got["transformer.h.1.ln_1.weight"] == {"weight_decay": 0.3, "lr_scale": 1.0}
    assert got["transformer.h.2.attn.c_attn.weight"] == {"weight_decay": 0.3, "lr_scale": 0.1}
    optimizer = AdamW(groups)
    assert len(optimizer.groups) == len(groups)
    assert set(optimizer.names) == set(got)


def test_rules_are_checked():
    model = gpt()
    with pytest.raises(ValueError, match=r"'\*\.attention\.\*' matches none of"):
        param_groups(model, rules=[("*.attention.*", {"lr_scale": 0.5})])
    with pytest.raises(ValueError, match="'no such' matches none"):
        param_groups(model, rules=[(re.compile("no such"), {})])
    with pytest.raises(TypeError, match="a rule must be"):
        param_groups(model, rules=["*.attn.*"])
    with pytest.raises(ValueError, match=r"a group must have params .*'momentum'"):
        AdamW(param_groups(model, rules=[("*", {"momentum": 0.5})]))


def test_layerwise_rates():
    got = options(param_groups(gpt(tie=False), rules=layerwise_lr(gpt(tie=False), 0.5)))
    rates = {name: o["lr_scale"] for name, o in got.items()}
    assert rates["transformer.wte.weight"] == rates["transformer.wpe.weight"] == 0.5**4
    assert rates["transformer.h.0.attn.c_attn.weight"] == 0.5**3
    assert rates["transformer.h.2.mlp.c_fc.bias"] == 0.5
    assert rates["transformer.ln_f.weight"] == rates["lm_head.weight"] == 1.0
    for decay in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="decay must be"):
            layerwise_lr(gpt(), decay)


def test_muon_leaves_embeddings_and_head_to_adamw():
    for tie in (True, False):
        optimizer = Muon(muon_groups(gpt(tie), rules=[("*.c_proj.weight", {"rule": "adamw"})]))
        matrices = {
            n for n, kinds in zip(optimizer.names, optimizer.state, strict=True) if "b" in kinds
        }
        assert matrices == {
            f"transformer.h.{i}.{name}.weight"
            for i in range(3)
            for name in ("attn.c_attn", "mlp.c_fc")
        }
    plain = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    assert [g.options["rule"] for g in Muon(muon_groups(plain)).groups] == ["muon", "adamw"]
