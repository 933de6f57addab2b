# SPDX-License-Identifier: MIT
"""Chat templates: the text as transformers writes it, the trained spans, hostile templates."""

from __future__ import annotations

import contextlib
import json
import os
import threading

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("tokenizers")
from pyggml.data import BUILTIN_TEMPLATES, Chat, ChatTemplate, encode_chats, show_sample
from pyggml.data.text.chat import renderer
from pyggml.errors import FormatError

from .chat_templates import real, tokenizer_for

SYSTEM = {"role": "system", "content": "Be brief."}
TALK = [
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "First answer\nof two lines."},
    {"role": "user", "content": "Two?"},
    {"role": "assistant", "content": "Second, answer."},
]
ANSWERS = [TALK[1]["content"], TALK[3]["content"]]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds <two> numbers.",
            "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
        },
    }
]
CALLS = [
    TALK[0],
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "type": "function",
                "id": "call00001",
                "function": {"name": "add", "arguments": {"a": 1}},
            }
        ],
    },
    {"role": "tool", "name": "add", "tool_call_id": "call00001", "content": "2"},
    {"role": "assistant", "content": "It is 2."},
]


def test_descriptions_of_tools_that_are_left_out_are_told(caplog):
    lost = ChatTemplate.builtin("chatml", eos_token="<|im_end|>")
    known = ChatTemplate("{{ tools }}" + lost.source, eos_token="<|im_end|>")
    assert known.examples(TALK, TOOLS)
    assert not caplog.records
    assert lost.examples(TALK, TOOLS)
    assert "leaves out the descriptions of `tools`, such as 'add'" in caplog.text


CALLING = {"role": "assistant", "content": "", "tool_calls": CALLS[1]["tool_calls"]}
ANOTHER = {"function": {"name": "add", "arguments": {"a": 5678, "why": "a < b"}}}
TWO = {**CALLING, "tool_calls": [*CALLING["tool_calls"], ANOTHER]}
# Writes the first call alone.
FIRST = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls[0].function | tojson }}{% endif %}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize("train_on", ["answers", "last", "all"])
def test_calls_that_a_template_leaves_out_are_refused(train_on):
    first = ChatTemplate(FIRST, eos_token="<|im_end|>")
    every = ChatTemplate(FIRST.replace("[0].function", ""), eos_token="<|im_end|>")
    none = ChatTemplate.builtin("chatml", eos_token="<|im_end|>")
    talk = [TALK[0], TWO, {"role": "tool", "content": "2"}, TALK[1]]
    for template in (first, none):
        with pytest.raises(FormatError, match="must write the tool calls"):
            template.examples(talk, train_on=train_on)
    assert every.examples(talk, train_on=train_on)
    untrained = [TALK[0], {**TWO, "train": False}, *talk[2:]]
    assert every.examples(untrained, train_on=train_on)
    with pytest.raises(FormatError, match="must write the tool calls"):
        first.examples(untrained, train_on=train_on)
    assert first.examples([TALK[0], CALLING, *talk[2:]], train_on=train_on)


@pytest.mark.parametrize("train_on", ["answers", "all"])
@pytest.mark.parametrize("mark", ["", "generation"])
def test_changed_answers_are_refused(train_on, mark):
    begin, end = ("{% generation %}", "{% endgeneration %}") if mark else ("", "")
    source = FIRST.replace("{{ m.content }}", begin + "{{ m.content | upper }}" + end)
    template = ChatTemplate(source, eos_token="<|im_end|>")
    with pytest.raises(FormatError, match="must write an answer as it is"):
        template.examples(TALK[:2], train_on=train_on)


