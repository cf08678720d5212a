"""Named models that defeat careless arithmetic, at any number of variables.

``accuracy_case(name, D)`` builds one; ``FLAT_CASES`` and ``NESTED_CASES`` list the names. Each name seeds its
own generator, so that adding a case changes no other. All models are possible for D >= 2.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.special import gammaln

from case import Case
from contract import assert_contract, assert_count_log_probs, assert_log_partition

__all__ = [
    "CASES",
    "FLAT_CASES",
    "NESTED_CASES",
    "Case",
    "accuracy_case",
    "assert_contract",
    "assert_count_log_probs",
    "assert_log_partition",
    "ward_linkage",
    "ward_tree_case",
]

INF = math.inf


# ----------------------------------------------------------------------------- one table over everything

Flat = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]
_flat: dict[str, Flat] = {}
_nested: dict[str, Callable[[int, np.random.Generator], Case]] = {}


def flat(fun: Flat) -> Flat:
    _flat[fun.__name__] = fun
    return fun


def nested(fun: Callable[[int, np.random.Generator], Case]) -> Callable:
    _nested[fun.__name__] = fun
    return fun


def only(D: int, *counts: int) -> np.ndarray:
    """Log table that allows the given counts alone."""
    log_f = np.full(D + 1, -INF)
    log_f[[min(max(c, 0), D) for c in counts]] = 0.0
    return log_f


def centred_normal(D: int, rng: np.random.Generator) -> np.ndarray:
    theta = rng.standard_normal(D)
    return theta - theta.mean()


def two_signs(D: int, size: float) -> np.ndarray:
    return np.where(np.arange(D) < D // 2, size, -size)


@flat
def tame(D, rng):
    return rng.standard_normal(D), rng.standard_normal(D + 1)


@flat
def wide_logits(D, rng):
    return 10 * rng.standard_normal(D), rng.standard_normal(D + 1)


@flat
def huge_logits(D, rng):
    return 1000 * rng.standard_normal(D), rng.standard_normal(D + 1)


@flat
def heavy_tailed_logits(D, rng):
    return rng.standard_cauchy(D), rng.standard_normal(D + 1)


@flat
def low_logits_exactly_half(D, rng):
    return np.full(D, -20.0), only(D, D // 2)


@flat
def signs_30_sorted_exactly_third(D, rng):
    return two_signs(D, 30.0), only(D, D // 3)


@flat
def signs_30_shuffled_exactly_third(D, rng):
    return rng.permutation(two_signs(D, 30.0)), only(D, D // 3)


@flat
def signs_800_sorted_exactly_third(D, rng):
    return two_signs(D, 800.0), only(D, D // 3)


@flat
def signs_800_jittered_exactly_third(D, rng):
    return rng.permutation(two_signs(D, 800.0)) + rng.standard_normal(D), only(D, D // 3)


@flat
def three_levels_800_exactly_third(D, rng):
    return rng.choice([-800.0, 0.0, 800.0], D) + rng.standard_normal(D), only(D, D // 3)


@flat
def rough_table_50(D, rng):
    return rng.standard_normal(D), 50 * rng.standard_normal(D + 1)


@flat
def rough_table_1000(D, rng):
    return rng.standard_normal(D), 1000 * rng.standard_normal(D + 1)


@flat
def table_spread_over_600_nats(D, rng):
    return rng.standard_normal(D), rng.uniform(-300, 300, D + 1)


@flat
def table_waves_of_300_nats(D, rng):
    return rng.standard_normal(D), 300 * np.sin(20 * np.arange(D + 1) / (D + 1))


@flat
def table_random_walk(D, rng):
    return rng.standard_normal(D), 10 * np.cumsum(rng.standard_normal(D + 1))


@flat
def one_entry_of_100000(D, rng):
    log_f = rng.standard_normal(D + 1)
    log_f[7 * D // 10] = 1e5
    return rng.standard_normal(D), log_f


@flat
def attractive(D, rng):
    """Curie-Weiss model with J = 1.2: two separate modes."""
    return 0.1 * rng.standard_normal(D), 1.2 * (2 * np.arange(D + 1) - D) ** 2 / (2.0 * D)


@flat
def attractive_critical(D, rng):
    return 0.1 * rng.standard_normal(D), (2 * np.arange(D + 1) - D) ** 2 / (2.0 * D)


@flat
def attractive_strong(D, rng):
    return rng.standard_normal(D), 20.0 * (2 * np.arange(D + 1) - D) ** 2 / (2.0 * D)


@flat
def repulsive(D, rng):
    return rng.standard_normal(D) - 1, -5.0 * (np.arange(D + 1) - D / 2) ** 2


@flat
def two_spikes(D, rng):
    return centred_normal(D, rng), only(D, D // 10, 9 * D // 10)


@flat
def three_or_almost_all(D, rng):
    return centred_normal(D, rng), only(D, min(3, D), D - 10)


@flat
def two_bumps(D, rng):
    k = np.arange(D + 1)
    return centred_normal(D, rng), np.logaddexp(-((k - 0.2 * D) ** 2) / 8, -((k - 0.8 * D) ** 2) / 8)


@flat
def gaussian_at_six_tenths(D, rng):
    return rng.standard_normal(D) - 1, -((np.arange(D + 1) - 0.6 * D) ** 2) / (8 * D)


@flat
def far_tail_exactly(D, rng):
    return rng.standard_normal(D) - 3, only(D, 9 * D // 10)


@flat
def far_tail_at_least(D, rng):
    return rng.standard_normal(D) - 5, np.where(np.arange(D + 1) >= 3 * D // 4, 0.0, -INF)


@flat
def far_tail_soft(D, rng):
    return rng.standard_normal(D) - 5, 8.0 * np.minimum(np.arange(D + 1), D // 2)


@flat
def all_or_none(D, rng):
    return centred_normal(D, rng), only(D, 0, D)


@flat
def all_or_none_soft(D, rng):
    return centred_normal(D, rng), np.where(np.arange(D + 1) % D == 0, 0.0, -50.0)


@flat
def even_parity(D, rng):
    return rng.standard_normal(D), np.where(np.arange(D + 1) % 2 == 0, 0.0, -INF)


@flat
def odd_parity_extreme_logits(D, rng):
    return rng.choice([-40.0, 40.0], D) + rng.standard_normal(D), np.where(np.arange(D + 1) % 2, 0.0, -INF)


@flat
def alternating_30(D, rng):
    return rng.standard_normal(D), np.where(np.arange(D + 1) % 2, 30.0, -30.0)


@flat
def multiples_of_seven(D, rng):
    return rng.standard_normal(D), np.where(np.arange(D + 1) % 7 == 0, 0.0, -INF)


@flat
def exactly_none(D, rng):
    return rng.standard_normal(D), only(D, 0)


@flat
def exactly_one(D, rng):
    return 5 * rng.standard_normal(D), only(D, 1)


@flat
def exactly_all_but_one(D, rng):
    return 5 * rng.standard_normal(D), only(D, D - 1)


@flat
def at_most_50(D, rng):
    return rng.standard_normal(D), np.where(np.arange(D + 1) <= 50, 0.0, -INF)


@flat
def at_least_all_but_50(D, rng):
    return rng.standard_normal(D), np.where(np.arange(D + 1) >= D - 50, 0.0, -INF)


@flat
def uniform_count(D, rng):
    """Table 1 / C(D, c): every count matters."""
    k = np.arange(D + 1)
    return rng.standard_normal(D), gammaln(k + 1) + gammaln(D - k + 1) - gammaln(D + 1)


@flat
def noisy_or_near_cancellation(D, rng):
    return rng.standard_normal(D) - 30, noisy_or_table(D, rate=1e-6, leak=1e-12)


@flat
def noisy_or_no_leak(D, rng):
    return rng.standard_normal(D) - 300, noisy_or_table(D, rate=0.3, leak=0.0)


def noisy_or_table(D: int, rate: float, leak: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(-np.expm1(np.log1p(-leak) + np.arange(D + 1) * np.log1p(-rate)))


@flat
def infinite_logits(D, rng):
    theta = rng.standard_normal(D)
    theta[: D // 4], theta[D // 4 : D // 2] = INF, -INF
    return rng.permutation(theta), only(D, D // 4, D // 4 + 1)


@flat
def infinite_logits_decide_all(D, rng):
    theta = np.where(np.arange(D) < D // 3, INF, -INF)
    return rng.permutation(theta), rng.standard_normal(D + 1)


# ------------------------------------------------------------------------------------------ nested tables


def ward_linkage(D: int, seed: int = 0) -> np.ndarray:
    """Merges of Ward's clustering of D random points in the plane, (D - 1, 4) as SciPy gives them."""
    return linkage(np.random.default_rng([seed, D]).standard_normal((D, 2)), "ward")


