"""Models with edges in `tallytree.torch`: values, first and second derivatives, transforms, distributions, errors."""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states

torch = pytest.importorskip("torch", reason="tallytree.torch needs PyTorch: pip install 'tallytree[torch]'")
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.func import grad, hessian, vmap  # noqa: E402

import tallytree.torch as ttt  # noqa: E402

PAIRS = [(0, 1), (1, 2), (1, 3), (4, 5)]
N = 6
GROUPS = [list(range(6)), [4, 5]]
STATES = all_states((2,) * N)


def doubles(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def parameters(seed=0):
    """Log-odds, tables of two groups and tables of all edges."""
    return (
        doubles(N, seed=seed),
        doubles(7, seed=seed + 1),
        doubles(3, seed=seed + 2),
        doubles(len(PAIRS), 2, 2, seed=seed + 3),
    )


def posed(x, whole, part, edges):
    return x, [tt.Group(None, whole), tt.Group([4, 5], part)], ttt.Forest(PAIRS, edges)


class Law:
    """All configurations with their probabilities, from the definition."""

    def __init__(self, x, whole, part, edges):
        x, whole, part, edges = (np.asarray(p) for p in (x, whole, part, edges))
        forced = np.isposinf(x)
        on = np.where(forced, 0.0, x)
        weight = np.where(STATES == 1, on, np.where(forced, -np.inf, 0.0)).sum(1)
        for group, table in zip(GROUPS, (whole, part)):
            weight = weight + table[STATES[:, group].sum(1)]
        for (i, j), table in zip(PAIRS, edges):
            weight = weight + table[STATES[:, i], STATES[:, j]]
        self.log_z = np.logaddexp.reduce(weight)
        self.probs = np.exp(weight - self.log_z)
        self.marginals = self.probs @ STATES

    def counts(self, group):
        return np.bincount(STATES[:, group].sum(1), self.probs, len(group) + 1)

    def pairs(self):
        found = np.zeros((len(PAIRS), 2, 2))
        for e, (i, j) in enumerate(PAIRS):
            np.add.at(found[e], (STATES[:, i], STATES[:, j]), self.probs)
        return found


def log_z(x, whole, part, edges):
    given = posed(x, whole, part, edges)
    return ttt.log_partition(given[0], given[1], edges=given[2])


def means(x, whole, part, edges):
    given = posed(x, whole, part, edges)
    return ttt.marginals(given[0], given[1], edges=given[2])


def hard(values):
    """The same with infinite log-odds and impossible counts and pairs."""
    x, whole, part, edges = (p.clone() for p in values)
    x[0], x[5] = math.inf, -math.inf
    whole[6], edges[1, 1, 1] = -math.inf, -math.inf
    return x, whole, part, edges


@pytest.mark.parametrize("change", [lambda values: values, hard], ids=["plain", "infinite"])
def test_answers_and_gradients_are_those_of_the_definition(change):
    values = change(parameters())
    law = Law(*values)
    leaves = [p.clone().requires_grad_() for p in values]
    found = log_z(*leaves)
    assert float(found.detach()) == pytest.approx(law.log_z, abs=1e-11)
    found.backward()
    np.testing.assert_allclose(leaves[0].grad, law.marginals, atol=1e-12)
    np.testing.assert_allclose(leaves[1].grad, law.counts(GROUPS[0]), atol=1e-12)
    np.testing.assert_allclose(leaves[2].grad, law.counts(GROUPS[1]), atol=1e-12)
    np.testing.assert_allclose(leaves[3].grad, law.pairs(), atol=1e-12)
    np.testing.assert_allclose(means(*values), law.marginals, atol=1e-12)
    x, groups, edges = posed(*values)
    for number, group in enumerate(GROUPS):
        np.testing.assert_allclose(
            ttt.count_log_probs(x, groups, number, edges=edges).exp(), law.counts(group), atol=1e-12
        )


def statistics(edges=True):
    """All statistics of all configurations, in the order of the parameters."""
    parts = [STATES]
    for group in GROUPS:
        parts.append(np.eye(len(group) + 1)[STATES[:, group].sum(1)])
    for i, j in PAIRS:
        parts.append(np.eye(4)[2 * STATES[:, i] + STATES[:, j]])
    return np.concatenate(parts, axis=1).astype(float)


@pytest.mark.parametrize("change", [lambda values: values, hard], ids=["plain", "infinite"])
def test_second_derivatives_are_covariances(change):
    values = change(parameters(seed=7))
    law = Law(*values)
    s = statistics()
    centred = s - law.probs @ s
    expected = (law.probs[:, None] * centred).T @ centred
    flat = torch.cat([p.reshape(-1) for p in values])
    finite = torch.isfinite(flat).numpy()
    sizes = [N, 7, 3, 4 * len(PAIRS)]

    def whole(packed):
        x, a, b, e = packed.split(sizes)
        return log_z(x, a, b, e.reshape(len(PAIRS), 2, 2))

    found = torch.autograd.functional.hessian(whole, flat).numpy()
    np.testing.assert_allclose(found[np.ix_(finite, finite)], expected[np.ix_(finite, finite)], atol=1e-11)


def test_derivatives_pass_the_checks_of_pytorch():
    leaves = [p.requires_grad_() for p in parameters(seed=3)]
    assert gradcheck(log_z, leaves)
    assert gradgradcheck(log_z, leaves)
    assert gradcheck(means, leaves)
    coupling = doubles(3, seed=1).requires_grad_()
    x = doubles(2, 4).requires_grad_()

    def chain(x, coupling):
        edges = ttt.Forest([(0, 1), (1, 2), (2, 3)], coupling=coupling)
        return ttt.marginals(x, tt.exactly(2), edges=edges)

    assert gradcheck(chain, (x, coupling))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's forward mode itself
def test_gradients_of_counts_are_right_where_they_underflow():
    x = torch.full((5,), -140.0, dtype=torch.float64)
    coupling = torch.full((4,), 0.3, dtype=torch.float64, requires_grad=True)
    edges = ttt.Forest([(i, i + 1) for i in range(4)], coupling=coupling)
    leaf = x.clone().requires_grad_()
    found = ttt.count_log_probs(leaf, edges=edges)
    assert float(found[4].detach()) < -550.0
    found[4].backward()
    # Given four of five on, the one that is off is at an end (three agreements) or inside (two).
    weight = np.exp(0.3 * np.array([2.0, 0.0, 0.0, 0.0, 2.0]))
    off = weight / weight.sum()
    np.testing.assert_allclose(leaf.grad, 1.0 - off, atol=1e-10)
    leaves = (doubles(4).requires_grad_(), doubles(3, seed=2).requires_grad_())
    assert gradcheck(
        lambda x, j: ttt.count_log_probs(x, edges=ttt.Forest([(0, 1), (1, 2), (2, 3)], coupling=j)), leaves
    )
    direction = doubles(4, seed=5)
    pushed = torch.func.jvp(
        lambda x: ttt.count_log_probs(x, edges=tt.Forest([(0, 1)], 0.4)), (doubles(4),), (direction,)
    )[1]
    jacobian = torch.autograd.functional.jacobian(
        lambda x: ttt.count_log_probs(x, edges=tt.Forest([(0, 1)], 0.4)), doubles(4)
    )
    torch.testing.assert_close(pushed, jacobian @ direction, rtol=1e-9, atol=1e-11)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_batches_and_mapped_axes():
    x, coupling = doubles(3, 2, 4), doubles(3, 1, 3, seed=1)
    pairs = [(0, 1), (1, 2), (2, 3)]
    found = ttt.marginals(x, tt.exactly(2), edges=ttt.Forest(pairs, coupling=coupling))
    assert found.shape == (3, 2, 4)
    for i, j in itertools.product(range(3), range(2)):
        one = tt.CountModel(x[i, j].numpy(), tt.exactly(2), edges=tt.Forest(pairs, coupling[i, 0].numpy()))
        np.testing.assert_allclose(found[i, j], one.marginals, atol=1e-12)

    def single(x, j):
        return ttt.log_partition(x, tt.exactly(2), edges=ttt.Forest(pairs, coupling=j))

    y, j = doubles(3, 4), doubles(3, 3, seed=2)
    mapped = vmap(grad(single, argnums=(0, 1)))(y, j)
    for row in range(3):
        alone = grad(single, argnums=(0, 1))(y[row], j[row])
        for a, b in zip(mapped, alone):
            torch.testing.assert_close(a[row], b)
    bent = vmap(hessian(lambda x: single(x, j[0])))(y)
    assert bent.shape == (3, 4, 4)
    assert ttt.marginals(torch.zeros(0, 4), tt.exactly(2), edges=tt.Forest(pairs, 1.0)).shape == (0, 4)


def test_distributions_with_edges():
    values = parameters(seed=11)
    law = Law(*values)
    x, groups, edges = posed(*values)
    d = ttt.CountDistribution(x, groups, edges=edges)
    np.testing.assert_allclose(d.log_prob(torch.tensor(STATES)).exp(), law.probs, atol=1e-12)
    entropy = -(law.probs * np.log(law.probs)).sum()
    assert float(d.entropy()) == pytest.approx(entropy, abs=1e-10)
    np.testing.assert_array_equal(d.mode, STATES[law.probs.argmax()])
    torch.manual_seed(0)
    drawn = d.sample((4000,))
    np.testing.assert_allclose(drawn.mean(0), law.marginals, atol=0.05)
    leaves = [p.requires_grad_() for p in parameters(seed=11)]
    assert gradcheck(
        lambda *p: ttt.CountDistribution(posed(*p)[0], posed(*p)[1], edges=posed(*p)[2]).entropy(), leaves
    )
    other = parameters(seed=20)
    q = ttt.CountDistribution(other[0], [tt.Group(None, other[1])], edges=ttt.Forest(PAIRS, other[3]))
    second = Law(other[0], other[1], np.zeros(3), other[3])
    kl = (law.probs * np.log(law.probs / second.probs)).sum()
    assert float(torch.distributions.kl_divergence(d, q)) == pytest.approx(kl, abs=1e-10)
    free = ttt.CountDistribution(other[0], [tt.Group(None, other[1])])
    third = Law(other[0], other[1], np.zeros(3), np.zeros((len(PAIRS), 2, 2)))
    kl = (law.probs * np.log(law.probs / third.probs)).sum()
    assert float(torch.distributions.kl_divergence(d, free)) == pytest.approx(kl, abs=1e-10)
    for again in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        torch.testing.assert_close(again.marginals, d.marginals)
    assert d.expand((3,)).marginals.shape == (3, N)


def test_a_forest_of_arrays_serves_too():
    x, forest = doubles(4), tt.Forest([(0, 1), (1, 2), (2, 3)], 0.7)
    model = tt.CountModel(x.numpy(), tt.exactly(2), edges=forest)
    assert float(ttt.log_partition(x, tt.exactly(2), edges=forest)) == pytest.approx(
        float(model.log_partition)
    )
    table = doubles(5, seed=1)
    one = ttt.marginals(x, table, edges=forest)
    np.testing.assert_allclose(
        one, tt.CountModel(x.numpy(), table.numpy(), edges=forest).marginals, atol=1e-12
    )
    half = ttt.marginals(x.to(torch.bfloat16), tt.exactly(2), edges=forest)
    assert half.dtype == torch.bfloat16


def test_wrong_arguments_are_refused():
    x, pairs = doubles(4), [(0, 1), (1, 2)]
    with pytest.raises(tt.ParameterError, match="exactly one of `log_tables` and `coupling`"):
        ttt.Forest(pairs)
    with pytest.raises(tt.ParameterError, match=r"shape \(\.\.\., 2, 2, 2\)"):
        ttt.Forest(pairs, torch.zeros(3, 2, 2))
    with pytest.raises(tt.ParameterError, match="one per edge"):
        ttt.Forest(pairs, coupling=torch.zeros(3))
    with pytest.raises(tt.ParameterError, match="real numbers"):
        ttt.Forest(pairs, coupling=torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(tt.ParameterError, match="must be a Forest"):
        ttt.marginals(x, edges=pairs)
    with pytest.raises(tt.ParameterError, match="without NaN"):
        ttt.marginals(x, edges=ttt.Forest(pairs, coupling=torch.tensor([math.nan, 0.0])))
    with pytest.raises(tt.StructureError, match="cycle"):
        ttt.Forest([(0, 1), (1, 2), (0, 2)], coupling=torch.zeros(3))
    with pytest.raises(tt.StructureError, match="names variable 9"):
        ttt.marginals(x, edges=ttt.Forest([(0, 9)], coupling=torch.zeros(1)))
    with pytest.raises(tt.InfeasibleError):
        ttt.marginals(
            x, tt.exactly(4), edges=ttt.Forest([(0, 1)], torch.tensor([[[0.0, 0.0], [0.0, -math.inf]]]))
        )
    leaf = x.clone().requires_grad_()
    twice = torch.autograd.grad(ttt.marginals(leaf, edges=tt.Forest(pairs, 1.0))[0], leaf, create_graph=True)[
        0
    ]
    with pytest.raises(tt.ParameterError, match="first and second derivatives"):
        torch.autograd.grad(twice.sum(), leaf)
    p = ttt.CountDistribution(x, edges=tt.Forest(pairs, 1.0))
    with pytest.raises(tt.ParameterError, match="same edges"):
        torch.distributions.kl_divergence(p, ttt.CountDistribution(x, edges=tt.Forest([(0, 3)], 1.0)))
