"""Potentials against formulas in high precision, and their behaviour as values."""

from __future__ import annotations

import copy
import math
import pickle
import time
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import tallytree.potentials as tt
from tallytree.errors import InfeasibleError, ParameterError

NAMES = {name: getattr(tt, name) for name in tt.__all__} | {"np": np}
Oracle = Callable[[int, int], mpf]
Case = tuple[tt.Potential, Oracle]

settings.register_profile("potentials", deadline=None, suppress_health_check=[HealthCheck.too_slow])
generated = settings(settings.get_profile("potentials"), max_examples=300)


@pytest.fixture(autouse=True)
def _many_digits():
    with mp.workdps(60):
        yield


def one_if(condition: bool) -> mpf:
    return mpf(1) if condition else mpf(0)


def power(base: complex | mpf, c: int) -> mpf:
    return mpf(1) if c == 0 else mpmath.mpmathify(base) ** c


# Every strategy draws a potential together with f(c, n) written independently, in exact or 60-digit numbers.
counts = st.integers(0, 8)
unit = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 1e-12, 1e-300, 1 - 2**-53]), st.floats(0.0, 1.0))
weight = st.one_of(st.sampled_from([0.0, 1.0, 1e-20, 1e200]), st.floats(0.0, 50.0))


def noisy(name: str) -> st.SearchStrategy[Case]:
    def build(rate: float, leak: float, t: int) -> Case:
        def f(c: int, n: int) -> mpf:
            causes = c if name == "noisy_or" else n - c
            with mp.workdps(700):  # so that ordinary subtraction of 1e-300 from one keeps digits
                absent = (1 - mpf(leak)) * power(1 - mpf(rate), causes)
                return absent if (name == "noisy_or") == (t == 0) else 1 - absent

        return NAMES[name](rate=rate, leak=leak, t=t), f

    def possible(a: tuple[float, float, int]) -> bool:
        caused = a[2] == (1 if name == "noisy_or" else 0)
        return (a[0] > 0 or a[1] > 0) if caused else a[1] < 1

    return st.tuples(unit, unit, st.sampled_from([0, 1])).filter(possible).map(lambda a: build(*a))


def poisson_case(mean: float) -> Case:
    return tt.poisson(mean), lambda c, n: power(mean, c) * mpmath.exp(-mpf(mean)) / mpmath.factorial(c)


def gaussian_case(a: tuple[float, float, bool]) -> Case:
    mean, sd, fraction = a

    def f(c: int, n: int) -> mpf:
        x = mpf(c) / max(n, 1) if fraction else mpf(c)
        return mpmath.exp(-((x - mpf(mean)) ** 2) / (2 * mpf(sd) ** 2))

    return tt.gaussian(mean, sd, fraction=fraction), f


def quadratic_case(a: tuple[float, float | None]) -> Case:
    def f(c: int, n: int) -> mpf:
        return mpmath.exp(mpf(a[0]) / 2 * (c - (mpf(n) / 2 if a[1] is None else mpf(a[1]))) ** 2)

    return tt.quadratic(*a), f


def all_or_none_case(a: tuple[float, float | None]) -> Case:
    def f(c: int, n: int) -> mpf:
        if c in (0, n):
            return mpf(1)
        if math.isinf(a[0]):
            return mpf(0)
        share = mpf(1) if a[1] is None else min(mpf(min(c, n - c)) / mpf(a[1]), mpf(1))
        return mpmath.exp(-mpf(a[0]) * share)

    return tt.all_or_none(*a), f


def mixture_case(a: list[tuple[float, float]]) -> Case:
    def f(c: int, n: int) -> mpf:
        return mpmath.fsum(mpf(w) * power(r, c) for w, r in a)

    return tt.exponential_mixture([w for w, _ in a], [r for _, r in a]), f


def table_case(values: list[float]) -> Case:
    return tt.table(values), lambda c, n: mpmath.exp(mpf(values[c]))


