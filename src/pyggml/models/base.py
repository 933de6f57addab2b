# SPDX-License-Identifier: MIT
"""Model, the base of all models: configuration, state dicts, blocks that can be recomputed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, nn
from ..backend.device import Device
from ..graph import checkpoint
from ..tensors import Tensor
from .files import drop_copies
from .has_gguf import HasGGUF
from .pretrained.folder import HasFolder

__all__ = ["Model"]


class Model(HasGGUF, HasFolder, ABC):
    """A module with a configuration; one GGUF file holds both.

    A subclass defines `forward`. Where llama.cpp has the architecture it also says how
    parameters and configuration are named there; otherwise both keep their own names.

    Args:
        config: sizes, of the type `config_class`.

    Attributes:
        config: sizes.
        checkpointing: training keeps only the inputs of blocks and computes the rest again: True
            for every block, n for every n-th, beginning with the first; False or 0 for none.

    Raises:
        TypeError: the configuration is another model's.
    """

    # Layers that are trained and written whole beside adapters.
    saved_whole: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: Any) -> None:
        who = type(self).__name__
        if not isinstance(config, self.config_class):
            wanted = self.config_class.__name__
            raise TypeError(f"{who}: config must be a {wanted}; got {type(config).__name__}")
        # The fields are those of the subclass's configuration.
        self.config: Any = config
        self.checkpointing = False
        self.metadata = {}
        self._block_numbers: dict[int, int] = {}

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's output."""

    @property
    def target_classes(self) -> int | None:
        """The number of classes that the targets of `loss` name; None if it takes none."""
        return None

    @property
    def device(self) -> Device:
        """The device of the parameters."""
        return next(self.named_parameters())[1].device

    @property
    def checkpointing(self) -> bool | int:
        """The blocks that training computes twice."""
        return self._checkpointing

    @checkpointing.setter
    def checkpointing(self, every: bool | int) -> None:
        if not isinstance(every, bool):
            every = checks.whole(type(self).__name__, "checkpointing", every, 0)
        self._checkpointing = every

    def _own_names(self, state: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """Return a state under this model's names, without what only old files hold."""
        return dict(state)

    def hf_arrays(self, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return arrays of parameters under Hugging Face's names and in its layouts."""
        return dict(_by_name(type(self).__name__, state))

    def _copies(self) -> dict[str, tuple[str, str]]:
        """Return names in files that copies of tensors have: the own name, and the cure."""
        return {}

    def load_state_dict(
        self, state: Mapping[str, ArrayLike], strict: bool = True
    ) -> nn.IncompatibleKeys:
        """Overwrite the parameters; see `nn.Module.load_state_dict`.

        A tensor that the model shares, such as a tied head, may come under each of its names. Where
        it comes under another name alone, its own name is among the missing ones that are returned.

        Raises:
            ValueError: the names of a shared tensor hold different numbers.
        """
        who = f"{type(self).__name__}.load_state_dict"
        named = self._own_names(_by_name(who, state))
        clean = drop_copies(who, named, self._copies())
        missing, unexpected = super().load_state_dict(clean, strict)
        renamed = [name for name in clean if name not in named]
        return nn.IncompatibleKeys(renamed + missing, unexpected)

    def own_state(self, state: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """Return a state dict of Hugging Face under the model's own names, each tensor once.

        Raises:
            ValueError: the names of a shared tensor hold different numbers.
        """
        who = type(self).__name__
        return drop_copies(who, self._own_names(_by_name(who, state)), self._copies())

    @property
    def n_blocks(self) -> int:
        """Number of blocks that checkpointing can choose from."""
        return int(getattr(self.config, "n_layer", 0))

    def _number(self, block: nn.Module) -> int:
        """Return the number in a block's path."""
        if id(block) not in self._block_numbers:
            ends = ((path.rpartition(".")[2], module) for path, module in self.named_modules())
            self._block_numbers = {id(m): int(end) for end, m in ends if end.isdigit()}
        return self._block_numbers[id(block)]

    def _run_block(self, block: Any, x: Tensor, *args: Any) -> Tensor:
        """Return the stream after a block."""
        every = int(self.checkpointing)
        if every and self.training and self._number(block) % every == 0:
            return checkpoint(block, x, *args)  # type: ignore[no-any-return]
        return block(x, *args)  # type: ignore[no-any-return]


def _by_name(who: str, state: Any) -> Mapping[str, Any]:
    """Return a state, which must be a mapping from names."""
    checks.names(who, "the names of state", list(checks.mapping(who, "state", state)))
    return state  # type: ignore[no-any-return]
