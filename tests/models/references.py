# SPDX-License-Identifier: MIT
"""The models written again in PyTorch from their papers, on Hugging Face's state dicts.

Each takes the weights by name, the configuration and the inputs, and returns logits or a loss.
"""

import math

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional
torch.set_num_threads(1)  # as ours; PyTorch's threads spin, and tests share the cores


def linear(w, name, x):
    return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def layer_norm(w, name, x, eps):
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w.get(f"{name}.bias"), eps)


def causal(length, window=None):
    """True where a token may look."""
    at = torch.arange(length)
    seen = at[None, :] <= at[:, None]
    return seen if window is None else seen & (at[None, :] > at[:, None] - window)


def attend(q, k, v, seen=None, scale=None, bias=None, softcap=0.0, sinks=None):
    """q (B, T, H, D), k and v (B, S, G, D) -> (B, T, H * D)."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = capped(scores if bias is None else scores + bias, softcap)
    scores = scores if seen is None else scores.masked_fill(~seen, -math.inf)
    if sinks is not None:
        more = sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, more], -1)
    return (scores.softmax(-1)[..., : v.shape[2]] @ v).transpose(1, 2).flatten(2)


def capped(x, softcap):
    return softcap * (x / softcap).tanh() if softcap else x


def token_loss(logits, y):
    return F.cross_entropy(logits.flatten(0, -2), y.flatten(), ignore_index=-100)


def gpt2(w, config, ids):
    """GPT-2; Conv1D weights are (in, out)."""

    def conv(x, name):
        return x @ w[f"{name}.weight"] + w.get(f"{name}.bias", 0.0)

    batch, length = ids.shape
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:length]
    for i in range(config.n_layer):
        p = f"transformer.h.{i}"
        qkv = conv(layer_norm(w, f"{p}.ln_1", x, config.eps), f"{p}.attn.c_attn")
        q, k, v = (t.view(batch, length, config.n_head, -1) for t in qkv.chunk(3, dim=-1))
        x = x + conv(attend(q, k, v, causal(length)), f"{p}.attn.c_proj")
        seen = layer_norm(w, f"{p}.ln_2", x, config.eps)
        hidden = F.gelu(conv(seen, f"{p}.mlp.c_fc"), approximate="tanh")
        x = x + conv(hidden, f"{p}.mlp.c_proj")
    head = w.get("lm_head.weight", w["transformer.wte.weight"])
    return layer_norm(w, "transformer.ln_f", x, config.eps) @ head.T


def inverse_frequencies(config, length, local=False):
    """What each pair turns by per position, and the factor of cosines and sines."""
    dim, base, scaling = config.head_dim, config.rope_theta, config.rope_scaling
    dim = config.rope_dims or dim
    if local:
        base = config.rope_theta_window or base
        scaling = scaling if config.traits.window_scaling else None
    own = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if scaling is None:
        return own, 1.0
    factor, original = scaling.factor, scaling.original
    if scaling.kind == "linear":
        return own / factor, 1.0
    if scaling.kind == "longrope":
        table = scaling.long if length > original else scaling.short
        return own / torch.tensor(table), math.sqrt(1 + math.log(factor) / math.log(original))
    if scaling.kind == "dynamic":
        seen = max(length, original)
        base = base * (factor * seen / original - (factor - 1)) ** (dim / (dim - 2))
        return 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim), 1.0
    if scaling.kind == "llama3":
        wavelength = 2 * math.pi / own
        smooth = (original / wavelength - scaling.low_freq) / (scaling.high_freq - scaling.low_freq)
        between = (1 - smooth) * own / factor + smooth * own
        slow = torch.where(wavelength > original / scaling.low_freq, own / factor, own)
        quick = wavelength < original / scaling.high_freq
        middle = ~quick & (wavelength <= original / scaling.low_freq)
        return torch.where(middle, between, slow), 1.0

    def corrected(turns):
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = corrected(scaling.beta_fast), corrected(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = ((torch.arange(dim // 2) - low) / ((high - low) or 0.001)).clamp(0, 1)
    return own / factor * ramp + own * (1 - ramp), 0.1 * math.log(factor) + 1.0


def rotate(x, config, local=False):
    x, rest = x.split(
        [config.rope_dims or x.shape[-1], x.shape[-1] - (config.rope_dims or x.shape[-1])], -1
    )
    half = x.shape[-1] // 2
    frequency, factor = inverse_frequencies(config, x.shape[1], local)
    angle = torch.arange(x.shape[1])[:, None] * frequency
    cos, sin = (
        (factor * f(torch.cat([angle, angle], -1))).float()[:, None] for f in (torch.cos, torch.sin)
    )
    turned = x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin
    return torch.cat([turned, rest], -1)


def experts(w, p, config, x, routings):
    """Mixtral's and Qwen's mixtures: each expert computes its own tokens."""
    names = ("w1", "w3", "w2") if "block_sparse_moe" in p else ("gate_proj", "up_proj", "down_proj")
    tokens = x.flatten(0, 1)
    logits = tokens @ w[f"{p}.gate.weight"].T
    weights, chosen = logits.softmax(-1).topk(config.n_expert_used, dim=-1)
    routings.append((logits, chosen))
    if config.traits.normalize:
        weights = weights / weights.sum(-1, keepdim=True)
    y = torch.zeros_like(tokens)
    for j in range(config.n_expert):
        gate, up, down = (w[f"{p}.experts.{j}.{name}.weight"] for name in names)
        at, slot = torch.where(chosen == j)
        out = (F.silu(tokens[at] @ gate.T) * (tokens[at] @ up.T)) @ down.T
        y = y.index_add(0, at, out * weights[at, slot, None])
    if config.shared_ffn:
        s = f"{p}.shared_expert"
        hidden = F.silu(linear(w, f"{s}.gate_proj", tokens)) * linear(w, f"{s}.up_proj", tokens)
        y = y + linear(w, f"{s}.down_proj", hidden) * linear(w, f"{s}_gate", tokens).sigmoid()
    return y.view_as(x)


def balance(config, routings):
    """Mixtral's load-balancing loss over the tokens of all layers."""
    logits = torch.cat([logits for logits, _ in routings])
    chosen = torch.cat([chosen for _, chosen in routings])
    share = F.one_hot(chosen, config.n_expert).float().mean(0)
    return config.n_expert * (share * logits.softmax(-1).mean(0)).sum()


