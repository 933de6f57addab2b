# SPDX-License-Identifier: MIT
"""A Ctrl-C at the bytecodes of context managers and loads: the thread or model is as before."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim, train
from pyggml.backend.device import COMPUTE_LOCK
from pyggml.backend.library import capture_log, lib
from pyggml.backend.scopes import IfFree, Scope, Scopes
from pyggml.backend.undivided import Undivided, Undone, settle
from pyggml.graph import observers
from pyggml.models import Llama, LlamaConfig
from pyggml.models.quantization.importance import _Listening as Listening
from pyggml.nn.mode import in_mode
from pyggml.recipes.tuning.results import _Merged as Merged
from pyggml.tensors.autocast import rounding
from pyggml.tensors.node import listen, listeners
from pyggml.tensors.tracing import Trace, outer
from pyggml.train import InterruptGuard

HERE = __file__


class _Interrupt:
    """Raises KeyboardInterrupt at the n-th bytecode that runs, of Python's own modules as well.

    Not at those of the `with` statement itself, where Python looks for no signal.

    Args:
        n: how many bytecodes run.
        files: names of the files whose bytecodes count; none are all.
    """

    def __init__(self, n: int, *files: str):
        self.left = n
        self._files = files

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename == HERE:
            return None
        if self._files and Path(frame.f_code.co_filename).name not in self._files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                self.interrupt()
        return self

    def interrupt(self) -> None:
        """Raise what a handler of SIGINT raises."""
        raise KeyboardInterrupt


class _Signal(_Interrupt):
    """Sends SIGINT at the n-th bytecode; where handlers wait, its handler raises later."""

    def interrupt(self) -> None:
        """Send the signal."""
        signal.raise_signal(signal.SIGINT)


def interrupted(inside: Callable[[], Any], look: Callable[[int], None], most: int = 5000) -> None:
    """Call a function, interrupted at each of its bytecodes in turn, and look at what is left.

    The traceback is alive meanwhile, as where a program handles the exception.
    """
    for n in range(1, most):
        trace, before = _Interrupt(n), sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # or Python 3.12 traces none
        sys.settrace(trace)
        try:
            inside()
        except KeyboardInterrupt:
            sys.settrace(before)
            look(n)
        finally:
            sys.settrace(before)
        if trace.left > 0:
            assert n > 1
            return
    raise AssertionError(f"more than {most} bytecodes")


def give_back_locks() -> None:
    """Release what was taken by a bytecode that begins or ends a `with`; see `_Interrupt`."""
    for each in (LOCKS, COMPUTE_LOCK):
        with contextlib.suppress(RuntimeError):
            while True:
                each.release()
    lib.pyggml_end_blocks()


WEIGHT = nn.Parameter([1.0, 2.0])
SCALAR = pg.tensor([1.0])
DROPOUT = pg.DropoutStream(1)
LAYER = nn.Dropout(0.5)
LOCK, LOCKS = threading.Lock(), threading.RLock()


def thread_state() -> dict[str, Any]:
    """What context managers set for a thread, as the code that reads it sees it."""
    (WEIGHT * 2.0).sum()  # records, and tells the listeners
    return {
        "autocast": rounding(),
        "trace": outer(),
        "reads": SCALAR.item(),
        "listeners": list(listeners),
        "observers": len(observers.observers({})),
        "empty": (nn.init.empty_dtype(), nn.init.constant(1.0)((1,)).tolist()),
        "training": LAYER.training,
        "dropout": pg.ops.dropout(pg.ones(8), 0.5, 1).tolist(),
        "signals": (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)),
        "lock": LOCK.locked(),
        "scopes": [len(each.entries) for each in every_scopes()],
    }


@functools.cache
def every_scopes() -> list[Scopes]:
    """The tables of all modules of the package."""
    modules = [m for name, m in sys.modules.items() if name.startswith("pyggml.")]
    found = [v for m in modules for v in vars(m).values() if isinstance(v, Scopes)]
    return list({id(each): each for each in found}.values())


MANAGERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "alone": pg.alone,
    "autocast": pg.autocast,
    "capture_log": capture_log,
    "detect_anomaly": pg.detect_anomaly,
    "dropout": lambda: DROPOUT,
    "empty_weights": nn.init.empty_weights,
    "guard": InterruptGuard,
    "if_free": lambda: IfFree(LOCK),
    "listen": lambda: listen(print_nothing),
    "mode": lambda: in_mode(LAYER, training=False),
    "observe": lambda: observers.observe(print_nothing),
    "profile": pg.profile,
    "scope": lambda: Scope(SCOPES, 1),
    "trace": lambda: Trace("test", [SCALAR.node]),
    "undivided": Undivided,
}
SCOPES = Scopes()


def print_nothing(node: Any) -> None:
    """Listen to a node."""


@pytest.mark.parametrize("name", MANAGERS)
def test_a_with_statement(name: str) -> None:
    make, want = MANAGERS[name], thread_state()

    def inside() -> None:
        with make():
            pass

    def look(n: int) -> None:
        assert thread_state() == want, n

    interrupted(inside, look)


@pytest.mark.parametrize("name", ["autocast", "guard", "trace"])
def test_an_error_inside_of_a_with_statement(name: str) -> None:
    make, want = MANAGERS[name], thread_state()

    def inside() -> None:
        try:
            with make():
                raise KeyError
        except KeyError:
            pass

    def look(n: int) -> None:
        assert thread_state() == want, n

    interrupted(inside, look)


def _averaged(make: Callable[[optim.EMA], AbstractContextManager[None]]) -> Any:
    """A block in which a model has its averages, and the weights that are looked at."""
    model = nn.Linear(2, 2)
    ema = optim.EMA(model, decay=0.5, warmup=False)
    model.weight.copy_(np.eye(2, dtype=np.float32))

    def look() -> Any:
        ema.state_dict()  # raises where they are lent
        return model.weight.tolist()

    return lambda: make(ema), look


def _quantized() -> Any:
    """A block in which a model has quantised tensors, and its parameters."""
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 2))
    aware = train.quantization_aware(model, optim.SGD(model, lr=0.1), "q8_0")
    return aware.quantized, lambda: [(id(p), p.requires_grad) for p in model.parameters()]


def _merged() -> Any:
    """A block in which adapters are added to weights, and the model's layers."""
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 2))
    nn.apply_lora(model, rank=2, targets=["0", "1"])
    return (lambda: Merged(model, None)), lambda: [id(m) for _, m in model.named_modules()]


