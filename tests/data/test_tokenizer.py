# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers")
from pyggml.data import END_OF_TEXT, Tokenizer, embedded_text
from pyggml.data.text import chunks, encoding
from pyggml.errors import DTypeError, FormatError

SHARED = Path(__file__).parents[3] / "shared" / "data"
TEXT = ["Hello there, it's a test. 123\n\n  Indented é 漢字 🚀🚁!", "The other one."]
UNICODE = st.text(st.characters(exclude_categories=["Cs"]))

BPE = Tokenizer.train_bpe(TEXT * 3, 320)
CHARS = Tokenizer.chars(TEXT)


@settings(deadline=None)
@given(UNICODE)
def test_bytes_represent_any_text(text: str) -> None:
    ids = BPE.encode(text)
    assert ids.dtype == np.int32
    assert BPE.decode(ids) == text
    stream = BPE.stream()
    assert "".join([*map(stream.push, ids), stream.finish()]) == text


@settings(deadline=None)
@given(st.text(st.sampled_from(sorted(set("".join(TEXT))))))
def test_characters_are_one_token_each(text: str) -> None:
    ids = CHARS.encode(text)
    assert ids.size == len(text)
    assert CHARS.decode(ids) == text


@settings(deadline=None)
@given(st.lists(st.integers(0, 330)), st.booleans())
def test_streaming_equals_decoding(ids: list[int], skip: bool) -> None:
    stream = BPE.stream(skip_special=skip)
    parts = [*map(stream.push, ids), stream.finish()]
    assert "".join(parts) == BPE.decode(ids, skip_special=skip)


def test_streaming_never_gives_half_a_character() -> None:
    plain = Tokenizer.train_bpe(["a"], 257)
    stream = plain.stream()
    ids = plain.encode("é🚀")
    assert [stream.push(i) for i in ids] == ["", "é", "", "", "", "🚀"]
    assert stream.push(ids[0]) == ""
    assert stream.finish() == "\ufffd"
    assert stream.finish() == ""
    assert stream.push(0) == ""
    assert plain.stream(skip_special=False).push(0) == END_OF_TEXT
    with pytest.raises(ValueError, match=">= 0"):
        stream.push(-1)


def test_special_tokens_in_text_are_text_unless_asked() -> None:
    text = f"a{END_OF_TEXT}b"
    assert BPE.eos_id == BPE.bos_id == 0
    assert 0 not in BPE.encode(text)
    assert BPE.decode(BPE.encode(text)) == text
    assert BPE.encode(text, parse_special=True).tolist() == [
        *BPE.encode("a"),
        0,
        *BPE.encode("b"),
    ]
    assert BPE.decode([0, *BPE.encode("a")], skip_special=True) == "a"


def test_training_gives_the_size_asked_for() -> None:
    tokenizer = Tokenizer.train_bpe(embedded_text(), 1000)
    assert tokenizer.vocab_size == len(tokenizer) == 1000
    assert tokenizer.token(0) == END_OF_TEXT
    assert tokenizer.token_id(END_OF_TEXT) == 0
    assert tokenizer.token(1000) is None
    text = "\n".join(embedded_text()[:5])
    assert len(tokenizer.encode(text)) < 0.5 * len(text)
    # Too little text gives fewer tokens.
    assert Tokenizer.train_bpe(["ab"], 1000).vocab_size < 300


TRAIN = """
from pyggml.data import Tokenizer, embedded_text
print(Tokenizer.train_bpe(embedded_text(), 800).to_json())
"""


