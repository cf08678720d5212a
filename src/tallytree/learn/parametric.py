"""Potentials with few parameters: a named potential, or a function of one's own, with numbers that are learned."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..arrays import Float64
from ..errors import ParameterError
from ..potentials.formulas import FAMILIES, REAL, Domain, Family


@dataclass(frozen=True)
class Parameter:
    """A number that is learned.

    A parameter is known by its name: potentials that use the same name share one number.

    Parameters
    ----------
    name : str
        Name of the parameter, also in the result.
    start : float
        Value from which the search starts, inside the range that the potential allows.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.parametric

    Examples
    --------
    >>> tt.learn.Parameter("rate", 0.3)
    Parameter(name='rate', start=0.3)
    """

    name: str
    start: float

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ParameterError(f"`name` of a Parameter must be text; {self.name!r} arrived.")
        object.__setattr__(self, "start", checks.real(f"start` of parameter `{self.name}", self.start))


@dataclass(frozen=True, eq=False)
class ParametricPotential:
    """A potential with numbers to be learned; made by :func:`parametric`.

    Attributes
    ----------
    name : str
        Name of the potential, such as "noisy_or".
    arguments : mapping
        Its arguments by name: numbers, or a :class:`Parameter` for one that is learned.
    domains : mapping
        Range of every argument.
    family : object
        Computes log-tables and their derivatives; for internal use.
    factory : callable
        The function that makes the potential from numbers.

    See Also
    --------
    tallytree.learn.parametric

    Examples
    --------
    >>> tt.learn.parametric(tt.noisy_or, tt.learn.Parameter("rate", 0.5)).name
    'noisy_or'
    """

    name: str
    arguments: Mapping[str, Any]
    domains: Mapping[str, Domain]
    family: Family
    factory: Callable[..., Any]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, in the order of the arguments.

        See Also
        --------
        ranges

        Examples
        --------
        >>> bell = tt.learn.parametric(tt.gaussian, tt.learn.Parameter("mean", 3.0), 2.0)
        >>> [parameter.name for parameter in bell.parameters]
        ['mean']
        """
        return tuple(value for value in self.arguments.values() if isinstance(value, Parameter))

    def ranges(self) -> list[tuple[Parameter, Domain]]:
        """Every parameter, with the range of the argument that it stands for.

        Returns
        -------
        list of (Parameter, Domain)
            In the order of the arguments.

        See Also
        --------
        table, Parameter

        Examples
        --------
        >>> bell = tt.learn.parametric(tt.gaussian, tt.learn.Parameter("mean", 3.0), 2.0)
        >>> [parameter.name for parameter, domain in bell.ranges()]
        ['mean']
        """
        named = self.arguments.items()
        return [(value, self.domains[name]) for name, value in named if isinstance(value, Parameter)]

    def table(self, n: int, coordinates: Mapping[str, float]) -> tuple[Float64, dict[str, Float64]]:
        """Log-table, and its derivative with respect to the coordinate of every parameter.

        The coordinate of a parameter is the unbounded number that the search moves: the log-odds of a probability, the
        logarithm of a positive number, any other number itself.

        Parameters
        ----------
        n : int
            Size of the group.
        coordinates : mapping
            Coordinate of every parameter, by name.

        Returns
        -------
        log_f : ndarray, (n + 1,)
            The log-table.
        slopes : dict of str to ndarray, (n + 1,)
            Its derivatives, by the names of the parameters.

        Raises
        ------
        ParameterError
            If ``n`` is not a size, or a coordinate is missing.

        See Also
        --------
        ranges, at

        Examples
        --------
        >>> bell = tt.learn.parametric(tt.gaussian, tt.learn.Parameter("mean", 3.0), 2.0)
        >>> log_f, slopes = bell.table(2, {"mean": 0.5})
        >>> log_f, slopes["mean"]
        (array([-0.03125, -0.03125, -0.28125]), array([-0.125,  0.125,  0.375]))
        """
        size, given = checks.integer("n", n, 0), self._given("coordinates", coordinates)
        numbers = {
            name: given[value.name]
            if isinstance(value, Parameter)
            else self.domains[name].to_coordinate(value)
            if name in self.domains and value is not None
            else value
            for name, value in self.arguments.items()
        }
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            log_f, slopes = self.family.table(size, **numbers)
        out: dict[str, Float64] = {}
        for name, value in self.arguments.items():
            if isinstance(value, Parameter):
                out[value.name] = out.get(value.name, 0.0) + np.asarray(slopes[name], np.float64)
        return np.asarray(log_f, np.float64), out

    def at(self, values: Mapping[str, float]) -> Any:
        """The potential with these values of its parameters, such as those in ``fit(...).parameters``.

        Not for a function of your own, for which there is no named potential.

        Parameters
        ----------
        values : mapping
            Values of the parameters by name.

        Returns
        -------
        Potential
            With numbers in the place of the parameters.

        Raises
        ------
        ParameterError
            If the potential is a function of your own, or a number is missing.

        See Also
        --------
        table, parametric

        Examples
        --------
        >>> bell = tt.learn.parametric(tt.gaussian, tt.learn.Parameter("mean", 3.0), 2.0)
        >>> bell.at({"mean": 4.5})
        gaussian(4.5, 2.0)
        """
        if self.name not in FAMILIES or FAMILIES[self.name] is not self.family:
            raise ParameterError(
                f"`at` is for named potentials; {self.name} is a function. Call it with n and the values."
            )
        named, given = self.arguments.items(), self._given("values", values)
        return self.factory(**{k: given[v.name] if isinstance(v, Parameter) else v for k, v in named})

    def _given(self, argument: str, values: Mapping[str, float]) -> dict[str, float]:
        """A number for every parameter."""
        names = [parameter.name for parameter in self.parameters]
        if not isinstance(values, Mapping) or not all(name in values for name in names):
            raise ParameterError(
                f"`{argument}` must be a mapping with a number for {', '.join(map(repr, names)) or 'nothing'}; "
                f"{checks.describe(values)} arrived."
            )
        return {name: checks.real(f'{argument}["{name}"]', values[name], infinite=True) for name in names}

    def __repr__(self) -> str:
        shown = {k: v for k, v in self.arguments.items() if v is not None}
        parts = [f"{k}=<{v.name}>" if isinstance(v, Parameter) else f"{k}={v!r}" for k, v in shown.items()]
        return f"{self.name}({', '.join(parts)})"