def _listening() -> Any:
    """A block in which a model's matrices have hooks, and how many they are."""
    model = Llama(LlamaConfig(vocab_size=8, context=8, n_embd=8, n_layer=1, n_head=1))
    return (lambda: Listening(model)), lambda: [
        dict(vars(m).get("_forward_pre_hooks", {})) for _, m in model.named_modules()
    ]


FOR_A_WHILE = pytest.mark.parametrize(
    "make",
    [
        lambda: _averaged(lambda ema: ema.applied()),
        lambda: _averaged(lambda ema: ema.lent(LOCKS, None)),
        _quantized,
        _merged,
        _listening,
    ],
    ids=["applied", "lent", "quantized", "merged", "listening"],
)


@FOR_A_WHILE
def test_what_a_model_has_for_a_while(make: Callable[[], Any]) -> None:
    """Its own comes back with the exception, also while the traceback is alive."""
    block, look = make()
    own, kept = look(), list[KeyboardInterrupt]()

    def inside() -> None:
        with block():
            pass

    for n in range(1, 5000, 3):
        trace = _Interrupt(n, "ema.py", "undivided.py", "quantized.py", "results.py")
        sys._getframe().f_trace_opcodes = True
        try:
            sys.settrace(trace)
            inside()
        except KeyboardInterrupt as error:
            kept.append(error)
        finally:
            sys.settrace(None)
        assert look() == own, n
        give_back_locks()
        if trace.left > 0:
            break
    assert len(kept) > 50


def test_a_signal_while_hooks_are_added() -> None:
    """What a block changes while handlers wait is whole, whichever bytecode the signal meets."""
    block, look = _listening()
    own, interrupts = look(), 0

    def inside() -> None:
        with block():
            pass

    for n in range(1, 5000, 3):
        trace = _Signal(n, "hooks.py", "importance.py")
        sys._getframe().f_trace_opcodes = True
        try:
            sys.settrace(trace)
            inside()
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            sys.settrace(None)
        give_back_locks()
        assert look() == own, n
        if trace.left > 0:
            break
    assert interrupts > 50


def _adapters() -> tuple[Any, Any, Any]:
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 2))
    nn.apply_lora(model, rank=2, targets=["0", "1"])
    state = nn.lora_state_dict(model)
    return partial(nn.load_lora_state_dict, model), partial(nn.lora_state_dict, model), state


def _weights() -> tuple[Any, Any, Any]:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    return model.load_state_dict, model.state_dict, model.state_dict()


