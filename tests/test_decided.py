"""Log-odds far from one another, and directions of which nothing is left, against recursions in long doubles."""

from __future__ import annotations

import math
import time
import warnings

import numpy as np
import pytest

import tallytree as tt
from contract import assert_contract
from oracle import enumerate_model
from oracle_chains import log_space_chain
from tallytree import config
from tallytree.engine import native, thresholds
from tallytree.engine.count import derivatives, flat, infer

N = 72

LOGITS = {
    "sd 1e6": lambda rng, n: 1e6 * rng.normal(size=n),
    "1000 cauchy": lambda rng, n: 1000.0 * rng.standard_cauchy(n),
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
    "mask": lambda rng, n: np.where(rng.random(n) < 0.5, rng.normal(size=n), -1e9),
    "masks": lambda rng, n: rng.choice(
        [-1e4, 0.3, -1.0, 1e3, -math.inf], p=[0.3, 0.3, 0.2, 0.1, 0.1], size=n
    ),
    "wide": lambda rng, n: np.linspace(-700.0, 700.0, n),
    "pairs": lambda rng, n: np.repeat(1e5 * rng.normal(size=n // 2), 2),
}
TABLES = {
    "exactly": lambda n: tt.exactly(n // 3).log_table(n),
    "one": lambda n: tt.exactly(1).log_table(n),
    "all but one": lambda n: tt.exactly(n - 1).log_table(n),
    "between": lambda n: tt.between(n // 4, n // 3).log_table(n),
    "two modes": lambda n: tt.one_of([1, n - 2]).log_table(n),
    "noise": lambda n: 100.0 * np.random.default_rng(n).normal(size=n + 1),
    "uniform": lambda n: np.zeros(n + 1),
}


def leave_one_out(nu):
    """Log e_c of all variables but one, (n, n), in long doubles; infinite log-odds as theirs."""
    n = len(nu)
    out = np.full((n, n + 1), -np.inf, np.longdouble)
    out[:, 0] = 0.0
    for j, x in enumerate(nu.astype(np.longdouble)):
        if x == -np.inf:
            continue
        up = np.full_like(out, -np.inf)
        up[:, 1:] = out[:, :-1] + (0.0 if x == np.inf else x)
        new = up if x == np.inf else np.logaddexp(out, up)
        new[j] = out[j]
        out = new
    return out[:, :n]


def log_sum(x):
    top = x.max(1, keepdims=True)
    return top[:, 0] + np.log(np.exp(x - np.where(np.isfinite(top), top, 0.0)).sum(1))


def posterior(nu, table):
    with np.errstate(all="ignore"):
        others, f = leave_one_out(nu), table.astype(np.longdouble)
        return nu.astype(np.longdouble) + log_sum(others + f[1:]) - log_sum(others + f[:-1])


def possible(nu, table):
    low, high = np.count_nonzero(nu == math.inf), np.count_nonzero(nu > -math.inf)
    return np.any(table[low : high + 1] > -math.inf)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("logits", LOGITS)
def test_posteriors_keep_the_contract_and_their_bound(logits, table):
    nu, f = LOGITS[logits](np.random.default_rng(3), N), TABLES[table](N)
    if not possible(nu, f):
        pytest.skip("impossible")
    model = tt.CountModel(nu, f)
    want, found = posterior(nu, f), model.posterior_logits
    finite = np.isfinite(nu)
    np.testing.assert_array_equal(np.isfinite(found)[finite], np.isfinite(want)[finite])
    known = finite & np.isfinite(want)
    error = np.abs(found[known] - want[known])
    rounded = np.spacing(np.abs(nu[known]))  # messages are as large as log-odds
    assert (error <= np.maximum(1e-9, 1e-10 * np.abs(want[known])) + rounded).all()
    assert (error <= model.error_bound + 1e-15 * np.abs(want[known]) + rounded).all()


@pytest.mark.parametrize("direction", ["ones", "random"])
@pytest.mark.parametrize("table", ["exactly", "one", "noise", "uniform"])
@pytest.mark.parametrize("logits", ["sd 1e6", "cauchy", "mask", "wide"])
def test_products_are_right_on_the_scale_of_the_direction(logits, table, direction):
    rng = np.random.default_rng(4)
    nu, f = LOGITS[logits](rng, N), TABLES[table](N)
    if not possible(nu, f):
        pytest.skip("impossible")
    v = np.ones(N) if direction == "ones" else rng.normal(size=N)
    found = tt.CountModel(nu, f).hessian_vector_product(v, counts=False).logits
    step = np.longdouble(2.0) ** -20  # moves no digit of what it is added to
    wide, moved = nu.astype(np.longdouble), step * v.astype(np.longdouble)
    with np.errstate(all="ignore"):
        middle, slope = (
            posterior(wide, f),
            (posterior(wide + moved, f) - posterior(wide - moved, f)) / (2 * step),
        )
        spread = 1.0 / ((1.0 + np.exp(middle)) * (1.0 + np.exp(-middle)))
    want = np.where(spread > 0, spread * np.where(np.isfinite(slope), slope, 0.0), 0.0)
    allowed = np.maximum(1e-10 * np.abs(v).max() * np.sqrt(spread), 1e-9 * np.abs(want))
    noise = np.finfo(np.longdouble).eps * 1e3 * (1.0 + np.abs(nu).max()) / step * spread + 1e-10 * np.abs(
        want
    )
    assert (np.abs(found - want) <= allowed + noise).all()


def test_a_core_holds_what_is_open_and_one_of_each_side():
    nu = np.concatenate([np.full(40, -1e9), np.random.default_rng(0).normal(size=10), np.full(50, 1e6)])
    core = flat.core_of(nu, tt.exactly(55).log_table(100))
    if config.native() is None:
        assert core is None
        return
    assert len(core.kept) == 12
    assert core.first == 49
    assert core.on.sum() == 49
    assert (core.rows.nu[0] == nu[core.kept]).all()
    assert np.isfinite(core.log_weight)
    assert flat.core_of(np.random.default_rng(0).normal(size=500), np.zeros(501)) is None


@pytest.mark.parametrize("logits", ["sd 1e6", "1000 cauchy", "mask"])
def test_samples_of_far_log_odds_follow_their_marginals(logits):
    nu = LOGITS[logits](np.random.default_rng(5), 3000)
    model = tt.CountModel(nu, tt.exactly(1000))
    drawn = model.sample(400, rng=6)
    assert (drawn.sum(-1) == 1000).all()
    sure = np.abs(model.posterior_logits) > 40.0
    assert (drawn[:, sure] == (model.posterior_logits[sure] > 0.0)).all()
    seen, p = drawn.mean(0), model.marginals
    assert (np.abs(seen - p) <= 6.0 * np.sqrt(p * (1.0 - p) / 400) + 1e-12).all()


@pytest.mark.parametrize("logits", ["sd 1e6", "1000 cauchy", "masks"])
def test_samples_of_nested_groups_with_far_log_odds_follow_their_marginals(logits):
    nu = LOGITS[logits](np.random.default_rng(5), 1200)
    groups = [tt.Group(range(600), tt.between(150, 200)), tt.Group(None, tt.exactly(400))]
    model = tt.CountModel(nu, groups)
    drawn = model.sample(400, rng=6)
    assert (drawn.sum(-1) == 400).all()
    assert ((drawn[:, :600].sum(-1) >= 150) & (drawn[:, :600].sum(-1) <= 200)).all()
    sure = np.abs(model.posterior_logits) > 40.0
    assert (drawn[:, sure] == (model.posterior_logits[sure] > 0.0)).all()
    seen, p = drawn.mean(0), model.marginals
    assert (np.abs(seen - p) <= 6.0 * np.sqrt(p * (1.0 - p) / 400) + 1e-12).all()


@pytest.mark.parametrize("logits", LOGITS)
def test_long_models_agree_with_recursions_at_chosen_variables(logits):
    rng, k = np.random.default_rng(7), 30
    nu = LOGITS[logits](rng, 6000)
    model = tt.CountModel(nu, tt.exactly(k))
    order = np.argsort(nu)
    chosen = np.array([order[-1], order[-k], order[-k - 1], order[-2 * k], order[3]])
    chosen = chosen[np.isfinite(nu[chosen])]
    weights = nu.astype(np.longdouble)
    for i in chosen.tolist():
        others = np.full(k + 1, -np.inf, np.longdouble)
        others[0] = 0.0
        with np.errstate(all="ignore"):
            for x in np.delete(weights, i):
                others[1:] = np.logaddexp(others[1:], others[:-1] + x)
        want = weights[i] + others[k - 1] - others[k]
        assert abs(model.posterior_logits[i] - want) <= max(1e-9, 1e-10 * abs(want))


@pytest.mark.parametrize("seed", [0, 2, 6, 8])
def test_two_far_counts_of_which_one_decides(seed):
    n = 6000
    nu = 1000.0 * np.random.default_rng(seed).standard_cauchy(n)
    model = tt.CountModel(nu, tt.one_of([1, n - 2]))
    order = np.argsort(nu)
    for i in [*order[:4].tolist(), int(order[n // 2]), *order[-3:].tolist()]:
        others = np.delete(nu, i).astype(np.longdouble)
        off = np.full(3, -np.inf, np.longdouble)  # e_0, e_1 and e_2 of the inverse weights
        off[0] = 0.0
        with np.errstate(all="ignore"):
            for x in others:
                off[1:] = np.logaddexp(off[1:], off[:-1] - x)
        want = nu[i] + np.logaddexp(0.0, others.sum() + off[2])
        want -= np.logaddexp(np.logaddexp.reduce(others), others.sum() + off[1])
        error, rounded = abs(model.posterior_logits[i] - want), np.spacing(np.abs(nu).max())
        assert error <= max(1e-9, 1e-10 * abs(want)) + rounded
        assert error <= model.error_bound + 1e-15 * abs(want) + rounded


@pytest.mark.skipif(config.native() is None, reason="array code finds no core")
def test_a_count_that_no_variable_sees_leaves_a_core():
    n = 6000
    nu = 1000.0 * np.random.default_rng(8).standard_cauchy(n)
    core = flat.core_of(nu, tt.one_of([1, n - 2]).log_table(n))
    assert core is not None
    assert len(core.kept) < 20


@pytest.mark.skipif(config.native() is None, reason="array code finds no core")
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_core_is_found_where_only_the_farthest_variables_may_be_on(most, mirrored):
    n = 300
    nu = np.random.default_rng(8).standard_cauchy(n) * 100.0
    f = tt.at_most(most).log_table(n)
    exact = posterior(nu, f)
    if mirrored:
        nu, f, exact = -nu, f[::-1].copy(), -exact
    core = flat.core_of(nu, f)
    assert core is not None
    assert len(core.kept) < 20
    model = tt.CountModel(nu, f)
    np.testing.assert_allclose(model.posterior_logits, exact.astype(float), rtol=1e-10, atol=1e-9)


@pytest.mark.skipif(config.native() is None, reason="array code has no such promise")
def test_no_input_costs_more_than_some_tens_of_usual_products():
    n, rng = 20_000, np.random.default_rng(8)

    def seconds(nu, f, v):
        start = time.process_time()
        tt.CountModel(nu, f).hessian_vector_product(v, counts=False)
        return time.process_time() - start

    usual, v, c = rng.normal(size=n), rng.normal(size=n), np.arange(n + 1.0)
    unit = min(seconds(usual, tt.exactly(n // 3), v) for _ in range(5))
    for nu, f, along in (
        (usual, tt.between(n // 4, n // 3), np.ones(n)),
        (usual, 1e-3 * (c - n / 3) ** 2, v),
        (usual, np.where(c == n - 3, 0.5 * n, 0.0), np.ones(n)),
        (usual, tt.gaussian(n / 3, 3.0), np.ones(n)),
        (rng.standard_cauchy(n), tt.exactly(n - 1), v),
        (1e6 * usual, tt.exactly(n // 3), v),
    ):
        assert min(seconds(nu, f, along) for _ in range(3)) < 100.0 * unit


@pytest.mark.parametrize("n", [1000, 9000])
@pytest.mark.parametrize("scale", [100.0, 1e4, 1e6])
def test_log_odds_that_cancel_leave_log_partition_its_digits(n, scale):
    x = np.random.default_rng(n).normal(size=n) * scale
    x[-1] = -math.fsum(x[:-1])
    truth = math.fsum(x)
    for nu in (x, np.linspace(-scale, scale, n)):
        model = tt.CountModel(nu, tt.exactly(n))
        error = abs(model.log_partition - math.fsum(nu))
        assert error <= model.error_bound
        assert error <= 1e-10 * (1.0 + abs(truth))
        assert model.entropy == pytest.approx(0.0, abs=1e-12)
        assert model.kl_divergence(tt.CountModel(nu + 1.0, tt.exactly(n))) <= 1e-15


@pytest.mark.parametrize("scale", [0.0, 1e-5, 1e-2, 1.0])
def test_divergences_of_softmax_models_keep_their_digits(scale):
    rng, n = np.random.default_rng(9), 3000
    x, u = rng.normal(size=n), rng.normal(size=n)
    p, q = (np.exp(y.astype(np.longdouble)) for y in (x, x + scale * u))
    p, q = p / p.sum(), q / q.sum()
    r = q / p - 1.0
    want = float((p * (r - np.log1p(r))).sum())  # sum of p (q / p - 1 - log q / p)
    found = tt.CountModel(x, tt.exactly(1)).kl_divergence(tt.CountModel(x + scale * u, tt.exactly(1)))
    assert found == pytest.approx(want, rel=1e-8, abs=1e-15)


@pytest.mark.skipif(config.native() is None, reason="the compiled engine's last rungs")
def test_work_in_quadratic_time_is_announced_at_the_line_that_asks(monkeypatch):
    monkeypatch.setattr("tallytree.engine.ladder._LONG", 1e-3)
    n, rng = 4200, np.random.default_rng(12)
    groups = [
        tt.Group(range(n // 2), 1e4 * rng.normal(size=n // 2 + 1)),
        tt.Group(None, 1e4 * rng.normal(size=n + 1)),
    ]
    model = tt.CountModel(rng.normal(size=n), groups)
    with pytest.warns(tt.SlowWarning, match="pairs of counts, about") as caught:
        model.marginals  # noqa: B018
    assert caught[0].filename == __file__


def test_samples_in_quadratic_time_are_announced_at_the_line_that_asks(monkeypatch):
    monkeypatch.setattr("tallytree.engine.ladder._LONG", 1e-4)
    n, rng = 2400, np.random.default_rng(12)
    nu = rng.normal(size=n)

    def model(inner):
        return tt.CountModel(nu, [tt.Group(range(n // 2), inner), tt.Group(None, tt.at_most(n // 2))])

    with warnings.catch_warnings():
        warnings.simplefilter("error", tt.SlowWarning)
        for smooth in (tt.uniform(), tt.between(100, 200), rng.normal(size=n // 2 + 1)):
            model(smooth).sample(rng=1)
    for rough in (tt.one_of([100, 900]), 1e-2 * (np.arange(n // 2 + 1.0) - 200.0) ** 2):
        with pytest.warns(tt.SlowWarning, match="A sample needs .* has holes or a wide range") as caught:
            model(rough).sample(rng=1)
        assert caught[0].filename == __file__


@pytest.mark.skipif(config.native() is None, reason="the compiled engine's ladder")
@pytest.mark.parametrize("draw", ["standard_normal", "standard_cauchy"])
def test_high_tables_are_solved_without_their_height(monkeypatch, draw):
    monkeypatch.setattr("tallytree.engine.native.tree_pass", None)
    monkeypatch.setattr("tallytree.engine.native.tree_tangent", None)
    n, rng = 50_000, np.random.default_rng(50_000)
    nu, table, v = getattr(rng, draw)(n), 1e-3 * (np.arange(n + 1.0) - n / 3) ** 2, rng.normal(size=n)
    high, low = tt.CountModel(nu, table), tt.CountModel(nu, table - table[-1])
    np.testing.assert_allclose(high.posterior_logits, low.posterior_logits, rtol=0.0, atol=1e-9)
    assert high.log_partition == pytest.approx(low.log_partition + table[-1], rel=1e-14)
    found, right = (m.hessian_vector_product(v, counts=False).logits for m in (high, low))
    np.testing.assert_allclose(found, right, rtol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_rare_states_are_those_of_the_other_mode_where_that_is_likelier(seed):
    # One on or two off, in closed form: the other mode may hold e^-1000 of the weight and still decide small odds.
    n = 1000
    nu = np.random.default_rng(seed).standard_cauchy(n)
    x = nu.astype(np.longdouble)
    others = lambda y: np.array([np.logaddexp.reduce(np.delete(y, i)) for i in range(n)])  # noqa: E731
    off_too = x.sum() - x + others(-x)  # log-weights of two off, i among them
    pairs = np.logaddexp.reduce(off_too) - np.log(np.longdouble(2.0))  # of all that have two off
    seldom = off_too - pairs < -1.0  # elsewhere the difference below cancels
    on = np.logaddexp(x, pairs + np.log1p(-np.exp(np.where(seldom, off_too - pairs, -1.0))))
    want = (on - np.logaddexp(others(x), off_too))[seldom]
    found = tt.CountModel(nu, tt.one_of([1, n - 2])).posterior_logits[seldom]
    assert seldom.sum() > 900
    assert (np.abs(found - want) <= np.maximum(1e-9, 1e-10 * np.abs(want))).all()


@pytest.mark.skipif(config._extension is None, reason="the compiled engine is not there")
@pytest.mark.parametrize("counts", [lambda n: [1, n - 2], lambda n: [0, 5, n]])
def test_a_few_counts_far_apart_are_as_many_models(counts, monkeypatch):
    """Under Cauchy log-odds they cost a tree of all counts, 250 inferences at 2 x 10^4."""
    n, trees = 1000, infer._tree_rungs
    nu, potential = np.random.default_rng(n).standard_cauchy(n), tt.one_of(counts(n))

    def small_trees(program, *rest):
        assert program.n_leaves < 100
        return trees(program, *rest)

    def refuse(*_):
        raise AssertionError("a derivative in quadratic time")

    monkeypatch.setattr(infer, "_tree_rungs", small_trees)
    monkeypatch.setattr(derivatives, "_array_nested", refuse)
    model = tt.CountModel(nu, potential)
    log_mean, messages, log_pmf = log_space_chain(nu, potential.log_table(n))
    posterior = np.asarray(log_pmf + potential.log_table(n) - log_mean, float)
    np.testing.assert_allclose(model.posterior_logits, nu + messages, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(model._solved.sums.log_mean[0], float(log_mean), rtol=1e-12)
    found = model.hessian_vector_product(np.ones(n))
    probs, count = np.exp(posterior), np.arange(n + 1.0)
    np.testing.assert_allclose(found.tables[0], probs * (count - probs @ count), atol=1e-10)


@pytest.mark.parametrize("seed", range(12))
def test_stretches_that_forced_variables_exclude_say_nothing(seed, monkeypatch):
    """Their messages are NaN: a sum of logarithms overflowed, and derivatives were NaN."""
    rng = np.random.default_rng(seed)
    n = 12
    nu = 300.0 * rng.standard_normal(n)
    nu[rng.permutation(n)[:4]] = np.inf if seed % 2 else -np.inf
    table = 1000.0 * rng.standard_normal(n + 1)
    table[[1, 6, 10]] = -np.inf  # possible: 0, 2 to 5, 7 to 9, 11 and 12
    answer = infer._by_stretches(nu[None], table, cavities=False)
    want = enumerate_model(nu, [(range(n), table)])
    assert_contract(nu + answer.messages[0], want.posterior_logits)
    assert answer.bound[0] < 1e-9
    assert infer._by_stretches(nu[None], table, cavities=True) is None
    monkeypatch.setattr(derivatives, "_flat_rung", derivatives._by_stretches)
    v = rng.standard_normal(n)
    found = tt.CountModel(nu, table).hessian_vector_product(v)
    np.testing.assert_allclose(found.logits, want.covariance @ v, atol=1e-9)
    probs, score = np.exp(want.log_probs), want.states @ v
    moved = np.bincount(want.states.sum(1), probs * (score - probs @ score), n + 1)
    np.testing.assert_allclose(found.tables[0], moved, atol=1e-9)


@pytest.mark.parametrize("engine", ["native", "array"])
def test_a_forced_variable_hears_of_the_stretch_that_it_excludes(engine):
    """Its message leaves its own log-odds out: with it off the count 0 is possible (fuzz: counts, 27002, 136)."""
    table = np.array([749.25, -np.inf, -499.5, 749.25])
    with config.using(engine=engine):
        found = tt.CountModel([-749.0, np.inf, 0.0], table).cavity_logits
    # On: both others on, exp(0.25), and one of them, exp(-499.5); off: none, exp(749.25).
    np.testing.assert_allclose(found[1], 0.25 - 749.25, rtol=1e-13)


@pytest.mark.parametrize("seed", range(4))
def test_one_stretch_that_outweighs_the_others_needs_no_tree(seed, monkeypatch):
    """1 or n - 2 under 1000 Cauchy log-odds took a thousand inferences: log Z is rounded by more than a certificate."""
    rng = np.random.default_rng(seed)
    n = 600
    nu = 1000.0 * rng.standard_cauchy(n)
    nu[:3] = [[-np.inf, np.inf, 5e5], [5e5, -5e5, 0.0]][seed % 2]
    potential = tt.one_of([2, n - 2])
    table = potential.log_table(n)
    monkeypatch.setattr(thresholds, "SHORT_PASS", 100)
    quadratic, sizes = infer._last_rung, []
    monkeypatch.setattr(infer, "_last_rung", lambda p: sizes.append(p.n_leaves) or quadratic(p))
    model = tt.CountModel(nu, potential)
    log_mean, messages, log_pmf = log_space_chain(nu, table)
    assert_contract(model.posterior_logits, nu + messages)
    assert max(sizes, default=0) < n // 2  # that of the few undecided variables
    free = np.logaddexp(0.0, nu[np.isfinite(nu)]).sum()
    assert model.log_partition == pytest.approx(float(log_mean) + free, rel=1e-12)
    posterior = np.exp(np.asarray(log_pmf + table - log_mean, float))
    np.testing.assert_allclose(np.exp(model.count_log_probs()), posterior, atol=1e-9)
    drawn = model.sample(3, rng=seed).sum(-1)
    assert set(drawn.tolist()) <= set(np.flatnonzero(posterior > 1e-12).tolist())
    v = rng.standard_normal(n)
    assert posterior.max() > 1.0 - 1e-12  # so the others do not matter
    alone = tt.CountModel(nu, tt.exactly(int(posterior.argmax())))
    np.testing.assert_allclose(
        model.hessian_vector_product(v).logits, alone.hessian_vector_product(v).logits, atol=1e-9
    )


@pytest.mark.skipif(config.native() is None, reason="array code finds no core")
def test_far_log_odds_are_left_out_before_anything_else_is_tried(monkeypatch):
    n, widths, solve = 800, [], native.flat
    logits = 1e6 * np.random.default_rng(8).normal(size=(3, n))
    monkeypatch.setattr(
        native, "flat", lambda rows, *a, **k: widths.append(rows.nu.shape[1]) or solve(rows, *a, **k)
    )
    model, threshold = tt.CountModel(logits, tt.exactly(n // 3)), np.sort(logits, 1)[:, -(n // 3), None]
    assert np.array_equal(model.marginals.round(12), logits >= threshold)
    assert np.abs(model.hessian_vector_product(np.ones((3, n)), counts=False).logits).max() < 1e-9
    assert max(widths) < 100
