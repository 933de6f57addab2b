# SPDX-License-Identifier: MIT
"""Computations of several graphs beside a thread that trains the same model."""

import contextlib
import copy
import itertools
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import data, models, nn, optim, train
from pyggml.models.quantization import measure_importance
from pyggml.nn.weight_check import WeightCheck
from pyggml.train.checkpoints import keeper
from pyggml.train.distillation import cache_teacher
from pyggml.train.preferences import document_logps, reference_logps

_MOST_S = 30.0
_IDS = np.random.default_rng(0).integers(2, 50, (2, 8)).astype(np.int32)
_DOCUMENTS = data.Documents.of([[1, 2, 3]] * 12)
_TOKENIZER = data.Tokenizer.chars(["Question: 2+?345\nAnswer:"])


def _cache(model: Any, folder: Path) -> Any:
    return cache_teacher(model, data.TokenDataset(np.arange(99) % 50, 4), folder, 2, batch_size=1)


_DOORS: dict[str, Callable[[Any, Path], Any]] = {
    "predict": lambda m, _: train.predict(m, np.repeat(_IDS, 6, axis=0), batch_size=1),
    "evaluate": lambda m, _: train.evaluate(m, [(_IDS, _IDS)] * 12),
    "token_scores": lambda m, _: train.token_scores(m, [([1, 2], [3, 4])] * 12, batch_size=1),
    "document_logps": lambda m, _: document_logps(m, _DOCUMENTS, batch_size=1),
    "reference_logps": lambda m, path: reference_logps(m, _DOCUMENTS, path, batch_size=4),
    "score_choices": lambda m, _: train.score_choices(
        m, [data.Question("2+2?", (" 4", " 5"), 0)] * 6, _TOKENIZER, batch_size=1
    ),
    "score_answers": lambda m, _: train.score_answers(
        m,
        [data.Chat([{"role": "user", "content": "2"}, {"role": "assistant", "content": "4"}])] * 4,
        _TOKENIZER,
        None,
        max_tokens=1,
        batch_size=1,
    ),
    "find_lr": lambda m, _: train.find_lr(m, optim.SGD(m, lr=1e-9), [(_IDS, _IDS)] * 12, steps=12),
    "measure_importance": lambda m, _: measure_importance(m, [1, 2, 3, 4] * 12, length=4),
    "cache_teacher": _cache,
    "generate": lambda m, _: models.generate(m, [1, 2], 12),
}


@pytest.fixture
def trained() -> Iterator[Any]:
    """Return a model that another thread trains, in steps that change almost nothing."""
    config = models.GPT2Config(vocab_size=50, context=32, n_embd=8, n_layer=1, n_head=2)
    model, stop = models.GPT2(config), threading.Event()
    step = train.TrainStep(model, optim.SGD(model, lr=1e-9))

    def work() -> None:
        while not stop.is_set():
            step([(_IDS, _IDS)])

    thread = threading.Thread(target=work)
    thread.start()
    yield model
    stop.set()
    thread.join()


@pytest.mark.parametrize("name", _DOORS)
def test_several_graphs_are_refused(name: str, trained: Any, tmp_path: Path) -> None:
    """A result of different weights is refused; which calls meet a step is a matter of chance."""

    def call_again() -> None:
        until = time.monotonic() + _MOST_S
        for number in itertools.takewhile(lambda _: time.monotonic() < until, itertools.count()):
            _DOORS[name](trained, tmp_path / str(number))

    with pytest.raises(RuntimeError, match=r"the model's weights must stay the same"):
        call_again()


def test_one_graph_is_not_refused(trained: Any) -> None:
    for _ in range(10):
        train.predict(trained, _IDS)


def test_buffers_count() -> None:
    """Running statistics may change where no weight does; what a part writes itself may, too."""
    layer = nn.BatchNorm2d(2)
    check = WeightCheck("here", layer)
    for _ in range(2):
        with check.unchanged():
            layer.running_mean.copy_([1.0, 2.0])
    layer.running_mean.copy_([1.0, 2.0])
    with pytest.raises(RuntimeError, match=r"^here: the model's weights must stay"):
        check.check()
    check.reset()
    check.check()