def clamped_experts(w, p, config, x, routings):
    """gpt-oss's mixture: gate and up by turns, clamped, and biases."""
    tokens = x.flatten(0, 1)
    logits = linear(w, f"{p}.router", tokens)
    best, chosen = logits.topk(config.n_expert_used, dim=-1)
    weights = best.softmax(-1)
    routings.append((logits, chosen))
    y = torch.zeros_like(tokens)
    for j in range(config.n_expert):
        at, slot = torch.where(chosen == j)
        both = tokens[at] @ w[f"{p}.experts.gate_up_proj"][j]
        both = both + w[f"{p}.experts.gate_up_proj_bias"][j]
        gate, up = both[:, ::2].clamp(max=7.0), both[:, 1::2].clamp(-7.0, 7.0)
        out = (up + 1) * gate * (1.702 * gate).sigmoid() @ w[f"{p}.experts.down_proj"][j]
        out = out + w[f"{p}.experts.down_proj_bias"][j]
        y = y.index_add(0, at, out * weights[at, slot, None])
    return y.view_as(x)


def feed_forward(w, p, config, x, routings):
    """The feed-forward part of a block of the Llama family."""
    kind = config.traits.mlp
    if config.traits.clamped:
        return clamped_experts(w, f"{p}.mlp", config, x, routings)
    if config.n_expert:
        part = "block_sparse_moe" if config.family == "llama" else "mlp"
        return experts(w, f"{p}.{part}", config, x, routings)
    if kind == "gelu":
        into, out = ("fc1", "fc2") if config.family == "phi2" else ("c_fc", "c_proj")
        hidden = F.gelu(linear(w, f"{p}.mlp.{into}", x), approximate="tanh")
        return linear(w, f"{p}.mlp.{out}", hidden)
    if config.traits.fused:
        gate, up = linear(w, f"{p}.mlp.gate_up_proj", x).chunk(2, -1)
    else:
        gate, up = linear(w, f"{p}.mlp.gate_proj", x), linear(w, f"{p}.mlp.up_proj", x)
    gate = F.gelu(gate, approximate="tanh") if kind == "geglu" else F.silu(gate)
    return linear(w, f"{p}.mlp.down_proj", gate * up)


