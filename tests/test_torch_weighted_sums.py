"""Weighted sums in PyTorch: values and gradients against NumPy and finite differences, far tails included."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt

torch = pytest.importorskip("torch")
ttt = pytest.importorskip("tallytree.torch")

WEIGHTS = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.mark.parametrize(
    "weights", [WEIGHTS, [-2, 5, 1, 1, -7, 3, 2, 2], [0.35, 1.1, 2.0, 0.7, 3.05, 1.4, 0.2, 5.5]]
)
def test_values_and_gradients_are_right(weights):
    step = None if all(float(w).is_integer() for w in weights) else 0.1
    logits = torch.tensor(np.random.default_rng(0).normal(size=(3, 8)) - 2.0, requires_grad=True)
    d = ttt.PoissonBinomial(logits=logits, weights=weights, step=step)
    law = tt.PoissonBinomial(logits=logits.detach().numpy(), weights=weights, step=step)
    at = law.ppf(0.9)
    value = torch.tensor(at, dtype=torch.float64)
    np.testing.assert_allclose(d.log_sf(value).detach(), law.logsf(at), rtol=1e-9)
    np.testing.assert_allclose(d.log_prob(value).detach(), law.logpmf(at), rtol=1e-9)
    np.testing.assert_allclose(d.cdf(value).detach(), law.cdf(at), rtol=1e-9)
    np.testing.assert_allclose(
        d.mean.detach(), logits.sigmoid().detach().numpy() @ np.array(weights, float), rtol=1e-12
    )
    for name in ("log_sf", "log_prob", "cdf"):

        def question(x, name=name):
            return getattr(ttt.PoissonBinomial(logits=x, weights=weights, step=step), name)(value)

        assert torch.autograd.gradcheck(question, (logits,), eps=1e-6, atol=1e-7)


def test_far_tails_have_gradients_and_probabilities_too():
    p = torch.full((40,), 1e-4, dtype=torch.float64, requires_grad=True)
    weights = np.arange(1, 41)
    d = ttt.PoissonBinomial(probs=p, weights=weights)
    found = d.log_sf(700)
    (slope,) = torch.autograd.grad(found, p)
    assert found.item() < -100
    moved = []
    for sign in (1, -1):
        q = np.full(40, 1e-4)
        q[39] += sign * 1e-9
        moved.append(float(tt.PoissonBinomial(q, weights=weights).logsf(700)))
    assert slope[39].item() == pytest.approx((moved[0] - moved[1]) / 2e-9, rel=1e-4)
    draws = d.expand((2,)).sample((100,))
    assert draws.shape == (100, 2)
    plain = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.25], dtype=torch.float64))
    assert plain.log_sf(0).exp().item() == pytest.approx(1 - 0.375)


def test_what_weights_cannot_do_is_said():
    d = ttt.PoissonBinomial(logits=torch.zeros(3), weights=[1, 2, 3])
    for ask in (d.entropy, d.count_log_probs, d.enumerate_support):
        with pytest.raises(tt.ParameterError, match="law of all sums"):
            ask()
    with pytest.raises(tt.ParameterError, match="`step` must be given with real"):
        ttt.PoissonBinomial(logits=torch.zeros(2), weights=[0.5, 1.25])
    with pytest.raises(tt.ParameterError, match="real `weights`"):
        ttt.PoissonBinomial(logits=torch.zeros(2), step=0.1)
    assert d.log_prob(torch.tensor(99.0)).item() == -np.inf


def test_probabilities_of_0_and_1_have_gradients():
    p, weights = np.array([0.0, 1.0, 0.3, 0.5]), np.array([3, 1, 4, 2])
    states = np.indices((2,) * 4).reshape(4, -1).T

    def law(q, event):
        return np.where(states == 1, q, 1 - q).prod(1)[event].sum()

    for name, at, event in (("log_sf", 4, states @ weights > 4), ("log_prob", 5, states @ weights == 5)):
        ends = [[law(np.where(np.arange(4) == i, end, p), event) for end in (1.0, 0.0)] for i in range(4)]
        want = [(on - off) / law(p, event) for on, off in ends]
        q = torch.tensor(p, requires_grad=True)
        found = getattr(ttt.PoissonBinomial(probs=q, weights=weights), name)(torch.tensor(at))
        np.testing.assert_allclose(torch.autograd.grad(found, q)[0], want, rtol=1e-9, atol=1e-12)
    q = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64, requires_grad=True)
    plain = ttt.PoissonBinomial(probs=q).log_sf(torch.tensor(1.0))  # P(X > 1) = 1/2 with one certain
    np.testing.assert_allclose(torch.autograd.grad(plain, q)[0], [1.0, 1.0, 2.0], rtol=1e-9)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_transformations_take_first_derivatives_and_higher_ones_are_refused():
    """`torch.func` met a function it cannot transform, and a Hessian was all zeros."""
    x = torch.tensor([[0.3, -1.2, 0.7], [-0.4, 0.1, 2.0]], dtype=torch.float64)
    value = torch.tensor([3.0, 4.0], dtype=torch.float64)

    def log_probs(x):
        return ttt.PoissonBinomial(logits=x, weights=[1, 2, 3]).log_prob(value)

    def total(x):
        return log_probs(x).sum()

    func, functional = torch.func, torch.autograd.functional
    want = torch.stack([functional.jacobian(log_probs, row) for row in x])
    for found in (
        func.vmap(func.jacrev(log_probs))(x),
        func.vmap(func.jacfwd(log_probs))(x),
        torch.stack([functional.jacobian(log_probs, r, vectorize=True, strategy="forward-mode") for r in x]),
        torch.stack([functional.jacobian(log_probs, row, vectorize=True) for row in x]),
    ):
        torch.testing.assert_close(found, want, rtol=1e-13, atol=0.0)
    torch.testing.assert_close(func.vmap(log_probs, in_dims=1)(x.T), torch.stack([log_probs(r) for r in x]))
    # P(3) = (1 - p1) (1 - p2) p3 + p1 p2 (1 - p3)
    given = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    of_probs = func.grad(lambda p: ttt.PoissonBinomial(probs=p, weights=[1, 2, 3]).log_prob(value[0]))(given)
    torch.testing.assert_close(of_probs, torch.tensor([-1.0, -2.0, 1.0], dtype=torch.float64))
    for higher in (
        lambda: functional.hessian(total, x[0]),
        lambda: functional.hessian(total, x[0], vectorize=True),
        lambda: func.jacrev(func.grad(total))(x[0]),
        lambda: func.jacrev(func.jacfwd(total))(x[0]),
        lambda: func.jacfwd(func.jacfwd(total))(x[0]),
        lambda: func.hessian(total)(x[0]),
        lambda: functional.hessian(total, x[0], vectorize=True, outer_jacobian_strategy="forward-mode"),
    ):
        with pytest.raises(tt.ParameterError, match="a higher one was asked for"):
            higher()


def test_slopes_may_be_carried_along_but_not_differentiated_again():
    """Forward mode wants a tangent of every output, and a derivative of the slopes was NaN without a word."""
    x = torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64, requires_grad=True)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        found = ttt.PoissonBinomial(logits=dual, weights=[1, 2, 3]).log_prob(torch.tensor(3.0))
        first = torch.autograd.forward_ad.unpack_dual(found).tangent
        with pytest.raises(tt.ParameterError, match="a higher one was asked for"):
            torch.autograd.grad(found, dual)
    wanted = torch.autograd.grad(
        ttt.PoissonBinomial(logits=x, weights=[1, 2, 3]).log_prob(torch.tensor(3.0)), x
    )
    torch.testing.assert_close(first, wanted[0].sum(), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_compiled_functions_have_weighted_sums(fullgraph):
    """The compiler walked into the engine and gave up on an assertion of its own."""
    x, value = torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64), torch.tensor([3.0, 4.0])
    outside = ttt.PoissonBinomial(probs=torch.sigmoid(x), weights=np.array([1, 2, 3]))
    functions = (
        lambda x: ttt.PoissonBinomial(logits=x, weights=[1, 2, 3]).log_prob(value).sum(),
        lambda x: ttt.PoissonBinomial(probs=x.sigmoid(), weights=[0.5, 1.25, 2.0], step=0.25).log_sf(2.0),
        lambda x: outside.cdf(value).sum() * x.sum(),
    )
    for function in functions:
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=fullgraph, backend="aot_eager")
        points = [x.clone().requires_grad_() for _ in range(2)]
        values = [f(point) for f, point in zip((compiled, function), points)]
        torch.testing.assert_close(*values, rtol=1e-13, atol=0.0)
        torch.testing.assert_close(
            *(torch.autograd.grad(v, p)[0] for v, p in zip(values, points)), rtol=1e-12, atol=0.0
        )


def test_a_compiled_graph_does_not_keep_weights_that_may_change():
    """Arrays are taken for what they are at every call, at the price of a break in the graph."""
    x, value = torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64), torch.tensor(3.0)

    def log_prob(x, weights):
        return ttt.PoissonBinomial(logits=x, weights=weights).log_prob(value)

    for kind in (torch.tensor, np.array, list):
        torch._dynamo.reset()
        compiled = torch.compile(log_prob, backend="aot_eager")
        for weights in ([1, 2, 3], [3, 1, 1]):
            assert compiled(x, kind(weights)) == log_prob(x, weights)