def test_arguments_may_be_objects_or_their_json():
    """Of all real templates: what the one is written as, the other is as well."""
    arguments = {"a": 1234, "why": "x y"}
    forms = []
    for given in (arguments, json.dumps(arguments)):
        call = {
            "id": "call00001",
            "type": "function",
            "function": {"name": "add", "arguments": given},
        }
        forms.append([CALLS[0], {**CALLS[1], "tool_calls": [call]}])
    written = 0
    for name, source in real().items():
        found = []
        for talk in forms:
            try:
                [each] = ChatTemplate(source, name=name).examples(talk, TOOLS)
            except FormatError as error:
                found.append(str(error))
            else:
                spans = [each.text[a:b] for a, b in each.spans]
                assert '\\"why' not in "".join(spans), name
                assert "{'a'" not in "".join(spans), name
                written += 1
                found.append(spans)
        assert found[0] == found[1], name
    assert written > len(real())


def test_calls_before_the_content_are_trained():
    source = real()["google-gemma-4-31B-it"]
    [found] = ChatTemplate(source, name="gemma").examples(CALLS[:2], TOOLS)
    spans = "".join(found.text[a:b] for a, b in found.spans)
    assert spans.startswith("<|tool_call>call:add{a:1}")


DEEPSEEK = "<｜end▁of▁sentence｜>"
# Template, the token that ends a text, what each answer is put between.
MASKS = [
    ("Qwen-Qwen2.5-7B-Instruct", "<|im_end|>", "", "<|im_end|>"),
    ("Qwen-Qwen3-0.6B", "<|im_end|>", "<think>\n\n</think>\n\n", "<|im_end|>"),
    ("meta-llama-Llama-3.1-8B-Instruct", "<|eot_id|>", "", "<|eot_id|>"),
    ("mistralai-Mistral-Nemo-Instruct-2407", "</s>", "", "</s>"),
    ("google-gemma-2-2b-it", "<eos>", "", "<end_of_turn>"),
    ("microsoft-Phi-3.5-mini-instruct", "<|endoftext|>", "", "<|end|>"),
    ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", DEEPSEEK, "", DEEPSEEK),
    ("deepseek-ai-DeepSeek-V3.1", DEEPSEEK, "", DEEPSEEK),
    ("ibm-granite-granite-3.3-2B-Instruct", "<|end_of_text|>", "", "<|end_of_text|>"),
    ("openai-gpt-oss-120b", "<|return|>", "<|channel|>final<|message|>", "<|return|>"),
    ("HuggingFaceTB-SmolLM3-3B", "<|im_end|>", "", "<|im_end|>"),
    ("GLM-4.7-Flash", "<|endoftext|>", "", ""),
    ("MiniMax-M2", "[e~[", "", "[e~["),
    ("moonshotai-Kimi-K2", "<|im_end|>", "", "<|im_end|>"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "eos", "head", "tail"), MASKS, ids=[row[0] for row in MASKS])
def test_the_trained_tokens_are_the_answers_and_their_end_marks(name, eos, head, tail):
    source = real()[name]
    tokenizer = tokenizer_for(source, head + tail, bos=None, eos=eos)
    template = ChatTemplate(source, eos_token=eos, name=name)
    encoded = encode_chats([Chat(TALK)], tokenizer, template)
    found = []
    for item in range(len(encoded.documents)):
        pieces = show_sample(encoded.documents, item, tokenizer)
        trained = [text for text, flag in pieces if flag]
        found += trained
        # The tokens before an answer are those of the prompt for it.
        count = len(ANSWERS) if len(encoded.documents) == 1 else item + 1
        turns = TALK[: 2 * count - 1]
        prompt = template.render(turns, add_generation_prompt=True)
        text = "".join(text for text, _ in pieces)
        if not prompt.endswith(("<think>", "<think>\n")):  # asks for thoughts, which are not here
            bos = tokenizer.token(tokenizer.bos_id) or ""
            assert text.removeprefix(bos).startswith(prompt.removeprefix(bos))
    ends = [tail, tail or eos]  # the end of the text where the template ends no answer
    assert found == [head + text + end for text, end in zip(ANSWERS, ends, strict=True)]
    assert encoded.counts.trained == sum(
        int(encoded.documents.targets(i).sum()) for i in range(len(encoded.documents))
    )


