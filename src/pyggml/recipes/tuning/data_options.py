# SPDX-License-Identifier: MIT
"""The options of a fine-tuning's chats and their rows."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

from ...data.text.chat import BUILTIN_TEMPLATES, CHAT_FORMATS
from ...errors import ConfigError, shown
from ...options import Options, option

__all__ = ["FinetuneDataOptions", "read_weight"]

TOO_LONG = ("cut", "split", "drop")
TRAIN_ON = ("answers", "last", "all")
_MOST_TIMES = 1000


def read_weight(text: str) -> tuple[str, float]:
    """Return the file and the factor of a text FILE=FACTOR.

    Args:
        text: the text.

    Raises:
        ValueError: the text is not of this form, or the factor is not above 0.

    Example:
        >>> read_weight("more.jsonl=0.5")
        ('more.jsonl', 0.5)
    """
    file, _, number = text.rpartition("=")
    try:
        factor = float(number)
    except ValueError:
        factor = 0.0
    if not file or not 0 < factor <= _MOST_TIMES:
        raise ValueError(
            f"must be FILE=FACTOR with a factor above 0 and at most {_MOST_TIMES}; got "
            f"{shown(text)}: try chats.jsonl=0.5"
        )
    return file, factor


def _read_weights(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        read_weight(text)
    return texts


@dataclass(frozen=True, kw_only=True)
class FinetuneDataOptions(Options):
    """The chats of a fine-tuning, and their rows.

    Example:
        >>> FinetuneDataOptions(data="chats.jsonl", seq_len=512).data
        ('chats.jsonl',)
    """

    data: tuple[str, ...] = option(
        MISSING,
        "Files of chats: JSONL, CSV or Parquet with messages, conversations (ShareGPT), "
        "instruction and output (Alpaca), prompt and completion, or text.",
        is_path=True,
        metavar="FILE",
        on_resume="free",
    )
    data_weight: tuple[str, ...] = option(
        (),
        "Times that the chats of a file of `data` are taken, such as more.jsonl=0.5.",
        metavar="FILE=FACTOR",
        read=_read_weights,
        on_resume="same",
    )
    format: str | None = option(
        None,
        "Format of the rows.",
        choices=CHAT_FORMATS,
        chosen="by the columns of each file",
        on_resume="same",
    )
    chat_template: str | None = option(
        None,
        "Template of the chats: " + ", ".join(BUILTIN_TEMPLATES) + ", or a file with one.",
        is_path=True,
        metavar="NAME|FILE",
        chosen="that of the base; where it has none, one that suits its special tokens",
        on_resume="same",
    )
    system: str | None = option(
        None,
        "System message of the chats that have none.",
        metavar="TEXT",
        on_resume="same",
    )
    train_on: str = option(
        "answers",
        "Tokens that the loss counts: answers of the assistant, last for the last answer of each "
        "chat, or all.",
        choices=TRAIN_ON,
        on_resume="same",
    )
    skip_bad: bool = option(
        False, "Leave out and count rows that cannot be read or written.", on_resume="same"
    )
    unique: bool = option(False, "Take chats of the same content once.", on_resume="same")
    val_fraction: float = option(
        0.1,
        "Share of the chats for validation, chosen at random; 0 switches it off.",
        least=0,
        below=1,
        on_resume="same",
    )
    seq_len: int | None = option(
        None,
        "Tokens of a row.",
        least=1,
        unit="tokens",
        chosen="the longest chat, at most 1024 and the context of the base",
        on_resume="same",
    )
    too_long: str = option(
        "cut",
        "Treatment of chats that are longer than a row: cut keeps the beginning, split makes parts "
        "that do not see each other, drop leaves the chat out.",
        choices=TOO_LONG,
        on_resume="same",
    )
    packing: bool = option(
        True,
        "Fill rows with several chats that do not attend to each other; otherwise each is a row "
        "by itself, in batches of similar lengths.",
        on_resume="same",
    )

    def check(self) -> None:
        """Raise `ConfigError` if a weight is of no file."""
        for file in (read_weight(text)[0] for text in self.data_weight):
            if file not in self.data:
                raise ConfigError(
                    f"`data_weight` must name files of `data`; got {shown(file)}: give it as "
                    "`data`, too"
                )
