"""What every model has: answers that are kept, the shapes and dtypes of these, numbers of groups, one refusal."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .. import checks
from ..arrays import Float64, FloatArray
from ..errors import InfeasibleError, ParameterError
from ..memo import Remembers
from ..structure.nested.count_tree import CountTree
from .value import Value


class Model(Remembers, Value):
    """The base of all models, not used on its own.

    Answers of the engine have one leading axis, (B, ...), and double precision; here they get the batch axes of the
    model and, if they are vectors, the dtype of its parameters. Scalars are float64 always.
    """

    _units: ClassVar[str] = "variables"  # what the groups of this kind of model consist of

    _tree: CountTree
    _dtype: np.dtype[Any]
    _batch_shape: tuple[int, ...]

    @property
    def tree(self) -> CountTree:
        """The structure."""
        return self._tree

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return self._tree.family.n_groups

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of every answer."""
        return self._batch_shape

    def _group(self, group: Any) -> int:
        """The number of a group, checked; negative numbers count from the end."""
        number, total = checks.integer("group", group), self._tree.family.n_groups
        if not -total <= number < total:
            raise ParameterError(
                f"`group` must be the number of a group, 0 to {total - 1}, or None for all {self._units}; "
                f"{number} arrived."
                if total
                else f"`group` must be None, because the model has no groups; {number} arrived."
            )
        return number % total

    def _whole(self) -> int | None:
        """A group that holds everything."""
        family = self._tree.family
        if family.n_variables == 1:
            groups = np.flatnonzero(family.variable_of_group == 0)
        else:
            full = np.flatnonzero(family.set_size == family.n_variables)
            groups = np.flatnonzero(family.set_of_group == full[0]) if len(full) else full
        return int(groups[0]) if len(groups) else None

    def _check_possible(self, log_weights: Float64) -> None:
        """Refuse models whose log Z, or largest log-weight, is -inf."""
        dead = np.isneginf(log_weights)
        if dead.any():
            index = int(np.argmax(dead))
            raise self._impossible(place_in_batch(index, self.batch_shape), index)

    def _impossible(self, where: str, index: int) -> InfeasibleError:
        """The error of an impossible model, number `index` of the batch."""
        raise NotImplementedError

    # -- shapes ------------------------------------------------------------------------------------------------

    def _vector(self, values: Float64) -> FloatArray:
        """(B, ...) to (batch..., ...), in the dtype of the parameters, read-only."""
        shape = self._batch_shape
        out = values.reshape(shape + values.shape[1:]) if shape else values[0]
        if out.dtype is not self._dtype:
            out = out.astype(self._dtype, copy=False)
        out.setflags(write=False)
        return out

    def _scalar(self, values: Float64) -> Any:
        """One number per model, (B,) to (...,), in double precision whatever the dtype of the parameters; read-only."""
        shape = self._batch_shape
        if not shape:
            return np.float64(values[0])
        out = values.reshape(shape)
        out.setflags(write=False)  # answers are kept
        return out

    def _result(self, values: Any) -> Any:
        """Numbers such as log-probabilities, in double precision; NumPy scalars where there is one."""
        out = np.asarray(values, np.float64)
        return out[()] if out.ndim == 0 else out

    def _entries(self, values: Any) -> Any:
        """Entries of a vector or matrix, in the dtype of the parameters; NumPy scalars where there is one."""
        out = np.asarray(values).astype(self._dtype, copy=False)
        return out[()] if out.ndim == 0 else out


def place_in_batch(index: int, batch_shape: tuple[int, ...]) -> str:
    """Which model of a batch an error is about, in words; nothing for a single one."""
    place = tuple(int(i) for i in np.unravel_index(index, batch_shape)) if batch_shape else ()
    return f" at batch index {place}" if place else ""