def test_an_answer_that_the_template_rewrites_has_a_text_of_its_own():
    template = ChatTemplate(real()["Qwen-Qwen3-0.6B"], eos_token="<|im_end|>")
    talk = [
        TALK[0],
        {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nFirst."},
        TALK[2],
        {"role": "assistant", "content": "Second.", "reasoning_content": "Again."},
    ]
    first, second = template.examples(talk)
    assert first.text == template.render(talk[:2])
    assert second.text == template.render(talk)
    assert [first.text[a:b] for a, b in first.spans] == [
        "<think>\nHm.\n</think>\n\nFirst.<|im_end|>"
    ]
    assert [second.text[a:b] for a, b in second.spans] == [
        "<think>\nAgain.\n</think>\n\nSecond.<|im_end|>"
    ]
    assert "Hm." not in second.text
    [last] = template.examples(talk, train_on="last")
    assert last == second


def test_thoughts_that_a_template_never_writes_continue_its_prompt(caplog):
    template = ChatTemplate(real()["deepseek-ai-DeepSeek-R1-Distill-Llama-8B"], name="r1")
    talk = [TALK[0], {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nFirst."}]
    [found] = template.examples(talk)
    [(start, end)] = found.spans
    assert found.text[:start] == template.render(talk[:1], add_generation_prompt=True)
    assert found.text[start:end] == f"Hm.\n</think>\n\nFirst.{DEEPSEEK}"
    assert not caplog.messages
    template.examples(TALK)
    assert "enable_thinking" in caplog.text


def test_calls_of_tools_are_trained():
    for name in ("Qwen-Qwen2.5-7B-Instruct", "meta-llama-Llama-3.1-8B-Instruct"):
        template = ChatTemplate(real()[name], eos_token="<|im_end|>", name=name)
        texts = template.examples(CALLS, TOOLS)
        spans = [each.text[a:b] for each in texts for a, b in each.spans]
        assert '"name": "add"' in spans[0]
        assert spans[1].startswith("It is 2.<|")
        assert all("Adds <two> numbers." in each.text for each in texts)


@pytest.mark.parametrize("name", ["chatml", "zephyr", "llama3", "gemma", "phi3"])
def test_calls_that_a_template_does_not_write_are_no_empty_answers(name):
    template = ChatTemplate.builtin(name)
    for content in ("", "I add."):
        calls = [CALLS[0], CALLS[1] | {"content": content}]
        with pytest.raises(FormatError, match=r"must write the tool calls .* call of 'add'"):
            template.examples(calls, TOOLS)
        with pytest.raises(FormatError, match="must write the tool calls"):  # what is read, too
            template.examples([CALLS[0], calls[1] | {"train": False}, *TALK[:2]])


def test_all_real_templates_write_an_answers_calls_or_refuse_them():
    refused = []
    for name, source in real().items():
        template = ChatTemplate(source, name=name)
        try:
            texts = template.examples(CALLS[:2], TOOLS)
        except FormatError:
            refused.append(name)
            continue
        assert any("add" in each.text[a:b] for each in texts for a, b in each.spans), name
        first, second = ({"name": "add", "arguments": {"a": n}} for n in (1234, 5678))
        both = [{"id": f"call0000{n}", "type": "function", "function": f}
                for n, f in enumerate((first, second))]  # fmt: skip
        try:
            [text] = template.examples([CALLS[0], CALLS[1] | {"tool_calls": both}], TOOLS)
        except FormatError:
            continue
        spans = "".join(text.text[a:b] for a, b in text.spans)
        assert "1234" in spans, name
        assert "5678" in spans, name
    assert 0 < len(refused) < len(real()) / 2, refused


def test_messages_can_be_left_out_of_training():
    template = ChatTemplate.builtin("chatml")
    for left_out in ({"train": False}, {"weight": 0}):
        [found] = template.examples([TALK[0], TALK[1] | left_out, *TALK[2:]])
        assert [found.text[a:b] for a, b in found.spans] == [ANSWERS[1] + "<|im_end|>"]
    [whole] = template.examples(TALK, train_on="all")
    assert whole.spans == [(0, len(whole.text))]


@pytest.mark.parametrize("name", BUILTIN_TEMPLATES)
def test_builtin_templates_train_what_transformers_masks(name):
    transformers = pytest.importorskip("transformers")
    tokenizer = tokenizer_for(special=("<|im_start|>", "<|im_end|>"), bos="<s>", eos="</s>")
    template = ChatTemplate.builtin(name, "<s>", "</s>")
    [found] = template.examples([SYSTEM, *TALK])
    spans = [found.text[a:b].strip() for a, b in found.spans]
    assert all(span.startswith(text) for span, text in zip(spans, ANSWERS, strict=True))
    prompt = template.render([SYSTEM, *TALK[:3]], add_generation_prompt=True)
    assert found.text.startswith(prompt)
    assert found.spans[1][0] == len(prompt)

    import tokenizers

    backend = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    other = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>"
    )
    theirs = other.apply_chat_template(
        [SYSTEM, *TALK], chat_template=template.source, return_assistant_tokens_mask=True,
        return_dict=True, tokenize=True,
    )  # fmt: skip
    documents = encode_chats([Chat([SYSTEM, *TALK])], tokenizer, template).documents
    size = documents.ids.size
    assert theirs["input_ids"][:size] == documents.ids.tolist()
    assert theirs["assistant_masks"][:size] == documents.targets(0).astype(int).tolist()
    assert not any(theirs["assistant_masks"][size:])


def test_real_templates_with_marks_train_what_transformers_masks():
    render = pytest.importorskip("transformers.utils.chat_template_utils").render_jinja_template
    marked = [name for name, text in real().items() if "generation -%}" in text]
    assert len(marked) >= 2
    talk = [
        message | ({"reasoning_content": "Hm."} if message["role"] == "assistant" else {})
        for message in TALK
    ]
    for name in marked:
        template = ChatTemplate(real()[name], name=name)
        assert template.marked
        [text], [spans] = render(
            [talk], chat_template=template.source, return_assistant_tokens_mask=True, bos_token="",
            eos_token="",
        )  # fmt: skip
        [found] = template.examples(talk)
        assert (found.text, found.spans) == (text, spans), name


@pytest.mark.slow  # 74 templates
def test_real_templates_write_what_transformers_writes():
    render = pytest.importorskip("transformers.utils.chat_template_utils").render_jinja_template
    same = 0
    for name, source in real().items():
        template = ChatTemplate(source, bos_token="<s>", eos_token="</s>", name=name)
        for talk, tools in (([SYSTEM, *TALK], None), (TALK, None), (CALLS, TOOLS)):
            for prompt in (False, True):
                theirs = None
                # A template that fails on arguments that are objects may take their JSON.
                for form in (
                    talk,
                    json.loads(json.dumps(talk).replace('{"a": 1}', r'"{\"a\": 1}"')),
                ):
                    with contextlib.suppress(Exception):  # it does not take this conversation
                        [theirs], _ = render(
                            [form], tools, chat_template=source, add_generation_prompt=prompt,
                            bos_token="<s>", eos_token="</s>",
                        )  # fmt: skip
                        break
                if theirs is None:
                    with pytest.raises(FormatError, match=name):
                        template.render(talk, tools, prompt)
                    continue
                assert template.render(talk, tools, prompt) == theirs, name
                same += 1
    assert same > 350


HOSTILE = {
    "attribute": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "dict": "{{ dict.__class__ }}{{ dict.fromkeys.__self__ }}",
    "namespace": "{% set ns = namespace(__class__=1) %}{{ ns }}",
    "format": "{{ '{0.__class__}'.format(messages) }}",
    "change": "{{ messages.append(1) }}",
    "range": "{% for i in range(10 ** 9) %}{% endfor %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "memory": "{{ ('a' * 10 ** 10)|length }}",
    "output": "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
    "syntax": "\n{% for %}",
    "undefined": "{{ messages[0].nothing.more }}",
    "raises": "{{ raise_exception('\x1b[2Jno') }}",
    "import": "{% import 'os' as os %}",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_templates_raise(source):
    template = ChatTemplate(source, name="bad.jinja")
    with pytest.raises(FormatError, match=r"bad\.jinja") as caught:
        template.render(TALK)
    assert len(str(caught.value)) < 500
    # The next one is served.
    assert ChatTemplate("ok").render(TALK) == "ok"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 10 ** (10 ** 8) }}",  # one operation in C
    ],
)
def test_templates_that_loop_are_stopped(monkeypatch, source):
    monkeypatch.setattr(renderer, "_TIME_S", 0.3)
    renderer._RENDERER.close()
    with pytest.raises(FormatError, match="for longer than"):
        ChatTemplate(source).render(TALK)
    monkeypatch.undo()
    renderer._RENDERER.close()
    assert ChatTemplate("ok").render(TALK) == "ok"


