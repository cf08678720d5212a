"""The number of successes of independent trials, by its usual name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints, register_kl
from torch.nn.functional import softplus

from .. import checks
from ..checks.sums import grid_step, refuse_second_derivative, refuse_whole_law
from ..errors import ParameterError
from ..models.poisson_binomial import WeightedEvents
from . import functions, host, tensors
from .autograd import expression, watched
from .distributions import OfCounts
from .potentials import exactly
from .structure import kept, number_of
from .tensors import anywhere, as_logits, as_real, common_shape, known


class PoissonBinomial(OfCounts):
    """Number of successes among independent trials with probabilities of their own.

    Parameters
    ----------
    logits, probs : tensor, (..., n)
        Log-odds or probabilities of success; give one of the two. The last axis holds the trials, leading axes are the
        batch shape; the event shape is ().
    validate_args : bool, optional
        As in :class:`torch.distributions.Distribution`.
    mask : bool tensor, (..., n), optional
        True for trials that take part; the others always fail.
    weights : array_like (n,), optional
        What each success adds to the sum, default 1: integers or, with `step`, real numbers, which are put on a grid
        that keeps their means. ``log_prob``, ``cdf`` and ``log_sf`` then have first derivatives only. For the whole
        distribution of a weighted sum see :class:`tallytree.PoissonBinomial`.
    step : float, optional
        Spacing of the grid of real weights.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.PoissonBinomial
    tallytree.torch.CountDistribution

    Notes
    -----
    ``log_prob`` and its gradients are accurate into the far tails. Gradients with respect to ``probs`` are also right
    at probabilities of 0 and 1, up to the third order.

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5, 0.5]))
    >>> d.log_prob(torch.arange(4)).exp()
    tensor([0.1250, 0.3750, 0.3750, 0.1250])
    """

    arg_constraints = {"logits": constraints.real_vector, "probs": constraints.unit_interval}  # noqa: RUF012
    has_enumerate_support = True

    def __init__(
        self,
        logits: Any = None,
        probs: Any = None,
        validate_args: bool | None = None,
        *,
        mask: Any = None,
        weights: Any = None,
        step: float | None = None,
    ) -> None:
        checks.one_given(logits=logits, probs=probs)
        given = as_logits(logits) if probs is None else as_real("probs", probs)
        if probs is not None and anywhere(~((given >= 0) & (given <= 1))):
            raise ParameterError("`probs` must be between 0 and 1, but other values arrived.")
        if anywhere(torch.isnan(given)):
            raise ParameterError("`logits` must not contain NaN. Use -inf for a trial that always fails.")
        if given.dim() == 0:
            raise ParameterError(
                "`probs` must have the trials on its last axis, but a single number arrived."
            )
        given = given if given.dtype.is_floating_point else given.to(torch.get_default_dtype())
        self._given = (
            given if mask is None else tensors.masked(given, mask, -math.inf if probs is None else 0.0)
        )
        self._by_probs = probs is not None
        step = grid_step(step, weights)
        self._events = None if weights is None else _weighted(weights, step, self.total_count)
        self._strict = validate_args is not None and checks.flag("validate_args", validate_args)
        super().__init__(self._given.shape[:-1], validate_args=False)

    @property
    def total_count(self) -> int:
        """Number of trials."""
        return self._given.shape[-1]

    @property
    def logits(self) -> Tensor:
        """Log-odds of success, (..., n).

        See Also
        --------
        probs

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> ttt.PoissonBinomial(probs=torch.tensor([0.5, 1.0])).logits
        tensor([0., inf])
        """
        return self._logits().to(self._given.dtype)

    def _logits(self) -> Tensor:
        """The same in float64; probabilities of 0 and 1 are infinite without a derivative, see `_near_edges`."""
        wide = self._given.double()
        if not self._by_probs:
            return wide
        edge = (wide == 0.0) | (wide == 1.0)
        inner = torch.where(edge, 0.5, wide)
        sure = torch.where(wide == 1.0, math.inf, -math.inf)
        return torch.where(edge, sure, torch.log(inner) - torch.log1p(-inner))

    @property
    def probs(self) -> Tensor:
        """Probabilities of success, (..., n).

        See Also
        --------
        mean

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.probs
        tensor([0.5000, 0.5000])
        """
        return self._given if self._by_probs else torch.sigmoid(self._given)

    @constraints.dependent_property(is_discrete=True, event_dim=0)  # type: ignore[no-untyped-call]
    def support(self) -> Any:
        """0 to n, or real numbers with weights."""
        if self._events is not None:
            return constraints.real
        return constraints.integer_interval(0, self.total_count)

    def expand(self, batch_shape: Any, _instance: Any = None) -> PoissonBinomial:
        """The same distributions over more batch axes.

        Parameters
        ----------
        batch_shape : sequence of int
            The new batch shape.

        Returns
        -------
        PoissonBinomial
            An object whose parameters share memory with those of this one.

        Raises
        ------
        ParameterError
            If ``batch_shape`` does not keep the batch axes.

        See Also
        --------
        log_prob, sample

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.expand((3,)).mean
        tensor([1., 1., 1.])
        """
        new = self._get_checked_instance(PoissonBinomial, _instance)
        shape = tensors.as_batch_shape(batch_shape, self.batch_shape)
        new._given = self._given.expand(*shape, self.total_count)
        new._by_probs, new._strict, new._events = self._by_probs, self._strict, self._events
        super(PoissonBinomial, new).__init__(shape, validate_args=False)
        return new  # type: ignore[no-any-return]

    @property
    def mean(self) -> Tensor:
        """Expected number of successes.

        See Also
        --------
        variance

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.mean
        tensor(1.)
        """
        return (self.probs * self._sizes).sum(-1)

    @property
    def _sizes(self) -> Tensor | float:
        return 1.0 if self._events is None else torch.as_tensor(self._events.weights).to(self._given)

    def _of_sum(self, which: str, value: Any) -> Tensor:
        """Log-probabilities of a weighted sum, "at", "below" or "above" a value."""
        value = _numbers(value, self._given.device).double()
        shape = common_shape("`value` and the batch", value.shape, self.batch_shape)
        logits = self._logits().expand(*shape, self.total_count)
        probs = None if self._edges() is False else self._given.double().expand(logits.shape)
        given = logits, probs, value.expand(shape), which
        if torch.compiler.is_compiling():
            events: Any = self._events
            number = events.number if isinstance(events, _PinnedEvents) else number_of(events)
            found: Tensor = _compiled(*given, number, probs is not None)[0]
        else:
            found = _SumLogProb.apply(*given, self._events, watched(probs))[0]  # type: ignore[no-untyped-call]
        return found.to(self._given.dtype)

    def log_sf(self, value: Tensor) -> Tensor:
        """Log P(X > value); it and its gradient are right in the far tail.

        Parameters
        ----------
        value : tensor
            Numbers of successes; its shape broadcasts against the batch.

        Returns
        -------
        Tensor, (sample..., ...)
            Logarithms, differentiable once.

        Raises
        ------
        ParameterError
            If ``value`` holds NaN, or has a shape that does not fit the batch.

        See Also
        --------
        cdf, log_prob

        Notes
        -----
        The derivative with respect to a log-odds is ``P(y_i = 1 | X > value) - p_i``. Cost: one pass for all of them.

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]), weights=[1, 3])
        >>> d.log_sf(torch.tensor(2.0)).exp()
        tensor(0.5000)
        """
        if self._events is not None:
            return self._of_sum("above", value)
        plain = PoissonBinomial.expand(self, self.batch_shape)
        plain._events = _weighted([1] * self.total_count, None, self.total_count)
        return plain._of_sum("above", value)

    def _refuse_weights(self, what: str) -> None:
        if self._events is not None:
            refuse_whole_law(what)

    @property
    def variance(self) -> Tensor:
        """Sum of p (1 - p).

        See Also
        --------
        mean

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.variance
        tensor(0.5000)
        """
        failure = 1.0 - self._given if self._by_probs else torch.sigmoid(-self._given)
        return (self.probs * failure * self._sizes * self._sizes).sum(-1)

    @property
    def mode(self) -> Tensor:
        """The most probable number of successes, (...); if two are equally probable, the smaller.

        Returns
        -------
        Tensor, (...)
            Counts.

        See Also
        --------
        mean, count_log_probs

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.9, 0.9])).mode
        tensor(2.)
        """
        return self.count_log_probs().detach().argmax(-1).to(self._given.dtype)

    def count_log_probs(self) -> Tensor:
        """Log-probabilities of 0..n, (..., n + 1).

        Returns
        -------
        Tensor, (..., n + 1)
            Logarithms, differentiable.

        See Also
        --------
        log_prob, cdf

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.count_log_probs().exp()
        tensor([0.2500, 0.5000, 0.2500])
        """
        return self._law().to(self._given.dtype)

    def _law(self) -> Tensor:
        """Log-probabilities of 0..n in float64; an impossible count has no derivative."""
        self._refuse_weights("count_log_probs")
        law = functions.count_log_probs(self._logits())
        if self._edges() is False:
            return law
        possible = law > -math.inf
        base = torch.where(possible, law, 0.0)

        def ratio(step: int) -> Tensor:
            """No more than a floating-point number can be."""
            gap = torch.where(possible, _shifted(law, step, -math.inf) - base, -math.inf)
            return gap.clamp(max=709.0).exp()

        return law + torch.log1p(_near_edges(self._given.double(), ratio))

    def _pmf(self) -> Tensor:
        """Probabilities of 0..n in float64, with their derivatives where they are zero, too."""
        pmf = functions.count_log_probs(self._logits()).exp()
        if self._edges() is False:
            return pmf
        return pmf + _near_edges(self._given.double(), lambda step: _shifted(pmf, step, 0.0))

    def _edges(self) -> bool | None:
        """Whether a probability is 0 or 1, whose derivative the log-odds do not have; None if that is not known."""
        return known((self._given == 0) | (self._given == 1)) if self._by_probs else False

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-probability of numbers of successes; -inf outside 0..n.

        Parameters
        ----------
        value : tensor
            Numbers of successes; its shape broadcasts against the batch.

        Returns
        -------
        Tensor, (sample..., ...)
            Logarithms, differentiable.

        Raises
        ------
        ParameterError
            If ``value`` holds NaN or has a shape that does not fit the batch; with ``validate_args=True``, if it holds
            anything but 0 to n.

        See Also
        --------
        count_log_probs, cdf

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.log_prob(torch.arange(3)).exp()
        tensor([0.2500, 0.5000, 0.2500])
        """
        if self._events is not None:
            return self._of_sum("at", value)
        value = _numbers(value, self._given.device)
        count = value.round().long() if value.is_floating_point() else value.long()
        inside = (count >= 0) & (count <= self.total_count) & (count == value)
        if self._strict and anywhere(~inside):
            raise ParameterError(
                f"`value` must hold whole numbers from 0 to {self.total_count}, but others arrived. Without "
                "`validate_args=True` their log-probability is -inf."
            )
        count = torch.where(inside, count, 0)
        shape = common_shape("`value` and the batch", count.shape, self.batch_shape)
        if math.prod(shape) <= max(1, math.prod(self.batch_shape)) and self._edges() is False:
            found = exact_log_prob(self._logits(), count.expand(shape))
        else:
            law = self._law().expand(*shape, self.total_count + 1)
            found = law.gather(-1, count.expand(shape).unsqueeze(-1)).squeeze(-1)
        return torch.where(inside, found, -math.inf).to(self._given.dtype)

    def cdf(self, value: Tensor) -> Tensor:
        """P(X <= value).

        Parameters
        ----------
        value : tensor
            Numbers of successes; its shape broadcasts against the batch.

        Returns
        -------
        Tensor, (sample..., ...)
            Probabilities.

        Raises
        ------
        ParameterError
            If ``value`` holds NaN, or has a shape that does not fit the batch.

        See Also
        --------
        log_prob, count_log_probs

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.cdf(torch.arange(3))
        tensor([0.2500, 0.7500, 1.0000])
        """
        if self._events is not None:
            return self._of_sum("below", value).exp()
        totals = torch.nn.functional.pad(self._pmf().cumsum(-1), (1, 0))
        value = _numbers(value, self._given.device)
        # Infinite ones are no integers.
        place = torch.floor(value.double()).clamp(-1.0, float(self.total_count)).long() + 1
        shape = common_shape("`value` and the batch", place.shape, self.batch_shape)
        found = (
            totals.expand(*shape, totals.shape[-1]).gather(-1, place.expand(shape).unsqueeze(-1)).squeeze(-1)
        )
        return found.clamp(max=1.0).to(self._given.dtype)

    def entropy(self) -> Tensor:
        """Entropy in nats.

        Returns
        -------
        Tensor, (...)
            Differentiable; the slope at a probability of 0 or 1 is infinite.

        See Also
        --------
        log_prob

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.entropy()
        tensor(1.0397)
        """
        law = self._law()
        possible = torch.isfinite(law)
        found = -torch.where(possible, law.exp() * torch.where(possible, law, 0.0), 0.0).sum(-1)
        return (found + self._steep()).to(self._given.dtype)

    def _steep(self) -> Tensor | float:
        """Zero, with the infinite slope that an entropy has where a trial stops being sure."""
        if self._edges() is False:
            return 0.0
        p = self._given.double()
        rising = torch.where(p == 0.0, torch.special.entr(p), 0.0)
        return (rising + torch.where(p == 1.0, torch.special.entr(1.0 - p), 0.0)).sum(-1)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008 - PyTorch's own signature
        """Numbers of successes of independent trials.

        Parameters
        ----------
        sample_shape : sequence of int
            Leading axes of the draws.

        Returns
        -------
        Tensor, (sample_shape..., ...)
            Counts.

        See Also
        --------
        log_prob

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.sample((5,)).shape
        torch.Size([5])
        """
        with torch.no_grad():
            shape = torch.Size(tensors.as_shape("sample_shape", sample_shape)) + self._given.shape
            return (torch.bernoulli(self.probs.expand(shape)) * self._sizes).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All possible numbers of successes, 0 to n, on a new first axis.

        Parameters
        ----------
        expand : bool
            Whether to expand over the batch.

        Returns
        -------
        Tensor, (n + 1, ...)
            Counts.

        See Also
        --------
        support, count_log_probs

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.enumerate_support()
        tensor([0., 1., 2.])
        """
        self._refuse_weights("enumerate_support")
        values = torch.arange(self.total_count + 1, dtype=self._given.dtype, device=self._given.device)
        values = values.reshape(-1, *[1] * len(self.batch_shape))
        return values.expand(-1, *self.batch_shape) if expand else values


class _PinnedEvents(WeightedEvents):
    """Made inside a compiled function, whose graph keeps them by their number."""

    def __init__(self, weights: Any, step: float | None, n: int) -> None:
        super().__init__(weights, step, n)
        self.number = number_of(self)


@torch.compiler.assume_constant_result
def _pinned(weights: Any, step: float | None, n: int) -> _PinnedEvents:
    return _PinnedEvents(weights, step, n)


def _weighted(weights: Any, step: float | None, n: int) -> WeightedEvents:
    if not torch.compiler.is_compiling():
        return WeightedEvents(weights, step, n)
    if not (isinstance(weights, (list, tuple)) and all(isinstance(w, (int, float)) for w in weights)):
        raise ParameterError(
            "`weights` of a PoissonBinomial that a compiled function makes must be a list of numbers, which the "
            "graph keeps; an array may change between calls. Pass a list, or make the distribution outside."
        )
    return _pinned(weights, step, n)


class _Underivable(torch.Tensor):
    """A tangent that nobody may use: derivatives of slopes are refused where they are needed, not where they are made.

    PyTorch wants a tangent for every output of a function, whether or not anything depends on it. It looks at the shape
    of this one and hands it on; all else that it may do is part of a second derivative.
    """

    @staticmethod
    def __new__(cls, like: Tensor) -> _Underivable:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls, like.shape, dtype=like.dtype, device=like.device
        )

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.overloadpacket.__name__
        if name in ("is_same_size", "_has_same_storage_numel"):
            return True
        return cls(args[0]) if name in ("detach", "alias", "view_as") else refuse_second_derivative()


class _SumLogProb(torch.autograd.Function):
    """Log-probabilities of weighted sums, and their slopes, changes of probabilities, from the same pass.

    Slopes of probabilities of 0 and 1, which log-odds do not have, belong to `probs`. Slopes are an output, so that
    derivatives of them are refused and not taken to be 0.
    """

    @staticmethod
    def forward(
        logits: Tensor, probs: Tensor | None, value: Tensor, which: str, events: WeightedEvents, edges: bool
    ) -> tuple[Tensor, Tensor]:
        found, slope = events.log_probs(which, host.array(logits.cpu()), host.array(value.cpu()), edges=edges)
        return torch.from_numpy(found).to(logits), torch.from_numpy(slope).to(logits)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1], torch.isinf(inputs[0]))
        ctx.save_for_forward(*inputs[:3])
        ctx.question = inputs[3:]

    @staticmethod
    def backward(ctx: Any, gradient: Any, by_slope: Any) -> tuple[Any, ...]:
        if by_slope is not None:
            refuse_second_derivative()
        if gradient is None:
            return (None,) * 6
        slope, sure = ctx.saved_tensors
        change = gradient.unsqueeze(-1) * slope
        of_probs = torch.where(sure, change, 0.0) if ctx.needs_input_grad[1] else None
        return torch.where(sure, 0.0, change), of_probs, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_probs: Any, *_: Any) -> tuple[Tensor, Tensor]:
        def change(logits: Tensor, probs: Any, value: Tensor, step: Any, of_probs: Any) -> Tensor:
            slope = _SumLogProb.apply(logits, probs, value, *ctx.question)[1]  # type: ignore[no-untyped-call]
            nothing = torch.zeros_like(logits)
            moves = (nothing if part is None else part for part in (of_probs, step))
            return (slope * torch.where(torch.isinf(logits), *moves)).sum(-1)

        point = ctx.saved_for_forward
        return expression(change, *point, by_logits, by_probs), _Underivable(point[0])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        mapped = [
            part.movedim(dim, 0) if dim is not None else part.expand(info.batch_size, *part.shape)
            if isinstance(part, Tensor) else part
            for part, dim in zip(arguments, in_dims)
        ]  # fmt: skip
        return _SumLogProb.apply(*mapped), (0, 0)  # type: ignore[no-untyped-call]


@torch.library.custom_op(
    "tallytree::sum_log_prob",
    mutates_args=(),
    schema="(Tensor logits, Tensor? probs, Tensor value, str which, int number, bool edges) -> (Tensor, Tensor)",
)
def _compiled(*arguments: Any) -> tuple[Tensor, Tensor]:
    """The same in compiled graphs, where a number stands for the weights."""
    *tensors, which, number, edges = arguments
    return _SumLogProb.forward(tensors[0], tensors[1], tensors[2], which, kept[number], edges)


_compiled.register_fake(lambda logits, probs, value, *_: (torch.empty_like(value), torch.empty_like(logits)))
_compiled.register_autograd(_SumLogProb.backward, setup_context=_SumLogProb.setup_context)


def exact_log_prob(logits: Tensor, count: Tensor) -> Tensor:
    """Log P(X = count), one count per model: log Z given the count less log Z without, right however small."""
    n = logits.shape[-1]
    least, most = torch.isposinf(logits).sum(-1), n - torch.isneginf(logits).sum(-1)
    possible = (count >= least) & (count <= most)
    given = functions.log_partition(
        logits.expand(*count.shape, n), exactly(torch.where(possible, count, least.expand(count.shape)))
    )
    return torch.where(possible, given - log_free(logits), -math.inf)


def _near_edges(probs: Tensor, moved: Callable[[int], Tensor]) -> Tensor:
    """What probabilities of 0 and 1 add to the law of a count: zero, with the right derivatives to the third order.

    With e_a and d_b the elementary symmetric polynomials of the probabilities at 0 and of the complements of those at
    1, all of them zero, and S the step from one count to the next, the law is

        P = sum_ab e_a d_b (S - 1)^a (1 / S - 1)^b q,

    where q is the law with these trials sure; ``moved(i)`` is ``S^i q``.
    """
    at_zero = _symmetric(torch.where(probs == 0.0, probs, 0.0))
    at_one = _symmetric(torch.where(probs == 1.0, 1.0 - probs, 0.0))
    steps = {step: moved(step) for step in range(-_ORDER, _ORDER + 1)}
    change = torch.zeros_like(steps[0])
    for a in range(_ORDER + 1):
        for b in range(0 if a else 1, _ORDER + 1 - a):
            term = sum(
                (-1) ** (a - i + b - j) * math.comb(a, i) * math.comb(b, j) * steps[i - j]
                for i in range(a + 1)
                for j in range(b + 1)
            )
            change = change + (at_zero[a] * at_one[b]).unsqueeze(-1) * term
    return change


def _shifted(law: Tensor, step: int, fill: float) -> Tensor:
    """The entry of count c - step in the place of c."""
    padded = torch.nn.functional.pad(law, (_ORDER, _ORDER), value=fill)
    return padded[..., _ORDER - step : _ORDER - step + law.shape[-1]]


_ORDER = 3


def _symmetric(values: Tensor) -> list[Tensor]:
    """Elementary symmetric polynomials of orders 0 to 3 over the last axis, by Newton's identities."""
    powers = [values.sum(-1), (values * values).sum(-1), (values * values * values).sum(-1)]
    found = [torch.ones_like(powers[0])]
    for k in range(1, _ORDER + 1):
        found.append(sum((-1) ** (i - 1) * found[k - i] * powers[i - 1] for i in range(1, k + 1)) / k)  # type: ignore[arg-type]
    return found


def log_free(logits: Tensor) -> Tensor:
    """Log Z of independent variables; a forced one weighs one."""
    forced = torch.isposinf(logits)
    return torch.where(forced, 0.0, softplus(torch.where(forced, 0.0, logits))).sum(-1)


@register_kl(PoissonBinomial, PoissonBinomial)
def _kl(p: PoissonBinomial, q: PoissonBinomial) -> Tensor:
    """KL(p || q) = sum_c P(c) (log P(c) - log Q(c)); infinite where p has a count that q excludes."""
    checks.comparable("trials", p.total_count, q.total_count)
    first, second = torch.broadcast_tensors(p._law(), q._law())
    possible = first > -math.inf
    gap = torch.where(possible, first, 0.0) - torch.where(possible, second, 0.0)
    found = (torch.where(possible, first, -math.inf).exp() * gap).sum(-1) - p._steep()
    return found.to(p._given.dtype)


def _numbers(value: Any, device: torch.device) -> Tensor:
    """Where to evaluate: numbers, which need not be counts."""
    tensor = as_real("value", value, device)
    if tensor.dtype.is_floating_point and anywhere(torch.isnan(tensor)):
        raise ParameterError("`value` must not contain NaN. Leave such entries out.")
    return tensor
