"""`tallytree.torch` on CPU tensors: values, derivatives of every order, transforms, compilers, dtypes, errors."""

from __future__ import annotations

import copy
import math
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states

torch = pytest.importorskip("torch", reason="tallytree.torch needs PyTorch: pip install 'tallytree[torch]'")
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.distributions import kl_divergence  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, vmap  # noqa: E402

import tallytree.torch as ttt  # noqa: E402
from tallytree.torch import ops  # noqa: E402
from tallytree.torch.structure import flat, of_members  # noqa: E402


def doubles(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def nested(a, b, c):
    """Three variables in a group, a single one, and all six."""
    return [tt.Group([0, 1, 2], a), tt.Group([4], b), tt.Group(None, c)]


def enumerate_weights(logits, groups, tables):
    """Log-weights of all configurations, from the definition."""
    states = all_states((2,) * len(logits))
    weights = states @ logits
    for group, table in zip(groups, tables):
        weights = weights + np.asarray(table)[states[:, group].sum(1)]
    return states, weights


def test_answers_are_those_of_the_definition():
    x = doubles(6)
    tables = [doubles(4, seed=1), doubles(2, seed=2), doubles(7, seed=3)]
    states, weights = enumerate_weights(x.numpy(), [[0, 1, 2], [4], list(range(6))], tables)
    total = np.logaddexp.reduce(weights)
    probs = np.exp(weights - total)
    groups = nested(*tables)
    assert float(ttt.log_partition(x, groups)) == pytest.approx(total, abs=1e-11)
    np.testing.assert_allclose(ttt.marginals(x, groups), probs @ states, atol=1e-12)
    for group, members in enumerate([[0, 1, 2], [4], list(range(6))]):
        counts = np.bincount(states[:, members].sum(1), probs)
        np.testing.assert_allclose(ttt.count_log_probs(x, groups, group).exp(), counts, atol=1e-12)
    drawn = ttt.sample(x, groups, (4000,), torch.Generator().manual_seed(1))
    assert float((drawn.mean(0) - torch.from_numpy(probs @ states)).abs().max()) < 0.04


@pytest.mark.parametrize("function", [ttt.log_partition, ttt.marginals, ttt.count_log_probs])
@pytest.mark.parametrize("shared", [True, False])
def test_first_and_second_derivatives_of_one_table(function, shared):
    x, table = doubles(2, 5).requires_grad_(), doubles(*((6,) if shared else (2, 6)), seed=1).requires_grad_()
    assert gradcheck(function, (x, table))
    assert gradgradcheck(function, (x, table))


@pytest.mark.parametrize("function", [ttt.log_partition, ttt.marginals])
def test_first_and_second_derivatives_of_nested_groups(function):
    x = doubles(2, 6).requires_grad_()
    tables = [t.requires_grad_() for t in (doubles(4, seed=1), doubles(2, 2, seed=2), doubles(7, seed=3))]
    assert gradcheck(lambda x, *t: function(x, nested(*t)), (x, *tables))
    assert gradgradcheck(lambda x, *t: function(x, nested(*t)), (x, *tables))


@pytest.mark.parametrize("group", [0, 1, 2])
def test_derivatives_of_count_distributions_of_nested_groups(group):
    x = doubles(6).requires_grad_()
    tables = [t.requires_grad_() for t in (doubles(4, seed=1), doubles(2, seed=2), doubles(7, seed=3))]
    assert gradcheck(lambda x, *t: ttt.count_log_probs(x, nested(*t), group), (x, *tables))
    assert gradgradcheck(lambda x, *t: ttt.count_log_probs(x, nested(*t), group), (x, *tables))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's forward mode itself
def test_transforms_agree_with_one_another():
    x, rows, tables, p = doubles(6), doubles(4, 6, seed=1), doubles(4, 7, seed=2), tt.exactly(2)

    def log_z(x):
        return ttt.log_partition(x, p)

    def mean(x):
        return ttt.marginals(x, p)

    def close(a, b):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)

    covariance = torch.tensor(tt.CountModel(x.numpy(), p).covariance())
    close(grad(log_z)(x), mean(x))
    close(vmap(mean)(rows), mean(rows))
    close(vmap(mean, in_dims=1)(rows.T), mean(rows))
    close(vmap(ttt.marginals)(rows, tables), ttt.marginals(rows, tables))
    close(vmap(ttt.marginals, in_dims=(None, 0))(x, tables), ttt.marginals(x, tables))
    close(vmap(ttt.marginals, in_dims=(None, 0))(rows, tables), ttt.marginals(rows[None], tables[:, None]))
    close(vmap(ttt.marginals, in_dims=(0, None))(rows, tables[0]), ttt.marginals(rows, tables[0]))
    close(vmap(grad(log_z))(rows), mean(rows))
    close(jacrev(mean)(x), covariance)
    close(jacfwd(mean)(x), covariance)
    close(hessian(log_z)(x), covariance)
    close(hessian(lambda x: mean(x).square().sum())(x), jacrev(jacrev(lambda x: mean(x).square().sum()))(x))
    close(
        hessian(lambda t: ttt.log_partition(x, t))(tables[0]),
        jacrev(jacrev(lambda t: ttt.log_partition(x, t)))(tables[0]),
    )


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_mapped_axes_of_the_numbers_of_potentials():
    x, k, center = doubles(3, 5), torch.tensor([1, 2, 3]), torch.tensor([1.0, 2.0, 2.5], dtype=torch.float64)
    found = vmap(lambda x, k: ttt.marginals(x, ttt.exactly(k)))(x, k)
    torch.testing.assert_close(found, ttt.marginals(x, ttt.exactly(k)))
    slope = vmap(grad(lambda c, x: ttt.log_partition(x, ttt.gaussian(c, 1.0))))(center, x)
    given = center.clone().requires_grad_()
    ttt.log_partition(x, ttt.gaussian(given, 1.0)).sum().backward()
    torch.testing.assert_close(slope, given.grad)
    scores = vmap(lambda x, k: ttt.CountDistribution(x, ttt.exactly(k)).log_prob((x > 9.0).double()))(x, k)
    assert bool((scores == -math.inf).all())
    probs = vmap(lambda x: ttt.PoissonBinomial(x).log_prob(torch.tensor(2.0)))(x)
    torch.testing.assert_close(probs, ttt.count_log_probs(x)[:, 2])
    with pytest.raises(tt.InfeasibleError):
        vmap(lambda x, k: ttt.marginals(x, ttt.exactly(k)))(x, k + 5)