@pytest.mark.parametrize("make", [_weights, _adapters])
def test_a_signal_while_a_state_is_loaded(make: Callable[[], tuple[Any, Any, Any]]) -> None:
    """All of it has been loaded, or none."""
    load, read, state = make()
    loaded = {False: 0, True: 0}
    for n in range(1, 5000, 3):
        given = {name: array + np.float32(n) for name, array in state.items()}
        trace = _Signal(n, "state.py", "merge.py", "module.py", "storage.py", "live.py")
        sys._getframe().f_trace_opcodes = True
        try:
            sys.settrace(trace)
            load(given)
        except KeyboardInterrupt:
            sys.settrace(None)
            now = read()
            which = {bool((now[name] == given[name]).all()) for name in given}
            assert len(which) == 1, n
            loaded[which.pop()] += 1
        finally:
            sys.settrace(None)
        give_back_locks()
        if trace.left > 0:
            break
    assert loaded[False] > 20
    assert loaded[True] > 2


@FOR_A_WHILE
def test_what_a_model_has_in_an_exit_stack(make: Callable[[], Any]) -> None:
    """Its own comes back at the latest when nothing holds the traceback."""
    block, look = make()
    own = look()

    def inside() -> None:
        with ExitStack() as stack:
            stack.enter_context(block())

    interrupts = 0
    for n in range(1, 5000, 3):
        trace = _Interrupt(n, "contextlib.py", "undivided.py", "scopes.py")
        sys._getframe().f_trace_opcodes = True
        try:
            sys.settrace(trace)
            inside()
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            sys.settrace(None)
        gc.collect()
        assert look() == own, n
        for each in (LOCKS, COMPUTE_LOCK):
            with pytest.raises(RuntimeError):
                each.release()
        if trace.left > 0:
            break
    assert interrupts > 50


class _Changes(Undone):
    """A block that is interrupted while it puts back.

    Args:
        signals: that come then.
    """

    def __init__(self, signals: int):
        super().__init__(LOCKS)
        self.signals, self.has_changed = signals, False

    def enter(self) -> None:
        self.has_changed = True

    def undo(self) -> None:
        if self.has_changed:
            while self.signals > 0:
                self.signals -= 1
                signal.raise_signal(signal.SIGINT)
            self.has_changed = False


def _in_with(block: _Changes) -> None:
    with block:
        pass


def _in_failing_with(block: _Changes) -> None:
    with block:
        raise KeyError


def _in_stack(block: _Changes) -> None:
    with ExitStack() as stack:
        stack.enter_context(block)


def _in_stack_that_fails(block: _Changes) -> None:
    with ExitStack() as stack:
        stack.enter_context(block)
        raise KeyError


def _by_hand(block: _Changes) -> None:
    block.__enter__()
    block.__exit__(None, None, None)


@pytest.mark.skipif(sys.platform == "win32", reason="no handler waits there")
@pytest.mark.parametrize("signals", [1, 2, 3, 4])  # a third one does not wait
@pytest.mark.parametrize(
    "use", [_in_with, _in_failing_with, _in_stack, _in_stack_that_fails, _by_hand]
)
def test_signals_while_it_is_put_back(use: Callable[[_Changes], None], signals: int) -> None:
    """All is put back before an exception goes on, and no signal is lost."""
    block, handled = _Changes(signals), list[bool]()

    def handler(signum: int, frame: FrameType | None) -> None:
        handled.append(block.has_changed)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    try:
        try:
            try:
                use(block)
            except (KeyboardInterrupt, KeyError):
                assert not block.has_changed
            settle()  # those that waited come here at the latest
        except KeyboardInterrupt:
            pass
        # The first two come as one, at the end.
        assert handled == [True] * (signals - 2) + [False]
        with pytest.raises(RuntimeError):
            LOCKS.release()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)  # nothing waits any more
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_block_that_is_entered_cannot_be_copied() -> None:
    block = _Changes(0)
    with block, pytest.raises(RuntimeError, match="inside of itself"):
        copy.copy(block)
    _in_with(copy.copy(block))


def test_in_exit_stacks_and_as_decorators() -> None:
    with ExitStack() as stack:
        for make in MANAGERS.values():
            stack.enter_context(make())
        assert rounding()
        assert outer()
    assert not rounding()
    assert outer() is None

    @pg.autocast()
    def depth(n: int) -> int:
        assert rounding()
        return depth(n - 1) if n else 0

    assert depth(3) == 0
    assert not rounding()
    again = pg.autocast()
    with again:
        assert rounding()
    with again, pytest.raises(RuntimeError), again:
        raise AssertionError
    assert not rounding()


def test_scopes_of_a_thread() -> None:
    """A scope that is made in one thread is entered in another one."""
    scope, seen = pg.autocast(), list[int]()

    def work() -> None:
        with scope:
            seen.append(rounding())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen[0]
    assert not rounding()