def test_an_error_names_the_line_of_the_template():
    with pytest.raises(FormatError, match=r"^ChatTemplate: t:3: .*no tools here"):
        ChatTemplate("a\n\n{{ raise_exception('no tools here') }}", name="t").render(TALK)


def test_a_long_message_of_a_template_is_cut():
    with pytest.raises(FormatError, match=r"the template fails: xxx.* …") as caught:
        ChatTemplate("{{ raise_exception('x' * 10**7) }}").render(TALK)
    assert len(str(caught.value)) < 1200


def test_a_template_must_write_an_answer_as_it_is():
    twice = "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}"
    upper = "{% for m in messages %}[{{ m.content|upper }}]{% endfor %}"
    leaves_out = "{% for m in messages %}[{{ m.role }}]{% endfor %}"
    for source in (twice, upper, leaves_out):
        with pytest.raises(FormatError, match="answer"):
            ChatTemplate(source).examples(TALK)


def test_threads_share_the_process_and_forks_start_their_own():
    template = ChatTemplate("{{ messages[0].content }}")
    found: list[str] = []

    def work(number):
        for _ in range(20):
            found.append(template.render([{"role": "user", "content": str(number)}]) == str(number))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            text = template.render([{"role": "user", "content": "fork"}])
            os.write(writer, text.encode())
        finally:
            os._exit(0)
    os.close(writer)
    assert os.read(reader, 10) == b"fork"
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    assert template.render([{"role": "user", "content": "on"}]) == "on"


