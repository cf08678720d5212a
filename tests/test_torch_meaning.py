"""Potentials and edges for PyTorch mean what those of arrays mean, and their numbers are as precise."""

from __future__ import annotations

import pytest

import tallytree as tt

torch = pytest.importorskip("torch")

import tallytree.torch as tth  # noqa: E402

THREE = [0.1, 0.2, 0.3]
X = torch.tensor(THREE, dtype=torch.float64)
NUMBERS = {
    "exactly": (2,),
    "at_least": (2,),
    "at_most": (1,),
    "between": (1, 2),
    "gaussian": (0.1, 0.7),
    "geometric": (0.3,),
    "poisson": (0.1,),
    "quadratic": (-0.3, 0.7),
}


@pytest.mark.parametrize(("name", "numbers"), NUMBERS.items(), ids=NUMBERS)
def test_potentials_mean_what_those_of_arrays_mean(name, numbers):
    """Python's numbers are not rounded to single precision on their way, and signs are the same."""
    found = tth.log_partition(X, getattr(tth, name)(*numbers))
    want = tt.CountModel(THREE, getattr(tt, name)(*numbers)).log_partition
    assert float(found) == pytest.approx(float(want), abs=1e-13)


def test_a_parabola_has_its_top_in_the_middle_by_default():
    found = tth.log_partition(X, tth.quadratic(-0.3))
    assert float(found) == pytest.approx(
        float(tt.CountModel(THREE, tt.quadratic(-0.3)).log_partition), abs=1e-13
    )


def test_couplings_are_read_in_double_precision():
    edges = {"pairs": [(0, 1), (1, 2)], "coupling": [0.1, 0.7]}
    found = tth.log_partition(X, edges=tth.Forest(**edges))
    want = tt.CountModel(THREE, edges=tt.Forest(**edges)).log_partition
    assert float(found) == pytest.approx(float(want), abs=1e-13)
