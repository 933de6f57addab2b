# SPDX-License-Identifier: MIT
"""Validation sets are refused before the training, and no evaluation loses what was trained."""

from __future__ import annotations

import numpy as np
import pytest

from pyggml import nn, ops
from pyggml.cli.training.live import PlainReporter
from pyggml.data import Documents, Loader, PackedDataset, TokenDataset
from pyggml.errors import ConfigError
from pyggml.models import CNN, CNNConfig
from pyggml.optim import AdamW, ReduceOnPlateau
from pyggml.train import Callback, Trainer, TrainerOptions, load_checkpoint
from pyggml.train.metrics.records import to_line

from .test_batches import Batches, Classifier, clouds
from .test_going_back import make
from .tiny import SEQ_LEN, VOCAB, make_model, make_trainer, same, tokens


class Steps(Callback):
    """Counts them."""

    done = 0

    def on_step(self, trainer, metrics):
        self.done += 1


def trainer_on(validation, model=None, loader=None, callbacks=(), **options):
    """A small trainer on sets of one's choosing."""
    options = {"steps": 4, **({} if validation is None else {"eval_every": 2}), **options}
    model = model or make_model("gpt2")
    loader = loader or Loader(TokenDataset(tokens(), SEQ_LEN), 4)
    optimizer = AdamW(model.parameters())
    return Trainer(model, loader, validation, optimizer, callbacks=callbacks, **options)


@pytest.mark.parametrize(
    ("loss", "decimal", "named"),
    [
        (lambda m, x, y: nn.functional.mse_loss(m(x), y), True, False),
        (lambda m, x, y: ops.sqr(m(x)[:, 0] - ops.cast(y, "f32")).mean(), False, False),
        (lambda m, x, y: nn.functional.cross_entropy(m(x), y), False, True),
        (lambda m, x, y: nn.functional.cross_entropy(m(x), y), True, True),
        (None, False, True),
    ],
)
def test_only_a_cross_entropy_has_a_perplexity(loss, decimal, named, capsys):
    x, y = clouds(16)
    y = np.eye(3, dtype=np.float32)[y] if decimal else y
    model = Classifier()
    trainer = Trainer(
        model, Batches(x, y), {"val": Sets((x[:8], y[:8]))}, AdamW(model.parameters()),
        loss=loss, steps=2, callbacks=[PlainReporter()],
    )  # fmt: skip
    result = trainer.fit()
    trainer.callbacks[-1].finished(result)
    assert (result.validation.perplexity is not None) is named
    lines = capsys.readouterr().out.splitlines()
    assert all(("perplexity" in line) is named for line in lines if "val loss" in line)
    assert ("perplexity" in lines[-1]) is named
    assert ("perplexity" in to_line(result.validation)) is named


class Sets(Loader):
    """What gives chosen batches, as a set."""

    def __init__(self, *batches):
        self.batches = batches

    def once(self):
        return iter(self.batches)


ROWS = np.zeros((2, SEQ_LEN), np.int32)


@pytest.mark.parametrize(
    ("validation", "words"),
    [
        (np.full(50, VOCAB), "validation set 'validation': every token must be from 0 to 16"),
        ({"far": np.full(50, -1)}, "validation set 'far': .* got -1"),
        (np.zeros(50), "must be token ids in one dimension"),
        (np.zeros((5, 10), np.int32), "must be token ids in one dimension"),
        ([[1, 2], [3]], "holds no tokens"),
        (np.zeros(1, np.int32), "at least 2 tokens; got 1"),
        (np.zeros(0, np.int32), "at least 2 tokens; got 0"),
        (Documents.of([[3]]), "needs a document of at least two tokens"),
        (Sets(), "must have at least one batch"),
        (Sets((ROWS + VOCAB, ROWS)), "every input must be a token from 0 to 16"),
        (Sets((ROWS, ROWS[:, 1:])), "one shape"),
        (Sets((ROWS.tolist(), ROWS)), "x must be a NumPy array; got list"),
        (Sets(ROWS), r"a batch must be a pair \(x, y\)"),
    ],
)
def test_a_set_that_cannot_be_evaluated_is_refused_before_the_first_step(validation, words):
    steps = Steps()
    with pytest.raises((ValueError, TypeError), match=words):
        trainer_on(validation, callbacks=[steps]).fit()
    assert steps.done == 0


