"""What models have that are known by a few arguments alone: equality, pickling, replacement and evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from ..arrays import Float64
from ..checks import configurations
from ..errors import InfeasibleError, ParameterError
from .value import Value


class ByArguments(Value):
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

    def _arguments(self) -> dict[str, Any]:
        """What the model was made of, by the names of the arguments."""
        raise NotImplementedError

    def replace(self, **changes: Any) -> Self:
        """The same model with other arguments.

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
        """The model given the values of some variables; as for infinite logits they weigh 1 in ``log_partition``.

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
            If ``evidence`` is no mapping, or names a variable or value that does not exist.
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
        variables, _ = configurations.evidence(evidence, self.n_variables)
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
        out = np.array(values, self._dtype).reshape(*self.batch_shape, values.shape[-1])
        out.flags.writeable = False
        return out

    def _parts(self) -> tuple[Any, ...]:
        return tuple(self._arguments().values())

    def __reduce__(self) -> Any:
        return _again, (type(self), self._arguments())


def _again(kind: Any, arguments: dict[str, Any]) -> Any:
    return kind(**arguments)