def ward_tree_case(D: int, sd: float, seed: int = 0) -> Case:
    """A table N(0, sd^2) on every row of ``ward_linkage(D, seed)``, in that order; theta N(0, 1)."""
    rng = np.random.default_rng([seed, D, 1])
    members = [(d,) for d in range(D)]
    for left, right in ward_linkage(D, seed)[:, :2].astype(int):
        members.append(members[left] + members[right])
    sets = tuple((s, sd * rng.standard_normal(len(s) + 1)) for s in members[D:])
    return Case(rng.standard_normal(D), sets, f"ward tree, sd {sd:g}")


def _ward(sd: float) -> None:
    _nested[f"ward_{sd:g}"] = lambda D, rng: ward_tree_case(D, sd)


for _sd in (1, 3, 6, 50, 1000):
    _ward(_sd)


def blocks(D: int, size: int) -> list[tuple[int, ...]]:
    return [tuple(range(start, min(start + size, D))) for start in range(0, D, size)]


@nested
def one_of_every_eight(D, rng):
    return Case(30 * rng.standard_normal(D), tuple((b, only(len(b), 1)) for b in blocks(D, 8)))


@nested
def none_or_all_of_every_eight_under_half(D, rng):
    sets = [(b, only(len(b), 0, len(b))) for b in blocks(D, 8)]
    everything = np.where(np.arange(D + 1) <= D // 2, 0.0, -INF)
    return Case(rng.standard_normal(D) + 3, (*sets, (tuple(range(D)), everything)))


@nested
def inner_tables_fight_outer(D, rng):
    """Every block wants its members on, the whole wants them off."""
    sets = [(b, 40.0 * np.arange(len(b) + 1)) for b in blocks(D, 16)]
    return Case(rng.standard_normal(D) - 20, (*sets, (tuple(range(D)), only(D, D // 10))))


@nested
def rough_blocks_in_far_tail(D, rng):
    sets = [(b, 50 * rng.standard_normal(len(b) + 1)) for b in blocks(D, 64)]
    return Case(rng.standard_normal(D) - 4, (*sets, (tuple(range(D)), only(D, 8 * D // 10))))


@nested
def caterpillar(D, rng):
    """Every prefix has a table (at most 200 of them)."""
    ends = np.unique(np.linspace(2, D, min(D - 1, 200)).astype(int))
    sets = tuple((tuple(range(n)), 5 * rng.standard_normal(n + 1)) for n in ends)
    return Case(rng.standard_normal(D), sets)


@nested
def rough_caterpillar_with_extreme_logits(D, rng):
    ends = np.unique(np.linspace(2, D, min(D - 1, 50)).astype(int))
    sets = tuple((tuple(range(n)), 1000 * rng.standard_normal(n + 1)) for n in ends)
    return Case(rng.choice([-800.0, 800.0], D), sets)


@nested
def parities_of_parities(D, rng):
    sets = [(b, np.where(np.arange(len(b) + 1) % 2 == 0, 0.0, -INF)) for b in blocks(D, 4)]
    return Case(rng.standard_normal(D), (*sets, (tuple(range(D)), 100 * rng.standard_normal(D + 1))))


@nested
def loose_variables_outside(D, rng):
    half = max(D // 2, 1)
    return Case(20 * rng.standard_normal(D), ((tuple(range(half)), 50 * rng.standard_normal(half + 1)),))


# ------------------------------------------------------------------------------------------------- access

FLAT_CASES: Sequence[str] = tuple(_flat)
NESTED_CASES: Sequence[str] = tuple(_nested)
CASES: Sequence[str] = FLAT_CASES + NESTED_CASES


def accuracy_case(name: str, D: int) -> Case:
    """Build the named case with D >= 2 variables; a flat one has the single set (0, ..., D-1)."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), D])
    if name in _nested:
        case = _nested[name](D, rng)
        return Case(case.theta, case.sets, name)
    theta, log_f = _flat[name](D, rng)
    sets = ((tuple(range(D)), np.asarray(log_f, float)),)
    return Case(np.asarray(theta, float), sets, name)
