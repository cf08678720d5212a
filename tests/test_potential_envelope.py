"""The largest value of a potential under a slope, without a table, against the table."""

import math

import numpy as np
import pytest

import tallytree as tt
from tallytree.potentials.envelope import Envelope

POTENTIALS = [
    tt.exactly(7), tt.at_least(3), tt.at_most(11), tt.between(4, 9), tt.one_of([1, 2, 3, 9, 40]), tt.one_of([0, 5]),
    tt.parity("odd"), tt.modulo(5, 2), tt.gaussian(12.5, 3.0), tt.gaussian(0.3, 0.1, fraction=True), tt.poisson(9.0),
    tt.poisson(0.0), tt.quadratic(0.3), tt.quadratic(-0.3, 4.0), tt.quadratic(0.0), tt.all_or_none(3.0),
    tt.all_or_none(3.0, 4.5), tt.all_or_none(3.0, 100.0), tt.all_or_none(math.inf), tt.uniform(), tt.geometric(0.7),
    tt.geometric(0.0), tt.spike_and_slab(5.0), tt.spike_and_slab(5.0, 0.0), tt.noisy_or(0.2), tt.noisy_or(0.2, 0.1),
    tt.noisy_or(0.2, t=0), tt.noisy_or(1.0, 0.1, t=0), tt.noisy_and(0.2), tt.noisy_and(0.2, t=0),
    tt.exponential_mixture([1.0, 2.0], [0.5, 1.5]), tt.exponential_mixture([1.0, -0.5], [1.0, 0.5]),
    tt.at_least(3) * tt.gaussian(12.5, 3.0), tt.quadratic(0.3) * tt.gaussian(12.0, 1.0), ~tt.poisson(9.0),
    tt.poisson(9.0) ** 0.5, tt.parity() * tt.at_most(30), tt.parity() * tt.gaussian(20.0, 4.0),
    tt.parity() * tt.modulo(3), tt.one_of([1, 2, 9]) * tt.quadratic(0.3), tt.exactly(2) * tt.exactly(3),
    tt.potentials.as_potential(lambda c: np.sin(c) * 3),
]  # fmt: skip


@pytest.mark.parametrize("potential", POTENTIALS, ids=repr)
@pytest.mark.parametrize("n", [50, 51])
def test_the_largest_value_under_a_slope_is_that_of_the_table(potential, n):
    log_f = potential.log_table(n)
    bends = Envelope(potential, n, lambda first, last: log_f[first : last + 1])
    rng = np.random.default_rng(n)
    for _ in range(200):
        first, last = np.sort(rng.integers(0, n + 1, 2))
        slope = rng.choice([0.0, 1.0, -1.0, 30.0]) * rng.normal()
        want = np.max(log_f[first : last + 1] - slope * np.arange(last - first + 1))
        got = bends.largest(int(first), int(last), slope)
        assert got == want or abs(got - want) < 1e-12 * (1 + abs(want))


def test_a_named_potential_over_a_billion_variables_is_looked_at_in_a_few_places():
    looked_at = 0

    def window(first, last):
        nonlocal looked_at
        looked_at += last - first + 1
        c = np.arange(first, last + 1, dtype=float)
        return -0.5 * ((c - 6e8) / 1e4) ** 2

    bends = Envelope(tt.gaussian(6e8, 1e4), 10**9, window)
    # The slope of the bell 5 standard deviations to the left of its mean.
    assert bends.largest(0, 10**9, 5e-4) == pytest.approx(-12.5 - 5e-4 * (6e8 - 5e4), abs=1e-6)
    assert looked_at < 100


def test_what_would_have_to_be_looked_at_count_by_count_is_refused_where_that_is_long():
    bends = Envelope(
        tt.potentials.as_potential(np.sin), 10**9, lambda first, last: np.zeros(last - first + 1)
    )
    with pytest.raises(tt.ParameterError, match="one by one"):
        bends.largest(0, 10**9, 0.1)
