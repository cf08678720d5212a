"""Around a call in training: numbers that change between calls, overflow, batched gradients, odd tensors."""

from __future__ import annotations

import gc
import math
import weakref

import numpy as np
import pytest

import tallytree as tt

torch = pytest.importorskip("torch", reason="tallytree.torch needs PyTorch: pip install 'tallytree[torch]'")
from torch.autograd.functional import hessian, jacobian  # noqa: E402
from torch.func import grad, jacfwd, jacrev, vjp, vmap  # noqa: E402

import tallytree.torch as ttt  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated", "ignore:There is a performance drop"
)


def doubles(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


NESTED = [tt.Group([0, 1], tt.at_most(1)), tt.Group(None, tt.gaussian(2.0, 1.0))]
FOREST = tt.Forest([(0, 1), (1, 2)], 0.4)
VECTORS = {
    "marginals": lambda x: ttt.marginals(x, tt.exactly(2)),
    "nested marginals": lambda x: ttt.marginals(x, NESTED),
    "marginals with edges": lambda x: ttt.marginals(x, tt.exactly(2), edges=FOREST),
    "counts": lambda x: ttt.count_log_probs(x, NESTED),
    "mean": lambda x: ttt.CountDistribution(x, NESTED).mean,
    "bags": lambda x: ttt.losses.bag_nll(
        x, torch.arange(x.shape[-1]) % 2, torch.tensor([1, 1]), reduction="none"
    ),
}
NUMBERS = {
    "log Z": lambda x: ttt.log_partition(x, NESTED),
    "entropy": lambda x: ttt.CountDistribution(x, NESTED).entropy(),
    "log_prob": lambda x: ttt.CountDistribution(x, NESTED).log_prob(torch.tensor([1.0, 0.0, 0.0, 1.0])),
    "a count": lambda x: ttt.PoissonBinomial(x).log_prob(torch.tensor(2)),
    "entropy of a count": lambda x: ttt.PoissonBinomial(x).entropy(),
    "edges": lambda x: ttt.log_partition(x, tt.exactly(2), edges=FOREST),
    "a bag": lambda x: ttt.losses.bag_nll(x, torch.zeros(x.shape[-1], dtype=torch.long), torch.tensor([2])),
    "a layer": lambda x: ttt.KSubset(2).marginals(x).square().sum(),
}


@pytest.mark.parametrize("name", VECTORS)
def test_numbers_written_behind_the_back_of_autograd_are_seen(name):
    function, x = VECTORS[name], doubles(4)
    shared = x.numpy()
    weights = torch.ones_like(function(x)).cumsum(-1)
    function(x.requires_grad_())
    for change in (lambda: x.data.copy_(doubles(4, seed=1)), lambda: shared.__setitem__(..., 0.5)):
        change()
        (found,) = vjp(function, x)[1](weights)
        fresh = x.detach().clone()
        torch.testing.assert_close(found, vjp(function, fresh)[1](weights)[0], rtol=0, atol=0)


def test_calls_leave_nothing_behind():
    """Compiled graphs pin structures; other calls may not, or a long training fills the memory."""
    from tallytree.torch import structure

    before = len(structure._pinned)
    seen = []
    for k in range(1, 4):
        x = doubles(4, seed=k).requires_grad_()
        ttt.marginals(x, tt.exactly(k)).sum().backward()
        ttt.count_log_probs(x, NESTED).logsumexp(-1).sum().backward()
        d = ttt.CountDistribution(x, tt.exactly(2), edges=tt.Forest([(0, 1), (1, 2)], 0.1 * k))
        d.count_log_probs()[2].backward()
        seen.append(weakref.ref(d._posed.structure))
    del d, x
    gc.collect()
    assert len(structure._pinned) == before
    assert [ref() for ref in seen] == [None] * 3


@pytest.mark.parametrize("name", [*VECTORS, *NUMBERS])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_inference_mode_gives_the_same(name, dtype):
    function, x = {**VECTORS, **NUMBERS}[name], doubles(4).to(dtype)
    with torch.inference_mode():
        inside, made_there = function(x), function(x + 0.0)
    torch.testing.assert_close(inside, function(x), rtol=0, atol=0)
    torch.testing.assert_close(made_there, function(x), rtol=0, atol=0)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", ["marginals", "nested marginals", "marginals with edges", "counts", "mean"])
def test_infinite_incoming_gradients_make_nan_rows_and_leave_the_others(name, bad):
    function = VECTORS[name]
    x = torch.stack([doubles(4), doubles(4, seed=1)]).requires_grad_()
    out = function(x)
    weights = torch.ones_like(out).cumsum(-1)
    (sound,) = torch.autograd.grad(out, x, weights, retain_graph=True)
    weights[0, 1] = bad
    (found,) = torch.autograd.grad(out, x, weights)
    assert bool(torch.isnan(found[0]).all())
    torch.testing.assert_close(found[1], sound[1], rtol=0, atol=0)


def test_infinite_gradients_of_tables_and_of_derivatives():
    x, table = doubles(2, 4).requires_grad_(), doubles(5, seed=1).requires_grad_()
    out = ttt.marginals(x, table)
    found = torch.autograd.grad(out, (x, table), torch.full_like(out, math.inf))
    assert all(bool(torch.isnan(part).all()) for part in found)
    (first,) = torch.autograd.grad(ttt.marginals(x, tt.exactly(2))[:, 0].sum(), x, create_graph=True)
    weights = torch.ones_like(first)
    weights[1, 2] = math.nan
    (second,) = torch.autograd.grad(first, x, weights)
    assert bool(torch.isfinite(second[0]).all())
    assert bool(torch.isnan(second[1]).all())


@pytest.mark.parametrize("loss", ["layer", "marginals", "bags", "counts"])
def test_a_gradient_scaler_skips_the_step_that_overflows(loss):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)
    losses = {
        "layer": lambda s: (ttt.KSubset(2)(s) * torch.arange(4)).square().sum(),
        "marginals": lambda s: ttt.marginals(s, tt.exactly(2)).float().pow(3).sum(),
        "bags": lambda s: ttt.losses.bag_nll(s.reshape(-1), torch.arange(4) % 2, [1, 2]).float() * 1e3,
        "counts": lambda s: ttt.PoissonBinomial(s).log_prob(torch.arange(5).unsqueeze(-1)).float().sum(),
    }
    before = [p.detach().clone() for p in net.parameters()]
    with torch.autocast("cpu", dtype=torch.float16):
        value = losses[loss](net(torch.randn(1, 3)))
    scaler.scale(value.float()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() < 2.0**127
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))


