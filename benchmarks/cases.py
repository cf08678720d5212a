"""The rows of the table: the work that the engine is held to, each with its target, peers and right answer."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import gammaln

import peers
import tallytree as tt
from machine import copier, transformer
from peers import Answer, fft_tree, pieces, tilted
from rows import Contender, Row, Truth, engines, machine, ours, paper, peer

MS = 1e-3
INF = np.inf


def only(n: int, *counts: int) -> np.ndarray:
    table = np.full(n + 1, -INF)
    table[list(counts)] = 0.0
    return table


def truth(name: str, found: Answer) -> Truth:
    return Truth(name, found.log_partition, found.posterior_logits)


def textbook(theta: np.ndarray, log_f: np.ndarray) -> Contender:
    return Contender("NumPy FFT tree", "peer", lambda: lambda: fft_tree(theta, log_f).marginals)


def sum_only(theta: np.ndarray) -> tuple[Contender, ...]:
    return (
        peer("fast-poibin (sum only)", peers.fast_poibin, theta),
        peer("fast-poibin dp (sum only)", peers.fast_poibin, theta, "dp"),
        peer("scipy (sum only)", peers.scipy_poisson_binom, theta),
    )


def bounds(n: int, batch: int = 1) -> tuple[Contender, ...]:
    """Reading logits and tables and writing marginals once, and the transforms of the textbook tree alone."""
    return (
        machine("stream copy of 24 bytes per variable", lambda: copier(24 * n * batch)),
        machine("bare FFTs of the tree", lambda: transformer(n, batch)),
    )


def random_model(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, n])
    return rng.standard_normal(n), rng.standard_normal(n + 1)


# ------------------------------------------------------------------------------------------- one potential


def flat(n: int, name: str, target: float | None) -> Row:
    theta, log_f = random_model(n)
    small = random_model(2**19)

    def make() -> tt.CountModel:
        return tt.CountModel(theta, log_f)

    base = (ours(lambda: tt.CountModel(*small), "tallytree, D = 2^19", "base"),) if n == 2**22 else ()
    return Row(
        f"one random potential, D = {name}",
        (
            *engines(make),
            *base,
            *paper(lambda method: tt.CountModel(theta, log_f, method=method), n),
            textbook(theta, log_f),
            *sum_only(theta),
            *bounds(n),
        ),
        target=target,
        ratio=("tallytree, D = 2^19", 9.0) if base else None,
        model=make,
        truth=lambda: truth("NumPy FFT tree", fft_tree(theta, log_f)),
        size=n,
    )


def batch(rows: int, n: int, target: float) -> Row:
    rng = np.random.default_rng([rows, n])
    theta, log_f = rng.standard_normal((rows, n)), rng.standard_normal((rows, n + 1))

    def make() -> tt.CountModel:
        return tt.CountModel(theta, log_f)

    def one_by_one() -> None:
        for x, table in zip(theta, log_f):
            tt.CountModel(x, table).marginals  # noqa: B018

    return Row(
        f"{rows} models of {n} variables, a random potential each",
        (
            *engines(make),
            Contender("tallytree, one by one", "base", lambda: one_by_one),
            textbook(theta, log_f),
            *sum_only(theta),
            *bounds(n, rows),
        ),
        target=target,
        model=make,
        truth=lambda: truth("NumPy FFT tree", fft_tree(theta, log_f)),
        size=n,
    )


def exactly(n: int, k: int, target: float | None, logit: float | None = None) -> Row:
    theta = random_model(n)[0] if logit is None else np.full(n, logit)
    log_f = only(n, k)

    def make() -> tt.CountModel:
        return tt.CountModel(theta, tt.exactly(k))

    def right() -> Truth:
        if logit is None:
            return truth("NumPy FFT tree under a tilt", tilted(theta, log_f, k))
        log_z = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + logit * k
        return Truth("closed form", log_z, np.full(n, np.log(k / (n - k))))

    what = "theta ~ N(0, 1)" if logit is None else f"theta = {logit:g}"
    small = (
        peer("statsmodels recursion", peers.statsmodels_recursion, theta, k),
        peer("PySDD (compiled before)", peers.pysdd_exactly, theta, k),
    )
    return Row(
        f"exactly {k} of {n}, {what}",
        (
            *engines(make, array=False),
            *paper(lambda method: tt.CountModel(theta, tt.exactly(k), method=method), n),
            *small,
            textbook(theta, log_f),
            *sum_only(theta),
            *bounds(n),
        ),
        target=target,
        model=make,
        truth=right,
        size=n,
    )


def against_flat(
    title: str, theta: np.ndarray, potential: Any, limit: float, right: Callable[[np.ndarray], Truth]
) -> Row:
    """A potential with more than one mode, against a random one over as many variables."""
    n = len(theta)
    plain = random_model(n)

    def make() -> tt.CountModel:
        return tt.CountModel(theta, potential)

    table = np.asarray(make().tables[0])
    return Row(
        title,
        (
            *engines(make, array=False),
            ours(lambda: tt.CountModel(*plain), "tallytree, random potential", "base"),
            *paper(lambda method: tt.CountModel(theta, potential, method=method), n),
            textbook(theta, table),
            *bounds(n),
        ),
        ratio=("tallytree, random potential", limit),
        model=make,
        truth=lambda: right(table),
        tolerance=1e-9,
        size=n,
    )


def centred(n: int) -> np.ndarray:
    theta = np.random.default_rng([2, n]).standard_normal(n)
    return theta - theta.mean()


def curie_weiss(n: int = 2**16) -> Row:
    theta = 0.1 * centred(n)
    # The modes are at magnetisation +-m, m = tanh(1.2 m), each with a posterior sd of 0.66 sqrt(n). The table bends
    # upwards, so that one tilt serves only a stretch of it: 16 pieces per mode reach 11 sd to each side.
    m, width = 0.6586, round(0.9 * math.sqrt(n))
    starts = [round(n * (1 + sign * m) / 2) + j * width for sign in (-1, 1) for j in range(-8, 8)]
    cuts = [(slice(a, a + width), a + width / 2) for a in starts]
    return against_flat(
        "Curie-Weiss, J = 1.2, D = 2^16",
        theta,
        1.2 * (2 * np.arange(n + 1) - n) ** 2 / (2.0 * n),
        50.0,
        lambda table: truth("NumPy FFT trees under 32 tilts", pieces(theta, table, cuts)),
    )


def two_spikes(n: int = 2**16) -> Row:
    theta, low, high = centred(n), n // 10, 9 * n // 10
    cuts = [(slice(0, n // 2), float(low)), (slice(n // 2, None), float(high))]
    return against_flat(
        "D/10 or 9D/10 of D = 2^16",
        theta,
        only(n, low, high),
        50.0,
        lambda table: truth("NumPy FFT trees under two tilts", pieces(theta, table, cuts)),
    )


def all_or_none(n: int = 2**16) -> Row:
    theta = centred(n) + 0.3 / n
    everything = math.fsum(theta)
    return against_flat(
        "all_or_none(inf) over D = 2^16",
        theta,
        tt.all_or_none(INF),
        3.0,
        lambda table: Truth("closed form", np.logaddexp(0, everything), np.full(n, everything)),
    )


def capped(n: int, k: int, target: float) -> Row:
    theta = random_model(n)[0]
    table = np.where(np.arange(n + 1) <= k, 0.0, -INF)

    def make() -> tt.CountModel:
        return tt.CountModel(theta, tt.at_most(k))

    return Row(
        f"at_most({k}), D = {n}",
        (*engines(make, array=False), textbook(theta, table), *sum_only(theta), *bounds(n)),
        target=target,
        model=make,
        truth=lambda: truth("NumPy FFT tree under a tilt", tilted(theta, table, k)),
        size=n,
    )


# ---------------------------------------------------------------------------------------------- many potentials


def ward(n: int, sd: float, target: float) -> Row:
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
    from accuracy_cases import ward_linkage, ward_tree_case

    case = ward_tree_case(n, sd)
    tree = tt.CountTree.from_linkage(ward_linkage(n))
    packed = np.concatenate([table for _, table in case.sets])

    def make(method: str = "auto") -> tt.CountModel:
        return tt.CountModel.from_tree(tree, case.theta, packed, method=method)

    def right() -> Truth:
        from oracle import log_space_tree

        found = log_space_tree(case.theta, case.sets)
        return Truth("oracle of unlimited range", found.log_partition, found.posterior_logits)

    n_bytes = 8 * (2 * n + len(packed))
    return Row(
        f"Ward tree, a potential of sd {sd:g} on every node, D = {n}",
        (
            *engines(make, array=False),
            *paper(make, n, nested=True),
            machine("stream copy of logits, tables, marginals", lambda: copier(n_bytes)),
            machine("bare FFTs of a balanced tree", lambda: transformer(n)),
        ),
        target=target,
        model=make,
        truth=right,
        size=n,
    )


def grouped_by_hand(theta: np.ndarray, inner: np.ndarray, outer: np.ndarray) -> Answer:
    """Groups padded to a power of two by excluded variables, so that they are nodes of the textbook tree."""
    groups, size = inner.shape[0], inner.shape[1] - 1
    n, wide = groups * size, 1 << (size - 1).bit_length()
    padded = np.full((groups, wide), -INF)
    padded[:, :size] = theta.reshape(groups, size)
    tables = np.zeros((groups, wide + 1))
    tables[:, : size + 1] = inner
    top = np.zeros(groups * wide + 1)
    top[: n + 1] = outer
    found = fft_tree(padded.reshape(-1), top, {wide: tables})
    keep = np.isfinite(padded.reshape(-1))
    return Answer(found.log_partition, found.posterior_logits[keep], found.marginals[keep])


def two_level(groups: int, size: int, target: float | None) -> Row:
    rng = np.random.default_rng([groups, size])
    n = groups * size
    theta, inner = rng.standard_normal(n), rng.standard_normal((groups, size + 1))
    outer = rng.standard_normal(n + 1)
    members = [range(g * size, (g + 1) * size) for g in range(groups)]
    tree = tt.CountTree.from_groups([*members, None], n)
    packed = np.concatenate([inner.reshape(-1), outer])

    def make(method: str = "auto") -> tt.CountModel:
        return tt.CountModel.from_tree(tree, theta, packed, method=method)

    def by_hand() -> Answer:
        return grouped_by_hand(theta, inner, outer)

    return Row(
        f"{groups} groups of {size}, a random potential per group and on the total",
        (
            *engines(make, array=False),
            *paper(make, n, nested=True),
            Contender("NumPy FFT tree", "peer", lambda: lambda: by_hand().marginals),
            machine("stream copy of logits, tables, marginals", lambda: copier(8 * (2 * n + len(packed)))),
            machine("bare FFTs of the tree", lambda: transformer(n)),
        ),
        target=target,
        model=make,
        truth=lambda: truth("NumPy FFT tree", by_hand()),
        size=n,
    )


def nested_batch(rows: int, groups: int, size: int) -> Row:
    rng = np.random.default_rng([rows, groups, size])
    n = groups * size
    theta, inner = rng.standard_normal((rows, n)), rng.standard_normal((rows, groups, size + 1))
    outer = rng.standard_normal((rows, n + 1))
    members = [range(g * size, (g + 1) * size) for g in range(groups)]
    tree = tt.CountTree.from_groups([*members, None], n)
    packed = np.concatenate([inner.reshape(rows, -1), outer], axis=1)

    def make() -> tt.CountModel:
        return tt.CountModel.from_tree(tree, theta, packed)

    def one_by_one() -> None:
        for x, tables in zip(theta, packed):
            tt.CountModel.from_tree(tree, x, tables).marginals  # noqa: B018

    def by_hand() -> Answer:
        found = [grouped_by_hand(*model) for model in zip(theta, inner, outer)]
        return Answer(*(np.stack(values) for values in zip(*found)))

    return Row(
        f"{rows} models of {groups} groups of {size}, a random potential per group and on the total",
        (
            *engines(make),
            Contender("tallytree, one by one", "base", lambda: one_by_one),
            Contender("NumPy FFT tree", "peer", lambda: lambda: by_hand().marginals),
            machine(
                "stream copy of logits, tables, marginals", lambda: copier(8 * (2 * theta.size + packed.size))
            ),
        ),
        model=make,
        truth=lambda: truth("NumPy FFT tree", by_hand()),
        size=n,
    )


SLOW = ("flat-2^22",)  # left out of quick runs
ROWS: dict[str, Callable[[], Row]] = {
    "flat-2^19": lambda: flat(2**19, "2^19", 4 * MS),
    "flat-2^20": lambda: flat(2**20, "2^20", 8 * MS),
    "flat-2^22": lambda: flat(2**22, "2^22", None),
    "single-100": lambda: flat(100, "100", 30e-6),
    "batch-1000x100": lambda: batch(1000, 100, 1.5 * MS),
    "batch-100x1000": lambda: batch(100, 1000, 3 * MS),
    "exactly-10-of-100": lambda: exactly(100, 10, None),
    "exactly-tenth": lambda: exactly(10**5, 10**4, 3 * MS),
    "exactly-half": lambda: exactly(10**5, 5 * 10**4, 3 * MS),
    "exactly-half-low": lambda: exactly(10**5, 5 * 10**4, 3 * MS, logit=-20.0),
    "curie-weiss": curie_weiss,
    "two-spikes": two_spikes,
    "all-or-none": all_or_none,
    "ward-1": lambda: ward(4096, 1, 2.5 * MS),
    "ward-50": lambda: ward(4096, 50, 6 * MS),
    "ward-1000": lambda: ward(4096, 1000, 20 * MS),
    "two-level": lambda: two_level(1000, 1000, 30 * MS),
    "two-level-small": lambda: two_level(10_000, 100, None),
    "batch-nested": lambda: nested_batch(1000, 4, 25),
    "capped": lambda: capped(10**6, 50, 30 * MS),
}  # made when they run, because some hold a gigabyte
