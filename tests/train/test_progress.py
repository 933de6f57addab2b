# SPDX-License-Identifier: MIT
"""What a training and a loop show of their progress."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import ArrayDataset
from pyggml.debug.bars import NotebookBar, make_bar
from pyggml.train import History, Progress, Trainer


def _trainer(**given):
    pg.seed(1)
    model = pg.nn.Linear(4, 3)
    data = ArrayDataset(np.arange(32.0, dtype=np.float32).reshape(8, 4) / 32, np.arange(8) % 3)
    return Trainer(model, data, data, batch_size=4, steps=4, eval_every=2, **given)


def test_piped_lines_go_to_stderr(capsys):
    trainer = _trainer()
    trainer.fit()
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert not out
    assert "\x1b" not in err
    assert "\r" not in err
    assert sum(line.startswith("step ") for line in lines) == len(lines) == 6
    assert "examples/s" in lines[0]
    assert not trainer.callbacks


def test_nothing_is_shown_without_progress(capsys):
    _trainer().fit(progress=False)
    assert capsys.readouterr() == ("", "")
    with pytest.raises(TypeError, match="progress"):
        _trainer().fit(progress=1)


def test_a_progress_of_ones_own_is_the_only_one(capsys):
    class Own(Progress):
        def note(self, text):
            said.append(text)

    said = []
    _trainer(callbacks=[Own()]).fit()
    assert len(said) == 6
    assert capsys.readouterr() == ("", "")


def test_terminal_shows_a_bar(monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    _trainer().fit()
    out, err = capsys.readouterr()
    assert not out
    assert "4/4" in err
    assert err.count("validation loss") == 2
    assert "norm" not in err  # of plain lines


def test_terminal_without_rich_has_plain_lines(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("pyggml.debug.bars.find_spec", lambda name: None)
    _trainer().fit()
    assert "norm" in capsys.readouterr().err


def _notebook(monkeypatch):
    """Pretend to be a notebook, and return what is displayed: (kind, object)."""
    shown = []
    handle = SimpleNamespace(update=lambda each: shown.append(("update", each._repr_html_())))

    def display(each, display_id):
        shown.append(("display", each._repr_html_()))
        return handle

    fake = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    return shown


def test_notebook_updates_one_display(monkeypatch, capsys):
    shown = _notebook(monkeypatch)
    _trainer().fit()
    assert [kind for kind, _ in shown].count("display") == 1
    last = shown[-1][1]
    assert "value='4'" in last
    assert last.count("validation loss") == 2
    assert capsys.readouterr() == ("", "")


def test_notebook_bar_escapes_its_texts(monkeypatch):
    shown = _notebook(monkeypatch)
    bar = make_bar(3, 0, "<b>")
    assert isinstance(bar, NotebookBar)
    bar.note("<script>")
    bar.stop()
    assert "<script>" not in shown[-1][1]
    assert "&lt;script&gt;" in shown[-1][1]


def test_progress_of_a_loop(capsys):
    assert list(pg.progress(iter("abc"), "batch")) == ["a", "b", "c"]
    assert capsys.readouterr().err.startswith("batch 3  ")
    assert list(pg.progress([1, 2], show=False)) == [1, 2]
    for step in pg.progress(range(9)):
        if step == 4:
            break
    assert "step 4/9" in capsys.readouterr().err
    with pytest.raises(TypeError, match="items"):
        pg.progress(3)
    with pytest.raises(TypeError, match="name"):
        pg.progress([], name=3)


def test_history_is_a_table():
    trainer = _trainer(metrics=["accuracy"])
    result = trainer.fit(progress=False)
    history = trainer.history
    assert history["step"].tolist() == [1, 2, 3, 4]
    assert len(history) == 4
    assert history["loss"][-1] == result.loss
    assert np.isnan(history["validation/loss"]).tolist() == [True, False, True, False]
    assert history["validation/loss"][-1] == result.validation.loss
    assert "validation/accuracy" in history.columns
    with pytest.raises(KeyError, match="nothing"):
        history["nothing"]
    assert repr(history).endswith("4 rows")
    assert dict(history).keys() == history.to_dict().keys()
    assert re.fullmatch(
        r"Trainer\(\w+, step 4 of 4, \w+ with lr [\d.e-]+, batches of \d+\)", repr(trainer)
    )
    assert history._repr_html_().count("<tr>") == 5


def test_history_counts_in_the_units_of_the_task():
    trainer = _trainer()
    trainer.fit(progress=False)
    batch = trainer.history["examples"][0]
    assert trainer.history["examples"].tolist() == [batch, 2 * batch, 3 * batch, 4 * batch]
    assert (trainer.history["examples_per_s"] > 0).all()
    assert "tokens" not in trainer.history.columns
    assert History().columns[4:6] == ["tokens", "tokens_per_s"]


def test_history_drops_what_a_resumed_run_computes_again(tmp_path):
    trainer = _trainer(checkpoint_dir=tmp_path, save_every=2)
    trainer.fit(progress=False)
    first = trainer.history["loss"]
    trainer.resume(tmp_path / "step-000002")
    trainer.fit(progress=False)
    assert trainer.history["step"].tolist() == [1, 2, 3, 4]
    assert trainer.history["loss"].tolist() == first.tolist()
    assert len(trainer.history.evaluations) == 2


def test_history_for_pandas_and_matplotlib():
    trainer = _trainer()
    trainer.fit(progress=False)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    axes = trainer.history.plot()
    assert [line.get_label() for line in axes.lines] == ["loss", "validation/loss"]
    assert len(axes.lines[1].get_xdata()) == 2
    pandas = pytest.importorskip("pandas")
    frame = trainer.history.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == trainer.history.columns


def test_history_is_a_mapping_of_columns():
    trainer = _trainer()
    trainer.fit(progress=False)
    history = trainer.history
    assert "loss" in history
    assert "validation/loss" in history
    assert "accuracy" not in history
    assert list(history) == history.columns == [name for name, _ in history.items()]
    assert history.history["loss"].tolist() == history["loss"].tolist()