def test_training_is_deterministic_across_processes() -> None:
    runs = {
        subprocess.run(
            [sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(runs) == 1


def test_documents_are_one_stream_with_ends() -> None:
    ids = BPE.encode_documents(TEXT)
    expected = [[*BPE.encode(text), 0] for text in TEXT]
    assert ids.tolist() == [*expected[0], *expected[1]]
    assert ids.dtype == np.int32
    without = BPE.encode_documents(TEXT, eos=False)
    assert without.tolist() == [*expected[0][:-1], *expected[1][:-1]]
    assert BPE.encode_documents([]).size == 0
    assert BPE.encode_documents(["", "a"]).tolist() == [0, *BPE.encode("a"), 0]


@pytest.mark.parametrize("tokenizer", [BPE, CHARS, Tokenizer.train_bpe(embedded_text(), 900)])
def test_cutting_long_documents_changes_nothing(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    manual = "\n".join(embedded_text()[:20])
    document = "Hello there\n  Indented\n\n" * 60 if tokenizer is CHARS else manual
    whole = [*tokenizer.encode(document), tokenizer.eos_id]
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 200)
    monkeypatch.setattr(encoding, "_BATCH_CHARS", 1000)
    assert len(list(chunks.cut([document]))) > 5
    assert tokenizer.encode_documents([document]).tolist() == whole


@pytest.mark.parametrize(
    ("text", "match"),
    [("Hello z", r"'z' \(U\+007A\) at offset 6"), ("漣", r"U\+6F23"), ("\0", r"U\+0000")],
)
def test_unknown_characters_are_named(text: str, match: str) -> None:
    for encode in (CHARS.encode, lambda t: CHARS.encode_documents([t])):
        with pytest.raises(ValueError, match=match):
            encode(text)
    with pytest.raises(ValueError, match=match.replace("offset 6", "offset 19")):
        CHARS.encode(END_OF_TEXT + text, parse_special=True)


def test_half_a_pair_of_surrogates_is_named() -> None:
    for make in (
        BPE.encode,
        lambda t: Tokenizer.chars([t]),
        lambda t: Tokenizer.train_bpe([t], 300),
    ):
        with pytest.raises(ValueError, match=r"U\+D800"):
            make("a\ud800")


def test_characters_know_the_end_of_text_only_when_parsed() -> None:
    assert CHARS.encode(f"H{END_OF_TEXT}", parse_special=True).tolist()[1] == CHARS.eos_id
    with pytest.raises(ValueError, match="'<'"):
        CHARS.encode(END_OF_TEXT)


def test_decoding_filler_tokens_gives_nothing() -> None:
    assert BPE.decode([BPE.vocab_size + 3, *BPE.encode("a")]) == "a"
    with pytest.raises(ValueError, match=">= 0"):
        BPE.decode([-1])


@pytest.mark.parametrize("decode", [BPE.decode, lambda ids: [BPE.stream().push(i) for i in ids]])
def test_ids_that_are_none_are_refused(decode: Callable) -> None:
    with pytest.raises(ValueError, match="got 1000000"):
        decode([10**6])
    with pytest.raises(DTypeError, match=r"integers; got 1\.5"):
        decode([1.5])
    with pytest.raises(DTypeError, match="integers"):
        decode(np.array([1.0]))


@pytest.mark.parametrize("size", ["99999999999999999999", "9" * 5000, "1000001"])
def test_sizes_beyond_any_vocabulary_are_refused(size: str) -> None:
    with pytest.raises(ValueError, match=r"^Tokenizer\.(train_bpe|from_spec): .*(99|1000001)"):
        Tokenizer.from_spec(f"bpe:{size}", ["a text"])
    with pytest.raises(ValueError, match=r"Tokenizer\.train_bpe: vocab_size .* <= 1000000"):
        Tokenizer.train_bpe(["a text"], 10**20)


def test_an_empty_path_is_no_tokenizer() -> None:
    with pytest.raises(FormatError, match=r"''.*no such file"):
        Tokenizer.from_spec("", ["a text"])


@pytest.mark.parametrize("tokenizer", [BPE, CHARS])
def test_saving_and_reading(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    assert [p.name for p in tmp_path.iterdir()] == ["tokenizer.json"]
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        again = Tokenizer.from_file(path)
        assert (again.vocab_size, again.eos_id) == (tokenizer.vocab_size, tokenizer.eos_id)
        assert again.encode(TEXT[0]).tolist() == tokenizer.encode(TEXT[0]).tolist()


def test_unusual_ends_of_text_are_remembered(tmp_path: Path) -> None:
    BPE.save(tmp_path / "a.json")
    tokenizer = Tokenizer.from_file(tmp_path / "a.json", bos="!", eos="H")
    assert tokenizer.token(tokenizer.eos_id or 0) == "H"
    (tmp_path / "b").mkdir()
    tokenizer.save(tmp_path / "b" / "tokenizer.json")
    again = Tokenizer.from_file(tmp_path / "b")
    assert (again.bos_id, again.eos_id) == (tokenizer.bos_id, tokenizer.eos_id)
    with pytest.raises(ValueError, match="eos must be in the vocabulary"):
        Tokenizer.from_file(tmp_path / "a.json", eos="nope")


def test_specifications(tmp_path: Path) -> None:
    assert Tokenizer.from_spec("chars", TEXT).vocab_size == CHARS.vocab_size
    assert Tokenizer.from_spec("bpe:300", TEXT).vocab_size == 300
    BPE.save(tmp_path / "t.json")
    assert Tokenizer.from_spec(tmp_path / "t.json", []).vocab_size == BPE.vocab_size
    for spec in ("bpe:", "bpe:many", "bpe:-5", "bpe:²"):
        with pytest.raises(ValueError, match="bpe:SIZE"):
            Tokenizer.from_spec(spec, TEXT)
    with pytest.raises(ValueError, match=">= 257"):
        Tokenizer.from_spec("bpe:256", TEXT)
    with pytest.raises(FormatError, match="chars, or bpe:SIZE"):
        Tokenizer.from_spec("bytes", TEXT)
    for spec in ("chars", "bpe:300"):
        with pytest.raises(ValueError, match="needs text"):
            Tokenizer.from_spec(spec, [])


@pytest.mark.parametrize(
    "content",
    [b"", b"not json", b"{}", b"[]", b"\xff\xfe", b'{"version": "1.0", "model": {"type": "BPE"}}'],
)
def test_files_that_are_no_tokenizers(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(FormatError, match=r"t\.json"):
        Tokenizer.from_file(tmp_path / "t.json")
    with pytest.raises(FormatError, match="No such file"):
        Tokenizer.from_file(tmp_path / "none.json")


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not there")
def test_gpt2_counts_the_tokens_that_are_known() -> None:
    tokenizer = Tokenizer.from_file(SHARED / "gpt2-tokenizer.json")
    assert tokenizer.vocab_size == 50257
    assert tokenizer.eos_id == tokenizer.bos_id == 50256
    # GPT-2's own encoder gives these ids for this text.
    assert tokenizer.encode("Hello world").tolist() == [15496, 995]
    text = (SHARED / "tinyshakespeare.txt").read_text()
    assert tokenizer.encode_documents([text], eos=False).size == 338_025
    assert Tokenizer.chars([text]).vocab_size == 65 + 1


def changed(tokenizer: Tokenizer, tmp_path: Path, **parts: object) -> Tokenizer:
    """The tokenizer with some parts of its JSON replaced; `model_x` reaches into the model."""
    content = json.loads(tokenizer.to_json())
    for name, value in parts.items():
        if name.startswith("model_"):
            content["model"][name.removeprefix("model_")] = value
        else:
            content[name] = value
    (tmp_path / "changed.json").write_text(json.dumps(content))
    return Tokenizer.from_file(tmp_path / "changed.json")


def test_a_template_says_what_leads_and_follows(tmp_path: Path) -> None:
    def template(*parts: str) -> dict:
        single = [
            {"Sequence": {"id": "A", "type_id": 0}}
            if p == "$"
            else {"SpecialToken": {"id": p, "type_id": 0}}
            for p in parts
        ]
        known = {p: {"id": p, "ids": [BPE.token_id(p)], "tokens": [p]} for p in parts if p != "$"}
        return {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": known,
        }

    lead = changed(BPE, tmp_path, post_processor=template("!", "$"))
    assert (lead.add_bos, lead.add_eos) == (True, False)
    assert lead.token(lead.bos_id or 0) == "!"
    assert lead.encode("a", add_special=True).tolist() == [lead.bos_id, *lead.encode("a")]
    assert lead.encode_documents(["a"]).tolist() == [lead.bos_id, *lead.encode("a"), lead.eos_id]
    assert lead.to_gguf_metadata()["tokenizer.ggml.add_bos_token"] is True
    both = changed(BPE, tmp_path, post_processor=template("!", "$", "H"))
    assert (both.add_bos, both.add_eos) == (True, True)
    assert both.token(both.eos_id or 0) == "H"
    again = Tokenizer.from_gguf_metadata(both.to_gguf_metadata())
    assert again.encode("a", add_special=True).tolist() == (
        both.encode("a", add_special=True).tolist()
    )
    two = changed(BPE, tmp_path, post_processor=template("!", "H", "$"))
    with pytest.raises(FormatError, match="only one token may lead"):
        two.to_gguf_metadata()


@pytest.mark.parametrize("tokenizer", [BPE, CHARS])
def test_the_gguf_vocabulary_rebuilds_the_tokenizer(tokenizer: Tokenizer) -> None:
    metadata = tokenizer.to_gguf_metadata(tokenizer.vocab_size + 7)
    tokens = metadata["tokenizer.ggml.tokens"]
    types = metadata["tokenizer.ggml.token_type"]
    assert metadata["tokenizer.ggml.model"] == "gpt2"
    assert metadata["tokenizer.ggml.pre"] == "gpt-2"
    assert metadata["tokenizer.ggml.add_bos_token"] is False
    assert metadata["tokenizer.ggml.eos_token_id"] == np.uint32(0)
    assert types.dtype == np.int32
    assert len(tokens) == len(set(tokens)) == types.size == tokenizer.vocab_size + 7
    assert tokens[-1] == f"[PAD{len(tokens) - 1}]"
    assert types.tolist() == [3] + [1] * (tokenizer.vocab_size - 1) + [5] * 7
    again = Tokenizer.from_gguf_metadata(metadata)
    assert again._backend.get_vocab() == tokenizer._backend.get_vocab()
    assert (again.bos_id, again.eos_id) == (tokenizer.bos_id, tokenizer.eos_id)
    for text in TEXT:
        assert again.encode(text).tolist() == tokenizer.encode(text).tolist()
    np.testing.assert_equal(again.to_gguf_metadata(tokenizer.vocab_size + 7), metadata)
    with pytest.raises(ValueError, match="vocab_size must be at least"):
        tokenizer.to_gguf_metadata(10)


def test_a_filler_never_repeats_a_token(tmp_path: Path) -> None:
    backend = BPE._backend.from_str(BPE.to_json())
    backend.add_tokens([f"[PAD{BPE.vocab_size + 1}]"])
    tokenizer = Tokenizer(backend)
    tokens = tokenizer.to_gguf_metadata(tokenizer.vocab_size + 3)["tokenizer.ggml.tokens"]
    assert len(set(tokens)) == len(tokens)


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ({"pre_tokenizer": {"type": "Whitespace"}}, "not byte-level"),
        ({"pre_tokenizer": None}, "not byte-level"),
        (
            {
                "pre_tokenizer": {
                    "type": "ByteLevel",
                    "add_prefix_space": True,
                    "trim_offsets": True,
                    "use_regex": True,
                }
            },
            "add_prefix_space",
        ),
        (
            {
                "pre_tokenizer": {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": True,
                    "use_regex": False,
                }
            },
            "splits words",
        ),
        ({"normalizer": {"type": "Lowercase"}}, "Lowercase"),
        ({"model_ignore_merges": True}, "ignore_merges=True"),
        ({"model_dropout": 0.1}, "dropout"),
        (
            {
                "added_tokens": [
                    {
                        "id": 0,
                        "content": END_OF_TEXT,
                        "single_word": True,
                        "lstrip": False,
                        "rstrip": False,
                        "normalized": False,
                        "special": True,
                    }
                ]
            },
            "single_word",
        ),
    ],
)
def test_what_llama_cpp_would_do_otherwise_is_refused(
    tmp_path: Path, parts: dict, match: str
) -> None:
    with pytest.raises(FormatError, match=match):
        changed(BPE, tmp_path, **parts).to_gguf_metadata()


def test_normal_form_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    changed(BPE, tmp_path, normalizer={"type": "NFC"}).to_gguf_metadata()
    assert "NFC" in caplog.text


def test_no_end_of_text_is_refused() -> None:
    from tokenizers import models

    backend = BPE._backend.from_str(BPE.to_json())
    backend.model = models.BPE({"a": 0, "b": 1}, [])
    content = json.loads(backend.to_str())
    content["added_tokens"] = []
    tokenizer = Tokenizer(backend.from_str(json.dumps(content)))
    assert tokenizer.eos_id is None
    with pytest.raises(FormatError, match="end-of-text"):
        tokenizer.to_gguf_metadata()
    with pytest.raises(ValueError, match="eos=False"):
        tokenizer.encode_documents(["ab"])
    assert tokenizer.encode_documents(["ab"], eos=False).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"model": "rwkv"}, r"model: 'rwkv'"),
        ({"model": None}, "model: missing"),
        ({"pre": "unheard"}, r"pre: 'unheard'"),
        ({"tokens": None}, "tokens: missing"),
        ({"tokens": ["a", "a"], "token_type": None}, "'a' occurs twice"),
        ({"tokens": [], "token_type": None, "merges": []}, "empty"),
        ({"tokens": np.arange(3)}, "array of strings"),
        ({"token_type": np.ones(3, np.int32)}, "token_type: must have"),
        ({"merges": None}, "merges: missing"),
        ({"merges": ["nospace"]}, "'nospace'"),
        ({"merges": ["a zzz"]}, "'a zzz'"),
        ({"eos_token_id": 10**6}, "eos_token_id: must be below"),
        ({"bos_token_id": "0"}, "bos_token_id: must be a token's number"),
    ],
)
def test_bad_gguf_vocabularies_are_refused(change: dict, match: str) -> None:
    metadata = BPE.to_gguf_metadata()
    for key, value in change.items():
        metadata.pop(f"tokenizer.ggml.{key}")
        if value is not None:
            metadata[f"tokenizer.ggml.{key}"] = value
    with pytest.raises(FormatError, match=match):
        Tokenizer.from_gguf_metadata(metadata)
    with pytest.raises(FormatError, match="model: missing"):
        Tokenizer.from_gguf_metadata({})


