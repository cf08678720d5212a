"""The functions and distributions of PyTorch and JAX, those of NumPyro too, against enumeration.

Values and gradients; batches, broadcast parameters, expanded views, masks of -inf and inf, probabilities of 0 and 1.
JAX compiles once for every shape, so that its models have few of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import tallytree as tt
from oracle_states import REAL, Truth
from tallytree import config

from .binary import Binary, listed, truth_of
from .compare import Report, close, close_log_partition, close_log_probs, close_marginals, size_of
from .numbers import Source, size_between
from .structures import filled, hidden_states, nested_family

INF = math.inf
Array = Any


class Torch:
    """PyTorch in double precision."""

    def __init__(self) -> None:
        import torch

        import tallytree.torch as ttt

        self.torch, self.home, self.distributions = torch, ttt, ttt

    def array(self, values: np.ndarray) -> Array:
        return self.torch.as_tensor(np.array(values))

    def numpy(self, values: Array) -> np.ndarray:
        return np.asarray(values.detach())

    def expanded(self, values: np.ndarray, times: int) -> Array:
        return self.array(values).expand(times, *np.shape(values))

    def gradients(self, function: Callable[..., Array], *arguments: np.ndarray) -> list[np.ndarray]:
        given = [self.array(a).requires_grad_() for a in arguments]
        found = self.torch.autograd.grad(function(*given), given, allow_unused=True)
        return [np.zeros(np.shape(a)) if g is None else self.numpy(g) for a, g in zip(arguments, found)]

    def sample(self, distribution: Any, number: int, seed: int) -> np.ndarray:
        self.torch.manual_seed(seed)
        return self.numpy(distribution.sample((number,)))


class Jax:
    """JAX in double precision; the distributions are NumPyro's where it is installed."""

    def __init__(self) -> None:
        import jax

        import tallytree.jax as ttj

        jax.config.update("jax_enable_x64", True)
        self.jax, self.home, self.distributions = jax, ttj, None
        try:
            from tallytree.jax import numpyro

            self.distributions = numpyro
        except ImportError:
            pass

    def array(self, values: np.ndarray) -> Array:
        return self.jax.numpy.asarray(values)

    def numpy(self, values: Array) -> np.ndarray:
        return np.asarray(values)

    def expanded(self, values: np.ndarray, times: int) -> Array:
        return self.jax.numpy.broadcast_to(self.array(values), (times, *np.shape(values)))

    def gradients(self, function: Callable[..., Array], *arguments: np.ndarray) -> list[np.ndarray]:
        given = [self.array(a) for a in arguments]
        found = self.jax.grad(function, argnums=tuple(range(len(given))))(*given)
        return [self.numpy(g) for g in found]

    def sample(self, distribution: Any, number: int, seed: int) -> np.ndarray:
        return self.numpy(distribution.sample(self.jax.random.key(seed), (number,)))


HOMES: dict[str, Any] = {}


def home_of(name: str) -> Any:
    """One of each, made when it is first needed."""
    if name not in HOMES:
        HOMES[name] = {"torch": Torch, "jax": Jax}[name]()
    return HOMES[name]


def only_once() -> bool:
    """JAX has an engine of its own: what it answers is checked beside the first engine of a run."""
    return config._extension is None or config.native() is not None