def llama(w, config, ids, routings=None):
    """The Llama family."""
    traits = config.traits
    routings = [] if routings is None else routings
    heads = {"q": config.n_head, "k": config.kv_head, "v": config.kv_head}

    def norm(x, name):
        if traits.norm == "layer":
            return layer_norm(w, name, x, config.eps)
        gain = w[f"{name}.weight"] + (1 if traits.offset else 0)
        return F.rms_norm(x, x.shape[-1:], gain, config.eps)

    def head_norm(x, p, own):
        if not config.qk_norm:
            return x
        if traits.qk_norm == "all":
            return norm(x.flatten(2), f"{p}.{own}_norm").view_as(x)
        if traits.qk_norm == "head":
            return norm(x, f"{p}.{own}_norm")
        rows = [w[f"{p}.{own}_layernorm.norms.{j}.weight"] for j in range(x.shape[2])]
        return F.layer_norm(x, x.shape[-1:], eps=config.eps) * torch.stack(rows)

    def attention(x, p, i):
        if traits.fused:
            width = config.head_dim
            sizes = [count * width for count in heads.values()]
            parts = linear(w, f"{p}.qkv_proj", x).split(sizes, -1)
        else:
            parts = [linear(w, f"{p}.{n}_proj", x) for n in heads]
        q, k, v = (t.view(*x.shape[:2], n, -1) for t, n in zip(parts, heads.values(), strict=True))
        q, k = head_norm(q, p, "q"), head_norm(k, p, "k")
        window = config.window if (i + 1) % config.pattern or config.pattern == 1 else None
        if not traits.no_rope or (i + 1) % traits.no_rope:
            local = window is not None and config.pattern > 1
            q, k = rotate(q, config, local), rotate(k, config, local)
        gathered = attend(
            q, k, v, causal(x.shape[1], window), config.score_scale,
            softcap=config.attention_softcap, sinks=w.get(f"{p}.sinks"),
        )  # fmt: skip
        return linear(w, f"{p}.{'dense' if config.family == 'phi2' else 'o_proj'}", gathered)

    x = w["model.embed_tokens.weight"][ids] * config.input_scale
    more = config.residual_scale
    for i in range(config.n_layer):
        p = f"model.layers.{i}"
        seen = x if traits.norms == "after" else norm(x, f"{p}.input_layernorm")
        y = attention(seen, f"{p}.self_attn", i)
        if config.parallel:
            x = x + y + feed_forward(w, p, config, seen, routings)
            continue
        if traits.norms == "before":
            x = x + more * y
            y = norm(x, f"{p}.post_attention_layernorm")
            x = x + more * feed_forward(w, p, config, y, routings)
            continue
        x = x + norm(y, f"{p}.post_attention_layernorm")
        seen = norm(x, f"{p}.pre_feedforward_layernorm") if traits.norms == "both" else x
        y = feed_forward(w, p, config, seen, routings)
        x = x + norm(y, f"{p}.post_feedforward_layernorm")
    head = "lm_head" if "lm_head.weight" in w else "model.embed_tokens"
    last = "model.final_layernorm" if config.family == "phi2" else "model.norm"
    logits = linear(w, head, norm(x, last)) / config.logit_scale
    return capped(logits, config.logit_softcap)


def modernbert(w, config, ids, mask, prefix="model."):
    """The stream after ModernBERT's last norm."""

    def norm(name, x):
        return layer_norm(w, f"{prefix}{name}", x, config.eps)

    x = norm("embeddings.norm", w[f"{prefix}embeddings.tok_embeddings.weight"][ids])
    at = torch.arange(ids.shape[1])
    near = (at[:, None] - at).abs() <= config.window // 2
    width = config.n_embd // config.n_head
    for i in range(config.n_layer):
        p = f"layers.{i}"
        seen = norm(f"{p}.attn_norm", x) if i else x
        qkv = linear(w, f"{prefix}{p}.attn.Wqkv", seen).view(*ids.shape, 3, config.n_head, width)
        sees_all = i % config.window_pattern == 0
        base = config.rope_theta if sees_all else config.rope_theta_window
        angle = at[:, None] / base ** (torch.arange(0, width, 2) / width)
        angle = torch.cat([angle, angle], -1)[:, None]

        def turn(t, angle=angle):
            a, b = t.chunk(2, -1)
            return t * angle.cos() + torch.cat([-b, a], -1) * angle.sin()

        # What fills up sees itself, or far from all tokens it would see none.
        who = (mask[:, None, None] > 0) | (at[:, None] == at)
        gathered = attend(
            turn(qkv[:, :, 0]), turn(qkv[:, :, 1]), qkv[:, :, 2], who if sees_all else who & near
        )
        x = x + linear(w, f"{prefix}{p}.attn.Wo", gathered)
        a, b = linear(w, f"{prefix}{p}.mlp.Wi", norm(f"{p}.mlp_norm", x)).chunk(2, -1)
        act = F.gelu if config.activation == "gelu" else F.silu
        x = x + linear(w, f"{prefix}{p}.mlp.Wo", act(a) * b)
    return norm("final_norm", x)


