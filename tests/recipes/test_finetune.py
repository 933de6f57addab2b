# SPDX-License-Identifier: MIT
"""Fine-tuning: files, exact resume, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pyggml.data import Tokenizer
from pyggml.errors import ConfigError, FormatError, OutOfMemoryError
from pyggml.io import read_gguf
from pyggml.models import Llama, LlamaConfig, load, load_lora
from pyggml.models.quantization import quantize_gguf
from pyggml.recipes import FinetuneConfig, FinetuneRun, export_checkpoint, finetune
from pyggml.train import Callback, list_checkpoints

SMALL = {"seq_len": 24, "batch_size": 4, "steps": 6, "warmup": 1, "threads": 1, "lr": 1e-2,
         "lora_rank": 4, "answers": 1, "answer_tokens": 4, "report": False}  # fmt: skip


def write_pairs(path, count=24, word="It is"):
    rows = [{"prompt": f"{n} and {n}? ", "completion": f"{word} {2 * n}."} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with a quantised base, another one, and examples."""
    folder = tmp_path_factory.mktemp("finetune")
    texts = [f"{n} and {n}? It is {2 * n}." for n in range(30)]
    tokenizer = Tokenizer.train_bpe(texts, 280)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "n_ffn": 64, "context": 32}
    for name in ("base.gguf", "other.gguf"):
        model = Llama(LlamaConfig(vocab_size=tokenizer.vocab_size, **sizes))
        model.save(folder / name, tokenizer, dtype="q8_0")
    write_pairs(folder / "pairs.jsonl")
    return folder


def options(here, name, **changes):
    given = {"model": here / "base.gguf", "data": here / "pairs.jsonl", "artifact_dir": here / name}
    return {**given, **SMALL, **changes}


@pytest.fixture(scope="module")
def trained(here):
    """A finished run with a merged model."""
    return finetune(**options(here, "run", merge="base", show_sample=True))


def test_a_chat_template_may_be_a_path():
    config = FinetuneConfig(model="base.gguf", data="chats.jsonl", chat_template=Path("t.jinja"))
    assert config["chat_template"] == "t.jinja"


def test_the_folder_has_adapter_merged_model_and_answers(here, trained):
    names = {path.name for path in trained.artifact.files()}
    assert {"adapter.gguf", "adapter", "model.gguf", "answers.json"} <= names
    assert not {"report.html", "loss.png"} & names
    found = trained.comparison
    assert found.after.loss < found.before.loss
    assert abs(found.merged.loss - found.after.loss) < 0.02
    assert [a.prompt for a in found.answers] == [a.prompt for a in found.base_answers]
    assert found.answers[0].expected.startswith("It is ")
    assert json.loads((here / "run" / "answers.json").read_text()) == found.to_dict()
    with read_gguf(here / "run" / "model.gguf") as file:
        assert file.tensors["blk.0.ffn_up.weight"].dtype == "q8_0"
    assert str(here / "run" / "adapter.gguf") in trained.commands()[-1]


def test_the_adapter_of_the_folder_is_the_trained_one(here, trained):
    ids = np.arange(8, dtype=np.int32)[None]
    logits = []
    for path in (here / "run" / "adapter.gguf", here / "run" / "adapter"):
        model, _ = load(here / "base.gguf", keep_types=True)
        load_lora(model, path)
        logits.append(model.eval()(trained_ids(ids)).numpy())
    ours = trained.model.eval()(trained_ids(ids)).numpy()
    for each in logits:
        np.testing.assert_allclose(each, ours, rtol=0, atol=1e-6)


def trained_ids(ids):
    import pyggml as pg

    return pg.tensor(ids)


def test_checkpoints_hold_the_adapters_alone(trained):
    newest = list_checkpoints(trained.artifact.checkpoints)[-1]
    adapters = (trained.artifact.adapter).stat().st_size
    assert (newest / "model.safetensors").stat().st_size < 2 * adapters
    with pytest.raises(FormatError, match="finetune"):
        export_checkpoint(newest, trained.artifact.path / "never.gguf")


def test_the_sample_marks_completions_and_their_end(trained):
    for example in trained.sample():
        (prompt, first), (completion, second) = example
        assert (first, second) == (False, True)
        assert prompt.endswith("? ")
        assert completion.startswith("It is ")
        assert completion.endswith("<|endoftext|>")


class StopAt(Callback):
    """Raises after a step."""

    def __init__(self, step, error):
        self.at, self.error = step, error

    def on_step(self, trainer, metrics):
        if metrics.step == self.at:
            raise self.error


