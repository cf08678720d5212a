"""Small bridges between oracle cases and the package."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt


def model_of(case, **options):
    """The CountModel of an oracle case."""
    return tt.CountModel(case.theta, [tt.Group(members, table) for members, table in case.sets], **options)


def few(values, keep=1):
    """Parameters of a test; all but the first ones wait for ``pytest -m thorough``."""
    values = list(values)
    return values[:keep] + [pytest.param(value, marks=pytest.mark.thorough) for value in values[keep:]]


def close(got, want, tolerance=1e-10):
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def tree_pass(left, right, offset, nu, tables, *options, **named):
    """The compiled pass over a tree that is analysed for it alone."""
    from tallytree import _native

    return _native.TreePlan(left, right, offset, nu.shape[1], tables.shape[1]).tree_pass(
        nu, tables, *options, **named
    )