@pytest.mark.filterwarnings("error")  # a rule that is missing is a warning of a slow loop
def test_mapped_draws_modes_and_entropies_are_one_call(capfd):
    x, k = doubles(3, 6), torch.tensor([1, 3, 5])
    law = lambda x, k: ttt.CountDistribution(x, ttt.exactly(k))  # noqa: E731
    torch.manual_seed(0)
    drawn = vmap(lambda x, k: law(x, k).sample((2000,)), randomness="different", out_dims=1)(x, k)
    torch.testing.assert_close(drawn.sum(-1), k.double().expand(2000, 3))
    assert float((drawn.mean(0) - law(x, k).marginals).abs().max()) < 0.06
    copies = vmap(lambda _: ttt.sample(x[0], tt.exactly(3), (50,)), randomness="different")(torch.zeros(4))
    assert not torch.equal(copies[0], copies[1])
    shared = vmap(lambda x: ttt.sample(x, tt.exactly(3), (50,)), randomness="same")(x[:1].expand(4, 6))
    assert torch.equal(shared[0], shared[3])
    torch.testing.assert_close(vmap(lambda x, k: law(x, k).mode)(x, k), law(x, k).mode)
    torch.testing.assert_close(vmap(lambda x, k: law(x, k).entropy())(x, k), law(x, k).entropy())
    torch.testing.assert_close(
        vmap(lambda x: law(x, torch.tensor(2)).mode, in_dims=1)(x.T), law(x, torch.tensor(2)).mode
    )
    torch.testing.assert_close(
        vmap(grad(lambda x: law(x, torch.tensor(2)).entropy()))(x).sum(-1), torch.zeros(3).double()
    )
    by_count = vmap(lambda k: law(x[0], k).mode)(k)
    torch.testing.assert_close(by_count.sum(-1), k.double())
    assert "batching rule" not in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore")  # what compilers say about the machine
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_compiler_sees_through(backend):
    """Without a break in the graph."""
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("the default compiler of PyTorch needs a C++ compiler")
    torch._dynamo.reset()
    p = tt.exactly(2)

    def step(x, t):
        counts = ttt.count_log_probs(x, t)[..., 2]
        return ttt.marginals(x, p).square().sum() + ttt.log_partition(x, t).sum() + counts.sum()

    found = []
    for function in (step, torch.compile(step, fullgraph=True, backend=backend)):
        x, t = doubles(4, 6).requires_grad_(), doubles(4, 7, seed=1).requires_grad_()
        value = function(x, t)
        value.backward()
        found.append((value.detach(), x.grad, t.grad))
    for plain, compiled in zip(*found):
        torch.testing.assert_close(plain, compiled, rtol=1e-12, atol=1e-12)