def test_a_resumed_run_ends_with_the_same_bits(here, trained):
    given = options(here, "broken", save_every=2, merge="base")
    with pytest.raises(RuntimeError, match="stop"):
        finetune(**given, callbacks=[StopAt(3, RuntimeError("stop"))])
    run = finetune(artifact_dir=here / "broken", resume=True)
    assert run.comparison.before == trained.comparison.before
    for name in ("adapter.gguf", "model.gguf"):
        assert (here / "broken" / name).read_bytes() == (here / "run" / name).read_bytes()


@pytest.mark.parametrize("changes", [{"merge": "base"}, {"full": True, "lora_rank": None}])
def test_a_finished_run_is_written_again_as_it_was(here, tmp_path, changes):
    """Its process takes no step, and the file names the model that was trained all the same."""
    finetune(**options(here, tmp_path / "run", **changes))
    path = tmp_path / "run" / "model.gguf"
    before = path.read_bytes()
    with read_gguf(path) as file:
        assert file.metadata["general.base_model.count"] == 1
    path.unlink()
    finetune(artifact_dir=tmp_path / "run", resume=True)
    assert path.read_bytes() == before


def test_the_memory_limit_is_chosen_for_the_machine(here, monkeypatch):
    given = {"batch_size": 8, "steps": 1, "packing": False}
    plan = FinetuneRun.prepare(FinetuneConfig(**options(here, "planned", **given))).trainer.plan()
    monkeypatch.setattr("pyggml.train.trainer.free_memory", lambda model: plan.total)
    run = FinetuneRun.prepare(FinetuneConfig(**options(here, "limited", **given)))
    assert run.config.trainer.memory_limit == "auto"
    assert run.trainer.plan().total <= 0.9 * plan.total
    assert run.model.checkpointing


def test_memory_that_runs_out_leaves_the_checkpoint(here):
    given = options(here, "oom", save_every=2, lora_dropout=0.1)
    with pytest.raises(OutOfMemoryError, match="step-000002"):
        finetune(**given, callbacks=[StopAt(3, OutOfMemoryError("no room"))])
    assert finetune(artifact_dir=here / "oom", resume=True).result.step == 6


def test_other_data_and_another_base_are_refused(here, trained, tmp_path):
    shutil.copytree(here / "run", tmp_path / "run")
    changes = {
        "data": write_pairs(tmp_path / "changed.jsonl", word="That is"),
        "model": here / "other.gguf",
    }
    for name, value in changes.items():
        with pytest.raises(FormatError, match=f"`{name}`"):
            finetune(artifact_dir=tmp_path / "run", resume=True, **{name: value})
    moved = shutil.copy(here / "pairs.jsonl", tmp_path / "moved.jsonl")
    assert (
        finetune(artifact_dir=tmp_path / "run", resume=True, data=moved, steps=7).result.step == 7
    )


def test_an_adapter_goes_on_and_one_of_another_base_is_refused(here, trained):
    adapter = here / "run" / "adapter.gguf"
    changes = {"adapter": adapter, "lora_rank": None}
    run = FinetuneRun.prepare(FinetuneConfig(**options(here, "more", **changes)))
    assert run.model.num_parameters(trainable_only=True) > 0
    with pytest.raises(FormatError, match="other"):
        finetune(**options(here, "wrong", model=here / "other.gguf", **changes))
    with pytest.raises(FormatError, match=r"name .*adapter\.gguf"):
        load_lora(load(here / "base.gguf", keep_types=True)[0], here / "run")
    assert not (here / "wrong").exists()


def test_frozen_layers_of_an_adapter_that_goes_on_stay(here, trained):
    adapter, frozen = here / "run" / "adapter.gguf", "*q_proj*"
    changes = {"adapter": adapter, "lora_rank": None, "freeze": (frozen,)}
    run = finetune(**options(here, "partly", **changes))
    before, after = load(here / "base.gguf")[0], load(here / "base.gguf")[0]
    load_lora(before, adapter)
    load_lora(after, here / "partly" / "adapter.gguf")
    pairs = zip(before.named_parameters(), after.named_parameters(), strict=True)
    same = {n: np.array_equal(a.numpy(), b.numpy()) for (n, a), (_, b) in pairs if "lora" in n}
    assert all(is_same == ("q_proj" in name) for name, is_same in same.items())
    assert run.comparison.first == "before"
    assert trained.comparison.first == "base"
    with pytest.raises(ConfigError, match="`freeze` leaves no parameter"):
        finetune(**options(here, "none", **{**changes, "freeze": ("*",)}))


