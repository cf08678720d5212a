"""A potential on a window, as models over many variables ask for it, is its table, cut out."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt
from tallytree.chunked.flat import CountPotential
from tallytree.potentials import as_potential


class Own(tt.Potential):
    def __repr__(self):
        return "Own()"

    def _log_f(self, n):
        return -0.5 * np.arange(n + 1.0)


CASES = [
    tt.exactly(3), tt.at_least(2), tt.at_most(4), tt.between(2, 5), tt.one_of([0, 3, 11]), tt.uniform(),
    tt.noisy_or(0.3, leak=0.1), tt.noisy_or(1.0), tt.noisy_or(0.3, t=0), tt.noisy_or(0.0, leak=0.2),
    tt.noisy_and(0.3, leak=0.1), tt.noisy_and(1.0, t=0), tt.geometric(0.4), tt.geometric(0.0),
    tt.spike_and_slab(2.0), tt.spike_and_slab(2.0, 0.0), tt.exponential_mixture([1.0, -0.5], [1.0, 0.5]),
    tt.gaussian(3.5, 1.2), tt.gaussian(0.4, 0.1, fraction=True), tt.poisson(3.0), tt.poisson(0.0),
    tt.quadratic(-0.3), tt.quadratic(0.2, 4.0), tt.all_or_none(2.0), tt.all_or_none(2.0, truncation=3.0),
    tt.modulo(3, 1), tt.modulo(4, 3), tt.parity("odd"), tt.parity("even"), tt.table(np.linspace(-3, 1, 13)),
    tt.at_least(2) * tt.geometric(0.5), tt.poisson(3.0) ** 0.5, ~tt.noisy_or(0.3), ~tt.exactly(3) * tt.at_most(11),
    as_potential(lambda c: -0.1 * c * c), Own(),
]  # fmt: skip


@pytest.mark.parametrize("potential", CASES, ids=repr)
def test_every_window_is_a_part_of_the_table(potential):
    n = 12
    whole, part = potential.log_table(n), CountPotential(potential, n)
    for first in range(n + 1):
        for last in range(first, n + 1):
            assert np.array_equal(part.window(first, last), whole[first : last + 1])


@pytest.mark.parametrize("potential", [p for p in CASES if not repr(p).startswith("table")], ids=repr)
def test_windows_far_from_the_first_counts(potential):
    n = 300
    whole, part = potential.log_table(n), CountPotential(potential, n)
    for first, last in ((14, 14), (15, 40), (16, 16), (17, 300), (200, 250), (300, 300)):
        assert np.array_equal(part.window(first, last), whole[first : last + 1])


def test_a_window_of_a_potential_over_many_variables_costs_the_window():
    n = 10**12
    around = CountPotential(tt.exactly(10**11), n).window(10**11 - 1, 10**11 + 1)
    assert np.array_equal(around, [-np.inf, 0.0, -np.inf])
    assert CountPotential(~tt.poisson(5.0), n).window(n - 3, n).shape == (4,)
    assert CountPotential(tt.modulo(7, 6), n).window(n - 20, n).tolist().count(0.0) == 3


def test_a_potential_that_cannot_hold_is_refused_as_in_its_table():
    with pytest.raises(tt.ParameterError, match="at least 5 variables"):
        CountPotential(tt.exactly(5), 3)