CHOICES = {
    "a potential made inside": lambda x, t: ttt.marginals(x, tt.exactly(2)),
    "an interval": lambda x, t: ttt.log_partition(x, tt.between(1, 3)),
    "counts without groups": lambda x, t: ttt.count_log_probs(x),
    "groups in a list": lambda x, t: ttt.marginals(x, [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, t)]),
    "a tree and tables": lambda x, t: ttt.marginals(x, (TREE, [None, t])),
    "packed tables": lambda x, t: ttt.log_partition(x, (TREE, torch.nn.functional.pad(t, (4, 0)))),
    "a distribution": lambda x, t: ttt.CountDistribution(x, tt.at_most(5)).log_prob((x > 0.5).to(x)),
    "an entropy": lambda x, t: ttt.CountDistribution(x, t).entropy(),
    "edges": lambda x, t: ttt.marginals(x, t, edges=CHAIN),
    "two intervals": lambda x, t: ttt.marginals(
        x, [tt.Group([0, 1], tt.exactly(1)), tt.Group(None, tt.at_most(4))]
    ),
    "two tables": lambda x, t: ttt.log_partition(
        x, [tt.Group([0, 1], [0.0, 1.0, 2.0]), tt.Group(None, [1.0] * 7)]
    ),
    "nested configurations": lambda x, t: ttt.CountDistribution(x, PAIR).log_prob((x > 0.5).to(x)),
    "a divergence": lambda x, t: kl_divergence(
        ttt.CountDistribution(x, PAIR), ttt.CountDistribution(0.5 * x, t)
    ),
    "a divergence of counts": lambda x, t: kl_divergence(
        ttt.PoissonBinomial(x), ttt.PoissonBinomial(0.5 * x)
    ),
}
PAIR = [
    tt.Group([0, 1, 2], tt.at_most(2)),
    tt.Group([0, 1], tt.at_least(0)),
    tt.Group(None, tt.gaussian(3.0, 1.0)),
]
TREE = tt.CountTree.from_groups([[0, 1, 2], None], 6)
CHAIN = ttt.Forest([(0, 1), (1, 2)], coupling=torch.tensor([0.3, -0.2], dtype=torch.float64))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("choice", CHOICES)
def test_a_compiler_takes_every_way_to_say_what_groups_there_are(choice):
    torch._dynamo.reset()
    function, compiled = CHOICES[choice], torch.compile(CHOICES[choice], fullgraph=True, backend="aot_eager")
    found = []
    for call in (function, compiled):
        x, t = doubles(3, 6).requires_grad_(), doubles(7, seed=1).requires_grad_()
        value = call(x, t)
        value.square().sum().backward()
        found.append((value.detach(), x.grad, t.grad))
    for plain, other in zip(*found):
        torch.testing.assert_close(plain, other, rtol=1e-11, atol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_function_takes_other_sizes_afterwards():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: ttt.marginals(x, tt.exactly(2)), fullgraph=True, backend="aot_eager")
    for batch, n in ((3, 6), (5, 6), (5, 8), (2, 9)):
        x = doubles(batch, n)
        torch.testing.assert_close(compiled(x), ttt.marginals(x, tt.exactly(2)))


