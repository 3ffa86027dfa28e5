"""Seeds of a search: one for each step, from the user's seed and the name of the step."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Seeds:
    """Seeds of the steps of a search, by name."""

    random_state: int
    names: tuple[Any, ...] = ()

    def below(self, *names: Any) -> "Seeds":
        """Seeds of a part of the search."""
        return Seeds(self.random_state, (*self.names, *names))

    def of(self, *names: Any) -> np.uint64:
        """The seed of one step."""
        text = repr((self.random_state, *self.names, *names)).encode()
        return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))