def test_a_teacher_may_fill_its_vocabulary_up_further(here, tmp_path):
    _, tokenizer = load(here / "base.gguf")
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 32, "n_ffn": 64, "context": 32}
    big = Llama(LlamaConfig(vocab_size=tokenizer.vocab_size + 64, **sizes))
    big.save(tmp_path / "big.gguf", tokenizer)
    more = {"teacher": tmp_path / "big.gguf", "teacher_cache": tmp_path / "cache"}
    run = finetune(**options(here, "from_big", **more))
    assert run.result.step == 6
    Llama(LlamaConfig(vocab_size=300, **sizes)).save(
        tmp_path / "foreign.gguf", Tokenizer.train_bpe(["other words alone"] * 3, 270)
    )
    with pytest.raises(ConfigError, match="must have the tokens of the base; token"):
        finetune(**options(here, "from_other", **{**more, "teacher": tmp_path / "foreign.gguf"}))


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"teacher_alpha": 0.3}, "teacher"),
        ({"teacher_top_k": 3}, "teacher"),
        ({"qat_every": 4}, "qat"),
        ({"imatrix": "im.gguf"}, "merge"),
    ],
)
def test_options_that_nothing_reads_are_refused(here, changes, needed):
    [name] = changes
    with pytest.raises(ConfigError, match=f"`{name}` needs `{needed}`; got no `{needed}`"):
        FinetuneConfig(**options(here, "unread", **changes))


def test_other_originals_are_refused(here, tmp_path):
    originals = tmp_path / "originals.gguf"
    model, tokenizer = load(here / "base.gguf")
    model.save(originals, tokenizer)
    given = options(here, "pissa", lora_init="pissa", originals=originals, save_every=3)
    finetune(**given)
    rng = np.random.default_rng(0)
    for value in model.parameters():
        noise = rng.normal(0, 0.02, value.shape).astype(np.float32)
        value.copy_(value.numpy() * 1.05 + noise)
    model.save(originals, tokenizer)
    with pytest.raises(FormatError, match=r"`originals`=.* must be the model that the run"):
        finetune(artifact_dir=here / "pissa", resume=True, steps=8)


@pytest.mark.parametrize("option", ["adapter", "teacher"])
def test_another_adapter_or_teacher_is_refused_on_resume(here, trained, tmp_path, option):
    given = tmp_path / "given.gguf"
    first, then = ("run/adapter.gguf", "x") if option == "adapter" else ("other.gguf", "base.gguf")
    more = {"lora_rank": None} if option == "adapter" else {"teacher_cache": tmp_path / "cache"}
    shutil.copy(here / first, given)
    folder = tmp_path / "run"
    finetune(**options(here, "x", **more, **{option: given}, artifact_dir=folder, steps=2))
    if option == "adapter":
        other = finetune(**options(here, "x", artifact_dir=tmp_path / "x", lora_init="gaussian"))
        shutil.copy(other.artifact.adapter, given)
    else:
        shutil.copy(here / then, given)
    with pytest.raises(FormatError, match=f"`{option}`=.* must be the model that the run began"):
        finetune(artifact_dir=folder, resume=True, steps=8)
    given.unlink()
    with pytest.raises(FormatError, match=f"`{option}`=.*given"):
        finetune(artifact_dir=folder, resume=True, steps=8)


@pytest.mark.parametrize("option", ["model", "adapter", "merged"])
def test_a_run_is_not_overwritten_that_the_new_one_reads(here, trained, tmp_path, option):
    folder = shutil.copytree(here / "run", tmp_path / "run")
    given = {
        "model": {"model": folder},
        "merged": {"model": folder / "model.gguf"},
        "adapter": {"adapter": folder / "adapter", "lora_rank": None},
    }[option]
    before = {path: path.stat().st_size for path in folder.rglob("*")}
    with pytest.raises(ConfigError, match=r"`overwrite` removes the run .*give another"):
        finetune(**options(here, "x", **given, artifact_dir=folder), overwrite=True)
    assert before == {path: path.stat().st_size for path in folder.rglob("*")}


def test_full_training_keeps_frozen_tables_as_they_are(here):
    given = options(here, "full", full=True, lora_rank=None, optimizer="adamw8bit")
    run = finetune(**given, freeze=["model.embed_tokens"])
    assert run.comparison.after.loss < run.comparison.before.loss
    with read_gguf(here / "base.gguf") as base, read_gguf(here / "full" / "model.gguf") as full:
        name = "token_embd.weight"
        assert np.array_equal(base.array(name), full.array(name))
        assert full.tensors["blk.0.ffn_up.weight"].dtype == "f32"