def test_operators_keep_their_promises():
    x, t = doubles(3, 6), doubles(3, 7, seed=1)
    key, fixed = of_members((None,), 6).key, flat(6, tt.exactly(2)).key
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    for op, arguments in (
        (ops.sums, (x, t, key, True, True)),
        (ops.sums, (x, None, fixed, True, False)),
        (ops.tangent, (x, t, doubles(3, 6, seed=2), doubles(3, 7, seed=3), key, True)),
        (ops.count_log_probs, (x, t, key, 0)),
        (ops.draw, (x, t, torch.tensor(3), key, 4)),
        (ops.mode, (x, t, key)),
        (ops.entropy, (x, t, key)),
    ):
        torch.library.opcheck(op.op, arguments, test_utils=checks)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_answers_have_the_dtype_of_the_logits_and_are_computed_wide(dtype):
    x = (5.0 * doubles(3, 40)).to(dtype).requires_grad_()
    found = ttt.marginals(x, tt.exactly(4))
    assert found.dtype == dtype
    exact = tt.CountModel(x.detach().double().numpy(), tt.exactly(4)).marginals
    np.testing.assert_allclose(found.detach().double(), exact, rtol=float(torch.finfo(dtype).eps), atol=1e-7)
    ttt.log_partition(x, tt.exactly(4)).sum().backward()
    assert x.grad.dtype == dtype
    assert bool(torch.isfinite(x.grad).all())


def test_autocast_leaves_it_alone():
    x = doubles(3, 8).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ttt.marginals(x, tt.exactly(3))
    torch.testing.assert_close(found, ttt.marginals(x, tt.exactly(3)), rtol=0, atol=0)


def test_layouts_and_empty_batches():
    x = doubles(6, 4)
    p = tt.exactly(2)
    torch.testing.assert_close(ttt.marginals(x.T, p), ttt.marginals(x.T.contiguous(), p), rtol=0, atol=0)
    wide = x.T[:1].expand(5, 6).requires_grad_()
    torch.testing.assert_close(ttt.marginals(wide, p)[4], ttt.marginals(x.T[0], p), rtol=1e-12, atol=1e-14)
    empty = torch.zeros(0, 4, dtype=torch.float64, requires_grad=True)
    ttt.marginals(empty, p).sum().backward()
    assert empty.grad.shape == (0, 4)
    assert ttt.log_partition(torch.zeros(3, 0)).shape == (3,)
    assert ttt.sample(empty, p, (2,)).shape == (2, 0, 4)


def test_infinite_logits_are_masks_without_gradient():
    x = torch.tensor([0.3, -math.inf, math.inf, -0.2, 1.0], dtype=torch.float64, requires_grad=True)
    ttt.marginals(x, tt.exactly(2))[0].backward()
    assert bool(torch.isfinite(x.grad).all())
    assert float(x.grad[1]) == float(x.grad[2]) == 0.0
    kept = torch.tensor([0.3, -0.2, 1.0], dtype=torch.float64, requires_grad=True)
    ttt.marginals(kept, tt.exactly(1))[0].backward()
    torch.testing.assert_close(x.grad[[0, 3, 4]], kept.grad, rtol=1e-10, atol=1e-14)


