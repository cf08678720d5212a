"""Batches of small nested models, solved side by side in the lanes of registers, against scaled long doubles."""

import numpy as np
import pytest

import tallytree as tt
from helpers import few
from oracle_nested import log_space_tree
from tallytree import config

native = pytest.importorskip("tallytree._native")
LEVELS = native.levels()


def random_batch(rng):
    """A nested family, a batch of log-odds and tables (one per model, or one for all), some of them infinite."""
    n, batch = int(rng.integers(2, 40)), int(rng.integers(2, 20))
    order, step = rng.permutation(n), int(rng.integers(1, n + 1))
    groups = [sorted(order[a : a + step].tolist()) for a in range(0, n, step)]
    if rng.random() < 0.7:
        groups.append(list(range(n)))
    nu = rng.choice([0.5, 1.0, 10.0]) * rng.normal(size=(batch, n))
    rows = batch if rng.random() < 0.6 else 1
    tables = [rng.choice([1.0, 5.0, 60.0]) * rng.normal(size=(rows, len(g) + 1)) for g in groups]
    if rng.random() < 0.3:
        nu[rng.random(nu.shape) < 0.1] = rng.choice([np.inf, -np.inf])
    if rng.random() < 0.3:
        for table in tables:
            table[rng.random(table.shape) < 0.2] = -np.inf
    return groups, nu, tables


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", few(range(12), keep=4))
def test_every_model_of_a_batch_is_right(seed, level):
    rng = np.random.default_rng(seed)
    for _ in range(4):
        groups, nu, tables = random_batch(rng)
        program = tt.CountTree.from_groups(groups, nu.shape[1]).program
        model = tt.CountModel(np.zeros(nu.shape), [tt.Group(g, t) for g, t in zip(groups, tables)])
        packed = model._params.packed
        leaves = nu + model._params.singleton_logits
        plan = native.TreePlan(
            program.left, program.right, program.table_offset, program.n_leaves, program.table_total
        )
        log_mean, messages, _, bound = plan.tree_pass(leaves, packed, None, "direct", level=level)
        for b, row in enumerate(leaves):
            sets = [(g, t[b if len(t) > 1 else 0]) for g, t in zip(groups, tables) if len(g) > 1]
            exact = log_space_tree(row, sets)
            if np.isneginf(exact.log_partition):
                assert log_mean[b] == -np.inf or bound[b] == np.inf
                continue
            finite = np.isfinite(row)
            softplus = np.logaddexp(0.0, row[finite]).sum()
            size = max(
                abs(exact.log_partition),
                softplus,
                max((np.abs(t[np.isfinite(t)]).sum() for _, t in sets), default=0.0),
            )
            assert abs(log_mean[b] + softplus - exact.log_partition) <= bound[b] + 1e-15 * size
            known = finite & np.isfinite(exact.posterior_logits)
            error = np.abs(row[known] + messages[b][known] - exact.posterior_logits[known]).max(initial=0.0)
            assert error <= bound[b] + 4e-16 * np.abs(exact.posterior_logits[known]).max(initial=0.0)


def test_a_model_with_hard_constraints_gets_the_pass_that_can_tell():
    """One of the models is impossible, one has variables that are decided; the others share their register."""
    groups = [[0, 1, 2], [3, 4], [0, 1, 2, 3, 4]]
    some = [np.zeros((5, 4)), np.zeros((5, 3)), np.zeros((5, 6))]
    some[0][1] = [-np.inf, -np.inf, -np.inf, 0.0]  # all three on
    nu = np.random.default_rng(0).normal(size=(5, 5))
    model = tt.CountModel(nu, [tt.Group(g, t) for g, t in zip(groups, some)])
    assert (model.posterior_logits[1, :3] == np.inf).all()
    np.testing.assert_allclose(model.posterior_logits[[0, 2, 3, 4]], nu[[0, 2, 3, 4]], atol=1e-14)
    some[2][3] = [0.0, -np.inf, -np.inf, -np.inf, -np.inf, -np.inf]
    some[0][3] = [-np.inf, 0.0, 0.0, 0.0]
    with pytest.raises(tt.InfeasibleError, match=r"batch index \(3,\)"):
        tt.CountModel(nu, [tt.Group(g, t) for g, t in zip(groups, some)]).marginals  # noqa: B018


def test_threads_and_neighbours_change_nothing():
    rng = np.random.default_rng(3)
    tree = tt.CountTree.from_groups([range(10), range(10, 30), range(25, 30), None], 90)
    nu = rng.normal(size=(37, 90))
    tables = [rng.normal(size=tree.group_size(g) + 1) for g in range(4)]
    whole = tt.CountModel.from_tree(tree, nu, tables).posterior_logits
    with config.using(threads=3):
        np.testing.assert_array_equal(tt.CountModel.from_tree(tree, nu, tables).posterior_logits, whole)
    np.testing.assert_array_equal(tt.CountModel.from_tree(tree, nu[5:], tables).posterior_logits, whole[5:])
