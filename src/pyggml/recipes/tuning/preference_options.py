# SPDX-License-Identifier: MIT
"""The options of training by preferences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError, reason
from ...options import Options, option
from ...train.preferences import METHODS, REFERENCES, PreferenceLoss

__all__ = ["SFT", "PreferenceOptions", "check_method", "check_unread"]

SFT = "sft"
"""The method that learns answers as they are."""
_PREFERENCES, _REFERENCE, _KTO, _SIMPO = "preferences", "a reference", "`method`=kto", "simpo"


@dataclass(frozen=True, kw_only=True)
class PreferenceOptions(Options):
    """The method of a fine-tuning: learn answers as they are, or what is preferred.

    Example:
        >>> PreferenceOptions(method="dpo", beta=0.2).beta
        0.2
    """

    method: str = option(
        SFT,
        "Method: sft learns the answers; dpo, ipo, hinge, orpo and simpo learn from rows of "
        "prompt, chosen and rejected; kto from these, too, or from rows of prompt, completion and "
        "label.",
        choices=(SFT, *METHODS),
        on_resume="same",
    )
    beta: float | None = option(
        None,
        "Strength of the reference, or of simpo's and orpo's preference.",
        above=0,
        chosen="0.1; with `method`=simpo: 2",
        needs=(_PREFERENCES,),
        on_resume="same",
    )
    simpo_gamma: float | None = option(
        None,
        "Margin of the rewards that simpo asks for.",
        least=0,
        chosen="0.5",
        needs=(_SIMPO,),
        on_resume="same",
    )
    desirable_weight: float | None = option(
        None, "Weight of kto's good answers.", least=0, chosen="1", needs=(_KTO,), on_resume="same"
    )
    undesirable_weight: float | None = option(
        None, "Weight of kto's bad answers.", least=0, chosen="1", needs=(_KTO,), on_resume="same"
    )
    reference: str | None = option(
        None,
        "File that keeps the log-probabilities of the reference, the model before the training, "
        "for several runs on the same model and data; it is made where it is missing.",
        is_path=True,
        metavar="FILE",
        chosen="reference.json in `artifact_dir`",
        needs=(_REFERENCE,),
        on_resume="free",
    )

    def missing(self) -> Mapping[str, tuple[str, str]]:
        """Return the parts of other methods."""
        found, lacks = {}, (f"`method`={self.method}", "choose another `method`")
        if self.method == SFT:
            found[_PREFERENCES] = lacks
        if self.method not in REFERENCES:
            found[_REFERENCE] = lacks
        for need, method in ((_KTO, "kto"), (_SIMPO, "simpo")):
            if self.method != method:
                found[need] = lacks
        return found

    def objective(self, label_smoothing: float = 0.0) -> PreferenceLoss | None:
        """Return the loss of the method; None of one that learns answers.

        Args:
            label_smoothing: share of the preferences that is taken to be wrong.

        Raises:
            ConfigError: an option is another method's.
        """
        if self.method == SFT:
            return None
        try:
            return PreferenceLoss(
                self.method,
                self.beta,
                label_smoothing,
                self.simpo_gamma,
                self.desirable_weight,
                self.undesirable_weight,
            )
        except ValueError as error:
            raise ConfigError(f"`method`={self.method}: {reason(error)}") from error


# Options of chats that preferences do not read, with their defaults and the cure.
_UNREAD = {
    "train_on": "answers",
    "format": None,
    "unique": False,
    "data_weight": (),
    "packing": True,
    "teacher": None,
}


def check_unread(
    config: Any, option: str, usual: str, unread: Mapping[str, Any], whole: str
) -> None:
    """Raise for options that are read with the usual value of another option alone.

    Args:
        config: a `FinetuneConfig`.
        option: the other option, which has another value.
        usual: its usual value.
        unread: the defaults by name.
        whole: why a row cannot be split.

    Raises:
        ConfigError: names the option.
    """
    got = f"`{option}`={config[option]}"
    for name, default in unread.items():
        if config[name] != default:
            given = f"`{name}`=False" if config[name] is False else f"`{name}`"
            raise ConfigError(f"{given} is for `{option}`={usual}; got {got}: leave {given} out")
    if config.data.too_long == "split":
        raise ConfigError(f"`too_long` must be cut or drop with {got}; got split: {whole}")


def check_method(config: Any) -> None:
    """Raise for options that do not go with the method of a fine-tuning.

    Args:
        config: a `FinetuneConfig`.

    Raises:
        ConfigError: names the option.
    """
    method = config.preferences.method
    if method == SFT:
        return
    check_unread(config, "method", SFT, _UNREAD, "an answer is judged as a whole")
    config.preferences.objective(config.trainer.label_smoothing)