def modernbert_head(w, config, x):
    return layer_norm(w, "head.norm", F.gelu(linear(w, "head.dense", x)), config.eps)


def last_token(x, mask):
    return x[torch.arange(len(x)), mask.sum(1) - 1]


def llama_stream(w, config, ids):
    """The stream after a Llama's last norm: its logits where the head is the identity."""
    return llama({**w, "lm_head.weight": torch.eye(config.n_embd)}, config, ids)


def bert(w, config, ids, mask, types, prefix="bert."):
    """The stream after BERT's last block."""
    e, shape = f"{prefix}embeddings", (*ids.shape, config.n_head, -1)
    x = w[f"{e}.word_embeddings.weight"][ids] + w[f"{e}.token_type_embeddings.weight"][types]
    x = x + w[f"{e}.position_embeddings.weight"][: ids.shape[1]]
    x = layer_norm(w, f"{e}.LayerNorm", x, config.eps)
    for i in range(config.n_layer):
        p = f"{prefix}encoder.layer.{i}"
        names = ("query", "key", "value")
        q, k, v = (linear(w, f"{p}.attention.self.{n}", x).view(shape) for n in names)
        y = linear(w, f"{p}.attention.output.dense", attend(q, k, v, mask[:, None, None] > 0))
        x = layer_norm(w, f"{p}.attention.output.LayerNorm", x + y, config.eps)
        y = F.gelu(linear(w, f"{p}.intermediate.dense", x))
        y = linear(w, f"{p}.output.dense", y)
        x = layer_norm(w, f"{p}.output.LayerNorm", x + y, config.eps)
    return x


def bert_mlm(w, config, x):
    p = "cls.predictions"
    x = F.gelu(linear(w, f"{p}.transform.dense", x))
    x = layer_norm(w, f"{p}.transform.LayerNorm", x, config.eps)
    return x @ w["bert.embeddings.word_embeddings.weight"].T + w[f"{p}.bias"]


def bert_classifier(w, x):
    return linear(w, "classifier", linear(w, "bert.pooler.dense", x[:, 0]).tanh())


def bert_embed(x, mask):
    """Means of the tokens that count, of length one."""
    mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return F.normalize(mean, dim=-1)


def buckets(config, length, keys, bidirectional):
    """T5's buckets of the distances, as its code has them."""
    distance = torch.arange(keys)[None, :] - torch.arange(length)[:, None]
    count, first = config.buckets, torch.zeros_like(distance)
    if bidirectional:
        count //= 2
        first = (distance > 0) * count
        distance = distance.abs()
    else:
        distance = -distance.clamp(max=0)
    exact = count // 2
    far = torch.log(distance.float() / exact) / math.log(config.max_distance / exact)
    far = exact + (far * (count - exact)).nan_to_num(0, 0, 0).long()
    return first + torch.where(distance < exact, distance, far.clamp(max=count - 1))