@dataclass(frozen=True, eq=False)
class TensorCase:
    """Models over one structure in a batch, asked of a framework; ``weights`` (D,) are a direction."""

    framework: str
    rows: tuple[Binary, ...]
    shape: tuple[int, ...]
    weights: np.ndarray

    @cached_property
    def truth(self) -> Truth:
        return truth_of(self.rows, self.shape)

    @property
    def logits(self) -> np.ndarray:
        return np.array([r.theta for r in self.rows]).reshape(*self.shape, -1)

    @property
    def tables(self) -> list[np.ndarray]:
        count = len(self.rows[0].groups)
        return [np.array([r.groups[g][1] for r in self.rows]).reshape(*self.shape, -1) for g in range(count)]

    def groups(self, tables: list[Array]) -> list[tt.Group]:
        return [tt.Group(list(m), t) for (m, _), t in zip(self.rows[0].groups, tables)]

    def check(self, report: Report, rng: np.random.Generator) -> None:
        if self.framework == "jax" and not only_once():
            return
        home, truth = home_of(self.framework), self.truth
        logits, groups = home.array(self.logits), self.groups([home.array(t) for t in self.tables])
        ask = home.home
        if not truth.possible.all():
            return
        with report.answer("log_partition"):
            close_log_partition(home.numpy(ask.log_partition(logits, groups)), truth.log_partition)
        with report.answer("marginals"):
            close_marginals(home.numpy(ask.marginals(logits, groups)), truth.posterior_logits)
        counts = truth.states.sum(1)
        with report.answer("count_log_probs"):
            found = home.numpy(ask.count_log_probs(logits, groups))
            close_log_probs(found, truth.score_log_probs(counts, truth.states.shape[1]))
        with report.answer("expanded"):
            found = home.numpy(ask.marginals(home.expanded(self.logits, 3), groups))
            close_marginals(found, np.broadcast_to(truth.posterior_logits, (3, *self.logits.shape)))
        self._gradients(report, home)
        if home.distributions is not None:
            self._distribution(report, home, home.distributions.CountDistribution(logits, groups))

    def _gradients(self, report: Report, home: Any) -> None:
        truth = self.truth
        free = np.isfinite(self.logits)
        with report.answer("gradient of log_partition"):
            found, *of_tables = home.gradients(
                lambda x, *t: home.home.log_partition(x, self.groups(list(t))).sum(),
                self.logits,
                *self.tables,
            )
            probs = np.exp(truth.log_marginals[..., 1])
            close(np.where(free, found, 0.0), np.where(free, probs, 0.0), 1e-9)
            for (members, _), got in zip(self.rows[0].groups, of_tables):
                scores = truth.states[:, list(members)].sum(1)
                close(got, np.exp(truth.score_log_probs(scores, len(members))), 1e-8)
        with report.answer("gradient of marginals"):
            w = home.array(self.weights)
            (found,) = home.gradients(
                lambda x: (
                    home.home.marginals(x, self.groups([home.array(t) for t in self.tables])) * w
                ).sum(),
                self.logits,
            )
            want = truth.covariance_of(truth.states) @ self.weights
            close(np.where(free, found, 0.0), np.where(free, want, 0.0), 1e-9)

    def _distribution(self, report: Report, home: Any, d: Any) -> None:
        truth = self.truth
        with report.answer("distribution: log_prob"):
            states = truth.states.reshape(len(truth.states), *(1,) * len(self.shape), -1).astype(float)
            found = np.moveaxis(home.numpy(d.log_prob(home.array(states))), 0, -1)
            sizes = size_of(truth.logs.values) + size_of(truth.log_partition)[..., None]
            close_log_partition(found, truth.log_probs, sizes)
        with report.answer("distribution: mean"):
            close_marginals(home.numpy(d.mean), truth.posterior_logits)
        with report.answer("distribution: entropy"):
            # JAX has no second way where large log-weights cancel
            reach = size_of(truth.logs.values).max(-1) if self.framework == "jax" else 0.0
            close(home.numpy(d.entropy()), truth.entropy, 1e-10 * (1 + np.abs(truth.entropy)) + 5e-12 * reach)
        with report.answer("distribution: sample"):
            found = home.sample(d, 5, 0)
            assert found.shape == (5, *self.logits.shape), f"samples of shape {found.shape}"
            for draw in found:
                at = truth.index(np.rint(draw).astype(int))
                drawn = np.take_along_axis(truth.log_probs, at[..., None], -1)
                assert (at >= 0).all(), "a sample is no state"
                assert not np.isneginf(drawn).any(), "an impossible state was drawn"

    def code(self) -> str:
        return f"{self.framework}, shape {self.shape}:\n    " + "\n    ".join(row.code() for row in self.rows)