@pytest.mark.parametrize("name", VECTORS)
def test_batched_gradients_are_the_rows_of_the_jacobian(name):
    function, x = VECTORS[name], doubles(4)
    exact = jacobian(function, x)
    for strategy in ("reverse-mode", "forward-mode"):
        found = jacobian(function, x, vectorize=True, strategy=strategy)
        torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-11)
    leaf = x.clone().requires_grad_()
    out = function(leaf)
    (rows,) = torch.autograd.grad(out, leaf, torch.eye(len(out)).to(out), is_grads_batched=True)
    torch.testing.assert_close(rows, exact, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NUMBERS)
def test_every_way_to_the_hessian_agrees(name):
    function, x = NUMBERS[name], doubles(4)
    exact = hessian(function, x)
    assert float(exact.abs().max()) > 1e-3
    ways = [
        jacrev(jacrev(function))(x),
        jacfwd(jacrev(function))(x),
        jacrev(jacfwd(function))(x),
        jacfwd(jacfwd(function))(x),
        hessian(function, x, vectorize=True),
        hessian(function, x, vectorize=True, outer_jacobian_strategy="forward-mode"),
        vmap(jacfwd(jacfwd(function)))(torch.stack([x, -x]))[0],
    ]
    for found in ways:
        torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["log Z", "a count", "entropy"])
def test_three_forward_modes_are_three_reverse_modes(name):
    function, x = NUMBERS[name], doubles(3) if name == "a count" else doubles(4)
    third = jacfwd(jacfwd(jacfwd(function)))(x)
    assert float(third.abs().max()) > 1e-3
    torch.testing.assert_close(third, jacrev(jacrev(jacrev(function)))(x), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", [*VECTORS, *NUMBERS])
def test_views_of_every_kind_are_read_right(name):
    function, x = {**VECTORS, **NUMBERS}[name], doubles(4)
    wide = torch.stack([x, doubles(4, seed=3)], dim=-1)
    views = {
        "negated": torch.view_as_complex(torch.stack([x, -x], -1)).conj().imag,
        "every other": torch.stack([x, x], -1).reshape(-1)[::2],
        "a column": wide[:, 0],
        "expanded": x[:1].expand(4),
    }
    for kind, view in views.items():
        leaf, copy = view.detach().requires_grad_(), view.detach().clone().contiguous().requires_grad_()
        found, expected = function(leaf), function(copy)
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-14, msg=kind)
        found.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(leaf.grad, copy.grad, rtol=1e-12, atol=1e-13, msg=kind)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ttt.PoissonBinomial(logits=x).log_sf(torch.tensor(1.0)),
        lambda x: ttt.PoissonBinomial(logits=x, weights=[1, 2, 3, 4]).log_prob(torch.tensor(3.0)),
        lambda x: ttt.log_partition(
            torch.zeros(5), edges=ttt.Forest([(i, i + 1) for i in range(4)], coupling=x)
        ),
        lambda x: ttt.log_partition(torch.zeros(3), x),
    ],
    ids=["a tail", "a weighted sum", "couplings", "a table"],
)
def test_negated_views_are_read_wherever_numbers_are(function):
    x = doubles(4)
    leaf = torch.view_as_complex(torch.stack([x, -x], -1)).conj().imag.requires_grad_()
    assert leaf.is_neg()
    found, expected = function(leaf), function(x.requires_grad_())
    torch.testing.assert_close(found, expected)
    found.backward()
    expected.backward()
    torch.testing.assert_close(leaf.grad, x.grad)


