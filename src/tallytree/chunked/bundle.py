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
from .reading import Loaded


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


# -- tasks ---------------------------------------------------------------------------------------------------------


def rise(potentials: GroupPotentials, tilt: float, loaded: Loaded) -> Law:
    """Task: the law of the total of a bundle under a tilt."""
    if loaded.constant == -math.inf:
        return law(0, np.full(1, -math.inf), 0.0)
    model = bundle_model(loaded.logits + tilt, _ids(loaded), potentials)
    scale = float(model.log_partition) + loaded.constant
    # A forced variable has lost its tilt: an infinite log-odds takes none.
    scale += tilt * np.count_nonzero(loaded.logits == math.inf)
    return law(0, np.asarray(model.count_log_probs(), np.float64), scale)


def fall(potentials: GroupPotentials, tilt: float, what: str, dtype: np.dtype[Any], loaded: Loaded) -> Any:
    """Task: an answer for a bundle, given what the rest says about its total, which is the note of its reading."""
    said: Law = loaded.reading.note
    total = np.full(len(loaded.logits) + 1, -math.inf)
    total[said.first : said.last + 1] = said.log_weights
    logits, ids = loaded.logits + tilt, _ids(loaded)
    model = bundle_model(logits, ids, potentials, table(total))
    if what == "error_bound":
        return float(model.error_bound)
    odds = np.asarray(model.posterior_logits, np.float64)
    if said.cut and np.any(np.isinf(odds) & np.isfinite(logits)):
        # A state without probability must be one that no possible count allows, inside the window or not.
        counts = np.arange(len(total))
        possible = np.where((counts >= said.least) & (counts <= said.most), 0.0, -math.inf)
        wide = np.asarray(bundle_model(logits, ids, potentials, table(possible)).posterior_logits)
        if np.any(np.isinf(odds) & (odds != wide)):
            raise PrecisionError(
                f"chunk {loaded.reading.chunk.number:,}: a state needs a count whose probability is below "
                f"exp(-{REACH:.0f}), outside the windows that are kept. Solve these groups in memory, with CountModel."
            )
    return (odds if what == "posterior_logits" else np.asarray(model.marginals)).astype(dtype)


def draw_bundle(potentials: GroupPotentials, tilt: float, loaded: Loaded) -> Any:
    """Task: the states of a bundle given their count and the seed of its stream, the note of its reading."""
    count, seed = loaded.reading.note
    model = bundle_model(loaded.logits + tilt, _ids(loaded), potentials, exactly(count))
    return model.sample(rng=np.random.default_rng(seed))


def _ids(loaded: Loaded) -> NDArray[Any]:
    return read_ids(loaded.reading.beside[0])