class _Slotted(nn.Module):
    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept = 3
        self.weight = nn.Parameter([1.0])


class _Meanwhile:
    """Lets another thread write the tensors of a layer while what has this is copied or pickled."""

    def __init__(self, layer: nn.Module):
        self._layer = layer
        self.waited = False

    def write(self) -> None:
        for tensor in self._layer.parameters():
            tensor.copy_(np.ones(tensor.shape))

    def __reduce__(self) -> Any:
        thread = threading.Thread(target=self.write)
        thread.start()
        thread.join(0.2)
        self.waited = thread.is_alive()
        return dict, ()


def _layer_of_one_step() -> tuple[nn.Module, _Meanwhile]:
    layer = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    for tensor in layer.parameters():
        tensor.copy_(np.zeros(tensor.shape))
    meanwhile = _Meanwhile(layer)
    layer[0]._between = meanwhile  # after its weights, before those of the other
    return layer, meanwhile


def _numbers(layer: nn.Module) -> set[float]:
    return {float(x) for t in layer.parameters() for x in t.numpy().ravel()}


def test_a_copy_is_of_one_step() -> None:
    layer, meanwhile = _layer_of_one_step()
    assert _numbers(copy.deepcopy(layer)) == {0.0}
    assert meanwhile.waited


def test_a_pickle_is_of_one_step_or_refused() -> None:
    layer, meanwhile = _layer_of_one_step()
    with pytest.raises(RuntimeError, match="pickle: the model's weights must stay the same"):
        pickle.dumps(layer)
    assert not meanwhile.waited
    layer, meanwhile = _layer_of_one_step()
    with pg.alone():
        written = pickle.dumps(layer)
    assert meanwhile.waited
    assert _numbers(pickle.loads(written)) == {0.0}
    assert list(vars(pickle.loads(written)[1])) == list(vars(layer[1]))


def test_a_copy_has_the_slots_of_a_class() -> None:
    copied = copy.deepcopy(_Slotted())
    assert copied.kept == 3
    assert pickle.loads(pickle.dumps(copied)).kept == 3
    assert copy.copy(copied).weight is copied.weight


def test_measuring_twice_at_once() -> None:
    """Two threads that measure one model hear each what they multiply themselves."""
    model = models.GPT2(models.GPT2Config(vocab_size=9, context=8, n_embd=8, n_layer=2, n_head=2))
    texts = [[1, 2, 3, 4], [5, 6, 7, 8]]
    wanted = [measure_importance(model, text, length=4).values for text in texts]
    found: list[Any] = [None, None]

    def work(number: int) -> None:
        for _ in range(8):
            found[number] = measure_importance(model, texts[number], length=4).values

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own, values in zip(wanted, found, strict=True):
        np.testing.assert_equal(values, own)


@contextmanager
def _again_meanwhile(work: Callable[[], Any]) -> Iterator[list[int]]:
    """Let another thread call a function again and again; gives the list of its calls."""
    interval, stop, calls = sys.getswitchinterval(), threading.Event(), [0]

    def call_again() -> None:
        while not stop.is_set():
            work()
            calls[0] += 1

    thread = threading.Thread(target=call_again)
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        yield calls
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)


@contextmanager
def _written_meanwhile(model: nn.Module, names: list[str]) -> Iterator[None]:
    """Let another thread write all of these tensors, 1 and 2 in turn."""
    shapes = {name: array.shape for name, array in model.state_dict().items() if name in names}
    states = [{name: np.full(shape, k) for name, shape in shapes.items()} for k in (1.0, 2.0)]
    model.load_state_dict(states[0], strict=False)

    def work() -> None:
        for state in states:
            model.load_state_dict(state, strict=False)

    with _again_meanwhile(work):
        yield


