"""What the tree passes certify about probabilities: never less than the error, and less than messages would imply."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

import tallytree as tt
from helpers import few
from oracle_nested import log_space_tree
from tallytree import config
from tallytree.engine import native
from tallytree.engine.answer import posterior

pytestmark = pytest.mark.skipif(config.native() is None, reason="needs the compiled engine")


def models():
    rng = np.random.default_rng(0)
    for n, shape in ((40, "balanced"), (300, "balanced"), (300, "chain"), (500, "groups"), (700, "loose")):
        if shape == "balanced":
            groups = tt.CountTree.balanced(n).groups
        elif shape == "chain":
            groups = [range(i) for i in range(2, n + 1, 37)] + [range(n)]
        elif shape == "groups":
            groups = [*(range(i, i + 25) for i in range(0, n, 25)), range(n)]
        else:
            groups = [range(0, n // 2), range(n)]
        for scale, spread in ((1.0, 0.5), (4.0, 2.0), (15.0, 1.0)):
            logits = rng.normal(size=n) * scale
            sets = [(tuple(g), rng.normal(size=len(g) + 1) * spread) for g in groups]
            yield logits, sets


@pytest.mark.parametrize("kind", few(["fft", "waves", "wide", "direct"], keep=3))
def test_no_probability_is_further_off_than_certified(kind):
    certified = 0
    for logits, sets in models():
        truth = log_space_tree(logits, sets).marginals
        model = tt.CountModel(logits, [tt.Group(members, table) for members, table in sets])
        problem = model._solver.problem
        found = native.tree_pass(problem.tree.program, problem.nu, problem.tables, kind)
        if not found.bound[0] < 1e-6:
            continue
        certified += 1
        got = expit(posterior(problem.nu, found.messages))[0]
        assert np.abs(got - truth).max() <= found.probability_bound[0] + 4e-16
        assert found.probability_bound[0] <= 0.2500001 * found.bound[0] + 1e-15
    assert certified >= 5


def test_entropy_of_trees_is_that_of_a_sum_over_all_counts():
    # Sums by parts share no number with expectations: their terms are entropies of decisions.
    rng = np.random.default_rng(1)
    tree = tt.CountTree.balanced(2048)
    model = tt.CountModel.from_tree(tree, rng.normal(size=2048), rng.normal(size=tree.program.table_total))
    problem = model._solver.problem
    from tallytree.engine.forest.entropy import entropy_by_parts
    from tallytree.engine.problem import without_edges

    want = entropy_by_parts(without_edges(problem.tree.program, problem.nu, problem.tables))[0]
    assert abs(model.entropy - want) <= 1e-10 * want
