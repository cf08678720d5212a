"""The array executor runs in every array-API namespace and gives the same answers as in NumPy."""

from __future__ import annotations

import array_api_compat
import array_api_strict
import numpy as np
import pytest

from tallytree.engine.count import chain, characteristic, mixture
from tallytree.engine.count.arithmetic import Direct, Fourier, LogSpace
from tallytree.engine.count.tree_pass import sum_product
from tallytree.structure.nested.count_tree import CountTree
from tallytree.structure.nested.schedule import build_schedule


def strict(array):
    return array_api_strict, array_api_strict.asarray(array)


def torched(array):
    tensor = pytest.importorskip("torch").asarray(array)
    return array_api_compat.array_namespace(tensor), tensor


NAMESPACES = pytest.mark.parametrize(
    "convert", [strict, pytest.param(torched, marks=pytest.mark.frameworks)], ids=["strict", "torch"]
)


def same(answer, expected):
    for name in ("log_mean", "messages", "log_beliefs", "bound"):
        want = getattr(expected, name)
        if want is None:
            assert getattr(answer, name) is None
        elif name != "bound":
            np.testing.assert_allclose(np.asarray(getattr(answer, name)), want, rtol=1e-11, atol=1e-11)


@NAMESPACES
@pytest.mark.parametrize("arithmetic", [Direct, Fourier, LogSpace])
def test_tree_passes_agree_across_namespaces(convert, arithmetic):
    rng = np.random.default_rng(1)
    tree = CountTree.from_groups([range(70), range(200), range(200, 330), [340], None], 350)
    nu = rng.normal(size=(2, 350)) * 2
    nu[0, 3], nu[1, 5] = np.inf, -np.inf
    tables = rng.normal(size=(2, tree.program.table_total))
    schedule = build_schedule(tree.program)
    with np.errstate(all="ignore"):
        expected = sum_product(np, schedule, arithmetic(np), nu, tables, beliefs=True)
        xp, x = convert(nu)
        _, t = convert(tables)
        answer = sum_product(xp, schedule, arithmetic(xp), x, t, beliefs=True)
    assert np.all(np.asarray(answer.bound) < 1e-8)
    np.testing.assert_allclose(np.asarray(answer.log_mean), expected.log_mean, rtol=1e-11)
    np.testing.assert_allclose(np.asarray(answer.messages), expected.messages, rtol=1e-9, atol=1e-10)


@NAMESPACES
@pytest.mark.parametrize("solve", [chain.solve_batch, characteristic.solve_batch])
def test_flat_solvers_agree_across_namespaces(convert, solve):
    rng = np.random.default_rng(2)
    n = 300 if solve is characteristic.solve_batch else 40
    nu, log_f = rng.normal(size=(2, n)), rng.normal(size=(2, n + 1))
    xp, x = convert(nu)
    _, t = convert(log_f)
    same(solve(xp, x, t), solve(np, nu, log_f))


@NAMESPACES
def test_mixtures_agree_across_namespaces(convert):
    nu = np.random.default_rng(3).normal(size=(2, 60))
    coefficients, rates = np.ones(3) / 3, np.exp(2j * np.pi * np.arange(3) / 3)
    xp, x = convert(nu)
    same(
        mixture.solve_batch(xp, x, coefficients, rates),
        mixture.solve_batch(np, nu, coefficients, rates),
    )
