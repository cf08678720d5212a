"""`PoissonBinomial` takes the place of a frozen scipy.stats distribution: same calls, same answers."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from scipy import stats

import tallytree as tt

P = np.random.default_rng(3).uniform(0.05, 0.95, size=12)
K = np.arange(-2, 15)
Q = np.array([0.0, 1e-9, 0.03, 0.5, 0.97, 1.0])


def pairs():
    yield tt.PoissonBinomial(np.full(9, 0.3)), stats.binom(9, 0.3)
    if hasattr(stats, "poisson_binom"):
        yield tt.PoissonBinomial(P), stats.poisson_binom(P)


CALLS = {
    "pmf": lambda d: d.pmf(k=K),
    "logpmf": lambda d: d.logpmf(k=K[3:10]),
    "cdf": lambda d: d.cdf(x=K + 0.5),
    "logcdf": lambda d: d.logcdf(x=K[3:10]),
    "sf": lambda d: d.sf(x=K),
    "logsf": lambda d: d.logsf(x=K[3:10]),
    "ppf": lambda d: d.ppf(q=Q),
    "isf": lambda d: d.isf(q=Q),
    "interval": lambda d: d.interval(confidence=0.9),
    "interval of everything": lambda d: d.interval(1.0),
    "median": lambda d: d.median(),
    "mean": lambda d: d.mean(),
    "var": lambda d: d.var(),
    "std": lambda d: d.std(),
    "entropy": lambda d: d.entropy(),
    "support": lambda d: d.support(),
    "stats": lambda d: d.stats(),
    "all stats": lambda d: d.stats(moments="mvsk"),
    "stats in their own order": lambda d: d.stats(moments="vm"),
    "one of the stats": lambda d: d.stats("s"),
    **{f"moment {order}": lambda d, order=order: d.moment(order=order) for order in range(7)},
    "expect": lambda d: d.expect(),
    "expect of a function": lambda d: d.expect(func=lambda k: np.exp(-k / 3.0)),
    "expect between bounds": lambda d: d.expect(lambda k: k**2, lb=2, ub=5),
    "expect of a constant": lambda d: d.expect(lambda k: 1.0, lb=1),
    "expect with scipy's settings": lambda d: d.expect(maxcount=10, tolerance=0.1, chunksize=99),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_call_gives_the_same_answer(name):
    for ours, theirs in pairs():
        got, want = CALLS[name](ours), CALLS[name](theirs)
        assert isinstance(got, tuple) == isinstance(want, tuple)
        assert np.shape(got) == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def test_a_conditional_expectation_is_that_of_scipy():
    ours, theirs = next(pairs())
    got = ours.expect(lambda k: k, lb=4, ub=6, conditional=True)
    assert got == pytest.approx(theirs.expect(lambda k: k, lb=4, ub=6, conditional=True), rel=1e-12)


def test_methods_take_the_arguments_of_a_frozen_distribution():
    frozen = stats.binom(3, 0.5)
    names = [
        *(
            "pmf",
            "logpmf",
            "cdf",
            "logcdf",
            "sf",
            "logsf",
            "ppf",
            "isf",
            "rvs",
            "interval",
            "expect",
            "support",
        ),
        *("mean", "var", "std", "median", "moment", "stats", "entropy"),
    ]
    ours = tt.PoissonBinomial([0.5])
    for name in names:
        want = list(inspect.signature(getattr(frozen, name)).parameters)
        assert list(inspect.signature(getattr(ours, name)).parameters) == want, name


def test_draws_have_the_shapes_of_scipy():
    for ours, theirs in pairs():
        for size in (None, (), 1, 5, (2, 3), (2, 0)):
            assert np.shape(ours.rvs(size=size)) == np.shape(theirs.rvs(size=size))
    ours, theirs = tt.PoissonBinomial([[0.1, 0.2], [0.3, 0.4]]), stats.binom(2, [0.1, 0.2])
    for size in (None, 2, (2,), (5, 2)):
        assert ours.rvs(size=size).shape == theirs.rvs(size=size).shape
    with pytest.raises(ValueError, match="size"):
        theirs.rvs(size=3)
    with pytest.raises(
        tt.ParameterError, match=r"end with the axes of the batch, \(2,\).*size=\(3, 2\).*sample"
    ):
        ours.rvs(size=3)
    one = tt.PoissonBinomial([[0.5, 0.5]])
    assert one.rvs(size=7).shape == stats.binom(2, [0.5]).rvs(size=7).shape == (7,)


def test_every_kind_of_random_state_serves():
    x = tt.PoissonBinomial(P)
    assert np.array_equal(x.rvs(9, random_state=4), x.rvs(9, random_state=np.random.default_rng(4)))
    legacy = x.rvs(20_000, random_state=np.random.RandomState(0))
    assert legacy.mean() == pytest.approx(x.mean(), abs=5 * x.std() / 140)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    x.rvs(3)
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_scipy_procedures_accept_it():
    x = tt.PoissonBinomial(P)
    drawn = x.rvs(4000, random_state=1)
    assert (
        stats.cramervonmises(drawn + np.random.default_rng(0).random(4000) - 1.0, _smoothed(x)).pvalue > 1e-4
    )


def _smoothed(x):
    """The distribution function of X + U - 1, U uniform: linear between the steps of that of X."""
    return lambda v: x.cdf(np.floor(v)) + (v - np.floor(v)) * x.pmf(np.floor(v) + 1)


def test_expectations_over_a_batch():
    x = tt.PoissonBinomial([[0.5, 0.5], [0.0, 1.0]])
    assert x.expect(lambda k: k**2).tolist() == [1.5, 1.0]
    assert x.expect(lb=1, conditional=True).tolist() == pytest.approx([4 / 3, 1.0])
    with np.errstate(divide="raise"):  # the function is not asked about impossible values
        assert tt.PoissonBinomial([1.0, 0.5]).expect(lambda k: 1.0 / k) == 0.75


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.expect(lambda k: 1.0 if k > 1 else 0.0), "np.vectorize"),
        (lambda x: x.expect(lambda k: "a"), "one number for each"),
        (lambda x: x.expect(lambda k: [1.0, 2.0]), "one number for each of the 4 values"),
        (lambda x: x.expect(3), "`func` must be a function"),
        (lambda x: x.expect(lambda k: k * np.nan), "entry 0 is NaN"),
        (lambda x: x.expect(lb="a"), "`lb` must be a real number"),
        (lambda x: x.expect(ub=[1, 2]), "`ub` must be a real number"),
        (lambda x: x.expect(loc=1), "'loc' arrived"),
        (lambda x: x.moment(2.5), "`order` must be an integer"),
        (lambda x: x.moment(-1), "`order` must be an integer of at least 0"),
        (lambda x: x.stats("x"), "letters m"),
        (lambda x: x.stats(3), "letters m"),
        (lambda x: x.rvs(2.5), "`size` must be"),
        (lambda x: x.rvs(random_state="a"), "`random_state` must be"),
        (lambda x: x.rvs(random_state=-1), "`random_state` must be"),
        (lambda x: x.sample(3, rng="a"), "`rng` must be"),
        (lambda x: x.sample(2.5), "`size` must be"),
        (lambda x: x.sample(True), "`size` must be"),
        (lambda x: x.interval("a"), "`confidence` must be an array of probabilities"),
        (lambda x: x.pmf(None), "`k` must be an array of real numbers"),
        (lambda x: x.cdf({}), "`x` must be an array of real numbers"),
    ],
)
def test_wrong_arguments_say_what_to_do(call, message):
    with pytest.raises(tt.ParameterError, match=message):
        call(tt.PoissonBinomial([0.1, 0.5, 0.9]))


def test_an_expectation_given_the_impossible_is_refused():
    with pytest.raises(tt.InfeasibleError, match="probability zero"):
        tt.PoissonBinomial([0.5]).expect(lb=2, conditional=True)
