"""The kernels for CUDA tensors: on a GPU where there is one, else small sizes in Triton's interpreter.

The interpreter has to be asked for before Triton is imported, so the tests run once more in a process of their own.
"""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states

torch = pytest.importorskip("torch", reason="tallytree.torch needs PyTorch: pip install 'tallytree[torch]'")
if importlib.util.find_spec("triton") is None:
    pytest.skip("the kernels need Triton, which comes with PyTorch for CUDA", allow_module_level=True)

import tallytree.torch as ttt  # noqa: E402
from tallytree.torch import device  # noqa: E402

HAS_GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # the interpreter computes with NumPy, masked lanes included
gpu = pytest.mark.skipif(not HAS_GPU, reason="this test needs a GPU: run tools/gpu-check where there is one")


@pytest.fixture
def where():
    """The device on which the kernels run."""
    if HAS_GPU:
        yield "cuda"
    elif INTERPRETED:
        with device.everywhere():
            yield "cpu"
    else:
        pytest.skip("runs in the interpreter, see test_the_kernels_in_the_interpreter")


@pytest.mark.skipif(HAS_GPU or INTERPRETED, reason="the kernels run here themselves")
def test_the_kernels_in_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout


def doubles(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Law:
    """All configurations of one model with their probabilities."""

    def __init__(self, logits, groups, tables):
        self.states = all_states((2,) * len(logits))
        forced = np.isposinf(logits)
        with np.errstate(invalid="ignore"):
            on = np.where(forced, 0.0, logits)
            weight = np.where(self.states == 1, on, np.where(forced, -np.inf, 0.0)).sum(1)
        for group, table in zip(groups, tables):
            weight = weight + np.asarray(table)[self.states[:, group].sum(1)]
        self.log_z = np.logaddexp.reduce(weight)
        self.probs = np.exp(weight - self.log_z)
        self.marginals = self.probs @ self.states

    def covariance_product(self, v):
        centred = self.states - self.marginals
        return (self.probs * (centred @ v)) @ centred

    def counts(self, group):
        return np.bincount(self.states[:, group].sum(1), self.probs, len(group) + 1)


def likely(states, count, law):
    """Whether the numbers of states seen in `count` draws are likely ones."""
    seen = np.bincount(states @ (1 << np.arange(states.shape[-1])[::-1]), minlength=len(law.probs))
    expected = law.probs * count
    large = expected > 5.0
    chi = ((seen - expected)[large] ** 2 / expected[large]).sum()
    rest = expected[~large].sum()
    return (
        seen[law.probs == 0.0].sum() == 0
        and chi < large.sum() + 6.0 * math.sqrt(2.0 * large.sum()) + 6.0
        and abs(seen[~large].sum() - rest) < 6.0 * math.sqrt(rest) + 6.0
    )


def recursion(logits, log_f):
    """Log Z and marginals of a flat model, by leaving out every variable, in logarithms of extended precision."""
    n, logits = len(logits), logits.astype(np.longdouble)

    def laws(values):
        found = [np.array([0.0])]
        for value in values:
            wide = np.append(found[-1], -np.inf)
            found.append(np.logaddexp(wide, np.append(-np.inf, found[-1]) + value))
        return found

    ahead, behind = laws(logits), laws(logits[::-1])
    log_z = np.logaddexp.reduce(ahead[n] + log_f)
    marginals = []
    for i, value in enumerate(logits):
        a, b = ahead[i], behind[n - 1 - i]
        pairs = (a[:, None] + b[None, :]).ravel()
        counts = np.add.outer(np.arange(len(a)), np.arange(len(b))).ravel()
        on = np.logaddexp.reduce(pairs + log_f[counts + 1]) + value
        marginals.append(np.exp(on - log_z))
    return log_z, np.array(marginals)


def one_hot(n, k):
    return np.where(np.arange(n + 1) == k, 0.0, -np.inf)


FLAT = [
    ("exactly", 9, lambda n: one_hot(n, 3)),
    ("none", 6, lambda n: one_hot(n, 0)),
    ("all", 6, lambda n: one_hot(n, n)),
    ("table", 8, lambda n: doubles(n + 1, seed=3).numpy()),
    ("spread over 500 nats", 7, lambda n: 250.0 * doubles(n + 1, seed=4).numpy()),
    ("two ends", 7, lambda n: np.where((np.arange(n + 1) == 0) | (np.arange(n + 1) == n), 0.0, -np.inf)),
]


@pytest.mark.parametrize("on_host", [True, False], ids=["few on the host", "all on the device"])
@pytest.mark.parametrize(("n", "table"), [case[1:] for case in FLAT], ids=[case[0] for case in FLAT])
def test_flat_rows_are_those_of_the_definition(where, n, table, on_host, monkeypatch):
    from tallytree.torch.cuda import ladder

    if not on_host:
        monkeypatch.setattr(ladder, "ON_HOST", 0)
    x, f = doubles(3, n), table(n)
    x[1] *= 40.0
    x[2, 0], x[2, 1] = -math.inf, 3.0
    rows = [0, 1, 2] if np.isfinite(f[:n]).any() else [0, 1]  # where all are wanted none may be excluded
    x, v = x[rows], doubles(3, n, seed=5)[rows]
    given = x.to(where, copy=True).requires_grad_()
    found = ttt.marginals(given, torch.tensor(f, device=where))
    log_z = ttt.log_partition(x.to(where), torch.tensor(f, device=where))
    (found * v.to(where)).sum().backward()
    for row in range(len(x)):
        law = Law(x[row].numpy(), [list(range(n))], [f])
        assert float(log_z[row]) == pytest.approx(law.log_z, rel=1e-11, abs=1e-11)
        np.testing.assert_allclose(found[row].detach().cpu(), law.marginals, rtol=1e-9, atol=1e-14)
        moved = law.covariance_product(np.where(np.isfinite(x[row]), v[row], 0.0))
        np.testing.assert_allclose(given.grad[row].cpu(), moved, rtol=1e-8, atol=1e-11)


def test_rows_of_all_kinds_share_a_batch(where, monkeypatch):
    from tallytree.torch.cuda import ladder

    monkeypatch.setattr(ladder, "ON_HOST", 90)  # the first rung refuses some rows, too many for the host
    n, k = 30, torch.tensor([3, 0, 30, 29, 1, 3, 5, 3, 15])
    x = doubles(9, n)
    x[5] *= 1000.0
    x[6, :3], x[6, 3:10] = math.inf, -math.inf
    x[7] -= 40.0
    x[8] *= 30.0
    found = ttt.marginals(x.to(where), ttt.exactly(k.to(where))).cpu()
    for row in range(9):
        if row == 6:
            _, expected = recursion(x[row, 10:].numpy(), one_hot(20, 2))
            expected = np.concatenate([np.ones(3), np.zeros(7), expected])
        else:
            _, expected = recursion(x[row].numpy(), one_hot(n, int(k[row])))
        np.testing.assert_allclose(found[row], expected, rtol=1e-9, atol=1e-200, err_msg=f"row {row}")


FAR = {
    "spike": lambda c: np.where(c == c[-4], 1.5 * len(c), 0.0),
    "one of two ends": lambda c: np.where((c == 1) | (c == c[-3]), 3.0 * c, -np.inf),
    "noise of thousands": lambda c: 1e4 * doubles(len(c), seed=8).numpy(),
    "parity": lambda c: np.where(c % 2 == 0, 0.0, -np.inf),
}


@pytest.mark.parametrize("table", FAR.values(), ids=FAR)
def test_a_posterior_far_from_the_start_needs_no_tree(where, table, monkeypatch):
    from tallytree.torch.cuda import ladder, logarithms

    def refused(*_):
        raise AssertionError("a slower rung")

    monkeypatch.setattr(ladder, "ON_HOST", 0)
    for place, name in ((ladder, "_by_tree"), (ladder, "_by_host"), (logarithms, "solve")):
        monkeypatch.setattr(place, name, refused)
    n = 90
    x, v, f = doubles(3, n), doubles(3, n, seed=5), table(np.arange(n + 1.0))
    x[2, 0], x[2, 1] = math.inf, -math.inf
    given = x.to(where, copy=True).requires_grad_()
    found = ttt.marginals(given, torch.tensor(f, device=where))
    (found * v.to(where)).sum().backward()
    for row in range(3):
        model = tt.CountModel(x[row].numpy(), f)
        np.testing.assert_allclose(found[row].detach().cpu(), model.marginals, rtol=1e-9, atol=0.0)
        moved = model.hessian_vector_product(v[row].numpy(), counts=False).logits
        np.testing.assert_allclose(given.grad[row].cpu(), moved, atol=1e-10 * float(v[row].abs().sum()))


def test_counts_that_are_left_out_are_in_the_bound(where):
    from tallytree.torch.cuda import flat, peaks

    n, certified = 24, 0
    for seed in range(12):
        x = doubles(4, n, seed=seed) * torch.tensor([[0.1], [1.0], [6.0], [20.0]])
        table = 10.0 ** (seed % 4) * doubles(4, n + 1, seed=seed + 50)
        near = peaks.nearest(x.to(where), table.to(where))
        found = flat.solve(x.to(where), near.tables, start=near.start)
        bound = peaks.bound(near, found, None).cpu()
        for row in range(4):
            _, expected = recursion(x[row].numpy(), table[row].numpy())
            error = np.abs(np.log(found.values[row].cpu().numpy()) - np.log(expected)).max()
            assert not error > max(float(bound[row]), 1e-15) + 1e-13
            certified += float(bound[row]) < 1e-9
    assert certified > 24


def nested(where, seed=0):
    groups = [[0, 1, 2], [4], list(range(7))]
    tables = [doubles(len(g) + 1, seed=seed + i) for i, g in enumerate(groups)]
    return (
        groups,
        tables,
        [tt.Group(g, t.to(where, copy=True).requires_grad_()) for g, t in zip(groups, tables)],
    )


@pytest.mark.parametrize("scale", [1.0, 400.0])
def test_nested_groups_are_those_of_the_definition(where, scale):
    groups, tables, given = nested(where)
    tables[0] *= scale
    given[0] = tt.Group(groups[0], tables[0].to(where, copy=True).requires_grad_())
    x, v = doubles(2, 7), doubles(2, 7, seed=8)
    x[1, 6] = math.inf
    leaf = x.to(where, copy=True).requires_grad_()
    value = ttt.marginals(leaf, given)
    (value * v.to(where)).sum().backward()
    for row in range(2):
        law = Law(x[row].numpy(), groups, tables)
        np.testing.assert_allclose(value[row].detach().cpu(), law.marginals, rtol=1e-9, atol=1e-14)
        moved = law.covariance_product(np.where(np.isfinite(x[row]), v[row], 0.0))
        np.testing.assert_allclose(leaf.grad[row].cpu(), moved, rtol=1e-8, atol=1e-11)
        for number, group in enumerate(groups):
            log_probs = ttt.count_log_probs(x[row].to(where), given, number).detach().cpu()
            np.testing.assert_allclose(log_probs.exp(), law.counts(group), atol=1e-12)


def test_gradients_of_tables_are_count_probabilities(where):
    for n, scale in ((6, 1.0), (6, 300.0)):
        x, table = doubles(2, n), scale * doubles(2, n + 1, seed=1)
        t = table.to(where, copy=True).requires_grad_()
        ttt.log_partition(x.to(where), t).sum().backward()
        for row in range(2):
            law = Law(x[row].numpy(), [list(range(n))], [table[row].numpy()])
            np.testing.assert_allclose(t.grad[row].cpu(), law.counts(list(range(n))), atol=1e-12)


def test_tails_of_counts_do_not_underflow(where):
    n = 40
    x = torch.full((n,), -25.0, dtype=torch.float64)
    found = ttt.count_log_probs(x.to(where)).cpu().numpy()
    p = 1.0 / (1.0 + math.exp(25.0))
    expected = [
        math.lgamma(n + 1)
        - math.lgamma(c + 1)
        - math.lgamma(n - c + 1)
        + c * math.log(p)
        + (n - c) * math.log1p(-p)
        for c in range(n + 1)
    ]
    assert expected[-1] < -900.0
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("wild", [False, True])
def test_draws_follow_the_law(where, wild):
    groups, tables, given = nested(where, seed=5)
    if wild:
        tables[0] = 300.0 * tables[0]
        given[0] = tt.Group(groups[0], tables[0].to(where))
    x, count = doubles(7), 3000
    law = Law(x.numpy(), groups, tables)
    seed = torch.Generator(device=where).manual_seed(2)
    drawn = ttt.sample(x.to(where), given, (count,), seed).cpu().numpy()
    assert likely(drawn.astype(int), count, law)
    again = (
        ttt.sample(x.to(where), given, (count,), torch.Generator(device=where).manual_seed(2)).cpu().numpy()
    )
    np.testing.assert_array_equal(drawn, again)


# By trials, and a mixture of them with draws down the tree.
@pytest.mark.parametrize(("rounds", "count"), [(512, 1000), (1, 60)])
def test_draws_of_flat_rows_follow_the_law(where, rounds, count, monkeypatch):
    from tallytree.torch.cuda import draws

    monkeypatch.setattr(draws, "_ROUNDS", rounds)
    if not HAS_GPU:  # few programs: each costs a while in the interpreter
        monkeypatch.setattr(draws, "_VARIABLES", 16384)
    n = 5
    x = doubles(4, n)
    x[1] += 30.0
    x[2, 0], x[2, 1] = math.inf, -math.inf
    tables = torch.stack([doubles(n + 1, seed=i) for i in range(4)])
    tables[0] = torch.from_numpy(one_hot(n, 2))
    tables[3] = torch.where(torch.arange(n + 1) % 5 == 0, 0.0, -math.inf)
    seed = torch.Generator(device=where).manual_seed(3)
    drawn = ttt.sample(x.to(where), tables.to(where), (count,), seed).cpu().numpy().astype(int)
    for row in range(4):
        law = Law(x[row].numpy(), [list(range(n))], [tables[row].numpy()])
        assert likely(drawn[:, row], count, law), row


@pytest.mark.parametrize("rounds", [64, 0])  # in pieces, and down the tree where no trial was kept
def test_draws_of_long_rows_follow_the_law(where, rounds, monkeypatch):
    from tallytree.torch.cuda import draws
    from tallytree.torch.cuda import flat as short

    monkeypatch.setattr(short, "LONGEST", 4)
    monkeypatch.setattr(draws, "_PIECE_ROUNDS", rounds)
    monkeypatch.setattr(draws, "_TABLES", 4000)  # more than one group of pieces
    if not HAS_GPU:
        monkeypatch.setattr(draws, "_VARIABLES", 16384)
    n, count = 9, 200 if rounds else 12
    x = doubles(4, n)
    x[1] += 30.0
    x[2, 0], x[2, 1] = math.inf, -math.inf
    tables = torch.stack([doubles(n + 1, seed=i) for i in range(4)])
    tables[0] = torch.from_numpy(one_hot(n, 4))
    tables[3] = torch.where(torch.arange(n + 1) % 5 == 0, 0.0, -math.inf)
    found = []
    for _ in range(2):
        seed = torch.Generator(device=where).manual_seed(3)
        found.append(ttt.sample(x.to(where), tables.to(where), (count,), seed).cpu().numpy().astype(int))
    np.testing.assert_array_equal(*found)
    for row in range(4):
        law = Law(x[row].numpy(), [list(range(n))], [tables[row].numpy()])
        assert likely(found[0][:, row], count, law), row


def test_long_rows_in_stretches_are_those_of_the_engine(where, monkeypatch):
    from tallytree.torch.cuda import flat as short

    monkeypatch.setattr(short, "LONGEST", 64)
    n = 1100  # two stretches
    x, weights = doubles(n), doubles(n, seed=1)
    x[:5], x[7:9] = -math.inf, math.inf
    leaf = x.clone().to(where).requires_grad_()
    found = ttt.marginals(leaf, tt.exactly(90))
    (found * weights.to(where)).sum().backward()
    engine = tt.CountModel(x.numpy(), tt.exactly(90))
    np.testing.assert_allclose(found.detach().cpu(), engine.marginals, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(
        leaf.grad.cpu(), engine.hessian_vector_product(weights.numpy()).logits, atol=1e-10
    )


def test_exactly_k_is_drawn_exactly(where):
    x = doubles(4, 25).to(where)
    drawn = ttt.sample(x, ttt.exactly(torch.tensor([0, 3, 25, 12], device=where)), (7,)).cpu()
    assert drawn.sum(-1).tolist() == [[0.0, 3.0, 25.0, 12.0]] * 7


def test_potentials_with_a_number_per_model(where):
    x = doubles(2, 4)
    found = ttt.marginals(x.to(where), tt.exactly([1, 3])).cpu()
    for row, k in enumerate((1, 3)):
        law = Law(x[row].numpy(), [list(range(4))], [one_hot(4, k)])
        np.testing.assert_allclose(found[row], law.marginals, rtol=1e-12)


def test_modes_of_flat_models_are_the_likeliest_configurations(where):
    x = doubles(3, 8)
    x[1, 2], x[1, 5] = math.inf, -math.inf
    table = doubles(9, seed=1)
    found = ttt.CountDistribution(x.to(where), table.to(where)).mode.cpu().numpy()
    for row in range(3):
        law = Law(x[row].numpy(), [list(range(8))], [table.numpy()])
        np.testing.assert_array_equal(found[row], law.states[law.probs.argmax()])


@pytest.mark.parametrize("scale", [1.0, 400.0])
def test_modes_and_entropies_of_nested_models(where, scale):
    groups, tables, given = nested(where)
    tables[0] *= scale
    given[0] = tt.Group(groups[0], tables[0].to(where))
    x = doubles(4, 7)
    x[1, 6], x[1, 0] = math.inf, -math.inf
    x[2] *= 30.0  # an entropy that the sum over all terms would lose
    d = ttt.CountDistribution(x.to(where), given)
    with torch.no_grad():
        modes, entropies = d.mode.cpu().numpy(), d.entropy().cpu().numpy()
    for row in range(4):
        law = Law(x[row].numpy(), groups, tables)
        np.testing.assert_array_equal(modes[row], law.states[law.probs.argmax()])
        p = law.probs[law.probs > 0.0]
        np.testing.assert_allclose(entropies[row], -(p * np.log(p)).sum(), rtol=1e-8, atol=1e-200)
    impossible = [tt.Group([0, 1], tt.exactly(1)), tt.Group(None, tt.exactly(4))]
    with pytest.raises(tt.InfeasibleError, match="probability zero"):
        ttt.CountDistribution(torch.zeros(4, device=where), impossible).mode  # noqa: B018


def test_addresses_and_sizes_of_all_kinds_take_turns(where):
    """Compiled kernels differ by what their arguments are multiples of; one must never serve for another."""
    for batch, n in ((3, 32), (1, 32), (3, 33), (1, 1), (16, 16), (1, 33)):
        held = doubles(batch * n + 1, seed=n).to(where)
        k = n // 3
        for first in (0, 1, 0):  # at a multiple of 16 bytes, and between two of them
            rows = held[first : first + batch * n].reshape(batch, n)
            found = ttt.marginals(rows, tt.exactly(k)).cpu().numpy()
            want = [recursion(row, one_hot(n, k))[1] for row in rows.cpu().numpy()]
            np.testing.assert_allclose(found, np.array(want, float), rtol=1e-9, atol=1e-15)


def test_variables_at_one_half_and_rows_that_hardly_vary(where):
    """Where a factor nearly vanishes at the highest frequency, and where all frequencies weigh alike."""
    n = 24
    rows = np.full((6, n), -30.0)
    rows[0, :2], rows[1, :5], rows[2], rows[3] = 0.0, 1e-12, 0.0, np.linspace(-40.0, 40.0, n)
    rows[4, 0], rows[5, :3] = 30.0, 5.0
    for k in (1, 2, 12):
        leaf = torch.from_numpy(rows).to(where).requires_grad_()
        found = ttt.marginals(leaf, tt.exactly(k))
        push = doubles(6, n, seed=k)
        (found * push.to(where)).sum().backward()
        truth = tt.CountModel(rows, tt.exactly(k))
        want = truth.marginals
        np.testing.assert_allclose(found.detach().cpu().numpy(), want, rtol=1e-9, atol=1e-300)
        moved = truth.hessian_vector_product(push.numpy()).logits
        np.testing.assert_allclose(leaf.grad.cpu().numpy(), moved, rtol=1e-9, atol=1e-10)


def test_bounds_are_never_below_the_error(where):
    from tallytree.torch.cuda import flat

    n = 24
    for scale, sd in ((1.0, 1.0), (1.0, 20.0), (6.0, 1.0), (30.0, 5.0)):
        x, table = sd * doubles(4, n, seed=int(sd)), scale * doubles(4, n + 1, seed=int(scale) + 7)
        found = flat.solve(x.to(where), table.to(where))
        for row in range(4):
            _, expected = recursion(x[row].numpy(), table[row].numpy())
            got = found.values[row].cpu().numpy()
            error = np.abs(np.log(got) - np.log(expected)).max()
            assert error <= max(float(found.bound[row]), 1e-15) or not np.isfinite(error)


def test_bad_input_is_refused(where):
    with pytest.raises(tt.ParameterError, match="NaN"):
        ttt.marginals(torch.tensor([0.0, math.nan, 1.0], device=where), tt.exactly(1))
    with pytest.raises(tt.InfeasibleError, match="probability zero"):
        ttt.marginals(torch.full((3,), -math.inf, device=where), tt.exactly(2))
    with pytest.raises(tt.InfeasibleError, match="probability zero"):
        ttt.marginals(
            torch.zeros(4, device=where), [tt.Group([0, 1], tt.exactly(1)), tt.Group(None, tt.exactly(4))]
        )


def test_empty_batches_and_single_variables(where):
    assert ttt.marginals(torch.zeros(0, 4, device=where), tt.exactly(2)).shape == (0, 4)
    assert ttt.log_partition(torch.zeros(3, 0, device=where)).shape == (3,)
    assert ttt.sample(torch.zeros(2, 3, device=where), tt.exactly(1), (0,)).shape == (0, 2, 3)
    one = ttt.marginals(torch.tensor([[0.3], [-1.0]], device=where).double(), [0.2, 0.7])
    np.testing.assert_allclose(one.cpu().squeeze(-1), torch.sigmoid(torch.tensor([0.8, -0.5]).double()))


class TwoKinds:
    """Marginals of `m` variables of log-odds a and `r` of log-odds b, k of all active, by ratios of binomials."""

    def __init__(self, m, a, r, b, k):
        i = np.arange(max(0, k - r), min(m, k), dtype=np.longdouble)
        steps = np.log((m - i) / (i + 1)) + np.log((k - i) / (r - k + i + 1)) + (np.longdouble(a) - b)
        weight = np.append(np.longdouble(0.0), np.cumsum(steps))
        weight = np.exp(weight - weight.max())
        count = np.append(i, i[-1] + 1)
        mean = (weight * count).sum() / weight.sum()
        self.a, self.b = float(mean / m), float((k - mean) / r)


@pytest.mark.parametrize("k", [30_000, 120_000])
def test_huge_models_by_a_series(where, k, monkeypatch):
    from tallytree.torch.cuda import long, series

    monkeypatch.setattr(series, "SHORTEST", 1)
    monkeypatch.setattr(series, "_SAMPLE", 4096)
    if not HAS_GPU:  # few programs
        for name, value in (("_STRETCH", 1 << 15), ("_PER", 4), ("_PROGRAMS", 1), ("_BLOCK", 1 << 16)):
            monkeypatch.setattr(series, name, value)
    m, r, forced, excluded = 100_000, 150_000, 70, 1000
    kinds = torch.tensor([0.7, -1.3, math.inf, -math.inf], dtype=torch.float64, device=where)
    x = kinds.repeat_interleave(torch.tensor([m, r, forced, excluded], device=where))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1)).to(where)
    found = series.marginals(x[order][None], long.interval(k + forced, k + forced, x[None]))
    assert found is not None
    assert float(found.bound) < 1e-9
    values = torch.empty_like(x).scatter_(0, order, found.values[0]).cpu().numpy()
    truth = TwoKinds(m, 0.7, r, -1.3, k)
    np.testing.assert_allclose(values[:m], truth.a, rtol=1e-10)
    np.testing.assert_allclose(values[m : m + r], truth.b, rtol=1e-10)
    assert (values[m + r : m + r + forced] == 1.0).all()
    assert (values[m + r + forced :] == 0.0).all()
    far = x.clone()
    far[order[0]] = -800.0
    assert series.marginals(far[None], long.interval(k + forced, k + forced, x[None])) is None