def test_wrong_arguments_raise():
    with pytest.raises(FormatError, match="1 to"):
        ChatTemplate("  ")
    with pytest.raises(ValueError, match="name"):
        ChatTemplate.builtin("nothing")
    with pytest.raises(FormatError, match="no such file"):
        ChatTemplate.of("nothing.jinja")
    template = ChatTemplate.builtin("chatml")
    with pytest.raises(TypeError, match="message"):
        template.render(["hi"])
    with pytest.raises(TypeError, match="JSON"):
        template.render([{"role": "user", "content": object()}])
    with pytest.raises(FormatError, match="U\\+FDD0"):
        template.render([{"role": "user", "content": "a\ufdd0b"}])


def test_templates_of_files_and_folders(tmp_path):
    (tmp_path / "a.jinja").write_text("one")
    assert ChatTemplate.of(tmp_path / "a.jinja").source == "one"
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FormatError, match="no chat template"):
        ChatTemplate.of(folder)
    several = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "two"}]
    for given, source in ((several, "two"), ("three", "three")):
        config = folder / "tokenizer_config.json"
        config.write_text(json.dumps({"chat_template": given}))
        assert ChatTemplate.of(folder).source == ChatTemplate.of(config).source == source
    (folder / "chat_template.jinja").write_text("four")
    assert ChatTemplate.of(folder).source == "four"
    tokenizer = tokenizer_for(bos="<s>", eos="</s>")
    template = ChatTemplate.of("llama2", tokenizer)
    assert (template.bos_token, template.eos_token) == ("<s>", "</s>")


def test_an_old_sandbox_raises(monkeypatch):
    renderer._RENDERER.close()
    monkeypatch.setattr(renderer, "version", lambda name: "3.1.5")
    with pytest.raises(ImportError, match=r"3\.1\.6"):
        ChatTemplate("a").render(TALK)
    monkeypatch.undo()
    assert ChatTemplate("a").render(TALK) == "a"