def test_rounded_training_resumes_and_writes_the_rounded_weights(here):
    more = {"full": True, "lora_rank": None, "qat": "q4_0", "freeze": ["model.norm"]}
    whole = finetune(**options(here, "qat", **more, save_every=2))
    assert whole.comparison.after.loss < whole.comparison.before.loss
    file = here / "qat" / "model.gguf"
    with read_gguf(file) as found:
        assert found.tensors["blk.0.ffn_up.weight"].dtype == "q4_0"
    stop = StopAt(3, RuntimeError("stop"))
    with pytest.raises(RuntimeError, match="stop"):
        finetune(**options(here, "qat2", **more, save_every=2), callbacks=[stop])
    finetune(artifact_dir=here / "qat2", resume=True)
    assert (here / "qat2" / "model.gguf").read_bytes() == file.read_bytes()


def test_a_teacher_is_read_once_and_learnt_from(here, tmp_path):
    cache = tmp_path / "cache"
    more = {"teacher": here / "other.gguf", "teacher_cache": cache, "teacher_alpha": 1.0}
    runs = [finetune(**options(here, f"taught{n}", **more, steps=n)) for n in (1, 6)]
    assert len(list(cache.iterdir())) == 1
    # The distance to the teacher on the same rows.
    batch = next(iter(runs[0].trainer.loader.once()))
    first, last = (run.trainer.train_step.loss_sum(batch)[0] for run in runs)
    assert last < first
    with pytest.raises(ConfigError, match="`teacher`"):
        finetune(**options(here, "y", **more, packing=False))


def test_long_examples_are_counted(here):
    notes = []
    given = options(here, "long", seq_len=8, too_long="split", steps=1)
    finetune(**given, note=notes.append)
    assert any("rows are longer than `seq_len`=8" in note for note in notes)


def test_dora_is_merged_for_llama_cpp(here):
    run = finetune(**options(here, "dora", dora=True, rank_pattern={"down_proj": 2}, steps=2))
    assert not run.artifact.adapter.exists()
    assert run.artifact.peft.is_dir()
    assert run.comparison.merged is not None
    assert run.commands() == [f"llama-cli -m {run.artifact.model}"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"targets": ["nope"]}, "targets"),
        ({"lora_rank": 4000}, "lora_rank"),
        ({"freeze": ["nope"]}, "freeze"),
        ({"lora_init": "nope"}, "lora_init"),
        ({"lora_init": "loftq"}, "originals"),
        ({"rank_pattern": {"nope": 3}}, "rank_pattern"),
        ({"rank_pattern": {"q_proj": "x"}}, "rank_pattern"),
        ({"teacher": "base.gguf", "label_smoothing": 0.1}, "label_smoothing"),
        ({"seq_len": 64}, "seq_len"),
        ({"merge": "q9"}, "merge"),
        ({"merge": "iq2_xxs"}, "merge"),
        ({"merge": "q4_0", "imatrix": "chats.jsonl"}, "imatrix"),
        ({"full": True}, "lora_rank"),
        ({"qat": "q4_0"}, "qat"),
        ({"model": "run"}, "adapter"),
    ],
)
def test_options_that_cannot_be_are_named(here, trained, tmp_path, changes, named):
    given = options(here, "never")
    if "model" in changes:
        folder = shutil.copytree(here / "run", tmp_path / "run")
        (folder / "model.gguf").unlink()
        changes = {"model": folder}
    if "imatrix" in changes:
        changes = {**changes, "imatrix": given["data"]}
    with pytest.raises(ConfigError, match=f"`{named}`"):
        finetune(**{**given, **changes})
    assert not (here / "never").exists()


def test_a_base_with_nan_is_refused_before_the_first_step(here, tmp_path):
    model, tokenizer = load(here / "base.gguf")
    weight = model.model.layers[0].mlp.up_proj.weight
    values = weight.numpy().copy()
    values[0, 0] = np.nan
    weight.copy_(values)
    model.save_gguf(tmp_path / "nan.gguf", tokenizer)
    with pytest.raises(FormatError, match=r"nan\.gguf.*finite"):
        finetune(**{**options(here, "nan"), "model": tmp_path / "nan.gguf"})
    shutil.rmtree(here / "nan")


def rows_of_pairs(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["list", "iterator", "pandas", "datasets"])
def test_rows_of_a_program_train_as_their_file_does(here, trained, kind):
    data = rows = rows_of_pairs(here / "pairs.jsonl")
    if kind == "iterator":
        data = iter(rows)
    if kind == "pandas":
        data = pytest.importorskip("pandas").DataFrame(rows)
    if kind == "datasets":
        data = pytest.importorskip("datasets").Dataset.from_list(rows)
    run = finetune(**options(here, kind, merge="base", data=data))
    adapter = here / kind / "adapter.gguf"
    assert run.data == trained.data
    assert adapter.read_bytes() == (here / "run" / "adapter.gguf").read_bytes()


