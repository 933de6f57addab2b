# SPDX-License-Identifier: MIT
"""Datasets of preferences: batches that the losses of preferences read."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import checks
from ...data import Batch, Documents
from ...data.fingerprint import fingerprint
from ...data.text.chat import EncodedPreferences
from .logps import padded

__all__ = ["JudgedDataset", "PairDataset", "PreferenceRows", "mismatched"]


class PreferenceRows:
    """The rows of all kinds of datasets of preferences: their number, order and limit.

    Args:
        who: names the dataset in messages.
        encoded: preferences.
        paired: whether they must be pairs.
        seq_len: most inputs of a row; None is the longest document's.
        targets: 1 where the last token of a document is a target only, 0 where it is an input.
    """

    def __init__(
        self, who: str, encoded: Any, paired: bool, seq_len: int | None, targets: int = 1
    ) -> None:
        hint = "encode_preferences makes them"
        self.encoded = checks.instance(who, "encoded", encoded, EncodedPreferences, hint)
        if encoded.paired is not paired:
            raise ValueError(
                f"{who}: encoded must hold {'pairs' if paired else 'judged answers'}; got "
                + ("judged answers: read rows of chosen and rejected" if paired else "pairs: give"
                   " read_preferences(...).unpaired()")
            )  # fmt: skip
        longest = int(encoded.documents.lengths.max()) - targets
        self.seq_len = longest
        if seq_len is not None:
            self.seq_len = checks.whole(who, "seq_len", seq_len, 1)
            if longest > self.seq_len:
                raise ValueError(
                    f"{who}: documents must have at most seq_len={seq_len} inputs; got {longest}: "
                    "encoded.limited(seq_len) cuts them"
                )

    def __len__(self) -> int:
        """Number of rows of data."""
        return len(self.encoded)

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Item numbers of an epoch: a permutation, or natural order without a generator."""
        return np.arange(len(self)) if rng is None else rng.permutation(len(self))


class PairDataset(PreferenceRows):
    """Pairs of a chosen and a rejected answer; give them to a `Loader`.

    A batch has the chosen ones in its first half and the rejected ones, in the same order, in its
    second. Rows are filled up to one of a few widths.

    Args:
        encoded: pairs.
        reference: log-probabilities of the documents, for losses with a reference.
        seq_len: most inputs of a row; None is the longest document's.

    Shape:
        reference (D,); batch of B items: x (2B, T), y (2B, T), reference (2B,)

    Raises:
        ValueError: there are no pairs, documents are too long, or the reference is of others.

    Example:
        >>> documents = Documents.of([[1, 2, 3], [1, 4]], [[False, True, True], [False, True]])
        >>> pairs = EncodedPreferences(documents, np.array([True, False]), paired=True)
        >>> PairDataset(pairs).batch(np.array([0])).y[:, :2].tolist()
        [[2, 3], [4, -100]]
    """

    def __init__(
        self,
        encoded: EncodedPreferences,
        reference: np.ndarray | None = None,
        seq_len: int | None = None,
    ) -> None:
        super().__init__("PairDataset", encoded, True, seq_len)
        self.reference = _numbers("PairDataset", "reference", reference, encoded.documents)

    def fingerprint(self) -> int:
        """Return a checksum of the pairs and their reference."""
        more = [] if self.reference is None else [self.reference]
        return fingerprint(self.encoded.fingerprint(), self.seq_len, *more)

    def batch(self, items: np.ndarray) -> Batch:
        """Read pairs.

        Shape:
            items (B,) -> x (2B, T), y (2B, T) int32, reference (2B,) f32
        """
        items = np.asarray(items)
        numbers = np.concatenate([2 * items, 2 * items + 1])
        x, y = padded(self.encoded.documents, numbers, self.seq_len)
        if self.reference is None:
            return Batch(x, y)
        return Batch(x, y, reference=self.reference[numbers])


