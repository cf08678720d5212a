"""What models have in common: values that never change, answers that are kept, their shapes and dtypes, evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit

from .. import checks
from ..arrays import Float64, FloatArray, frozen
from ..errors import InfeasibleError, ParameterError
from ..memo import Caching, cached
from ..structure.nested.count_tree import CountTree


class Value:
    """The base of everything here that never changes, not used on its own."""

    def _parts(self) -> tuple[Any, ...]:
        """What tells it apart from others of its class."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return _equal(self._parts(), other._parts())

    def __hash__(self) -> int:
        # Arrays tell enough; `0.0 +` because -0.0 is equal to 0.0, with other bytes.
        return hash(tuple((0.0 + x).tobytes() for x in self._parts() if isinstance(x, np.ndarray)))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray) and bool(a == b)


class Model(Caching, Value):
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
        """The groups, as a :class:`~tallytree.CountTree`."""
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
        return checks.group_number(group, self.n_groups, f", or None for all {self._units}")

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
        if not self._batch_shape:
            return np.float64(values[0])
        return frozen(values.reshape(self._batch_shape))

    def _result(self, values: Any) -> Any:
        """Numbers such as log-probabilities, in double precision; NumPy scalars where there is one."""
        out = np.asarray(values, np.float64)
        return out[()] if out.ndim == 0 else out

    def _entries(self, values: Any) -> Any:
        """Entries of a vector or matrix, in the dtype of the parameters; NumPy scalars where there is one."""
        out = np.asarray(values).astype(self._dtype, copy=False)
        return out[()] if out.ndim == 0 else out


def rows_of(values: Float64, batch_shape: tuple[int, ...], axes: int = 1) -> Float64:
    """(B, ...) from an array whose leading axes broadcast to those of the batch; the last `axes` are its own."""
    own = values.shape[values.ndim - axes :]
    if values.shape[: values.ndim - axes] == batch_shape:  # the usual case, kept short
        return values.reshape(math.prod(batch_shape), *own)
    return np.broadcast_to(values, (*batch_shape, *own)).reshape(math.prod(batch_shape), *own)


def place_in_batch(index: int, batch_shape: tuple[int, ...]) -> str:
    """Which model of a batch an error is about, in words; nothing for a single one."""
    place = tuple(int(i) for i in np.unravel_index(index, batch_shape)) if batch_shape else ()
    return f" at batch index {place}" if place else ""


class ArgumentModel(Value):
    """The base of `LinearModel` and `ThinnedModel`, not used on its own."""

    logits: Float64
    _dtype: np.dtype[Any]

    @property
    def n_variables(self) -> int:
        """Number of variables D."""
        return int(self.logits.shape[-1])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of every answer."""
        raise NotImplementedError

    @property
    def _odds(self) -> Float64:
        """Log-odds of the marginals, (B, D) or (..., D)."""
        raise NotImplementedError

    @property
    def posterior_logits(self) -> Float64:
        """Log-odds of the marginals, (..., D).

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        marginals

        Examples
        --------
        >>> model = tt.ThinnedModel(np.zeros(2), [0.5, 0.5], tt.at_least(1))
        >>> model.posterior_logits.round(4)
        array([0.9163, 0.9163])
        """
        return self._vector(self._odds)

    @cached
    def marginals(self) -> Float64:
        """P(y_d = 1), (..., D).

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        posterior_logits

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s >= 2, 0.0, -np.inf), step=1.0)
        >>> model.marginals
        array([0.5, 1. ])
        """
        return self._vector(expit(self._odds))

    def _arguments(self) -> dict[str, Any]:
        """What the model was made of, by the names of the arguments."""
        raise NotImplementedError

    def replace(self, **changes: Any) -> Self:
        """Return the model with some arguments replaced.

        Parameters
        ----------
        **changes
            Arguments of the constructor by name, such as ``logits``.

        Returns
        -------
        LinearModel or ThinnedModel
            A new model of the same class; this one stays as it is.

        Raises
        ------
        ParameterError
            If there is no argument of this name, or its value does not fit.

        See Also
        --------
        condition

        Examples
        --------
        >>> model = tt.ThinnedModel(np.zeros(2), [0.5, 0.5], tt.at_least(1))
        >>> model.replace(rates=[1.0, 1.0]).marginals.round(4)
        array([0.6667, 0.6667])
        """
        arguments = self._arguments()
        for name in changes:
            if name not in arguments:
                raise ParameterError(
                    f"`replace` takes {', '.join(f'`{a}`' for a in arguments)}; `{name}` arrived."
                )
        return type(self)(**(arguments | changes))

    def condition(self, evidence: Mapping[int, int]) -> Self:
        """The model given the values of some variables.

        In ``log_partition`` these variables contribute a factor of one, as with infinite logits.

        Parameters
        ----------
        evidence : mapping of int to int
            Variables and their values, 0 or 1.

        Returns
        -------
        LinearModel or ThinnedModel
            The model with these values required.

        Raises
        ------
        ParameterError
            If ``evidence`` is not a mapping, or names a variable or value that does not exist.
        InfeasibleError
            If a logit gives such a value probability zero.

        See Also
        --------
        replace, log_prob

        Examples
        --------
        >>> tt.ThinnedModel(np.zeros(2), [0.5, 0.5], tt.at_least(1)).condition({0: 0}).marginals
        array([0., 1.])
        """
        variables, _ = checks.evidence(evidence, self.n_variables)
        logits = np.array(self._arguments()["logits"])
        for v in variables.tolist():
            value = math.inf if evidence[v] else -math.inf
            against = np.isinf(logits[..., v]) & (logits[..., v] != value)
            if against.any():
                raise InfeasibleError(
                    f"`evidence` must be possible: variable {v} has logit {-value:g}, which gives the value "
                    f"{int(evidence[v])} probability zero. Leave it out."
                )
            logits[..., v] = value
        return self.replace(logits=logits)

    def _vector(self, values: Float64) -> Float64:
        """An answer (batch..., m), or one row of it per model, in the dtype of the logits; read-only."""
        return frozen(np.array(values, self._dtype).reshape(*self.batch_shape, values.shape[-1]))

    def _parts(self) -> tuple[Any, ...]:
        return tuple(self._arguments().values())

    def __reduce__(self) -> Any:
        return _again, (type(self), self._arguments())


def _again(kind: Any, arguments: dict[str, Any]) -> Any:
    return kind(**arguments)