def test_one_count_per_model_and_parameters_with_gradients():
    x = doubles(3, 5)
    k = torch.tensor([0, 2, 5])
    rows = torch.stack([ttt.marginals(x[i], tt.exactly(int(k[i]))) for i in range(3)])
    torch.testing.assert_close(ttt.marginals(x, ttt.exactly(k)), rows, rtol=1e-12, atol=1e-14)
    mean, sd = (
        torch.tensor(2.0).double().requires_grad_(),
        torch.tensor([1.0, 2.0, 3.0]).double().requires_grad_(),
    )
    assert gradcheck(lambda m, s: ttt.log_partition(x, ttt.gaussian(m, s)), (mean, sd))
    for name in ("at_least", "at_most"):
        by_tensor = ttt.log_partition(x, getattr(ttt, name)(k))
        each = torch.stack([ttt.log_partition(x[i], getattr(tt, name)(int(k[i]))) for i in range(3)])
        torch.testing.assert_close(by_tensor, each, rtol=1e-12, atol=1e-12)


NUMBERS = {
    **dict.fromkeys(("exactly", "at_least"), (2,)),
    "at_most": (1,),
    "between": (1, 2),
    "gaussian": (0.1, 0.7),
    **dict.fromkeys(("geometric", "poisson"), (0.3,)),
    "quadratic": (-0.3,),
}


def test_fixed_potentials_with_a_number_per_model_give_unbatched_logits_their_shape():
    x = doubles(4).requires_grad_()
    groups = [tt.Group([0, 1, 2], tt.exactly([1, 2])), tt.Group(None, tt.at_most(3))]
    for which in (tt.exactly(np.array([1, 2])), groups):
        wanted = tt.CountModel(x.detach().numpy(), which)
        np.testing.assert_allclose(ttt.marginals(x, which).detach(), wanted.marginals, atol=1e-14)
        np.testing.assert_allclose(ttt.log_partition(x, which).detach(), wanted.log_partition, atol=1e-13)
        np.testing.assert_allclose(
            ttt.count_log_probs(x, which).detach(), wanted.count_log_probs(), atol=1e-13
        )
        assert ttt.sample(x.detach(), which).shape == (2, 4)
        (gradient,) = torch.autograd.grad(ttt.log_partition(x, which).sum(), x)
        np.testing.assert_allclose(gradient, wanted.marginals.sum(0), atol=1e-14)


@pytest.mark.parametrize("name", NUMBERS)
def test_potentials_of_numbers_are_those_of_arrays(name):
    """Python's numbers are not rounded to single precision on their way, and defaults and signs are the same."""
    found, want = (getattr(home, name)(*NUMBERS[name]) for home in (ttt, tt))
    forest = {"pairs": [(0, 1), (1, 2)], "coupling": [0.1, 0.7]}
    x = [0.1, 0.2, 0.3]
    total = ttt.log_partition(torch.tensor(x, dtype=torch.float64), found, edges=ttt.Forest(**forest))
    assert float(total) == pytest.approx(
        tt.CountModel(x, want, edges=tt.Forest(**forest)).log_partition, abs=1e-13
    )


def test_a_tree_made_before_is_taken():
    tree = tt.CountTree.from_groups([[0, 1], [2, 3, 4], None], 5)
    tables = doubles(tree.family.group_offset[-1]).requires_grad_()
    x = doubles(2, 5)
    found = ttt.marginals(x, (tree, tables))
    expected = tt.CountModel.from_tree(tree, x.numpy(), tables.detach().numpy()).marginals
    np.testing.assert_allclose(found.detach(), expected, atol=1e-12)
    found.square().sum().backward()
    assert bool(torch.isfinite(tables.grad).all())
    independent = ttt.marginals(x, tree)
    torch.testing.assert_close(independent, torch.sigmoid(x), rtol=1e-12, atol=1e-14)


def test_gradients_of_counts_that_underflow_are_conditional_expectations():
    x = torch.full((400,), -3.0, dtype=torch.float64, requires_grad=True)
    log_probs = ttt.count_log_probs(x)
    assert float(log_probs[390].detach()) < -1000.0
    log_probs[390].backward()
    expected = 390 / 400 - 1 / (1 + math.exp(3.0))
    np.testing.assert_allclose(x.grad, np.full(400, expected), rtol=1e-8)


