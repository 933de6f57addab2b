# SPDX-License-Identifier: MIT
"""How to make an object of each public class whose methods users call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pyggml as pg
from pyggml import data, debug, distributed, io, models, nn, optim, recipes, train
from pyggml.optim import schedules

PACKAGES = (data, debug, distributed, io, models, nn, optim, recipes, train, pg)
TOKENIZER = data.Tokenizer.chars(["hello world ab cd x"])
SIZES = {"vocab_size": 32, "context": 8, "n_layer": 1, "n_head": 2, "n_embd": 8}
RNG = np.random.default_rng(0)


def linear() -> nn.Module:
    return nn.Linear(4, 4)


def rows() -> data.ArrayDataset:
    return data.ArrayDataset(np.ones((5, 4), np.float32), np.zeros(5, np.int32))


def gpt2() -> Any:
    return models.GPT2(models.GPT2Config(**SIZES))


def _images() -> data.ArrayImages:
    return data.ArrayImages(np.zeros((3, 8, 8), np.uint8), [0, 1, 0])


def _documents() -> data.Documents:
    return data.Documents.of([np.arange(7), np.arange(5), np.arange(6)])


def _chats() -> data.Chats:
    return data.read_chats(
        [{"prompt": "ab", "completion": "cd"}, {"prompt": "x", "completion": "a"}]
    )


def _of(kind: type[Any], *given: Any, **sizes: Any) -> Callable[[], Any]:
    return lambda: kind(*given, **sizes)


def _model(kind: type[Any], config: type[Any], **sizes: Any) -> Callable[[], Any]:
    return lambda: kind(config(**sizes))


def _gguf() -> Any:
    state = {"a": np.ones((2, 3), np.float32)}
    return io.GGUFFile(_written(state))


def _written(arrays: dict[str, np.ndarray]) -> bytes:
    io.write_gguf("owner.gguf", {"general.architecture": "none"}, arrays)
    with open("owner.gguf", "rb") as file:
        return file.read()


def _rounded() -> Any:
    wide = nn.Linear(32, 4)
    return optim.RoundedWeights({"weight": wide.weight}, {"weight": "q8_0"})


def _trainer() -> Any:
    sizes = {"batch_size": 2, "steps": 1}
    varied = data.ArrayDataset(np.eye(5, 4, dtype=np.float32), np.arange(5) % 2)
    return train.Trainer(nn.Linear(4, 2), varied, lr=0.1, **sizes)


# By class. A subclass whose methods are those of one of these needs no entry of its own.
MADE: dict[type, Callable[[], Any]] = {
    pg.Graph: lambda: pg.Graph([pg.ones((3, 4)) * 2]),
    pg.Device: pg.default_device,
    pg.DType: lambda: pg.ones(1).dtype,
    pg.DropoutStream: lambda: pg.DropoutStream(0),
    nn.Linear: linear,
    nn.Sequential: lambda: nn.Sequential(linear(), nn.ReLU()),
    nn.ModuleDict: lambda: nn.ModuleDict({"a": linear()}),
    nn.ModuleList: lambda: nn.ModuleList([linear()]),
    nn.RelativePositionBias: lambda: nn.RelativePositionBias(4, 2),
    nn.KVCache: lambda: nn.KVCache(1, 8, 2, 4),
    nn.LayerCache: lambda: nn.LayerCache(pg.zeros((1, 4, 8)), pg.zeros((1, 4, 8))),
    nn.RemovableHandle: lambda: linear().register_forward_hook(lambda *args: None),
    nn.Rope: nn.Rope,
    nn.RopeScaling: lambda: nn.RopeScaling("linear", 2.0),
    optim.AdamW: lambda: optim.AdamW(linear(), lr=0.1),
    optim.SGD: lambda: optim.SGD(linear(), lr=0.1),
    optim.Adafactor: lambda: optim.Adafactor(linear(), lr=0.1),
    optim.Adagrad: lambda: optim.Adagrad(linear(), lr=0.1),
    optim.AdamW8bit: lambda: optim.AdamW8bit(linear(), lr=0.1),
    optim.Lion: lambda: optim.Lion(linear(), lr=0.1),
    optim.Muon: lambda: optim.Muon(linear(), lr=0.1),
    optim.RMSprop: lambda: optim.RMSprop(linear(), lr=0.1),
    optim.LBFGS: lambda: optim.LBFGS(linear(), lr=0.1),
    optim.EMA: lambda: optim.EMA(linear(), decay=0.5),
    optim.ReduceOnPlateau: lambda: optim.ReduceOnPlateau(schedules.constant(0.1)),
    optim.RoundedWeights: _rounded,
    schedules.Joined: lambda: schedules.join([optim.ReduceOnPlateau(0.1), abs], [3]),
    data.Tokenizer: lambda: TOKENIZER,
    data.StreamDecoder: lambda: data.StreamDecoder(TOKENIZER),
    data.ArrayDataset: rows,
    data.ArrayImages: _images,
    data.ImageSubset: lambda: data.ImageSubset(_images(), [0, 2]),
    data.ImageDataset: lambda: data.ImageDataset(_images()),
    data.Batch: lambda: data.Batch(np.ones((2, 3), np.int32), np.ones((2, 3), np.int32)),
    data.Chat: lambda: _chats().items[0],
    data.Chats: _chats,
    data.ChatCounts: data.ChatCounts,
    data.ChatTemplate: lambda: data.ChatTemplate.builtin("chatml"),
    data.Documents: _documents,
    data.LabelledTexts: lambda: data.LabelledTexts(["ab", "cd", "x", "a"], [0, 1, 0, 1], 2),
    data.LabelledDataset: lambda: data.LabelledDataset(_documents(), [0, 1, 0]),
    data.Seq2SeqDataset: lambda: data.Seq2SeqDataset(
        [{"prompt": "ab", "completion": "cd"}], TOKENIZER
    ),
    data.TextClassificationDataset: lambda: data.TextClassificationDataset(
        [{"text": "ab", "label": 0}, {"text": "cd", "label": 1}], TOKENIZER
    ),
    data.TokenClassificationDataset: lambda: data.TokenClassificationDataset(
        [{"tokens": ["ab", "cd"], "tags": ["O", "B"]}], TOKENIZER
    ),
    data.AugmentedDataset: lambda: data.AugmentedDataset(_documents(), 4),
    data.PackedDataset: lambda: data.PackedDataset(_documents(), 4),
    data.RandomWindows: lambda: data.RandomWindows(np.arange(20), 4),
    data.TokenDataset: lambda: data.TokenDataset(np.arange(20), 4),
    data.Loader: lambda: data.Loader(rows(), 2),
    data.BucketLoader: lambda: data.BucketLoader(_documents(), 8),
    data.Prefetch: lambda: data.Prefetch(data.Loader(rows(), 2)),
    data.CorruptSpans: lambda: data.CorruptSpans((30, 31)),
    data.MaskTokens: lambda: data.MaskTokens(31, 32),
    data.FillInTheMiddle: lambda: data.FillInTheMiddle(29, 30, 31),
    debug.Peaks: lambda: debug.Peaks(1e9, 1e9),
    distributed.Group: distributed.world,
    io.GGUFFile: _gguf,
    models.GPT2: gpt2,
    models.GPT2Config: lambda: models.GPT2Config(**SIZES),
    models.Llama: _model(models.Llama, models.LlamaConfig, **SIZES),
    models.LlamaForSequenceClassification: _model(
        models.LlamaForSequenceClassification, models.LlamaClassifierConfig, **SIZES
    ),
    models.LlamaClassifierConfig: lambda: models.LlamaClassifierConfig(**SIZES),
    models.LlamaConfig: lambda: models.LlamaConfig(**SIZES),
    models.LLM: _model(models.LLM, models.LLMConfig, **SIZES, n_ffn=8),
    models.BERT: _model(models.BERT, models.BERTConfig, **SIZES),
    models.BERTForMaskedLM: _model(models.BERTForMaskedLM, models.BERTConfig, **SIZES),
    models.BERTForSequenceClassification: _model(
        models.BERTForSequenceClassification, models.BERTConfig, **SIZES, labels=("a", "b")
    ),
    models.BERTForTokenClassification: _model(
        models.BERTForTokenClassification, models.BERTConfig, **SIZES, labels=("a", "b")
    ),
    models.BERTConfig: lambda: models.BERTConfig(**SIZES),
    models.ModernBERT: _model(models.ModernBERT, models.ModernBERTConfig, **SIZES),
    models.ModernBERTForMaskedLM: _model(
        models.ModernBERTForMaskedLM, models.ModernBERTConfig, **SIZES
    ),
    models.ModernBERTForSequenceClassification: _model(
        models.ModernBERTForSequenceClassification,
        models.ModernBERTConfig,
        **SIZES,
        labels=("a", "b"),
    ),
    models.ModernBERTConfig: lambda: models.ModernBERTConfig(**SIZES),
    models.T5: _model(models.T5, models.T5Config, **SIZES, n_head_dim=4, n_ffn=8),
    models.T5Config: lambda: models.T5Config(**SIZES),
    models.MLP: _model(models.MLP, models.MLPConfig, inputs=4, hidden=(4,)),
    models.MLPConfig: lambda: models.MLPConfig(inputs=4),
    models.CNN: _model(models.CNN, models.CNNConfig, size=8, widths=(3,), hidden=4),
    models.CNNConfig: models.CNNConfig,
    models.ResNet: _model(models.ResNet, models.ResNetConfig, widths=(3,), blocks=(1,)),
    models.ResNetConfig: models.ResNetConfig,
    models.ClassifierConfig: models.ClassifierConfig,
    models.Sampling: models.Sampling,
    models.Generator: lambda: models.Generator(gpt2()),
    models.ChatSession: lambda: models.ChatSession(
        gpt2(), TOKENIZER, data.ChatTemplate.builtin("chatml")
    ),
    recipes.ClassResults: lambda: recipes.ClassResults(["a", "b"], np.eye(2, dtype=np.int64)),
    recipes.LLMConfig: recipes.LLMConfig,
    recipes.ImageConfig: lambda: recipes.ImageConfig(data="digits"),
    recipes.FinetuneConfig: lambda: recipes.FinetuneConfig(data="x.jsonl", model="x.gguf"),
    train.GradScaler: train.GradScaler,
    train.History: train.History,
    train.MetricsFile: lambda: train.MetricsFile("metrics.jsonl"),
    train.ChoiceScores: lambda: train.ChoiceScores(0.5, 0.5, 4),
    train.MemoryPlan: lambda: train.MemoryPlan(1, 1, 1, 1, "cpu"),
    train.TrainerOptions: lambda: train.TrainerOptions(steps=2),
    train.Trainer: _trainer,
}

# Classes whose methods are not drawn, and why. Records, which have no methods, need no entry; nor
# do their fields need checks where the package makes them and users read them.
LEFT: dict[str, str] = {
    **dict.fromkeys(
        ("Dataset", "ImageSource", "TextTransform", "Configuration", "Optimizer", "Model"),
        "an interface or a base; its heirs are made",
    ),
    **dict.fromkeys(("ModelConfig", "ImageModel", "LanguageModel"), "a base; its heirs are made"),
    **dict.fromkeys(("FinetuneRun", "ImageRun", "LLMRun", "GRPORun"), "trains"),
    **dict.fromkeys(
        ("Callback", "MetricsWriter", "Progress", "Sampler", "TensorBoardWriter", "WandbWriter"),
        "the trainer calls its methods, with itself",
    ),
    **dict.fromkeys(("TrainStep", "InterruptGuard", "QuantizationAware"), "the trainer's inside"),
    **dict.fromkeys(("Corpus", "ImageFolder", "TokenStore"), "reads a folder of files: files.py"),
    "ArtifactDir": "holds a folder of a run, which the recipes make",
    "ImageClassifier": "reads the folder of a run",
    **dict.fromkeys(
        ("LoRAConv2d", "LoRAEmbedding", "LoRALinear", "LoRAStackedLinear"),
        "apply_lora and merge_lora call its methods: adapter_calls.py",
    ),
    "Task": "the trainer calls its functions",
    "Profile": "records the ops of all threads while it is open",
    "Tensor": "tensor_calls.py draws its methods",
}
# What a model tells those who read and write its files.
_OF_FILES = re.compile(r"gguf_|hf_config|hf_state|config_from_|reads|check_gguf|check_saving")
# Methods that train, wait for other processes, end the process or are called with a trainer.
LEFT_METHODS = set("fit barrier leave set_timeout answer resume averaged make_bar plot".split())


def public_classes() -> Iterator[type]:
    for package in PACKAGES:
        for name in package.__all__:
            each = getattr(package, name)
            if inspect.isclass(each) and not issubclass(each, BaseException):
                yield each


def methods(owner: type) -> dict[str, Any]:
    """The public methods of a class that pyggml wrote, by name."""
    found = inspect.getmembers(owner, inspect.isroutine)
    return {
        name: method
        for name, method in found
        if not name.startswith(("_", "on_"))
        and name not in LEFT_METHODS
        and not _OF_FILES.match(name)
        and str(getattr(method, "__module__", "")).startswith("pyggml")
    }


def untold() -> list[str]:
    """Public classes that are neither made, nor left out with a reason, and that are no records."""
    made = {id(_plain(m)) for owner in MADE for m in methods(owner).values()}
    return sorted(
        owner.__name__
        for owner in {*public_classes()} - {*MADE}
        if owner.__name__ not in LEFT
        and any(
            id(_plain(method)) not in made
            for name, method in methods(owner).items()
            if name != "forward"  # module_calls.py calls layers
        )
    )


def wrongly_made() -> list[str]:
    """Classes of which the table makes something else."""
    return [owner.__name__ for owner, make in MADE.items() if not isinstance(make(), owner)]


def _plain(method: Any) -> Any:
    """A function, also below a method of a class."""
    return getattr(method, "__func__", method)