@pytest.mark.parametrize("validation", ["text.txt", 3])
def test_a_set_of_a_wrong_kind(validation):
    with pytest.raises(TypeError, match="validation set 'validation' must be"):
        trainer_on(validation)


def test_a_set_for_other_data_is_refused_before_the_first_step():
    trainer = trainer_on(Sets(clouds(8)), Classifier(), Batches(*clouds(32)), metrics=())
    trainer.check()
    x, y = clouds(8)
    trainer = trainer_on(Sets((x[:, :3], y)), Classifier(), Batches(*clouds(32)))
    with pytest.raises(ValueError, match="validation set 'validation': "):
        trainer.fit()
    assert trainer.step == 0
    with pytest.raises(ValueError, match=r"seq_len .*'validation'"):
        trainer_on(tokens(50), Classifier(), Batches(*clouds(32)))


@pytest.mark.parametrize(
    ("score", "words"),
    [
        ("f1_binary", "class 1 against class 0; the model has 17 classes: ask for f1"),
        ("top17", "needs more than 17 classes, or it is always 1; the model has 17"),
    ],
)
def test_scores_that_say_nothing_are_refused_at_once(score, words):
    with pytest.raises(ValueError, match=words):
        make_trainer(metrics=(score,))


@pytest.mark.parametrize("score", ["f1_binary", "top3", "accuracy"])
def test_scores_of_a_classifier_are_refused_before_the_first_step(score):
    x, y = clouds(8)
    target = np.eye(3, dtype=np.float32)[y] if score == "accuracy" else y
    loader = Batches(*clouds(32))
    trainer = trainer_on(Sets((x, target)), Classifier(), loader, metrics=(score,))
    with pytest.raises(ConfigError, match=f"validation set 'validation': `metrics`={score} "):
        trainer.fit()
    assert trainer.step == 0
    assert loader.position == 0


class Breaks(Callback):
    """Fails at the second evaluation, or when told at another event."""

    def __init__(self, event="on_evaluation", at=4):
        self.at = at
        setattr(self, event, self.fail)

    def fail(self, trainer, *details):
        if trainer.step == self.at:
            raise ZeroDivisionError("the callback's own")


@pytest.mark.parametrize("event", ["on_evaluation", "on_evaluation_start", "on_step"])
def test_an_error_leaves_a_checkpoint_of_the_steps_before_it(tmp_path, caplog, event):
    options = {"steps": 8, "eval_every": 2, "save_every": 0, "schedule": "plateau"}
    whole = make(tmp_path / "whole", **options)
    whole.fit()
    broken = make(tmp_path / "cut", callbacks=[Breaks(event)], **options)
    with pytest.raises(ZeroDivisionError):
        broken.fit()
    assert broken.last_checkpoint.name == "step-000004"
    assert "a checkpoint was written" in caplog.text
    again = make(tmp_path / "cut", **options)
    assert again.resume() == 4
    again.fit()
    assert same(again.model.state_dict(), whole.model.state_dict())
    assert again.schedule.state_dict() == whole.schedule.state_dict()
    assert again.best == whole.best


def test_a_bad_batch_leaves_a_checkpoint_from_before_it(tmp_path):
    options = {"steps": 6, "save_every": 0, "eval_every": 0, "accumulate": 2}
    whole = make(tmp_path / "whole", **options)
    whole.fit()

    class Bad(Loader):
        def __next__(self):
            x, y = super().__next__()
            return (x + VOCAB, y) if self.position == 8 else (x, y)

    broken = make(tmp_path / "cut", **options)
    broken.loader.loader.__class__ = Bad  # which is read ahead
    with pytest.raises(ValueError, match="every input must be a token"):
        broken.fit()
    state = load_checkpoint(broken.last_checkpoint).state
    assert (state.step, state.loader["position"]) == (3, 6)
    again = make(tmp_path / "cut", **options)
    again.resume()
    again.fit()
    assert same(again.model.state_dict(), whole.model.state_dict())


def test_an_error_after_a_save_does_not_save_again(tmp_path):
    seen = []

    class Note(Callback):
        def on_checkpoint(self, trainer, path):
            seen.append(trainer.step)
            if trainer.step == 4:
                raise ZeroDivisionError

    trainer = make(tmp_path, callbacks=[Note()], steps=8, save_every=2, eval_every=0)
    with pytest.raises(ZeroDivisionError):
        trainer.fit()
    assert seen == [2, 4]


