"""The sizes of a cells search."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.execution import resources

_READ_BYTES = 2**23  # one streaming read
_FEW, _FEW_LATER = 0.002, 0.1  # share of new entries at which descents end; later ones over all rows of several parts


@dataclass(frozen=True)
class Effort:
    """How thorough a descent is.

    `list_length` is the length of lists during the search (short ones miss neighbours), `n_sampled` the most entries
    that a step samples for a row, `few` the share of new entries at which the descent ends.
    """

    list_length: int
    n_sampled: int
    few: float


@dataclass(frozen=True)
class SearchPlan:
    """The sizes of a search: a function of the shape of the data, n_neighbors and the rows of a part."""

    n_rows: int
    n_features: int
    n_neighbors: int
    part_rows: int  # of every part but the last one
    leaf_rows: int
    cell_rows: int
    effort: Effort
    n_trees: int
    n_reduced: int

    @property
    def n_parts(self) -> int:
        """Number of parts of a round."""
        return -(-self.n_rows // self.part_rows)

    @property
    def read_rows(self) -> int:
        """Rows of one streaming read."""
        return max(1, min(16_384, _READ_BYTES // (4 * self.n_features), self.part_rows // 2))

    @property
    def least_rounds(self) -> int:
        """Rounds that every search makes.

        Rows along the borders of one cut have poor lists even if the mean recall is good: a second cut repairs them.
        """
        return 1 if self.n_parts == 1 else 2

    def of_round(self, n: int, *, borders_only: bool = False) -> "SearchPlan":
        """The plan of one round.

        Rounds over all rows that are made for want of recall keep longer lists. With several parts their descents end
        early: another round may follow, and its trees find what is missing at less cost than the last steps.
        """
        if borders_only or n == 0:
            return self
        length = min(resources.longest_list(self.n_neighbors), min(self.part_rows, self.n_rows) - 1)
        effort = replace(self.effort, list_length=length)
        return replace(self, effort=effort if self.n_parts == 1 else replace(effort, few=_FEW_LATER))

    def part(self, part: int) -> tuple[int, int]:
        """The range of positions of one part."""
        return part * self.part_rows, min((part + 1) * self.part_rows, self.n_rows)

    def part_of(self, positions: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """The part in which each position lies."""
        return (positions // np.int32(self.part_rows)).astype(np.int32)


def plan_search(n_rows: int, n_features: int, n_neighbors: int, *, part_rows: int | None = None) -> SearchPlan:
    """Choose the sizes of a search; without `part_rows` all rows are one part."""
    if n_rows >= 2**31:
        raise ValueError(f"n_rows must be below 2**31 = {2**31} (row numbers are int32); got {n_rows}.")
    if not 1 <= n_neighbors < n_rows:
        raise ValueError(f"n_neighbors must be between 1 and n_rows - 1 = {n_rows - 1}; got {n_neighbors}.")
    leaf_rows = max(512, 8 * (n_neighbors + 1))
    part_rows = _equal_parts(n_rows, min(n_rows, max(part_rows or n_rows, 2 * leaf_rows)))
    list_length = min(resources.list_length(n_neighbors), min(part_rows, n_rows) - 1)
    return SearchPlan(
        n_rows=n_rows,
        n_features=n_features,
        n_neighbors=n_neighbors,
        part_rows=part_rows,
        leaf_rows=leaf_rows,
        cell_rows=64,
        effort=Effort(list_length, resources.most_sampled(n_neighbors), few=_FEW),
        n_trees=2 if part_rows >= n_rows else 4,
        n_reduced=64 if n_features > resources.WIDE else 0,
    )


def seed_of(random_state: int, *step: Any) -> np.uint64:
    """The seed of one step of a search, from the user's seed and the name of the step."""
    text = repr((random_state, *step)).encode()
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


def _equal_parts(n_rows: int, most: int) -> int:
    """Rows of parts of at most `most` rows, or 1 % more: they can be halved often, into shards and chunks of tables."""
    rows = -(-n_rows // -(-n_rows // most))
    step = 1 << max(0, (rows // 128).bit_length() - 1)
    return -(-rows // step) * step