def parametric(factory: Callable[..., Any], *args: Any, **kwargs: Any) -> ParametricPotential:
    """Make a potential with parameters that :func:`fit` and :func:`fit_conditional` learn.

    Parameters
    ----------
    factory : callable
        One of ``noisy_or``, ``noisy_and``, ``gaussian``, ``poisson``, ``quadratic``, ``all_or_none``, ``geometric``
        and ``spike_and_slab`` of tallytree; or a function of your own, ``factory(n, **numbers)``, that returns the
        log-table (n + 1,) and a mapping from the name of every learned argument to the derivative of the log-table.
        The parameters of such a function may be any real numbers.
    *args, **kwargs
        The arguments of the factory, without n. A :class:`Parameter` is learned, a number stays as it is.

    Returns
    -------
    ParametricPotential
        To be passed to :func:`~tallytree.learn.fit` as the potential of a group.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.Parameter
    tallytree.learn.fit

    Notes
    -----
    The search moves the log-odds of probabilities and the logarithms of positive numbers, so an optimum at the end of
    their range is approached but not reached. Cost: one inference gives the gradient, however many groups share a
    parameter.

    Examples
    --------
    One strength of a P^n potential for all groups:

    >>> strength = tt.learn.Parameter("strength", 1.0)
    >>> agree = tt.learn.parametric(tt.all_or_none, strength)
    >>> agree
    all_or_none(strength=<strength>)
    >>> rows = np.array([[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1], [0, 1, 0, 0]])
    >>> model = tt.CountModel(np.zeros(4), [tt.Group([0, 1, 2]), tt.Group(None)])
    >>> found = tt.learn.fit(model, rows, logits="fixed", tables=agree)
    >>> sorted(found.parameters)
    ['strength']
    """
    if not callable(factory):
        raise ParameterError(
            f"`factory` must be a named potential or a function of `n`; {checks.describe(factory)} arrived."
        )
    name = getattr(factory, "__name__", type(factory).__name__)
    known = getattr(factory, "__module__", "").startswith("tallytree.potentials")
    if known and name not in FAMILIES:
        raise ParameterError(
            f"`factory` must be a potential whose numbers can be learned, one of {', '.join(FAMILIES)}, or a function "
            f"of your own; {name} arrived, which has no derivatives."
        )
    arguments = _arguments(factory, args, kwargs, skip_first=not known)
    learned = [key for key, value in arguments.items() if isinstance(value, Parameter)]
    family = FAMILIES[name] if known else Family(dict.fromkeys(learned, REAL), _own(factory, name, learned))
    for key in learned:
        if key not in family.domains:
            raise ParameterError(
                f"`{key}` of `{name}` cannot be learned, only {', '.join(family.domains)}. Give it as a number."
            )
        start, domain = arguments[key].start, family.domains[key]
        if not domain.low < start < domain.high:
            raise ParameterError(
                f"`start` of parameter {arguments[key].name!r} must be {domain.name}, ends excluded; {start} arrived."
            )
    if not learned:
        raise ParameterError(
            f"`parametric` needs at least one Parameter among the arguments of `{name}`; none arrived. A potential "
            "with nothing to learn goes into the model, with tables='fixed'."
        )
    if known:
        # The factory judges fixed numbers and settings.
        factory(**{k: v.start if isinstance(v, Parameter) else v for k, v in arguments.items()})
    return ParametricPotential(name, arguments, family.domains, family, factory)


def _arguments(factory: Any, args: Any, kwargs: Any, *, skip_first: bool) -> dict[str, Any]:
    """Arguments by name, defaults included."""
    try:
        signature = inspect.signature(factory)
        if skip_first:  # the size of the group
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"`parametric` must get the arguments of its factory; {error}.") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def _own(factory: Callable[..., Any], name: str, learned: list[str]) -> Callable[..., Any]:
    """A user's function with its answer checked."""

    def table(n: int, **numbers: Any) -> tuple[Float64, dict[str, Float64]]:
        answer = factory(n, **numbers)
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping)):
            raise ParameterError(
                f"`{name}` must return the log-table and a mapping from arguments to derivatives; "
                f"{checks.describe(answer)} arrived."
            )
        log_f = checks.array(f"The log-table of `{name}`", answer[0], (n + 1,), checks.NUMBERS)
        possible, slopes = log_f > -math.inf, {}
        for key in learned:
            what, slope = f"The derivative of `{name}` in `{key}`", answer[1].get(key)
            slopes[key] = np.where(possible, checks.array(what, slope, (n + 1,), checks.NUMBERS), 0.0)
        return log_f, slopes

    return table