def test_a_run_on_rows_may_be_overwritten(here):
    rows = rows_of_pairs(here / "pairs.jsonl")
    for _ in range(2):
        run = finetune(**options(here, "again", data=rows, steps=1), overwrite=True)
    assert run.artifact.rows.exists()


def test_rows_are_kept_for_resume(here, trained, tmp_path):
    rows = rows_of_pairs(here / "pairs.jsonl")
    given = options(here, "kept", save_every=2, merge="base", data=rows)
    with pytest.raises(RuntimeError, match="stop"):
        finetune(**given, callbacks=[StopAt(3, RuntimeError("stop"))])
    moved = (here / "kept").rename(tmp_path / "moved")
    with pytest.raises(FormatError, match=r"24 rows of .* tokens; got 23 rows of"):
        finetune(artifact_dir=moved, resume=True, data=rows[:-1])
    changed = [{**rows[0], "completion": "It is 1."}, *rows[1:]]
    with pytest.raises(FormatError, match="got as many of another content"):
        finetune(artifact_dir=moved, resume=True, data=changed)
    finetune(artifact_dir=moved, resume=True)
    assert (moved / "adapter.gguf").read_bytes() == (here / "run" / "adapter.gguf").read_bytes()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "at least one row"),
        ([{"prompt": "a", "completion": {1, 2}}], "row 0 must hold texts"),
        ([{"prompt": "a", "completion": "b"}, 3], "row 1 must be a mapping"),
        ([{"prompt": "a", "completion": "b"}, "x.jsonl"], "row 1 must be a mapping.*x.jsonl"),
        ({"prompt": ["a"], "completion": ["b"]}, "got a mapping: give a list of mappings"),
        (3, "`data` must be files or rows; got 3: give paths"),
        (None, "`data` must be files or rows; got None"),
    ],
)
def test_rows_that_are_none_are_refused(here, data, message):
    with pytest.raises((TypeError, ConfigError), match=message):
        finetune(**options(here, "never", data=data))
    assert not (here / "never").exists()


def test_answers_behind_the_cut_are_counted_by_themselves(here):
    rows = rows_of_pairs(here / "pairs.jsonl")
    rows[:3] = [{"prompt": "and " * 60, "completion": "No."}] * 3
    notes, alone = [], {"val_fraction": 0.0, "answers": 3, "answer_tokens": 64}
    finetune(**options(here, "cut", data=rows, **alone, steps=1), note=notes.append)
    assert any(note.startswith("note: 3 of these train nothing") for note in notes), notes
    with pytest.raises(FormatError, match="3 cut off: give a larger `seq_len`"):
        finetune(**options(here, "never", data=rows[:3], **alone))


def test_a_sample_is_printed(here, capsys):
    finetune(**options(here, "sample", show_sample=True, steps=1))
    printed = capsys.readouterr().out
    assert " and " in printed
    assert "[It is " in printed


def test_an_adapter_in_its_run_goes_on_with_another_type_of_its_base(here, trained):
    quantize_gguf(here / "base.gguf", here / "base-q4.gguf", "Q4_0", requantize=True)
    changes = {"model": here / "base-q4.gguf", "adapter": here / "run" / "adapter.gguf"}
    assert FinetuneRun.prepare(FinetuneConfig(**options(here, "q4", **changes, lora_rank=None)))


def test_a_finished_run_without_checkpoints_is_not_begun_anew(here, trained, tmp_path):
    folder = shutil.copytree(here / "run", tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")
    before = (folder / "adapter.gguf").read_bytes()
    with pytest.raises(FormatError, match=r"must hold a checkpoint.*`overwrite`"):
        finetune(artifact_dir=folder, resume=True, steps=8)
    assert (folder / "adapter.gguf").read_bytes() == before
    (folder / "model.gguf").unlink()
    with pytest.raises(FormatError, match=r"got the adapter adapter\.gguf alone"):
        load(folder)


def test_judged_answers_need_two_rows_on_each_side(here):
    rows = [{"prompt": f"{n}? ", "completion": "It is.", "label": n % 2 == 0} for n in range(12)]
    with pytest.raises(ConfigError, match=r"two rows or more.*`val_fraction`=0"):
        finetune(**options(here, "never", data=rows, method="kto"))
    with pytest.raises(FormatError, match="`method`=dpo or kto"):
        finetune(**options(here, "never", data=rows))