def t5(w, config, ids, mask, decoder_ids):
    """T5's logits."""

    def norm(x, name):
        return F.rms_norm(x, x.shape[-1:], w[f"{name}.weight"], config.eps)

    def attention(p, x, keys, seen, bias):
        shape = (x.shape[0], -1, config.n_head, config.n_head_dim)
        q, k, v = (
            linear(w, f"{p}.{n}", t).view(shape) for n, t in (("q", x), ("k", keys), ("v", keys))
        )
        return linear(w, f"{p}.o", attend(q, k, v, seen, 1.0, bias))

    def feed_forward(p, x):
        if config.gated:
            gate = F.gelu(linear(w, f"{p}.wi_0", x), approximate="tanh")
            return linear(w, f"{p}.wo", gate * linear(w, f"{p}.wi_1", x))
        return linear(w, f"{p}.wo", F.relu(linear(w, f"{p}.wi", x)))

    def stack(side, ids, seen, encoded=None):
        length = ids.shape[1]
        table = w[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        bias = table[buckets(config, length, length, encoded is None)].permute(2, 0, 1)
        x = w["shared.weight"][ids]
        for i in range(config.n_layer if encoded is None else config.decoder_layers):
            p = f"{side}.block.{i}.layer"
            normed = norm(x, f"{p}.0.layer_norm")
            x = x + attention(f"{p}.0.SelfAttention", normed, normed, seen, bias)
            last = 1
            if encoded is not None:
                normed = norm(x, f"{p}.1.layer_norm")
                x = x + attention(
                    f"{p}.1.EncDecAttention", normed, encoded, mask[:, None, None] > 0, None
                )
                last = 2
            normed = norm(x, f"{p}.{last}.layer_norm")
            x = x + feed_forward(f"{p}.{last}.DenseReluDense", normed)
        return norm(x, f"{side}.final_layer_norm")

    encoded = stack("encoder", ids, mask[:, None, None] > 0)
    x = stack("decoder", decoder_ids, causal(decoder_ids.shape[1]), encoded)
    if config.tie:
        return x * config.n_embd**-0.5 @ w["shared.weight"].T
    return x @ w["lm_head.weight"].T


def normalised(config, x):
    if config.mean is None:
        return x
    shape = (1, -1, 1, 1)
    return (x - torch.tensor(config.mean).view(shape)) / torch.tensor(config.std).view(shape)


def batch_norm(w, name, x, momentum=0.1):
    """By the batch, moving the running statistics in `w`; by these with "eval" in it."""
    training = "eval" not in w
    w[f"{name}.num_batches_tracked"] += training
    return F.batch_norm(
        x,
        w[f"{name}.running_mean"],
        w[f"{name}.running_var"],
        w[f"{name}.weight"],
        w[f"{name}.bias"],
        training,
        momentum,
    )


ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


def mlp(w, config, x):
    act, at = ACTIVATIONS[config.activation], 0
    x = normalised(config, x.view(len(x), -1, 1, 1)).flatten(1)
    for _ in config.hidden:
        x, at = linear(w, f"layers.{at}", x), at + 1
        if config.norm == "batch":
            x, at = batch_norm(w, f"layers.{at}", x), at + 1
        x, at = act(x), at + 1 + bool(config.dropout)
    return linear(w, f"layers.{at}", x)


def cnn(w, config, x):
    act = ACTIVATIONS[config.activation]
    x = normalised(config, x)
    for i, width in enumerate(config.widths):
        p = f"stages.{i}"
        x = F.conv2d(x, w[f"{p}.conv.weight"], w.get(f"{p}.conv.bias"), padding=config.kernel // 2)
        if config.norm == "batch":
            x = batch_norm(w, f"{p}.norm", x)
        elif config.norm == "group":
            groups = math.gcd(8, width)
            x = F.group_norm(x, groups, w[f"{p}.norm.weight"], w[f"{p}.norm.bias"])
        x = F.max_pool2d(act(x), 2)
    x = x.flatten(1)
    x = act(linear(w, "hidden", x)) if config.hidden else x
    return linear(w, "head", x)


def resnet(w, config, x):
    large = config.stem == "large"
    x = normalised(config, x)
    x = F.conv2d(x, w["conv1.weight"], stride=2 if large else 1, padding=3 if large else 1)
    x = F.relu(batch_norm(w, "bn1", x))
    x = F.max_pool2d(x, 3, 2, 1) if large else x
    for i, count in enumerate(config.blocks):
        for j in range(count):
            p, stride = f"layer{i + 1}.{j}", 2 if i and not j else 1
            y = F.conv2d(x, w[f"{p}.conv1.weight"], stride=stride, padding=1)
            y = F.conv2d(F.relu(batch_norm(w, f"{p}.bn1", y)), w[f"{p}.conv2.weight"], padding=1)
            y = batch_norm(w, f"{p}.bn2", y)
            if f"{p}.downsample.0.weight" in w:
                x = F.conv2d(x, w[f"{p}.downsample.0.weight"], stride=stride)
                x = batch_norm(w, f"{p}.downsample.1", x)
            x = F.relu(x + y)
    return linear(w, "fc", x.mean((2, 3)))