PAIRS = st.tuples(counts, counts)
TERMS = st.lists(st.tuples(st.floats(1e-3, 9), st.floats(0, 3)), min_size=1, max_size=4)
CASES: dict[str, st.SearchStrategy[Case]] = {
    "exactly": counts.map(lambda k: (tt.exactly(k), lambda c, n: one_if(c == k))),
    "at_least": counts.map(lambda k: (tt.at_least(k), lambda c, n: one_if(c >= k))),
    "at_most": counts.map(lambda k: (tt.at_most(k), lambda c, n: one_if(c <= k))),
    "between": PAIRS.map(sorted).map(lambda a: (tt.between(*a), lambda c, n: one_if(a[0] <= c <= a[1]))),
    "one_of": st.lists(counts, min_size=1).map(lambda a: (tt.one_of(a), lambda c, n: one_if(c in a))),
    "parity": st.sampled_from([("even", 0), ("odd", 1)]).map(
        lambda a: (tt.parity(a[0]), lambda c, n: one_if(c & 1 == a[1]))
    ),
    "modulo": PAIRS.filter(lambda a: a[1] < a[0]).map(
        lambda a: (tt.modulo(*a), lambda c, n: one_if((c - a[1]) % a[0] == 0))
    ),
    "noisy_or": noisy("noisy_or"),
    "noisy_and": noisy("noisy_and"),
    "gaussian": st.tuples(st.floats(-3, 20), st.floats(0.05, 30), st.booleans()).map(gaussian_case),
    "poisson": weight.filter(lambda m: m < 1e6).map(poisson_case),
    "geometric": weight.map(lambda r: (tt.geometric(r), lambda c, n: power(r, c))),
    "uniform": st.just((tt.uniform(), lambda c, n: mpf(1))),
    "spike_and_slab": st.tuples(weight, weight)
    .filter(lambda a: sum(a) > 0)
    .map(lambda a: (tt.spike_and_slab(*a), lambda c, n: mpf(a[1]) + (mpf(a[0]) if c == 0 else 0))),
    "all_or_none": st.tuples(
        st.one_of(weight, st.just(math.inf)), st.one_of(st.none(), st.floats(0.1, 9))
    ).map(all_or_none_case),
    "quadratic": st.tuples(st.floats(-9, 9), st.one_of(st.none(), st.floats(-5, 20))).map(quadratic_case),
    "exponential_mixture": st.lists(
        st.tuples(st.floats(1e-3, 9), st.floats(0, 3)), min_size=1, max_size=4
    ).map(mixture_case),
}
cases = st.one_of(*CASES.values())
sizes = st.integers(0, 30)


def assert_table_is(potential: tt.Potential, f: Oracle, n: int, rtol: float = 1e-13) -> None:
    log_f = potential.log_table(n)
    assert log_f.dtype == np.float64
    assert log_f.shape == (n + 1,)
    for c in range(n + 1):
        exact = f(c, n)
        if exact == 0:
            assert log_f[c] == -math.inf
        else:
            expected = mpmath.log(+exact)  # rounded first: mpmath errs for 700 digits next to a power of two
            assert abs(mpf(float(log_f[c])) - expected) <= rtol * (1 + abs(expected)), (potential, n, c)


def possible_counts(f: Oracle, n: int) -> list[int]:
    return [c for c in range(n + 1) if f(c, n) != 0]


@pytest.mark.parametrize("name", CASES)
def test_log_table_and_support_follow_the_formula(name):
    @settings(generated, max_examples=60)
    @given(CASES[name], sizes)
    def check(case, n):
        potential, f = case
        allowed = possible_counts(f, n)
        if allowed:
            assert_table_is(potential, f, n)
            assert potential.support(n) == (allowed[0], allowed[-1])
        else:
            for method in (potential.log_table, potential.support, potential.mixture):
                with pytest.raises(ParameterError, match="group"):
                    method(n)

    check()