def test_a_state_is_of_one_step() -> None:
    """`state_dict` and `load_state_dict` read and write all tensors between two steps."""
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(8)))
    with _written_meanwhile(model, list(model.state_dict())):
        found = [model.state_dict() for _ in range(50)]
    assert all(len({float(a.flat[0]) for a in state.values()}) == 1 for state in found)


def test_modules_are_initialised_together() -> None:
    model = _layers()

    def fill(number: float) -> None:
        model.apply(lambda m: nn.init.constant_(m.weight, number) if hasattr(m, "weight") else None)

    with _again_meanwhile(lambda: [fill(number) for number in (0.0, 1.0)]):
        for _ in range(200):
            state = model.state_dict()
            assert len({float(x) for n, a in state.items() if "weight" in n for x in a.flat}) == 1


@pytest.mark.parametrize("name", ["folder", "adapter.gguf"])
def test_an_adapter_is_saved_of_one_step(name: str, tmp_path: Path) -> None:
    model = models.GPT2(models.GPT2Config(vocab_size=9, context=8, n_embd=8, n_layer=4, n_head=2))
    base = copy.deepcopy(model)
    nn.apply_lora(model, rank=2, targets="all-linear")
    names = [name for name in model.state_dict() if "lora_" in name]
    with _written_meanwhile(model, names):
        for _ in range(10):
            models.save_lora(model, tmp_path / name)
            again = copy.deepcopy(base)
            models.load_lora(again, tmp_path / name)
            state = again.state_dict()
            assert len({float(state[name].flat[0]) for name in names}) == 1


def _adapted() -> tuple[nn.Module, list[str]]:
    """Return layers of zeros with adapters whose A is 1, and the names of each B."""
    model = _layers()
    nn.apply_lora(model, rank=2, alpha=2.0, targets="all-linear")
    state = nn.lora_state_dict(model)
    nn.load_lora_state_dict(model, {name: np.ones_like(a) for name, a in state.items()})
    return model, [name for name in state if "lora_B" in name]


def test_adapters_are_read_of_one_step() -> None:
    model, names = _adapted()
    states = [{n: np.full_like(a, k) for n, a in nn.lora_state_dict(model).items()} for k in (1, 2)]

    def work() -> None:
        for state in states:
            nn.load_lora_state_dict(model, state)

    with _again_meanwhile(work):
        for _ in range(100):
            state = nn.lora_state_dict(model)
            assert len({float(x) for name in names for x in state[name].flat}) == 1


def test_adapters_are_merged_of_one_step() -> None:
    for _ in range(10):
        model, names = _adapted()
        with _written_meanwhile(model, names):
            nn.merge_lora(model)
        found = {float(x) for layer in model for x in layer.weight.numpy().flat}
        assert len(found) == 1
        assert found < {2.0, 4.0}


def test_all_adapters_are_there_or_none() -> None:
    model = _layers()

    def work() -> None:
        nn.apply_lora(model, rank=2, targets="all-linear", init_lora_weights=False)
        nn.remove_lora(model)

    with _again_meanwhile(work) as calls:
        until = time.monotonic() + _MOST_S
        while calls[0] < 50 and time.monotonic() < until:
            with pg.alone():
                found = nn.lora.adapters_of(model).values()
                begun = [layer for layer in found if layer.lora_B.weight.numpy().any()]
                assert len(found) == len(begun)
                assert len(begun) in (0, len(model))


def _layers() -> nn.Sequential:
    """Return layers whose numbers are 0."""
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(8)))
    for parameter in model.parameters():
        parameter.zero_()
    return model


def _counting(model: nn.Module) -> tuple[optim.Optimizer, Callable[[], Any]]:
    """Return an optimizer, and a step that subtracts 1 from every weight."""
    optimizer = optim.SGD(model, lr=1.0, weight_decay=0.0)
    for gradient in optimizer.grads.values():
        gradient.copy_(np.ones(gradient.shape))
    return optimizer, optimizer.step