class JudgedDataset(PreferenceRows):
    """Single answers that are good or bad; give them to a `Loader`.

    Beside its answers a batch has as many that answer the prompt of another: their divergence from
    the reference is the point from which KTO counts.

    Args:
        encoded: judged answers.
        reference: log-probabilities of the documents.
        others: the mismatched documents; `mismatched` makes them.
        others_reference: their log-probabilities.
        seq_len: most inputs of a row; None is the longest document's.

    Shape:
        reference, others_reference (D,); batch of B items: x, y, kl_x, kl_y (B, T), labels,
        reference, kl_reference (B,)

    Raises:
        ValueError: the answers are pairs, documents are too long, or arrays are of others.

    Example:
        >>> documents = Documents.of([[1, 2], [3, 4]], [[False, True], [False, True]])
        >>> judged = EncodedPreferences(documents, np.array([True, False]), paired=False)
        >>> dataset = JudgedDataset(judged, np.zeros(2), mismatched(documents), np.zeros(2))
        >>> batch = dataset.batch(np.array([0]))
        >>> batch.inputs["labels"].tolist(), batch.inputs["kl_y"][:, 0].tolist()
        ([1.0], [4])
    """

    def __init__(
        self,
        encoded: EncodedPreferences,
        reference: np.ndarray,
        others: Documents,
        others_reference: np.ndarray,
        seq_len: int | None = None,
    ) -> None:
        who = "JudgedDataset"
        super().__init__(who, encoded, False, seq_len)
        if len(others) != len(encoded):
            raise ValueError(
                f"{who}: others must be as many as the answers, {len(encoded)}; got {len(others)}: "
                "make them with mismatched"
            )
        self.others = others
        self.reference = _numbers(who, "reference", reference, encoded.documents)
        self.others_reference = _numbers(who, "others_reference", others_reference, others)

    def fingerprint(self) -> int:
        """Return a checksum of the answers and their reference."""
        return fingerprint(
            self.encoded.fingerprint(), self.seq_len, self.others.fingerprint(), self.reference,
            self.others_reference,
        )  # fmt: skip

    def batch(self, items: np.ndarray) -> Batch:
        """Read answers.

        Shape:
            items (B,) -> x, y (B, T) int32, and the inputs of the class
        """
        items = np.asarray(items)
        x, y = padded(self.encoded.documents, items, self.seq_len)
        kl_x, kl_y = padded(self.others, items, self.seq_len)
        assert self.reference is not None
        assert self.others_reference is not None
        return Batch(
            x,
            y,
            kl_x=kl_x,
            kl_y=kl_y,
            labels=np.asarray(self.encoded.labels[items], np.float32),
            reference=self.reference[items],
            kl_reference=self.others_reference[items],
        )


def mismatched(documents: Documents, seq_len: int | None = None) -> Documents:
    """Return each document's prompt with the answer of another one.

    Each answer is used once, and answers another prompt; but where more than half of the documents
    have the same prompt, some of its rows get another answer to it.

    Args:
        documents: prompts and answers, of which the tokens that count are the answers.
        seq_len: most inputs of a document; what is beyond is cut off. None is the longest one's.

    Raises:
        ValueError: there are fewer than two, or a prompt leaves no room for a token.

    Example:
        >>> documents = Documents.of([[1, 2], [3, 4]], [[False, True], [False, True]])
        >>> [ids.tolist() for ids in mismatched(documents)]
        [[1, 4], [3, 2]]
    """
    count = len(checks.instance("mismatched", "documents", documents, Documents))
    if count < 2:
        raise ValueError(f"mismatched: there must be at least two documents; got {count}")
    most = int(documents.lengths.max()) if seq_len is None else seq_len + 1
    starts = [int(np.flatnonzero(documents.targets(i))[0]) for i in range(count)]
    ids, flags = [], []
    for i, other in enumerate(_others([documents.part(i, 0, n) for i, n in enumerate(starts)])):
        answer = documents.part(other, starts[other])[: max(1, most - starts[i])]
        joined = np.concatenate([documents.part(i, 0, starts[i]), answer])
        ids.append(joined)
        flags.append(np.arange(joined.size) >= starts[i])
    return Documents.of(ids, flags)


def _others(prompts: list[np.ndarray]) -> list[int]:
    """Return for each prompt the number of another one: a turn by the largest group of equals."""
    groups: dict[bytes, list[int]] = {}
    for i, prompt in enumerate(prompts):
        groups.setdefault(prompt.tobytes(), []).append(i)
    order = [i for group in groups.values() for i in group]
    turn = min(max(map(len, groups.values())), len(order) // 2)
    found = dict(zip(order, order[turn:] + order[:turn], strict=True))
    return [found[i] for i in range(len(order))]


def _numbers(who: str, name: str, given: Any, documents: Documents) -> np.ndarray | None:
    """Return a number for each document, or None."""
    if given is None:
        return None
    found = np.asarray(given, np.float32)
    if found.shape != (len(documents),):
        raise ValueError(
            f"{who}: {name} must have a number for each of {len(documents)} documents; got shape "
            f"{found.shape}: compute it with reference_logps"
        )
    return found
