"""One model of every kind, for the behaviour that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tallytree as tt

_STAY = np.log([[0.8, 0.2], [0.3, 0.7]])
_CHAIN = tt.Forest([(0, 1), (1, 2), (2, 3), (3, 4)], 0.4)
_NESTED = [tt.Group([0, 1], tt.at_least(1)), tt.Group([4], [0.0, 0.3]), tt.Group(None, tt.between(1, 4))]


@dataclass(frozen=True)
class Kind:
    """How to make a model from the numbers that carry its dtype, and what it calls them."""

    make: Callable[[Any], Any]
    shape: tuple[int, ...]
    parameter: str = "logits"
    impossible: Callable[[], Any] | None = None
    lacks: frozenset[str] = frozenset()  # of "groups", "error_bound", "entropy", "mode"

    def numbers(self, seed: int = 0, dtype: Any = np.float64) -> Any:
        return np.random.default_rng(seed).normal(size=self.shape).astype(dtype)

    def model(self, seed: int = 0, dtype: Any = np.float64) -> Any:
        return self.make(self.numbers(seed, dtype))


_WEIGHTS, _RATES = np.array([0.5, -1.0, 1.5, 0.0, 2.0]), np.array([0.9, 0.5, 0.0, 1.0, 0.2])
_NO_MAXIMA = frozenset({"groups", "error_bound", "entropy", "mode"})  # a sum over what acts has no best term


def _bend(x: Any) -> Any:
    return -np.abs(x - 0.7) + 0.2 * np.sin(3.0 * x)


def _tree(x: Any) -> tt.CountModel:
    tree = tt.CountTree.balanced(5)
    return tt.CountModel.from_tree(tree, x, np.linspace(-1.0, 1.0, sum(len(g) + 1 for g in tree.groups)))


def _chain(x: Any, **options: Any) -> tt.ChainModel:
    return tt.ChainModel(
        x, _STAY, [tt.Group([0, 1], tt.at_most(1)), tt.Group(None, tt.between(1, 3))], **options
    )


def _never(**options: Any) -> Callable[[], Any]:
    return lambda: tt.CountModel([-np.inf] * 3, tt.exactly(1), **options)


KINDS = {
    "plain": Kind(lambda x: tt.CountModel(x, tt.between(1, 3)), (5,), impossible=_never()),
    "nested": Kind(
        lambda x: tt.CountModel(x, _NESTED), (5,),
        impossible=lambda: tt.CountModel(np.zeros(4), [tt.Group([0, 1], tt.exactly(2)), tt.Group(None, tt.exactly(1))]),
    ),
    "tree": Kind(_tree, (5,)),
    "batch": Kind(lambda x: tt.CountModel(x, _NESTED), (2, 3, 5)),
    "edges": Kind(
        lambda x: tt.CountModel(x, _NESTED, edges=_CHAIN), (5,),
        impossible=_never(edges=tt.Forest([(0, 1)], 0.5)),
    ),
    "edges batch": Kind(lambda x: tt.CountModel(x, _NESTED, edges=_CHAIN), (2, 5)),
    "chain": Kind(
        _chain, (4, 2), "log_unary",
        impossible=lambda: tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1), scores=[0, 2]),
    ),
    "chain lengths": Kind(lambda x: _chain(x, lengths=[4, 2, 3]), (3, 4, 2), "log_unary"),
    "linear": Kind(
        lambda x: tt.LinearModel(x, _WEIGHTS, _bend, step=0.5), (5,),
        impossible=lambda: tt.LinearModel([-np.inf] * 3, np.ones(3), [-np.inf, 0.0, 0.0, 0.0], step=1.0),
        lacks=frozenset({"groups", "error_bound"}),
    ),
    "linear batch": Kind(
        lambda x: tt.LinearModel(x, _WEIGHTS, _bend, step=0.5), (2, 3, 5), lacks=frozenset({"groups", "error_bound"}),
    ),
    "thinned": Kind(
        lambda x: tt.ThinnedModel(x, _RATES, tt.between(1, 2), leak=0.1), (5,),
        impossible=lambda: tt.noisy_or_model([-np.inf] * 3, [0.5] * 3), lacks=_NO_MAXIMA,
    ),
    "thinned batch": Kind(lambda x: tt.noisy_or_model(x, _RATES), (2, 3, 5), lacks=_NO_MAXIMA),
}  # fmt: skip