def test_backward_works_after_the_structure_is_gone():
    x = doubles(4).requires_grad_()
    value = ttt.marginals(x, [tt.Group([0, 1], tt.exactly(1))])
    value.square().sum().backward()
    assert bool(torch.isfinite(x.grad).all())


def test_a_backward_pass_never_answers_for_numbers_that_have_changed():
    x = doubles(3, 7)
    leaf = x.clone().requires_grad_()
    value = ttt.marginals(leaf, tt.exactly(2))
    with torch.no_grad():
        leaf.add_(1.5 * doubles(3, 7, seed=1))
    again = ttt.marginals(leaf, tt.exactly(2))
    weights = doubles(3, 7, seed=2)
    (again * weights).sum().backward()
    model = tt.CountModel(leaf.detach().numpy(), tt.exactly(2))
    np.testing.assert_allclose(leaf.grad, model.hessian_vector_product(weights.numpy()).logits, atol=1e-13)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()


def test_samples_follow_the_generator():
    x, p = doubles(2, 9), tt.at_least(4)
    first = ttt.sample(x, p, (3,), torch.Generator().manual_seed(5))
    assert torch.equal(first, ttt.sample(x, p, (3,), torch.Generator().manual_seed(5)))
    assert not torch.equal(first, ttt.sample(x, p, (3,), torch.Generator().manual_seed(6)))
    assert first.shape == (3, 2, 9)
    assert bool((first.sum(-1) >= 4).all())
    torch.manual_seed(0)
    a = ttt.sample(x, p)
    torch.manual_seed(0)
    assert torch.equal(a, ttt.sample(x, p))


def test_errors_say_what_is_wrong():
    with pytest.raises(tt.ParameterError, match="NaN"):
        ttt.marginals(torch.tensor([0.0, math.nan]), tt.exactly(1))
    with pytest.raises(tt.ParameterError, match="5 real entries"):
        ttt.marginals(torch.zeros(4), torch.zeros(3))
    with pytest.raises(tt.InfeasibleError, match="probability zero"):
        ttt.marginals(torch.full((3,), -math.inf), tt.exactly(2))
    with pytest.raises(tt.ParameterError, match="exactly"):
        ttt.marginals(torch.zeros(3), tt.exactly(7))
    with pytest.raises(tt.ParameterError, match="k <= n = 3"):
        ttt.marginals(torch.zeros(2, 3), ttt.exactly(torch.tensor([1, 7])))
    with pytest.raises(tt.ParameterError, match="batch shape"):
        ttt.marginals(torch.zeros(2, 3), torch.zeros(3, 4))
    with pytest.raises(tt.ParameterError, match="complex"):
        ttt.marginals(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(tt.ParameterError, match="single number"):
        ttt.log_partition(torch.tensor(1.0))
    with pytest.raises(tt.ParameterError, match="`group`"):
        ttt.count_log_probs(torch.zeros(3), tt.exactly(1), 4)
    with pytest.raises(tt.StructureError):
        ttt.marginals(torch.zeros(3), [tt.Group([0, 1]), tt.Group([1, 2])])
    with pytest.raises(tt.ParameterError, match="integer"):
        ttt.exactly(torch.tensor(1.5))


def test_import_of_tallytree_imports_no_framework():
    code = "import sys, tallytree; tallytree.CountModel([0.0]).marginals; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_structures_survive_copies_and_processes():
    d = ttt.CountDistribution(doubles(3, 4), [tt.Group([0, 1], tt.exactly(1))])
    again = pickle.loads(pickle.dumps(d))
    torch.testing.assert_close(again.mean, d.mean, rtol=0, atol=0)
    torch.testing.assert_close(copy.deepcopy(d).mean, d.mean, rtol=0, atol=0)
