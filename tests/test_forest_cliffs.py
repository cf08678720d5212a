"""Forests whose rare states, hubs, tables or weights are out of the reach of transforms."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy.special import expit

import tallytree as tt
from oracle_chains import log_space_chain
from tallytree import config
from tallytree.engine.arithmetic import ARITHMETICS, Fourier, LogSpace, Wide
from tallytree.engine.forest import ladder, tangent

INF = math.inf
native_only = pytest.mark.skipif(config._extension is None, reason="the compiled engine is not there")


def star(n, theta, table, coupling):
    pairs = np.stack([np.zeros(n - 1, int), np.arange(1, n)], -1)
    return tt.CountModel(theta, table, edges=tt.Forest(pairs, np.tile(coupling, (n - 1, 1, 1))))


def path(theta, tables, table):
    n = len(theta)
    pairs = np.stack([np.arange(n - 1), np.arange(1, n)], -1)
    return tt.CountModel(theta, table, edges=tt.Forest(pairs, tables))


def star_odds(theta, log_f, coupling):
    """Log-odds of a star: two models without edges, one for each state of the hub."""
    log_z, odds = [], []
    for hub in (0, 1):
        nu = theta[1:] + coupling[hub, 1] - coupling[hub, 0]
        constant = (len(theta) - 1) * coupling[hub, 0] + hub * theta[0]
        mean, message, _ = log_space_chain(nu, log_f[hub : len(theta) + hub])
        log_z.append(mean + np.logaddexp(0.0, nu.astype(np.longdouble)).sum() + constant)
        odds.append(nu + message)
    share = np.array(log_z)[:, None] - np.logaddexp(*log_z)
    on = np.logaddexp(*(share + -np.logaddexp(0.0, -np.array(odds))))
    off = np.logaddexp(*(share + -np.logaddexp(0.0, np.array(odds))))
    return np.concatenate([[log_z[1] - log_z[0]], on - off])


def arithmetic_of(model):
    return ARITHMETICS[int(model._solver.sums.arithmetic[0])]


def path_odds(theta, tables, log_f):
    """Log-odds of a path by sums over its states and counts from both ends, logarithms in extended precision."""
    n, real = len(theta), np.longdouble
    leaf = np.stack([np.zeros(n, real), theta.astype(real)], -1)
    tables, log_f = tables.astype(real), log_f.astype(real)

    def counted(row, by):
        """Weights (state, count) with the vertex itself in the count."""
        out = row.copy()
        out[1] = -INF
        out[1, max(by, 0) : n + 1 + min(by, 0)] = row[1, max(-by, 0) : n + 1 - max(by, 0)]
        return out

    with np.errstate(invalid="ignore"):
        ahead = np.full((n, 2, n + 1), -INF, real)  # the vertices up to i, given the state of i
        ahead[0, :, 0] = leaf[0]
        ahead[0] = counted(ahead[0], 1)
        for i in range(1, n):
            row = np.logaddexp(
                ahead[i - 1, 0] + tables[i - 1, 0][:, None], ahead[i - 1, 1] + tables[i - 1, 1][:, None]
            )
            ahead[i] = counted(row + leaf[i][:, None], 1)
        behind = np.broadcast_to(
            log_f, (2, n + 1)
        ).copy()  # what follows i, given its state and the count so far
        odds = np.empty(n)
        for i in reversed(range(n)):
            both = ahead[i] + behind
            top = both.max()
            total = np.log(np.exp(both - both.max(-1, keepdims=True)).sum(-1)) + both.max(-1)
            odds[i] = float(total[1] - total[0]) if top > -INF else np.nan
            if i:
                row = counted(behind + leaf[i][:, None], -1)
                behind = np.logaddexp(tables[i - 1, :, :1] + row[0], tables[i - 1, :, 1:] + row[1])
    return odds


def close(model, odds):
    error = np.abs(model.posterior_logits - odds)
    assert (error <= np.maximum(1e-9, 1e-10 * np.abs(odds))).all(), f"off by {error.max():.2g}"
    assert (error <= model.error_bound + 1e-14 * (1.0 + np.abs(odds))).all()


TABLES = {
    "exactly": lambda n: np.where(np.arange(n + 1) == n // 10, 0.0, -INF),
    "convex": lambda n: 0.05 * (np.arange(n + 1.0) - n / 3) ** 2,
    "spike": lambda n: np.where(np.arange(n + 1) == n - 3, 3000.0, 0.0),
    "gaussian": lambda n: -0.5 * ((np.arange(n + 1) - n / 3) / 3.0) ** 2,
}


@pytest.mark.parametrize("table", TABLES)
def test_a_hub_that_moves_the_count_is_two_models_without_it(table, monkeypatch):
    monkeypatch.setattr(ladder, "SMALL", 0)
    monkeypatch.setattr(ladder, "LONG", 0)
    n = 300
    theta, log_f = np.random.default_rng(1).normal(size=n), TABLES[table](n)
    coupling = np.array([[1.5, 0.0], [0.0, 1.5]])
    close(star(n, theta, log_f, coupling), star_odds(theta, log_f, coupling))


HARD = {
    "cauchy": lambda n, rng: np.where(
        np.arange(n) % 30 == 7, 300.0 * rng.standard_cauchy(n), rng.normal(size=n)
    ),
    "sd 100": lambda n, rng: 100.0 * rng.normal(size=n),
    "sd 10^4": lambda n, rng: 1e4 * rng.normal(size=n),
    "sorted": lambda n, rng: np.linspace(-700.0, 700.0, n),
    "mask": lambda n, rng: np.where(rng.random(n) < 0.5, -1e9, rng.normal(size=n)),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("weights", HARD)
def test_hard_weights_on_a_path_stay_in_the_contract(weights, table, monkeypatch):
    monkeypatch.setattr(ladder, "SMALL", 0)
    monkeypatch.setattr(ladder, "LONG", 0)
    n, rng = 200, np.random.default_rng(2)
    theta, tables, log_f = HARD[weights](n, rng), rng.normal(size=(n - 1, 2, 2)), TABLES[table](n)
    close(path(theta, tables, log_f), path_odds(theta, tables, log_f))


@native_only
@pytest.mark.parametrize(("weights", "n"), [*((w, 3000) for w in HARD), ("mask", 1000)])
def test_no_logarithms_are_needed_for_hard_weights(weights, n):
    rng = np.random.default_rng(3)
    model = path(HARD[weights](n, rng), rng.normal(size=(n - 1, 2, 2)), tt.exactly(n // 10))
    assert arithmetic_of(model) is not LogSpace
    hub = star(n, rng.normal(size=n), tt.exactly(n // 10), np.eye(2))
    assert arithmetic_of(hub) is Wide


POSSIBLE = {
    "all but one": lambda n, rng: np.where(np.arange(n + 1) == n - 1, 0.0, -INF),
    "1 or n-2": lambda n, rng: np.where(np.isin(np.arange(n + 1), [1, n - 2]), 0.0, -INF),
    "holes": lambda n, rng: np.where(rng.random(n + 1) < 0.3, -INF, 1e4 * rng.normal(size=n + 1)),
    "half": lambda n, rng: np.where(np.arange(n + 1) == n // 2, 0.0, -INF),
}
FAR = {
    "cauchy": lambda n, rng: 1000.0 * rng.standard_cauchy(n),
    "sd 10^6": lambda n, rng: 1e6 * rng.normal(size=n),
    "normal": lambda n, rng: rng.normal(size=n),
}


@native_only
@pytest.mark.parametrize("table", POSSIBLE)
@pytest.mark.parametrize("weights", FAR)
def test_an_exponent_for_every_count_holds_all_states(weights, table, monkeypatch):
    monkeypatch.setattr(ladder, "infer", lambda problem, known=None: ladder._certain(problem))
    monkeypatch.setattr("tallytree.engine.forest.solver.infer", ladder.infer)
    n, rng = 300, np.random.default_rng(6)
    theta, tables, log_f = (
        FAR[weights](n, rng),
        30.0 * rng.normal(size=(n - 1, 2, 2)),
        POSSIBLE[table](n, rng),
    )
    model = path(theta, tables, log_f)
    assert arithmetic_of(model) is Wide
    odds = path_odds(theta, tables, log_f)
    close(model, odds)
    drawn = model.sample(50, rng=7)
    assert (log_f[drawn.sum(1)] > -INF).all()
    decided = np.abs(odds) > 50.0
    assert (drawn[:, decided] == (odds > 0.0)[decided]).all()


@native_only
@pytest.mark.parametrize("states", [2, 3])
def test_an_exponent_for_every_count_says_what_logarithms_say(states):
    n, rng = 500, np.random.default_rng(8)
    unary, steps = 300.0 * rng.standard_cauchy((n, states)), rng.normal(size=(states, states))
    problem = tt.ChainModel(unary, steps, tt.at_most(n // 3))._solver.problem
    none = np.zeros((1, 1))
    found, wanted = (ladder.run(problem, none, kind) for kind in (Wide, LogSpace))
    for name in ("messages", "log_edges", "log_beliefs", "log_mean"):
        a, b = getattr(found, name), getattr(wanted, name)
        if name == "messages":
            a, b = (x - x.max(axis=2, keepdims=True) for x in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=found.bound[0])


# -- products ----------------------------------------------------------------------------------------------------

SMOOTH = {**TABLES, "random": lambda n: np.random.default_rng(4).normal(size=n + 1)}


@pytest.mark.parametrize("table", SMOOTH)
@pytest.mark.parametrize("hub", [False, True])
def test_products_are_those_of_conditional_models(table, hub):
    n, rng = 600, np.random.default_rng(5)
    theta, log_f = rng.normal(size=n), SMOOTH[table](n)
    theta[[5, 40, 333]] = [-200.0, 35.0, 1000.0]
    tables = rng.normal(size=(n - 1, 2, 2))
    model = star(n, theta, log_f, np.eye(2)) if hub else path(theta, tables, log_f)
    v = np.zeros(n)
    v[[7, 40, 41, 500]] = [1.0, -2.0, 0.5, 1.5]
    place = np.flatnonzero(v)
    exact = v[place] @ model.covariance(place)
    p = model.marginals
    allowed = 1e-10 * 2.0 * np.sqrt(p * (1.0 - p)) + 1e-9 * np.abs(exact) + 1e-14
    assert (np.abs(model.hessian_vector_product(v).logits - exact) <= allowed).all()


def test_along_the_count_that_is_fixed_nothing_moves():
    n = 600
    model = star(n, np.random.default_rng(6).normal(size=n), tt.exactly(60), np.eye(2))
    moved = model.hessian_vector_product(np.ones(n))
    assert not moved.logits.any()
    assert not np.asarray(moved.tables[0]).any()


# -- large numbers that cancel -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [40, 1000])
def test_tables_that_override_huge_log_odds_leave_all_digits(n):
    rng = np.random.default_rng(8)
    huge = np.round(1e5 * rng.normal(size=n))
    huge[0] = 0.0
    small = np.round(2.0**16 * rng.normal(size=(n - 1, 2, 2))) / 2.0**16  # so that all sums below are exact
    tables = small.copy()
    tables[:, :, 1] -= huge[1:, None]
    plain, same = (path(*x, tt.exactly(n // 4)) for x in ((np.zeros(n), small), (huge, tables)))
    y = plain.sample(3, rng=0)
    np.testing.assert_allclose(same.log_prob(y), plain.log_prob(y), rtol=1e-10)
    np.testing.assert_allclose(same.log_partition, plain.log_partition, rtol=1e-10)


@native_only
def test_divergences_of_near_models_need_no_logarithms():
    n, rng = 3000, np.random.default_rng(9)
    theta, tables, v = rng.normal(size=n), rng.normal(size=(n - 1, 2, 2)), rng.normal(size=n)
    model = path(theta, tables, tt.exactly(n // 10))
    with warnings.catch_warnings():
        warnings.simplefilter("error", tt.SlowWarning)
        near = model.kl_divergence(path(theta + 1e-5 * v, tables, tt.exactly(n // 10)))
        shifted = model.kl_divergence(path(theta + 1.0, tables, tt.exactly(n // 10)))
    assert near == pytest.approx(0.5e-10 * v @ model.hessian_vector_product(v).logits, rel=1e-4)
    assert abs(shifted) < 1e-15


@native_only
def test_work_in_quadratic_time_is_announced(monkeypatch):
    n = 8000
    chain = tt.ChainModel(np.random.default_rng(10).normal(size=(n, 2)), np.zeros((2, 2)), tt.exactly(n // 3))

    class Enough(Exception):
        pass

    def stop(*_):
        raise Enough

    module = "tallytree.engine.forest.tangent"
    monkeypatch.setattr(f"{module}._in_plain_numbers", lambda problem, *_: np.arange(len(problem)))
    monkeypatch.setattr(f"{module}.log_derivatives", stop)
    with pytest.warns(tt.SlowWarning, match="pairs of counts"), pytest.raises(Enough):
        chain.hessian_vector_product(np.ones((n, 2)))


@native_only
def test_an_exponent_for_every_count_is_announced_where_it_takes_long(monkeypatch):
    monkeypatch.setattr(ladder, "ROWS", 1.0)
    n, rng = 3000, np.random.default_rng(11)
    model = star(n, rng.normal(size=n), tt.exactly(n // 3), np.eye(2))
    with pytest.warns(tt.SlowWarning, match="pairs of counts"):
        model.marginals  # noqa: B018


@native_only
@pytest.mark.parametrize("weights", ["cauchy", "sd 10^4", "sorted", "mask"])
def test_states_that_no_neighbour_makes_likely_leave_transforms_certain(weights):
    """The others have all that transforms can lose: no exponents for every count are needed."""
    n, rng = 3000, np.random.default_rng(12)
    theta = HARD[weights](n, rng)
    model = path(theta, rng.normal(size=(n - 1, 2, 2)), tt.exactly(n // 3))
    assert arithmetic_of(model) is Fourier
    assert model.error_bound < 1e-9 + 1e-14 * np.abs(theta).max()


WINDOWS = {
    "two counts": lambda n: np.where(np.isin(np.arange(n + 1), [1, n - 2]), 0.0, -INF),
    "two counts alike": lambda n: np.where(np.isin(np.arange(n + 1), [n // 4, n // 2]), 0.0, -INF),
    "spike": lambda n: np.where(np.arange(n + 1) == n - 3, 0.5 * n, 0.0),
    "all or none": lambda n: np.where(np.isin(np.arange(n + 1), [0, n]), 0.1 * n, 0.0),
    "convex": lambda n: 0.05 * (np.arange(n + 1.0) - n / 3) ** 2,
    "rough": lambda n: 1e3 * np.random.default_rng(n).normal(size=n + 1),
}


@native_only
@pytest.mark.parametrize("table", WINDOWS)
@pytest.mark.parametrize("spread", [0.3, 3.0, 100.0])
def test_tables_in_windows_are_mixtures_of_models_with_one(table, spread, monkeypatch):
    for name, value in {"SMALL": 0, "LONG": 0, "_APART": -INF, "_FEW": 0.0}.items():
        monkeypatch.setattr(ladder, name, value)
    n, rng = 70, np.random.default_rng(13)
    theta, tables, log_f = spread * rng.normal(size=n), rng.normal(size=(n - 1, 2, 2)), WINDOWS[table](n)
    close(path(theta, tables, log_f), path_odds(theta, tables, log_f))


@native_only
@pytest.mark.parametrize("table", WINDOWS)
def test_tables_in_windows_need_no_exponents_for_every_count(table, monkeypatch):
    n, rng = 3000, np.random.default_rng(14)
    theta, tables, log_f = rng.normal(size=n), 0.5 * rng.normal(size=(n - 1, 2, 2)), WINDOWS[table](n)
    wide = path(theta, tables, log_f)._solver.problem
    reference = ladder.run(wide, np.zeros((1, 1)), Wide)
    monkeypatch.setattr(ladder, "run", lambda problem, tilts, kind: refuse_wide(problem, tilts, kind))
    monkeypatch.setattr(ladder, "_FEW", 0.0)
    model = path(theta, tables, log_f)
    np.testing.assert_allclose(model._solver.sums.log_mean, reference.log_mean, rtol=1e-13)
    off = reference.messages[0, :, 1] - reference.messages[0, :, 0]
    np.testing.assert_allclose(model.posterior_logits, theta + off, rtol=1e-10, atol=1e-9)


@native_only
@pytest.mark.parametrize("table", WINDOWS)
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
def test_products_of_tables_in_windows_are_those_of_logarithms(table, spread, monkeypatch):
    """Two counts that are alike have a covariance between them: a mixture, in which rare states keep their digits."""
    n, rng = 300, np.random.default_rng(15)
    theta, tables, log_f = spread * rng.normal(size=n), rng.normal(size=(n - 1, 2, 2)), WINDOWS[table](n)
    if table == "two counts":  # as likely as one another
        at_one, at_most = (path(theta, tables, tt.exactly(k)).log_partition for k in (1, n - 2))
        log_f = log_f + np.where(np.arange(n + 1) == 1, at_most - at_one, 0.0)
    v = np.stack([rng.normal(size=n), np.ones(n)])
    with monkeypatch.context() as only:
        only.setattr(tangent, "log_derivatives", refuse)
        model = path(theta, tables, log_f)
        found = [model.hessian_vector_product(x, counts=False).logits for x in v]
    monkeypatch.setattr(tangent, "_in_plain_numbers", lambda problem, *_: np.arange(len(problem)))
    model = path(theta, tables, log_f)
    sd = np.sqrt(expit(model.posterior_logits) * expit(-model.posterior_logits))
    for x, change in zip(v, found):
        wanted = model.hessian_vector_product(x, counts=False).logits
        limit = np.maximum(1e-10 * np.abs(x).max() * sd, 1e-9 * np.abs(wanted))
        assert (np.abs(change - wanted) <= limit).all()


def refuse_wide(problem, tilts, kind, run=ladder.run):
    assert kind is not Wide, "an exponent for every count"
    return run(problem, tilts, kind)


# -- entropies ---------------------------------------------------------------------------------------------------


def refuse(*_):
    raise AssertionError("an entropy in quadratic time")


@native_only
@pytest.mark.parametrize("potential", [lambda n: tt.exactly(n // 3), lambda n: tt.between(n // 4, n // 3)])
def test_masks_cost_entropies_no_quadratic_time(potential, monkeypatch):
    """Far log-odds of states that are as good as impossible say nothing about the others."""
    n, rng = 1000, np.random.default_rng(7)
    theta, tables, off = rng.normal(size=n), rng.normal(size=(n - 1, 2, 2)), rng.random(n) < 0.5
    excluded = path(np.where(off, -INF, theta), tables, potential(n)).entropy
    monkeypatch.setattr("tallytree.engine.forest.entropy.entropy_by_parts", refuse)
    assert path(np.where(off, -1e9, theta), tables, potential(n)).entropy == pytest.approx(
        excluded, abs=1e-10 * (1.0 + excluded)
    )
    chain = tt.ChainModel(
        np.stack([np.zeros(n), np.where(off, -1e9, theta)], -1), [[0.5, -0.5], [-0.2, 0.3]], potential(n)
    )
    twin = tt.ChainModel(
        np.stack([np.zeros(n), np.where(off, -INF, theta)], -1), [[0.5, -0.5], [-0.2, 0.3]], potential(n)
    )
    assert chain.entropy == pytest.approx(twin.entropy, abs=1e-10 * (1.0 + twin.entropy))


def test_the_entropy_of_a_path_that_is_decided_is_zero():
    """Rounding of log Z at the size of the log-odds is no entropy: it was 5e-10."""
    n, rng = 1000, np.random.default_rng(1000)
    theta = 1e6 * rng.normal(size=n)
    assert path(theta, 0.5 * rng.normal(size=(n - 1, 2, 2)), tt.exactly(n // 3)).entropy < 1e-10


@native_only
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_rough_tables_take_transforms_without_a_tilt(scale):
    """Noise has its largest entry anywhere; the tilt that leads there is e^20 at the ends of the table."""
    n, rng = 4000, np.random.default_rng(11)
    theta, table = rng.normal(size=n), scale * rng.normal(size=n + 1)
    model = path(theta, np.zeros((n - 1, 2, 2)), table)
    assert model._solver.sums.arithmetic.tolist() == [ARITHMETICS.index(Fourier)]
    np.testing.assert_allclose(
        model.posterior_logits, tt.CountModel(theta, table).posterior_logits, rtol=1e-10, atol=1e-9
    )
    with pytest.raises(tt.InfeasibleError):
        path(np.where(np.arange(n) < 9, INF, theta), np.zeros((n - 1, 2, 2)), tt.exactly(3)).marginals  # noqa: B018