def word_tokenizer(unknown: str | None) -> Tokenizer:
    """A tokenizer of another kind than ours: words, with or without a token for the others."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers

    if unknown is None:
        model = models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
    else:
        model = models.WordLevel({"ab": 0, "b": 1, "[UNK]": 2}, unk_token=unknown)
    backend = Backend(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return Tokenizer(backend)


def test_tokenizers_of_other_kinds() -> None:
    words = word_tokenizer("[UNK]")
    assert words.encode("ab zz b").tolist() == [0, 2, 1]
    stream = words.stream()
    ids = words.encode("ab b")
    assert "".join([*map(stream.push, ids), stream.finish()]) == words.decode(ids)
    with pytest.raises(FormatError, match="not byte-level"):
        Tokenizer(words._backend, eos="b").to_gguf_metadata()
    strict = word_tokenizer(None)
    assert strict.encode("ab a").tolist() == [2, 0]
    for encode in (strict.encode, lambda t: strict.encode_documents([t], eos=False)):
        with pytest.raises(ValueError, match=r"'c' \(U\+0063\) at offset 3"):
            encode("ab c")


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_pipe_is_no_tokenizer(tmp_path: Path, name: str) -> None:
    Tokenizer.chars(["ab"]).save(tmp_path / "tokenizer.json")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(FormatError, match=name):
        Tokenizer.from_file(tmp_path)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ('{"bos_token": 3}', "bos_token must be a text or null; got 3"),
        ('{"eos_token": {"content": []}}', r"eos_token must be a text or null; got \[\]"),
        ('{"eos_token": "none"}', "eos must be in the vocabulary; got 'none'"),
    ],
)
def test_settings_that_name_no_token_are_refused(tmp_path: Path, settings: str, told: str) -> None:
    Tokenizer.chars(["ab"]).save(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(settings)
    with pytest.raises(FormatError, match=rf"tokenizer_config\.json: .*{told}"):
        Tokenizer.from_file(tmp_path)


CATASTROPHE = """
import json, sys
from pyggml.data import Tokenizer
from pyggml.errors import FormatError
content = json.loads(Tokenizer.chars(["ab"]).to_json())
pattern = {"pattern": {"Regex": "(a+)+$"}}
content["pre_tokenizer"] = {"type": "Split", "behavior": "Isolated", "invert": False, **pattern}
open("t.json", "w").write(json.dumps(content))
tokenizer = Tokenizer.from_file("t.json")
for encode in (tokenizer.encode, tokenizer.encode_documents):
    try:
        encode("a" * 40 + "b")
    except FormatError as error:
        print("refused", error)
"""


def test_a_pattern_that_takes_for_ever_is_an_error(tmp_path: Path) -> None:
    # The library itself writes to stderr as well.
    command = [sys.executable, "-c", CATASTROPHE]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.count("refused Tokenizer.encode") == 2, done.stderr[-500:]