def documents(seed=3, count=30):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, VOCAB, n).astype(np.int32) for n in rng.integers(2, 20, count)]


@pytest.mark.parametrize("arch", ["gpt2", "llama"])
def test_documents_are_evaluated_one_by_one(arch):
    """The loss of a set of documents is that of each by itself, in pieces as in training."""
    found = documents()
    model = make_model(arch)
    trainer = trainer_on(
        {"packed": Documents.of(found), "rows": PackedDataset(Documents.of(found), SEQ_LEN),
         "stream": np.concatenate(found)},
        model,
    )  # fmt: skip
    trainer.evaluate()
    total = count = 0
    for document in found:
        for at in range(0, len(document) - 1, SEQ_LEN):
            piece = document[at : at + SEQ_LEN + 1]
            loss, counted = trainer.train_step.loss_sum((piece[None, :-1], piece[None, 1:]))
            total, count = total + loss, count + counted
    for name in ("packed", "rows"):
        assert trainer.evaluations[name].tokens == count
        assert trainer.evaluations[name].loss == pytest.approx(total / count, rel=1e-5)
    assert trainer.evaluations["stream"].tokens == sum(map(len, found)) - 1


def test_a_store_is_evaluated_as_the_training_reads_it():
    class Store:
        documents = Documents.of(documents())
        ids = documents.ids

    packed = Loader(PackedDataset(Documents.of(documents(4, 60)), SEQ_LEN), 4)
    by_document, as_stream = trainer_on(Store(), loader=packed), trainer_on(Store())
    assert by_document.evaluate().tokens == sum(len(d) - 1 for d in Store.documents)
    assert as_stream.evaluate().tokens == Store.ids.size - 1


def test_some_batches_of_documents_lie_evenly():
    """Packing puts the longest documents first: the first rows alone say nothing of the rest."""
    trainer = trainer_on(Documents.of(documents(count=90)), eval_batches=3)
    every, chosen = (list(trainer.sets["validation"].batches(most)) for most in (None, 3))
    assert len(every) > 5
    places = [next(i for i, b in enumerate(every) if np.array_equal(a.x, b.x)) for a in chosen]
    assert places == [0, round((len(every) - 1) / 2), len(every) - 1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("patience", 2),
        ("min_delta", 0.1),
        ("metrics", ("accuracy",)),
        ("eval_every", 3),
        ("eval_batches", 3),
        ("schedule", "plateau"),
        ("schedule", ReduceOnPlateau(0.1)),
    ],
)
def test_options_that_need_a_validation_set(name, value):
    with pytest.raises(ValueError, match=f"`{name}`.* got no `val`"):
        trainer_on(None, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("save_every", 3), ("keep", 2), ("keep_best", True), ("min_delta", 0.1)]
)
def test_options_that_need_checkpoints(name, value):
    with pytest.raises(ConfigError, match=f"`{name}` .* got no `checkpoint_dir`"):
        trainer_on(tokens(60), **{name: value})


def test_options_that_need_a_dataset_or_a_loader_of_pyggml():
    with pytest.raises(ConfigError, match="`batch_size`"):
        trainer_on(None, options=TrainerOptions(batch_size=8))
    with pytest.raises(ConfigError, match=r"`prefetch`.*Batches"):
        trainer_on(None, Classifier(), Batches(*clouds(32)), prefetch=2)


def test_checkpointing_needs_blocks():
    loader = Batches(*clouds(32))
    with pytest.raises(ValueError, match="got Classifier, which has no n_blocks"):
        trainer_on(None, Classifier(), loader, checkpointing="all")
    for model, every in ((Classifier(), "auto"), (CNN(CNNConfig(classes=2)), 2)):
        with pytest.raises(ConfigError, match="`checkpointing`"):
            trainer_on(None, model, loader, checkpointing=every)
    assert trainer_on(None, Classifier(), loader, checkpointing="none").fit().step == 4


def test_flags_are_no_numbers():
    x, y = clouds(8)
    with pytest.raises(ValueError, match=r"y .*bool"):
        trainer_on(Sets((x, y > 1)), Classifier(), Batches(*clouds(32))).fit()