@pytest.mark.parametrize("name", [*VECTORS, *NUMBERS])
def test_tensors_without_numbers_are_refused_by_name(name):
    function = {**VECTORS, **NUMBERS}[name]
    with pytest.raises(tt.ParameterError, match="dense tensor with numbers"):
        function(torch.zeros(4, device="meta"))
    with pytest.raises(tt.ParameterError, match="dense tensor with numbers"):
        function(torch.eye(4)[0].to_sparse())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["marginals", "counts", "bags", "log Z", "entropy", "a count", "a layer"])
def test_every_dtype_comes_back_with_its_gradient(name, dtype):
    function, x = {**VECTORS, **NUMBERS}[name], doubles(4).to(dtype).requires_grad_()
    out = function(x)
    assert out.dtype == dtype
    out.sum().backward()
    wide = x.detach().double().requires_grad_()
    function(wide).sum().backward()
    assert x.grad.dtype == dtype
    tolerance = 4.0 * float(torch.finfo(dtype).eps) + 1e-12
    torch.testing.assert_close(x.grad.double(), wide.grad, rtol=tolerance, atol=tolerance)


def test_no_variables_one_variable_and_no_models():
    nothing = torch.zeros(3, 0)
    for potential in (tt.exactly(0), ttt.exactly(torch.tensor([0, 0, 0])), torch.zeros(1), None):
        assert ttt.log_partition(nothing, potential).tolist() == [0.0] * 3
        assert ttt.marginals(nothing, potential).shape == (3, 0)
        assert ttt.sample(nothing, potential, (2,)).shape == (2, 3, 0)
        assert ttt.count_log_probs(nothing, potential).tolist() == [[0.0]] * 3
        law = ttt.CountDistribution(nothing, potential)
        assert law.log_prob(nothing).tolist() == law.entropy().tolist() == [0.0] * 3
        assert law.expand((2, 3)).mode.shape == (2, 3, 0)
        assert torch.distributions.kl_divergence(law, law).tolist() == [0.0] * 3
    weight = torch.tensor([2.5], requires_grad=True)
    assert ttt.log_partition(nothing, weight).tolist() == [2.5] * 3
    assert grad(lambda t: ttt.log_partition(nothing, t).sum())(weight.detach()).tolist() == [3.0]
    with pytest.raises(tt.ParameterError):
        ttt.marginals(nothing, tt.exactly(1))
    with pytest.raises(tt.InfeasibleError):
        ttt.marginals(nothing, torch.tensor([-math.inf]))
    for layer in (ttt.KSubset(0), ttt.KSubset(torch.tensor([0, 0, 0])), ttt.KSubset(0).eval()):
        scores = nothing.clone().requires_grad_()
        assert layer(scores).shape == layer.marginals(scores).shape == (3, 0)
    ttt.KSubset(0)(scores).sum().backward()
    assert scores.grad.shape == (3, 0)
    one = torch.tensor([[0.7]], dtype=torch.float64, requires_grad=True)
    ttt.marginals(one).sum().backward()
    p = 1.0 / (1.0 + math.exp(-0.7))
    assert float(one.grad) == pytest.approx(p * (1.0 - p), rel=1e-12)
    assert ttt.KSubset(1)(one).tolist() == [[1.0]]
    for function in {**VECTORS, **NUMBERS}.values():
        if function in (VECTORS["bags"], NUMBERS["a bag"]):
            continue
        none = torch.zeros(0, 4, requires_grad=True)
        function(none).sum().backward()
        assert none.grad.shape == (0, 4)


def test_counts_on_the_host_may_be_tensors():
    x = doubles(2, 4)
    found = tt.CountModel(x[0].numpy(), tt.exactly(torch.tensor(2))).marginals
    np.testing.assert_allclose(found, ttt.marginals(x[0], tt.exactly(2)), atol=1e-13)
    each = tt.CountModel(x.numpy(), tt.exactly(torch.tensor([1, 3]))).marginals
    torch.testing.assert_close(torch.tensor(each), ttt.marginals(x, ttt.exactly(torch.tensor([1, 3]))))