@dataclass(frozen=True, eq=False)
class TrialsCase:
    """Independent variables by their probabilities (B, n), 0 and 1 among them: their count, and subsets of them."""

    framework: str
    probs: np.ndarray

    @cached_property
    def law(self) -> np.ndarray:
        """Probabilities of the counts, (B, n + 1), in extended precision."""
        return count_law(self.probs)

    @cached_property
    def slopes(self) -> np.ndarray:
        """By how much the probability of every count grows with every entry, (B, n, n + 1)."""
        n = self.probs.shape[-1]
        found = []
        for d in range(n):
            rest = count_law(np.delete(self.probs, d, axis=-1))
            zero = np.zeros((len(rest), 1), REAL)
            found.append(np.concatenate([zero, rest], 1) - np.concatenate([rest, zero], 1))
        return np.stack(found, axis=1)

    def check(self, report: Report, rng: np.random.Generator) -> None:
        if self.framework == "jax" and not only_once():
            return
        home = home_of(self.framework)
        if home.distributions is None:
            return
        n = self.probs.shape[-1]
        counts = np.arange(n + 1)
        make = home.distributions.PoissonBinomial
        d = make(probs=home.array(self.probs))
        values = np.broadcast_to(counts[:, None], (n + 1, len(self.probs)))
        with np.errstate(divide="ignore"):
            log_law = np.log(self.law).astype(float)
        with report.answer("PoissonBinomial: log_prob"):
            found = home.numpy(d.log_prob(home.array(values.astype(float))))
            close(found.T, log_law, 1e-9 + 1e-10 * size_of(log_law))
        with report.answer("PoissonBinomial: log_prob of one value"):
            at = int(rng.integers(n + 1))
            found = home.numpy(d.log_prob(home.array(np.array(float(at)))))
            close(found, log_law[:, at], 1e-9 + 1e-10 * size_of(log_law[:, at]))
        with report.answer("PoissonBinomial: moments"):
            mean = (self.law * counts).sum(-1)
            close(home.numpy(d.mean), mean.astype(float), 1e-12 * (1 + n))
            variance = (self.probs * (1 - self.probs)).sum(-1)
            close(home.numpy(d.variance), variance, 1e-12 * (1 + n))
        with report.answer("PoissonBinomial: gradient of log_prob"):
            row = int(rng.integers(len(self.probs)))
            possible = np.flatnonzero(self.law[row] > 0)
            at = int(rng.choice(possible))
            (found,) = home.gradients(
                lambda p: make(probs=p).log_prob(home.array(np.array(float(at)))).sum(), self.probs[row]
            )
            want = (self.slopes[row, :, at] / self.law[row, at]).astype(float)
            close(found, want, 1e-8 * (1 + np.abs(want)))
        with report.answer("PoissonBinomial: gradient of mean"):
            (found,) = home.gradients(lambda p: make(probs=p).mean.sum(), self.probs)
            close(found, np.ones_like(self.probs), 1e-12)
        self._subsets(report, home, rng)

    def _subsets(self, report: Report, home: Any, rng: np.random.Generator) -> None:
        """Subsets of every size, by a batch of sizes that is broadcast against the rows."""
        n = self.probs.shape[-1]
        logits = np.log(np.clip(self.probs, 0.05, 0.95)) - np.log1p(-np.clip(self.probs, 0.05, 0.95))
        ks = np.arange(n + 1)[:, None]
        with report.answer("ConditionalBernoulli: broadcast"):
            d = home.distributions.ConditionalBernoulli(home.array(ks), home.array(logits))
            value = (np.arange(n) < rng.integers(n + 1)).astype(float)
            found = home.numpy(d.log_prob(home.array(value)))
            rows = tuple(
                Binary(row, ((tuple(range(n)), np.where(np.arange(n + 1) == k, 0.0, -INF)),))
                for k in ks[:, 0]
                for row in logits
            )
            truth = truth_of(rows, (n + 1, len(logits)))
            want = np.take_along_axis(
                truth.log_probs,
                np.broadcast_to(truth.index(value.astype(int)), truth.possible.shape)[..., None],
                -1,
            )[..., 0]
            close(found, want, 1e-9 * (1 + size_of(want)))

    def code(self) -> str:
        rows = ", ".join(listed(row) for row in self.probs)
        return f"{self.framework}: PoissonBinomial(probs=[{rows}])"


def count_law(probs: np.ndarray) -> np.ndarray:
    law = np.ones((len(probs), 1), REAL)
    zero = np.zeros((len(probs), 1), REAL)
    for p in np.moveaxis(np.asarray(probs, REAL), -1, 0):
        law = np.concatenate([law * (1 - p)[:, None], zero], 1) + np.concatenate([zero, law * p[:, None]], 1)
    return law


def _trials(rng: np.random.Generator, framework: str, n: int, rows: int) -> TrialsCase:
    probs = rng.random((rows, n))
    ends = rng.random((rows, n)) < rng.choice([0.0, 0.3, 1.0])
    return TrialsCase(framework, np.where(ends, rng.integers(0, 2, (rows, n)), probs))


def _tensors(
    rng: np.random.Generator, framework: str, n: int, shape: tuple[int, ...], nested: bool
) -> TensorCase:
    whole = [tuple(range(n))]
    if framework == "jax":
        family = [tuple(range(n // 2 + 1)), *whole] if nested else whole
    else:
        family = nested_family(rng, n) if nested else whole
    rows = []
    for _ in range(math.prod(shape)):
        source = Source(rng, hidden_states(rng, n))
        source.mask = 0.0
        rows.append(filled(source, family, None))
    return TensorCase(framework, tuple(rows), shape, rng.standard_normal(n))


TORCH_LOT, JAX_LOT = 12, 256


def draw_torch(rng: np.random.Generator) -> TensorCase | TrialsCase:
    n = size_between(rng, 1, 7)
    if rng.random() < 0.4:
        return _trials(rng, "torch", n, TORCH_LOT)
    shape = [(12,), (3, 4), (1, 12), (12, 1)][int(rng.integers(4))]
    return _tensors(rng, "torch", n, shape, bool(rng.random() < 0.6))


def draw_jax(rng: np.random.Generator) -> TensorCase | TrialsCase:
    if rng.random() < 0.4:
        return _trials(rng, "jax", 4, JAX_LOT)
    return _tensors(rng, "jax", 4, (JAX_LOT,), bool(rng.random() < 0.5))