@pytest.mark.parametrize("make", [optim.AdamW, optim.EMA])
def test_an_optimizers_state_is_of_one_step(make: Callable[[Any], Any]) -> None:
    part = make(_layers())
    start = part.state_dict()
    states = [{n: np.full_like(a, k) for n, a in start.items()} for k in (1, 2)]
    part.load_state_dict(states[0])

    def work() -> None:
        for state in states:
            part.load_state_dict(state)

    with _again_meanwhile(work):
        found = [part.state_dict() for _ in range(50)]
    assert all(len({float(a.flat[0]) for a in state.values()}) == 1 for state in found)


def test_an_optimizer_takes_whole_steps() -> None:
    model = _layers()
    optimizer, step = _counting(model)
    with _again_meanwhile(step):
        for _ in range(200):
            with pg.alone():
                assert _numbers(model) == {-float(optimizer.steps)}


def test_an_average_takes_whole_updates() -> None:
    model = _layers()
    ema = optim.EMA(model, decay=0.5, warmup=False)
    start = ema.state_dict()
    for parameter in model.parameters():
        parameter.copy_(np.ones(parameter.shape))

    def work() -> None:
        ema.load_state_dict(start)
        for _ in range(3):
            ema.update()

    with _again_meanwhile(work):
        for _ in range(200):
            state = ema.state_dict()
            steps = int(state.pop("steps"))
            assert {float(x) for a in state.values() for x in a.flat} == {1 - 0.5**steps}


def test_averages_are_lent_between_two_steps() -> None:
    """No step of another thread is lost."""
    model = _layers()
    ema = optim.EMA(model)
    optimizer, step = _counting(model)
    with _again_meanwhile(step):
        for _ in range(20):
            with ema.applied():
                assert _numbers(model) == {0.0}
                time.sleep(1e-3)
                assert _numbers(model) == {0.0}
    assert _numbers(model) == {-float(optimizer.steps)}


def test_writes_to_lent_averages_are_refused() -> None:
    """They are lost, as the model's own weights come back."""
    model = _layers()
    ema = optim.EMA(model)
    _, step = _counting(model)
    step()
    for lending in (ema.applied, lambda: ema.lent(threading.RLock(), None)):
        with pytest.raises(RuntimeError, match=r"EMA\.applied: the weights must stay"), lending():
            step()
        assert _numbers(model) == {-1.0}
    with ema.lent(threading.RLock(), None):
        with pytest.raises(RuntimeError, match="the model holds the averages"), ema.applied():
            pass
        assert _numbers(model) != {-1.0}
    assert _numbers(model) == {-1.0}


def test_writes_to_lent_averages_are_told_beside_another_error(caplog) -> None:
    """Whether a block failed is not known where it is a generator's, and ends in an `except`."""
    model = _layers()
    ema = optim.EMA(model)
    _, step = _counting(model)

    def parts() -> Iterator[None]:
        with ema.applied():
            step()
            yield

    def failing() -> None:
        with ema.applied():
            step()
            raise KeyError

    def resumed() -> None:
        half = parts()
        next(half)
        try:
            raise KeyError
        except KeyError:
            next(half, None)
            raise

    for use in (failing, resumed):
        caplog.clear()
        with pytest.raises(KeyError):
            use()
        assert "EMA.applied: the weights must stay" in caplog.text


class _Windows(data.TokenDataset):
    """Windows of tokens; one batch cannot be read, once.

    Args:
        fails: which batch that is; None: none.
    """

    def __init__(self, fails: int | None = None):
        super().__init__(np.arange(400) % 50, 4)
        self._left = fails

    def batch(self, items: Any) -> Any:
        if self._left is not None:
            self._left = self._left - 1 if self._left else None
            if self._left is None:
                raise OSError("the disk is gone")
        return super().batch(items)


def _trainer(
    folder: Path | None = None,
    steps: int = 60,
    fails: int | None = None,
    val: Any = None,
    **options: Any,
) -> train.Trainer:
    """Return a trainer whose training draws batches ahead, keeps an average, and masks."""
    pg.seed(0)
    config = models.GPT2Config(
        vocab_size=50, context=8, n_embd=8, n_layer=1, n_head=2, dropout=0.1
    )  # fmt: skip
    model, val = models.GPT2(config), _Windows() if val is None else val
    return train.Trainer(
        model, _Windows(fails), val, optim.AdamW(model), checkpoint_dir=folder, steps=steps,
        batch_size=2, eval_every=0, seed=1, **{"ema": 0.9, "save_every": 0, **options},
    )  # fmt: skip


