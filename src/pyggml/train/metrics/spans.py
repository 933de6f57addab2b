# SPDX-License-Identifier: MIT
"""F1 of spans, such as names of several words."""

from __future__ import annotations

from collections.abc import Sequence

from ...checks import items
from ...errors import ShapeError

__all__ = ["span_f1_score"]


def span_f1_score(predicted: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> float:
    """Return the F1 of whole spans: one counts as found if its words and its kind are right.

    The labels of words are `B-kind` where a span begins, `I-kind` inside of it, and `O` outside.
    An `I-kind` that follows no word of its kind begins a span, too.

    Args:
        predicted: the labels of each text, one for each word.
        targets: the right ones.

    Returns:
        From 0 to 1; 0 if there is no span.

    Raises:
        ShapeError: a text has not as many predictions as targets.
        ValueError: a label is of another form.

    Source: seqeval's f1_score, which is that of the CoNLL-2000 shared task.

    Example:
        >>> span_f1_score([["B-name", "I-name", "O"]], [["B-name", "O", "O"]])
        0.0
        >>> span_f1_score([["B-name", "O", "B-place"]], [["B-name", "O", "O"]]) == 2 / 3
        True
    """
    who = "span_f1_score"
    found, wanted = (
        [items(who, f"a text of {name}", text) for text in items(who, name, texts)]
        for name, texts in (("predicted", predicted), ("targets", targets))
    )
    if list(map(len, found)) != list(map(len, wanted)):
        raise ShapeError(
            f"{who}: predicted must have a label for each word of targets; got {len(found)} and "
            f"{len(wanted)} texts, or texts of different lengths"
        )
    guesses, truths = ({*_spans(who, texts)} for texts in (found, wanted))
    if not guesses and not truths:
        return 0.0
    return 2 * len(guesses & truths) / (len(guesses) + len(truths))


def _spans(who: str, texts: Sequence[Sequence[str]]) -> list[tuple[int, int, int, str]]:
    """Return text, first word, end and kind of each span."""
    spans: list[tuple[int, int, int, str]] = []
    for number, labels in enumerate(texts):
        begin, kind = 0, ""
        for i, label in enumerate([*labels, "O"]):
            mark, dash, own = label.partition("-") if isinstance(label, str) else ("", "", "")
            if label != "O" and (mark not in ("B", "I") or not dash or not own):
                raise ValueError(f"{who}: a label must be O, B-kind or I-kind; got {label!r:.40}")
            if kind and (mark != "I" or own != kind):
                spans.append((number, begin, i, kind))
                kind = ""
            if own and not kind:
                begin, kind = i, own
    return spans
