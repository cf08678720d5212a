"""Formulas of potentials in NumPy, PyTorch and JAX: one value and one derivative in all of them."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

import tallytree as tt
from tallytree.potentials import formulas

# Numbers, and log f(c, n) in many digits, of every named potential but those that only NumPy has.
NAMED = {
    "exactly": ((700_000.0,), None),
    "at_least": ((3.0,), None),
    "at_most": ((999_999.0,), None),
    "between": ((10.0, 12.0), None),
    "modulo": ((7.0, 3.0), None),
    "uniform": ((), None),
    "noisy_or": ((1e-6, 1e-9), lambda c, n, r, q: mpmath.log(1 - (1 - q) * (1 - r) ** c)),
    "noisy_and": ((0.25, 1e-3), lambda c, n, r, q: mpmath.log((1 - q) * (1 - r) ** (n - c))),
    "gaussian": ((499_999.5, 300.0), lambda c, n, m, s: -(((c - m) / s) ** 2) / 2),
    "quadratic": ((-1e-5, 123.25), lambda c, n, a, b: a / 2 * (c - b) ** 2),
    "all_or_none": ((2.5, 1000.0), lambda c, n, s, t: -s * min(min(c, n - c) / t, mpf(1))),
    "geometric": ((0.999,), lambda c, n, r: c * mpmath.log(r)),
    "spike_and_slab": ((1e-18, 1.0), lambda c, n, a, b: mpmath.log(b + a if c == 0 else b)),
    "poisson": ((400_000.0,), lambda c, n, m: c * mpmath.log(m) - m - mpmath.loggamma(c + 1)),
    "poisson, small": ((2.5,), lambda c, n, m: c * mpmath.log(m) - m - mpmath.loggamma(c + 1)),
}
LONG = 10**6
SHORT = 40


def in_numpy(name, n, numbers):
    with np.errstate(all="ignore"):
        return formulas.__dict__[name.split(",")[0]](np, formulas.counts(n), n, *numbers)


def in_torch(name, n, numbers):
    torch = pytest.importorskip("torch")
    c = torch.arange(n + 1, dtype=torch.float64)
    columns = [torch.tensor([x], dtype=torch.float64) for x in numbers]
    return formulas.__dict__[name.split(",")[0]](torch, c, n, *columns).numpy()


def in_jax(name, n, numbers):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        c = jax.numpy.arange(n + 1, dtype=float)
        columns = [jax.numpy.asarray([x], dtype=float) for x in numbers]
        return np.asarray(formulas.__dict__[name.split(",")[0]](jax.numpy, c, n, *columns))


def test_the_cases_are_all_named_potentials():
    known = {name.split(",")[0] for name in NAMED} | {"one_of", "parity", "exponential_mixture", "table"}
    factories = {name for name in tt.potentials.__all__ if name.islower()}
    assert known == factories - {"as_potential", "parse_potential"}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.frameworks
@pytest.mark.parametrize("home", [in_torch, in_jax])
def test_tables_of_a_million_counts_are_those_of_numpy(name, home):
    numbers, _ = NAMED[name]
    expected, found = in_numpy(name, LONG, numbers), home(name, LONG, numbers)
    np.testing.assert_allclose(found, expected, rtol=2e-13, atol=2e-13)


@pytest.mark.parametrize("name", [name for name, (_, exact) in NAMED.items() if exact])
@pytest.mark.parametrize(
    "home", [in_numpy, *(pytest.param(home, marks=pytest.mark.frameworks) for home in (in_torch, in_jax))]
)
def test_values_are_those_of_sixty_digits(name, home):
    numbers, exact = NAMED[name]
    for n, counts in ((SHORT, range(SHORT + 1)), (LONG, (0, 1, 15, 16, 17, 399_000, 400_321, 600_000, LONG))):
        table = home(name, n, numbers)
        for c in counts:
            with mp.workdps(60):
                value = exact(mpf(c), mpf(n), *map(mpf, numbers))
                assert abs(table[c] - value) <= 1e-13 * (1 + abs(value)), (n, c)


# -- derivatives: those of the frameworks against the rules that NumPy has


LEARNED = {
    "noisy_or": ({"rate": 0.3, "leak": 0.05}, {"t": 1}),
    "noisy_and": ({"rate": 0.3, "leak": 0.05}, {"t": 1}),
    "gaussian": ({"mean": 7.0, "sd": 3.0}, {"fraction": False}),
    "poisson": ({"mean": 6.5}, {}),
    "quadratic": ({"curvature": -0.3, "center": 5.5}, {}),
    "all_or_none": ({"strength": 1.5}, {"truncation": 4.0}),
    "geometric": ({"ratio": 0.7}, {}),
    "spike_and_slab": ({"spike": 2.0, "slab": 0.5}, {}),
}


def rules(name, n):
    from tallytree.potentials.formulas import FAMILIES

    values, settings = LEARNED[name]
    family = FAMILIES[name]
    coordinates = {key: family.domains[key].to_coordinate(value) for key, value in values.items()}
    table, slopes = family.table(n, **coordinates, **settings)
    unit = {"a real number": lambda x: 1.0, "a positive number": lambda x: x}
    steps = {
        key: unit.get(family.domains[key].name, lambda p: p * (1 - p))(value) for key, value in values.items()
    }
    return table, {key: slopes[key] / steps[key] for key in values}


def slopes_in_torch(name, n, weights):
    torch = pytest.importorskip("torch")
    values, settings = LEARNED[name]
    numbers = [torch.tensor([x], dtype=torch.float64, requires_grad=True) for x in values.values()]
    c = torch.arange(n + 1, dtype=torch.float64)
    table = getattr(formulas, name)(torch, c, n, *numbers, *settings.values())
    return [float(g) for g in torch.autograd.grad((table * torch.from_numpy(weights)).sum(), numbers)]


def slopes_in_jax(name, n, weights):
    jax = pytest.importorskip("jax")
    values, settings = LEARNED[name]

    def total(*numbers):
        c = jax.numpy.arange(n + 1, dtype=float)
        return (weights * getattr(formulas, name)(jax.numpy, c, n, *numbers, *settings.values())).sum()

    with jax.enable_x64(True):
        return [float(g) for g in jax.grad(total, tuple(range(len(values))))(*values.values())]


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.frameworks
@pytest.mark.parametrize("home", [slopes_in_torch, slopes_in_jax])
def test_frameworks_differentiate_to_what_the_rules_say(name, home):
    table, slopes = rules(name, 20)
    np.testing.assert_allclose(
        table, in_numpy(name, 20, (*LEARNED[name][0].values(), *LEARNED[name][1].values())), rtol=1e-14
    )
    weights = np.cos(np.arange(21.0))
    expected = [float(weights @ slope) for slope in slopes.values()]
    np.testing.assert_allclose(home(name, 20, weights), expected, rtol=1e-12)


@pytest.mark.frameworks
def test_impossible_counts_do_not_spoil_derivatives():
    torch = pytest.importorskip("torch")
    rate = torch.tensor([0.25], dtype=torch.float64, requires_grad=True)
    table = formulas.noisy_or(torch, torch.arange(4.0, dtype=torch.float64), 3, rate, torch.zeros(1))
    assert table[0] == -math.inf
    (slope,) = torch.autograd.grad(table[1:].sum(), rate)
    assert float(slope) == pytest.approx(sum(c * 0.75 ** (c - 1) / (1 - 0.75**c) for c in (1, 2, 3)))


@pytest.mark.frameworks
def test_a_cause_that_never_fails_leaves_the_leak():
    pytest.importorskip("jax")
    import tallytree.jax as ttj

    table = np.asarray(ttj.noisy_or(1.0, 0.25).log_table(2))
    np.testing.assert_allclose(np.exp(table), [0.25, 1.0, 1.0], rtol=1e-6)