@contextmanager
def _fitting(trainer: train.Trainer) -> Iterator[threading.Thread]:
    """Let another thread train inside the block; afterwards wait for its end."""
    errors: list[Exception] = []

    def work() -> None:
        try:
            trainer.fit(progress=False)
        except Exception as error:  # noqa: BLE001 - whatever it is, there must be none
            errors.append(error)

    thread, interval = threading.Thread(target=work, daemon=True), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        yield thread
    except BaseException:
        trainer.total_steps = trainer.step
        raise
    finally:
        thread.join(_MOST_S)
        sys.setswitchinterval(interval)
    assert not errors
    assert not thread.is_alive()


@pytest.mark.parametrize("options", [{}, {"prefetch": 0}, {"accumulate": 3}])
def test_a_checkpoint_is_of_one_step(options: dict[str, Any], tmp_path: Path) -> None:
    """A run that goes on from it ends with the bits of the run that was saved."""
    paths = list[Path]()
    until = time.monotonic() + _MOST_S

    class Wait(train.Callback):
        """Trains no further where the other thread has saved too little on a busy machine."""

        def on_step(self, trainer: Any, metrics: Any) -> None:
            while len(paths) < trainer.step // 10 and time.monotonic() < until:
                time.sleep(1e-4)

    trainer = _trainer(tmp_path / "run", keep=1000, callbacks=[Wait()], **options)
    with _fitting(trainer) as thread:
        while thread.is_alive() and time.monotonic() < until:
            if trainer.step:
                with contextlib.suppress(RuntimeError):  # at the last step, within its evaluation
                    paths.append(trainer.save())
    wanted, found = trainer.model.state_dict(), sorted({*paths})
    assert len(found) > 4
    for path in found[:: max(1, len(found) // 6)]:
        resumed = _trainer(**options)
        assert f"step-{resumed.resume(path):06d}" == path.name
        resumed.fit(progress=False)
        np.testing.assert_equal(resumed.model.state_dict(), wanted)


def test_one_thread_trains(tmp_path: Path) -> None:
    trainer = _trainer(tmp_path, steps=1000)
    with _fitting(trainer):
        while not trainer.step:
            time.sleep(1e-3)
        for call in (trainer.fit, trainer.resume):
            with pytest.raises(RuntimeError, match="another thread must not be in fit"):
                call()
        trainer.total_steps = trainer.step + 5


class _Calling:
    """A validation set of three batches, before each of which a function is called.

    Args:
        calls: the function.
    """

    def __init__(self, calls: Callable[[], object]):
        self._calls = calls

    def once(self) -> Iterator[Any]:
        for _ in range(3):
            self._calls()
            yield _IDS, _IDS


def test_no_training_begins_while_averages_are_lent() -> None:
    """It would write into the averages; refused before its first step, it is right later."""
    began, ends = threading.Event(), threading.Event()

    def wait() -> None:
        if threading.current_thread() is not threading.main_thread():
            began.set()
            assert ends.wait(_MOST_S)

    whole = _trainer(val=_Calling(int))
    whole.fit(progress=False)
    trainer = _trainer(val=_Calling(wait))
    thread = threading.Thread(target=trainer.evaluate)
    thread.start()
    assert began.wait(_MOST_S)
    for call in (trainer.fit, trainer.resume, trainer.plan):
        with pytest.raises(RuntimeError, match=r"another thread must not be in .* evaluate\(\)"):
            call()
    ends.set()
    thread.join()
    assert trainer.evaluations
    trainer.fit(progress=False)
    np.testing.assert_equal(trainer.model.state_dict(), whole.model.state_dict())


def test_a_validation_set_cannot_train() -> None:
    """Nor can what else an evaluation calls."""
    errors = list[str]()

    def train_on() -> None:
        try:
            trainer.fit()
        except RuntimeError as error:
            errors.append(str(error))

    trainer = _trainer(val=_Calling(train_on))
    trainer.evaluate()
    assert "must not call it inside of evaluate()" in errors[0]
    assert trainer.step == 0


def test_a_plan_beside_a_training_is_refused() -> None:
    trainer = _trainer(steps=1000)
    with _fitting(trainer):
        while not trainer.step:
            time.sleep(1e-3)
        with pytest.raises(RuntimeError, match=r"^Trainer\.plan: another thread must not be in"):
            trainer.plan()
        trainer.total_steps = trainer.step + 5
    assert trainer.plan().total


@pytest.mark.parametrize(
    ("owner", "name", "at", "steps"),
    [(optim.EMA, "update", 30, 31), (keeper, "save_checkpoint", 0, 20)],
)
def test_a_handler_saves_no_half_step(
    owner: Any, name: str, at: int, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal's handler runs in the thread that trains: within a step, or within a save."""
    refused, calls, inner = list[str](), itertools.count(), getattr(owner, name)

    class Save(train.Callback):
        def on_interrupt(self, trainer: Any, signum: int) -> None:
            with pytest.raises(
                RuntimeError, match=r"^Trainer\.save: the handler of a signal"
            ) as told:
                trainer.save()
            refused.append(str(told.value))

    def signalled(*given: Any) -> Any:
        result = inner(*given)
        if next(calls) == at:
            signal.raise_signal(signal.SIGTERM)
        return result

    monkeypatch.setattr(owner, name, signalled)
    trainer = _trainer(tmp_path / "run", callbacks=[Save()], save_every=20)
    with pytest.raises(train.TrainingInterrupted):
        trainer.fit(progress=False)
    assert len(refused) == 1
    assert trainer.step == steps
    resumed, whole = _trainer(), _trainer()
    assert resumed.resume(tmp_path / "run" / f"step-{steps:06d}") == steps
    for each in (resumed, whole):
        each.fit(progress=False)
    np.testing.assert_equal(resumed.model.state_dict(), whole.model.state_dict())


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("keeps", [False, True])
def test_an_error_in_a_batch_loses_no_batch(prefetch: int, keeps: bool, tmp_path: Path) -> None:
    """The run goes on in this process, or from a checkpoint that is saved after the error."""
    more = {"accumulate": 4, "prefetch": prefetch, "steps": 12}
    whole = _trainer(**more)
    whole.fit(progress=False)
    trainer = _trainer(tmp_path / "run" if keeps else None, fails=26, **more)
    with pytest.raises(OSError, match="the disk is gone"):
        trainer.fit(progress=False)
    assert trainer.step == 6
    if keeps:
        resumed = _trainer(**more)
        assert resumed.resume(trainer.save()) == 6
        resumed.fit(progress=False)
        np.testing.assert_equal(resumed.model.state_dict(), whole.model.state_dict())
    trainer.fit(progress=False)
    np.testing.assert_equal(trainer.model.state_dict(), whole.model.state_dict())


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_trainer_evaluates_one_step(ema: float) -> None:
    """With an average the training waits; without one steps in between are refused."""
    trainer = _trainer(steps=10**6, ema=ema)
    with _fitting(trainer):
        while not trainer.step:
            time.sleep(1e-3)
        for _ in range(3):
            with contextlib.nullcontext() if ema else pg.alone():
                metrics = trainer.evaluate()
            assert metrics is not None
        if not ema:
            with pytest.raises(RuntimeError, match="must stay"):
                [trainer.evaluate() for _ in range(1000)]
        trainer.total_steps = trainer.step + 5


def test_attributes_may_be_set_while_modules_are_listed() -> None:
    """A thread that sets an attribute meanwhile does not end the listing of another."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for listing in (model.named_modules, model.named_parameters, model[0].named_parameters):
        for number, _ in enumerate(listing()):
            for module in (model, model[0]):
                setattr(module, f"more{listing.__name__}{number}", pg.ones(1))
