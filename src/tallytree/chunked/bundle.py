"""A bundle: whole groups that are solved together in memory, with a table on their total."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..arrays import Float64
from ..errors import ParameterError, PrecisionError
from ..models.count import CountModel
from ..models.group import Group
from ..potentials import Potential, as_potential, exactly, table
from .group_index import read_ids
from .laws import REACH, Law, law
from .reading import Loaded, Reading


@dataclass(frozen=True)
class GroupPotentials:
    """One potential for all groups, or one per id; groups without one are free."""

    common: Potential | None = None
    own: Mapping[Any, Potential | None] = field(default_factory=dict)

    def of(self, name: Any) -> Potential | None:
        return self.own.get(name, self.common)


def group_potentials(given: Any) -> GroupPotentials:
    """Read the argument `group_potential`."""
    if given is None:
        raise ParameterError(
            "`group_potential` must say what holds for the groups: a potential, or {id: potential}; nothing arrived."
        )
    if isinstance(given, GroupPotentials):
        return given
    if isinstance(given, Mapping):
        return GroupPotentials(None, {key: as_potential(value) for key, value in given.items()})
    common = as_potential(given)
    if common.batch_shape:
        raise ParameterError(
            f"`group_potential` must be one potential or {{id: potential}}; {checks.describe(given)} arrived."
        )
    return GroupPotentials(common)


def bundle_model(
    logits: Float64, ids: NDArray[Any], potentials: GroupPotentials, total: Any = None
) -> CountModel:
    """The groups of a bundle as a model in memory."""
    names, where = np.unique(ids, return_inverse=True)
    order = np.argsort(where, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(where, minlength=len(names)))[:-1]) if len(names) else []
    groups = []
    for name, own in zip(names.tolist(), members):
        potential = potentials.of(name)
        if potential is not None:
            groups.append(Group(own, potential))
    if total is not None:
        groups.append(Group(None, total))
    return CountModel(logits, groups or None)


@dataclass(frozen=True)
class Rise:
    """Task: the law of the total of a bundle under a tilt."""

    potentials: GroupPotentials
    tilt: float

    def __call__(self, reading: Reading, loaded: Loaded) -> Law:
        if loaded.constant == -math.inf:
            return law(0, np.full(1, -math.inf), 0.0)
        model = bundle_model(loaded.logits + self.tilt, read_ids(reading.beside[0]), self.potentials)
        scale = float(model.log_partition) + loaded.constant
        # A forced variable has lost its tilt: an infinite log-odds takes none.
        scale += self.tilt * np.count_nonzero(loaded.logits == math.inf)
        return law(0, np.asarray(model.count_log_probs(), np.float64), scale)


@dataclass(frozen=True)
class Fall:
    """Task: an answer for a bundle, given what the rest says about its total, which is the note of its reading."""

    potentials: GroupPotentials
    tilt: float
    what: str
    dtype: str

    def __call__(self, reading: Reading, loaded: Loaded) -> Any:
        said: Law = reading.note
        total = np.full(len(loaded.logits) + 1, -math.inf)
        total[said.first : said.last + 1] = said.log_weights
        logits, ids = loaded.logits + self.tilt, read_ids(reading.beside[0])
        model = bundle_model(logits, ids, self.potentials, table(total))
        if self.what == "error_bound":
            return float(model.error_bound)
        odds = np.asarray(model.posterior_logits, np.float64)
        if said.cut and np.any(np.isinf(odds) & np.isfinite(logits)):
            self._check_impossible(reading, logits, ids, odds)
        return (odds if self.what == "posterior_logits" else np.asarray(model.marginals)).astype(self.dtype)

    def _check_impossible(self, reading: Reading, logits: Float64, ids: NDArray[Any], odds: Float64) -> None:
        """A state without probability must be one that no possible count allows, inside the window or not."""
        said, n = reading.note, len(logits)
        counts = np.arange(n + 1)
        possible = np.where((counts >= said.least) & (counts <= said.most), 0.0, -math.inf)
        wide = np.asarray(bundle_model(logits, ids, self.potentials, table(possible)).posterior_logits)
        if np.any(np.isinf(odds) & (odds != wide)):
            raise PrecisionError(
                f"chunk {reading.chunk.number:,}: a state needs a count whose probability is below exp(-{REACH:.0f}), "
                "outside the windows that are kept. Solve these groups in memory, with CountModel."
            )


@dataclass(frozen=True)
class DrawBundle:
    """Task: the states of a bundle given their count and the seed of its stream, the note of its reading."""

    potentials: GroupPotentials
    tilt: float

    def __call__(self, reading: Reading, loaded: Loaded) -> Any:
        count, seed = reading.note
        ids = read_ids(reading.beside[0])
        model = bundle_model(loaded.logits + self.tilt, ids, self.potentials, exactly(count))
        return model.sample(rng=np.random.default_rng(seed))