def assert_mixture_is(potential: tt.Potential, f: Oracle, n: int) -> bool:
    short = potential.mixture(n)
    if short is None:
        return False
    coefficients, rates = short
    assert coefficients.shape == rates.shape
    assert coefficients.dtype == rates.dtype
    for c in {*range(min(n, 40) + 1), n // 2, n}:
        terms = [mpmath.mpmathify(complex(w)) * power(complex(r), c) for w, r in zip(*short)]
        exact = f(c, n)
        residue = 1e-16 * (1000 + 2 * n) * mpmath.fsum(terms, absolute=True)
        assert abs(mpmath.fsum(terms) - exact) <= (1e-10 * exact if exact else residue), (potential, n, c)
    return True


@pytest.mark.parametrize("name", CASES)
def test_mixture_equals_the_potential_where_there_is_one(name):
    @settings(generated, max_examples=60)
    @given(CASES[name], st.one_of(sizes, st.sampled_from([200, 2000])))
    def check(case, n):
        potential, f = case
        if possible_counts(f, min(n, 30)):
            assert_mixture_is(potential, f, n)

    check()


SHORT = {
    "uniform()": 1,
    "geometric(0.3)": 1,
    "geometric(0.0)": 1,
    "noisy_or(0.2, 0.01)": 2,
    "noisy_or(0.2)": 2,
    "noisy_or(0.2, t=0)": 1,
    "noisy_or(1.0)": 2,
    "noisy_and(0.2)": 1,
    "noisy_and(0.2, 0.1, t=0)": 2,
    "parity('odd')": 2,
    "modulo(5, 2)": 5,
    "at_least(1)": 2,
    "at_least(0)": 1,
    "at_most(0)": 1,
    "exactly(0)": 1,
    "between(1, 99)": 2,
    "one_of([0])": 1,
    "poisson(0.0)": 1,
    "spike_and_slab(2.0)": 2,
    "spike_and_slab(2.0, slab=0.0)": 2,
    "all_or_none(0.0)": 1,
    "exponential_mixture([1.0, -1.0], [1.0, 0.5])": 2,
    "~noisy_or(0.2)": 2,
    "~geometric(2.0)": 1,
    "~parity('odd')": 2,
    "at_least(1) * geometric(0.5)": 2,
    "noisy_or(0.2) * noisy_or(0.3)": 4,
    "noisy_or(0.2) ** 2.0": 3,
    "geometric(0.5) ** 0.3": 1,
    "parity() * modulo(3, 1)": 6,
}


@pytest.mark.parametrize("text", SHORT)
def test_these_have_a_short_mixture(text):
    n = 11
    potential = eval(text, NAMES)
    log_f = potential.log_table(n)
    assert potential.mixture(n)[0].size == SHORT[text]
    assert assert_mixture_is(potential, lambda c, n: mpmath.exp(mpf(float(log_f[c]))), n)


def test_merging_equal_rates_does_not_round_a_zero_away():
    potential = tt.exactly(1) * tt.spike_and_slab(1.0, 1e-20)
    assert assert_mixture_is(potential, lambda c, n: mpf(1e-20) if c == 1 else mpf(0), 1)


@pytest.mark.parametrize(
    "text",
    [
        "exactly(3)",
        "at_most(2)",
        "one_of([0, 2])",
        "gaussian(2, 1)",
        "poisson(3)",
        "quadratic(1)",
        "all_or_none(1)",
        "~at_least(1)",
        "noisy_or(1e-9)",  # its two terms cancel
        "noisy_or(0.5, 1e-9)",
        "noisy_or(1e-3) ** 2",
        "noisy_and(1.0)",
        "modulo(99, 1)",
        "modulo(3) * modulo(4)",  # twelve terms
        "geometric(1e-200) * geometric(1e-200)",  # the product of the rates underflows
        "spike_and_slab(0, 1e-200) ** 2",  # so does the coefficient here
        "noisy_or(0.5, 1 - 2**-53, t=0) ** 30",
        "~noisy_or(0.99, t=0)",
    ],
)
def test_these_have_no_short_mixture(text):
    assert eval(text, NAMES).mixture(150) is None


@generated
@given(cases, cases, st.floats(0.05, 5), st.integers(0, 14))
def test_products_powers_and_complements_follow_their_definitions(a, b, p, n):
    (first, f), (second, g) = a, b
    if not (possible_counts(f, n) and possible_counts(g, n)):
        return
    assert_table_is(first * second, lambda c, n: f(c, n) * g(c, n), n, rtol=1e-11)
    assert_table_is(first**p, lambda c, n: f(c, n) ** mpf(p) if f(c, n) else mpf(0), n, rtol=1e-12)
    assert_table_is(~first, lambda c, n: f(n - c, n), n)
    allowed = [c for c in range(n + 1) if f(c, n) * g(c, n) != 0]
    if allowed:
        assert (first * second).support(n) == (allowed[0], allowed[-1])
        assert (~(first * second)).support(n) == (n - allowed[-1], n - allowed[0])
        assert (first * second**p).support(n) == (allowed[0], allowed[-1])
        assert_mixture_is(first * second, lambda c, n: f(c, n) * g(c, n), n)
    else:
        assert np.all((first * second).log_table(n) == -np.inf)
        with pytest.raises(InfeasibleError, match="contradict"):
            (first * second).support(n)
    assert_mixture_is(~first, lambda c, n: f(n - c, n), n)
    assert_mixture_is(first**2, lambda c, n: f(c, n) ** 2, n)


@generated
@given(cases, cases, st.floats(0.05, 5))
def test_potentials_are_values(a, b, p):
    first, second = a[0], b[0]
    for q in (first, first * second, ~first, first**p, ~((first * second) ** p), (~first) ** p * second):
        again = eval(repr(q), NAMES)
        for same in (again, pickle.loads(pickle.dumps(q)), copy.copy(q), copy.deepcopy(q)):
            assert same == q
            assert hash(same) == hash(q)
            assert repr(same) == repr(q)
    assert ~~first == first
    assert (first * second) * first == first * (second * first)


LARGE = [
    "exactly(500000)",
    "at_least(1)",
    "between(10, 20)",
    "one_of([0, 1000000])",
    "parity()",
    "modulo(7, 3)",
    "noisy_or(0.2)",
    "noisy_or(1e-300, t=1)",
    "noisy_and(0.2, 0.1)",
    "gaussian(1e5, 10)",
    "gaussian(0.3, 0.01, fraction=True)",
    "poisson(1e5)",
    "geometric(0.1)",
    "uniform()",
    "spike_and_slab(3.0)",
    "all_or_none(4.0, 1000)",
    "quadratic(1e-3)",
    "exponential_mixture([1.0, -1.0, 0.5], [1.0, 0.5, 3.0])",
    "~(poisson(10) * at_least(2)) ** 0.5",
]


@pytest.mark.parametrize("text", LARGE)
def test_a_million_variables_are_quick_and_finite(text):
    n = 10**6
    potential = eval(text, NAMES)
    start = time.process_time()
    log_f = potential.log_table(n)
    assert time.process_time() - start < 2.0
    assert not np.isnan(log_f).any()
    assert log_f.max() < np.inf
    lo, hi = potential.support(n)
    assert np.isfinite(log_f[[lo, hi]]).all()
    assert (log_f[:lo] == -np.inf).all()
    assert (log_f[hi + 1 :] == -np.inf).all()


@pytest.mark.parametrize("mean", [1e-300, 1e-3, 7.5, 16.0, 1234.5, 1e6])
def test_poisson_keeps_its_digits_for_large_means(mean):
    n = 2 * 10**6
    log_f = tt.poisson(mean).log_table(n)
    for c in [0, 1, 2, 14, 15, 16, 17, 1000, 1234, 1500, 900000, 10**6, 1000001, 1200000, n]:
        exact = c * mpmath.log(mpf(mean)) - mpf(mean) - mpmath.loggamma(c + 1)
        assert abs(mpf(float(log_f[c])) - exact) <= 1e-13 * (1 + abs(exact))


@pytest.mark.parametrize("rate", [1e-300, 1e-17, 1e-8, 0.3, 1 - 2**-53, 1.0])
@pytest.mark.parametrize("leak", [0.0, 1e-300, 1e-17, 1e-8, 0.3, 1 - 2**-53])
@pytest.mark.parametrize("t", [0, 1])
def test_noisy_or_has_relative_accuracy_everywhere(rate, leak, t):
    n = 3000
    log_f = tt.noisy_or(rate, leak, t).log_table(n)
    with mp.workdps(700):  # 1 - (1 - 1e-300)**2 in ordinary subtraction
        for c in [0, 1, 2, 50, n]:
            absent = (1 - mpf(leak)) * (1 if c == 0 else (1 - mpf(rate)) ** c)
            f = 1 - absent if t == 1 else absent
            if f == 0:
                assert log_f[c] == -np.inf
            else:
                exact = mpmath.log(f)
                assert abs(mpf(float(log_f[c])) - exact) <= 1e-13 * abs(exact) + mpf("1e-30")


def test_noisy_or_without_leak_forbids_the_empty_configuration():
    assert tt.noisy_or(0.2).log_table(3)[0] == -np.inf
    assert tt.noisy_or(0.2, 0.01).log_table(0) == pytest.approx([math.log(0.01)])
    assert tt.noisy_or(0.2, t=0).log_table(0) == [0.0]


def test_signed_mixture_handles_cancellation_overflow_and_underflow():
    f = [(1.0, 1.0), (-0.5, -1.0), (0.25, 0.5)]
    potential, oracle = mixture_case(f)
    assert_table_is(potential, oracle, 400)
    potential, oracle = mixture_case([(1.0, 30.0), (-1.0, 20.0), (2.0, 1e-5)])
    assert_table_is(potential, oracle, 600, rtol=1e-12)
    assert tt.exponential_mixture([0.3, -0.1, -0.2], [1.0, 0.5, 0.25]).log_table(2)[0] == -np.inf
    with pytest.raises(ParameterError, match=r"f\(1\) is negative"):
        tt.exponential_mixture([1.0, -1.0], [1.0, 2.0]).log_table(3)