@gpu
@pytest.mark.parametrize(("batch", "n", "k"), [(64, 512, 51), (16, 1000, 500), (4, 3000, 30), (2, 6000, 600)])
def test_large_rows_against_the_recursion(batch, n, k):
    x = doubles(batch, n)
    found = ttt.marginals(x.cuda(), tt.exactly(k)).cpu()
    engine = torch.from_numpy(np.array(tt.CountModel(x.numpy(), tt.exactly(k)).marginals))
    torch.testing.assert_close(found, engine, rtol=1e-9, atol=0.0)
    narrow = ttt.marginals(x.float().cuda(), tt.exactly(k)).cpu()
    torch.testing.assert_close(narrow.double(), engine, rtol=1e-4, atol=1e-6)


@gpu
@pytest.mark.parametrize("n", [1 << 16, 1 << 20, 1 << 23])
def test_one_long_model_sums_to_its_count(n):
    x = torch.randn(n, dtype=torch.float64, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    found = ttt.marginals(x, tt.exactly(n // 10))
    assert float(found.sum()) == pytest.approx(n // 10, rel=1e-12)
    # All odds under one tilt, up to corrections of order 1 / n: the law of large numbers of the conditioned model.
    shift = (torch.logit(found) - x).double()
    assert float(shift.std()) < 50.0 / n


@gpu
def test_gradients_of_one_long_model_need_no_tree():
    n = 1 << 20
    x = doubles(n).cuda().requires_grad_()
    weights = doubles(n, seed=1).cuda()
    (ttt.marginals(x, tt.exactly(n // 10)) * weights).sum().backward()
    assert torch.cuda.max_memory_allocated() < 8e9
    # The marginals sum to k whatever the log-odds, and a covariance matrix is positive.
    assert abs(float(x.grad.sum())) < 1e-8 * float(x.grad.abs().sum())
    assert float((x.grad * weights).sum()) > 0.0


@gpu
def test_no_row_waits_for_the_host():
    x = doubles(256, 200).cuda()
    ttt.marginals(x, tt.exactly(20))
    with torch.profiler.profile() as seen:
        ttt.marginals(x, tt.exactly(20))
    copies = [e for e in seen.events() if "Memcpy DtoH" in e.name]
    assert len(copies) <= 3


@pytest.mark.parametrize("shape", [(5,), (3, 40)])
@pytest.mark.parametrize("everywhere", [True, False], ids=["all", "one"])
def test_nan_among_the_logits_is_refused(where, shape, everywhere):
    x = doubles(*shape)
    x[..., : None if everywhere else 1] = math.nan
    for groups in (tt.exactly(2), tt.between(1, 3)):
        for function in (ttt.marginals, ttt.log_partition, ttt.sample):
            with pytest.raises(tt.ParameterError, match="NaN"):
                function(x.to(where), groups)
