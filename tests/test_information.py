"""Entropy and divergence against enumeration in high precision: never negative, no digits lost, supports decide."""

import math

import mpmath as mp
import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states
from tallytree import config
from tallytree.engine import divergence
from tallytree.engine.count import flat, information
from tallytree.engine.count.solver import CountSolver
from tallytree.engine.forest.entropy import entropy_by_parts
from tallytree.engine.problem import without_edges

ENGINES = ["array"] if config.native() is None else ["native", "array"]
FAMILIES = [
    [],
    [[0, 1, 2, 3]],
    [[0, 1], [0, 1, 2, 3]],
    [[0, 1, 2], [3, 4], [0, 1, 2, 3, 4]],
    [[0], [1, 2], [1, 2, 3]],
]


def log_weights(model):
    """Unnormalised log-weights of all configurations as exact sums, None for impossible ones."""
    logits = [float(x) for x in model.logits]
    tables = [(list(g), t.tolist()) for g, t in zip(model.tree.groups, model.tables)]
    found = []
    for y in all_states((2,) * len(logits)):
        terms = [x for x, on in zip(logits, y) if on and x != np.inf]
        terms += [t[sum(y[d] for d in g)] for g, t in tables]
        missing = any(x == np.inf and not on for x, on in zip(logits, y))
        found.append(None if missing or -np.inf in terms else mp.fsum(map(mp.mpf, terms)))
    return found


def normalised(weights):
    top = max(w for w in weights if w is not None)
    log_z = mp.log(mp.fsum(mp.exp(w - top) for w in weights if w is not None))
    return [None if w is None else w - top - log_z for w in weights]


def exact_entropy(model):
    return -mp.fsum(mp.exp(p) * p for p in normalised(log_weights(model)) if p is not None)


def exact_divergence(first, second):
    pairs = zip(normalised(log_weights(first)), normalised(log_weights(second)))
    terms = [(p, q) for p, q in pairs if p is not None]
    if any(q is None for _, q in terms):
        return mp.inf
    return mp.fsum(mp.exp(p) * (p - q) for p, q in terms)


def close(found, exact):
    if exact == mp.inf:
        return found == np.inf
    return found >= 0 and abs(mp.mpf(float(found)) - exact) <= max(mp.mpf("1e-10") * exact, mp.mpf("1e-13"))


def close_divergence(found, exact):
    if exact == mp.inf:
        return found == np.inf
    return found >= 0 and abs(mp.mpf(float(found)) - exact) <= max(mp.mpf("1e-9") * exact, mp.mpf("1e-15"))


def random_model(rng, groups, n=5):
    size = 10.0 ** rng.uniform(-3.0, 5.0)
    logits = rng.normal(size=n) * 10.0 ** rng.uniform(-2.0, 3.0)
    logits = np.where(rng.random(n) < 0.1, rng.choice([-np.inf, np.inf], n), logits)
    tables = [rng.normal(size=len(g) + 1) * size for g in groups]
    tables = [np.where(rng.random(len(t)) < 0.2, -np.inf, t) for t in tables]
    return tt.CountModel(logits, [tt.Group(g, t) for g, t in zip(groups, tables)])


@pytest.mark.parametrize("family", range(len(FAMILIES)))
def test_entropy_and_divergence_have_their_digits_whatever_the_size_of_the_tables(family):
    rng = np.random.default_rng(family)
    groups = FAMILIES[family]
    checked = 0
    with mp.workdps(50):
        while checked < 8:
            model, other = random_model(rng, groups), random_model(rng, groups)
            try:
                found, _ = model.entropy, other.log_partition
            except tt.InfeasibleError:
                continue
            checked += 1
            assert close(found, exact_entropy(model))
            assert close_divergence(model.kl_divergence(other), exact_divergence(model, other))
            moved = model.replace(logits=model.logits + 10.0 ** rng.uniform(-9, 0) * rng.normal(size=5))
            assert close_divergence(model.kl_divergence(moved), exact_divergence(model, moved))


@pytest.mark.parametrize("scale", [1e-7, 1e-4, 1e-2, 1.0])
def test_divergence_of_long_models_keeps_its_digits(scale):
    rng = np.random.default_rng(0)
    n = 20_000  # beyond what a sum over pairs of counts could serve
    x, u = (
        rng.normal(size=n),
        rng.normal(size=n) + 100.0,
    )  # a common shift of all log-odds says nothing about one of n
    p, q = (np.exp(z - z.max()) for z in (x.astype(np.longdouble), x + scale * u.astype(np.longdouble)))
    p, q = p / p.sum(), q / q.sum()
    gap = np.log(q / p)
    series = np.where(abs(gap) < 1e-3, gap**2 / 2 + gap**3 / 6 + gap**4 / 24, np.expm1(gap) - gap)
    model = tt.CountModel(x, tt.exactly(1))
    found = model.kl_divergence(model.replace(logits=x + scale * u))
    assert found == pytest.approx(float((p * series).sum()), rel=1e-9)


def test_divergence_of_long_nested_models_is_the_sum_of_their_parts():
    rng = np.random.default_rng(1)
    n, half = 6_000, 3_000
    x = rng.normal(size=n)
    y = x + 1e-6 * rng.normal(size=n)
    halves = [slice(0, half), slice(half, n)]
    parts = sum(
        tt.CountModel(x[h], tt.exactly(1)).kl_divergence(tt.CountModel(y[h], tt.exactly(1))) for h in halves
    )
    groups = [tt.Group(range(half), tt.exactly(1)), tt.Group(None, tt.exactly(2))]
    assert tt.CountModel(x, groups).kl_divergence(tt.CountModel(y, groups)) == pytest.approx(parts, rel=1e-9)


def test_entropy_of_near_deterministic_models_is_not_negative():
    with mp.workdps(60):
        for gap in (30.0, 100.0, 745.0, 2000.0):
            model = tt.CountModel(np.full(6, gap) + np.arange(6.0), tt.exactly(5))
            assert close(model.entropy, exact_entropy(model))
        table = 1e5 * np.cos(np.arange(7.0))
        model = tt.CountModel(np.linspace(-1.0, 1.0, 6), table)
        assert close(model.entropy, exact_entropy(model))


def test_entropy_of_a_decided_model_is_not_below_zero_by_rounding():
    table = [0.0, 0.0, 15.3, -0.7900720076687788, -np.inf]
    model = tt.CountModel([np.inf, np.inf, np.inf, -np.inf], table)
    assert 0.0 <= model.entropy < 1e-30


def test_entropy_of_a_batch_is_that_of_its_models():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 3, 5)) * np.array([1.0, 1e3, 1e4])[:, None]
    table = rng.normal(size=6) * 1e4
    batch = tt.CountModel(logits, table)
    other = tt.CountModel(logits[0, 0] + 1e-6, table)
    assert batch.entropy.shape == batch.kl_divergence(other).shape == (2, 3)
    for i in np.ndindex(2, 3):
        single = tt.CountModel(logits[i], table)
        np.testing.assert_allclose(batch.entropy[i], single.entropy, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(
            batch.kl_divergence(other)[i], single.kl_divergence(other), rtol=1e-9, atol=1e-13
        )
    assert other.kl_divergence(batch).shape == (2, 3)
    assert tt.CountModel(np.zeros((0, 4)), tt.exactly(1)).entropy.shape == (0,)
    assert tt.CountModel(np.zeros(0)).entropy == 0.0


def sums_with_energies(logits):
    """Weights of the counts of independent variables, and these times the expected log-weights, in high precision."""
    weights, energies = [mp.mpf(1)], [mp.mpf(0)]
    for x in map(mp.mpf, map(float, logits)):
        odds = mp.exp(x)
        moved = [odds * w for w in weights], [odds * (e + x * w) for e, w in zip(energies, weights)]
        weights = [a + b for a, b in zip([*weights, 0], [0, *moved[0]])]
        energies = [a + b for a, b in zip([*energies, 0], [0, *moved[1]])]
    return weights, energies


def under_table(laws, table):
    """The same under a table of the count."""
    tables = [mp.exp(mp.mpf(float(t))) for t in table]
    energies = [
        (e + mp.mpf(float(t)) * w) * f if f else mp.mpf(0) for w, e, t, f in zip(*laws, table, tables)
    ]
    return [w * f for w, f in zip(laws[0], tables)], energies


def together(a, b):
    """The same of two independent parts."""
    weights, energies = ([mp.mpf(0)] * (len(a[0]) + len(b[0]) - 1) for _ in range(2))
    for i, (w, e) in enumerate(zip(*a)):
        for j, (v, d) in enumerate(zip(*b)):
            weights[i + j] += w * v
            energies[i + j] += w * d + e * v
    return weights, energies


LONG = {  # beyond a walk over pairs of counts
    "a convex table, one end of which is the mode": lambda n, rng: (
        rng.normal(size=n),
        0.05 * (np.arange(n + 1.0) - n / 3) ** 2,
    ),
    "a convex table against wild log-odds": lambda n, rng: (
        rng.standard_cauchy(n) * 10,
        0.3 * (np.arange(n + 1.0) - n / 3) ** 2,
    ),
    "wild log-odds": lambda n, rng: (
        1000.0 * rng.standard_cauchy(n),
        np.where(np.arange(n + 1) == n // 3, 5e6, -np.inf),
    ),
    "a high table": lambda n, rng: (10.0 * rng.standard_cauchy(n), 1e7 + 0.1 * rng.normal(size=n + 1)),
    "a mask, and odd counts": lambda n, rng: (
        np.where(rng.random(n) < 0.5, -1e9, 3.0 * rng.normal(size=n)),
        np.where(np.arange(n + 1) % 2 == 1, 0.0, -np.inf),
    ),
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("nested", [False, True])
def test_entropy_of_long_models_has_its_digits_where_large_numbers_cancel(name, nested):
    n, half = 300, 150
    logits, table = LONG[name](n, np.random.default_rng(3))
    inner = np.random.default_rng(4).normal(size=half + 1) * 30.0
    with mp.workdps(60):
        laws = [sums_with_energies(part) for part in (logits[:half], logits[half:])]
        if nested:
            laws[0] = under_table(laws[0], inner)
        weights, energies = under_table(together(*laws), table)
        norm = mp.fsum(weights)
        exact = float(mp.log(norm) - mp.fsum(energies) / norm)
    groups = [tt.Group(range(half), inner)] if nested else []
    found = tt.CountModel(logits, [*groups, tt.Group(None, table)]).entropy
    assert found == pytest.approx(exact, rel=1e-10, abs=1e-13)


@pytest.mark.parametrize("gap", [800.0, 1e5])
def test_supports_decide_about_divergence_not_underflow(gap):
    # The second model excludes what the first allows with probability e^-gap.
    first = tt.CountModel([-gap, 0.0, 0.0])
    assert first.kl_divergence(tt.CountModel([-np.inf, 0.0, 0.0])) == np.inf
    assert first.kl_divergence(tt.CountModel([0.0, 0.0, 0.0], tt.at_most(2))) == np.inf
    assert tt.CountModel([gap, 0.0, 0.0]).kl_divergence(tt.CountModel([np.inf, 0.0, 0.0])) == np.inf
    soft = tt.CountModel(np.zeros(3), [0.0, 0.0, 0.0, -gap])
    assert soft.kl_divergence(tt.CountModel(np.zeros(3), tt.at_most(2))) == np.inf
    hard = tt.CountModel(np.zeros(3), tt.at_most(2))
    assert hard.kl_divergence(soft) == pytest.approx(0.0, abs=1e-13)


def test_supports_decide_about_divergence_of_large_nested_models():
    n = 5000
    table = np.zeros(n + 1)
    table[-1] = -1e4
    groups = [tt.Group(range(n // 2)), tt.Group(None, table)]
    model = tt.CountModel(np.full(n, -3.0), groups)
    assert model.kl_divergence(tt.CountModel(np.full(n, -3.0), tt.at_most(n - 1))) == np.inf
    assert np.isfinite(model.kl_divergence(tt.CountModel(np.full(n, -3.0))))


def exact_entropy_of_exactly_k(logits, k):
    """H from the recursion of elementary symmetric polynomials of the odds and of their weighted logarithms."""
    weight, score = [mp.mpf(1)] + [mp.mpf(0)] * k, [mp.mpf(0)] * (k + 1)
    for x in map(mp.mpf, logits.tolist()):
        odds = mp.exp(x)
        for c in range(k, 0, -1):
            score[c] += odds * (score[c - 1] + x * weight[c - 1])
            weight[c] += odds * weight[c - 1]
    return mp.log(weight[k]) - score[k] / weight[k]


@pytest.mark.parametrize(("n", "k", "spread"), [(40, 7, 1.0), (340, 20, 1.0), (600, 3, 8.0), (600, 30, 0.1)])
def test_entropy_of_long_models_from_expectations(n, k, spread):
    rng = np.random.default_rng(n)
    logits = spread * rng.normal(size=(3, n))
    found = tt.CountModel(logits, tt.exactly(k)).entropy
    with mp.workdps(40):
        for row, value in zip(logits, found):
            assert close(value, exact_entropy_of_exactly_k(row, k))


def test_rows_of_a_batch_that_lose_digits_do_not_change_the_others():
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(4, 6))
    logits[1] = 200.0 + np.arange(6.0)
    logits[3] = [np.inf, -np.inf, 0.0, 1e3, -1e3, 2.0]
    batch = tt.CountModel(logits, tt.between(2, 5))
    with mp.workdps(60):
        for i, row in enumerate(logits):
            assert close(batch.entropy[i], exact_entropy(tt.CountModel(row, tt.between(2, 5))))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", [2, 1000, 40_000])
def test_a_tiny_entropy_keeps_its_digits_at_every_size(n, engine):
    # One variable is on but for odds of (n - 1) e^-30: H = log(1 + odds) + 30 odds / (1 + odds).
    logits = np.full(n, -30.0)
    logits[0] = 0.0
    odds = (n - 1) * math.exp(-30.0)
    expected = math.log1p(odds) + 30.0 * odds / (1.0 + odds)
    with config.using(engine=engine):
        found = tt.CountModel(logits, tt.exactly(1)).entropy
    assert found == pytest.approx(expected, rel=1e-6 if n == 2 else 1e-10)


def test_a_tiny_entropy_of_large_log_odds_keeps_its_digits():
    # Two configurations, 40 nats apart, below common log-odds of 1e8.
    logits = np.array([1e8, 1e8 - 40.0, 0.0])
    odds = math.exp(-40.0)
    found = tt.CountModel(
        logits, [tt.Group([0, 1], tt.exactly(1)), tt.Group([0, 1, 2], tt.exactly(1))]
    ).entropy
    assert found == pytest.approx(41.0 * odds, rel=1e-6, abs=1e-15)


@pytest.mark.parametrize(("far", "sure"), [(2, True), (40, True), (100, True), (5000, False)])
def test_an_integral_whose_end_is_known_overlooks_no_far_mode(far, sure):
    asked = []

    def values(u):  # one mode two changes away, and one that only the end sees
        asked.append(u)
        return np.array([2e-6 * u + 1e-8 * far * u ** (far - 1)])

    found, change = information.integral(values, np.array([2e-6 + 1e-8 * far]))
    assert (change[0] <= 1e-11 * found[0]) == sure
    assert not sure or found[0] == pytest.approx(1.01e-6, rel=1e-11)
    assert len(asked) <= (3 if far == 2 else 127)


@pytest.mark.parametrize("groups", ["flat", "nested"])
@pytest.mark.parametrize("kind", ["exactly n", "decided"])
def test_entropies_of_decided_models_need_no_count_distribution(kind, groups, monkeypatch):
    def never(_):
        raise AssertionError("a slower way was taken")

    monkeypatch.setattr(information, "_from_distributions", never)
    n, rng = 120, np.random.default_rng(3)
    logits = rng.normal(size=n) if kind == "exactly n" else 1e4 * (rng.permutation(n) - 0.3)
    total = tt.exactly(n if kind == "exactly n" else 40)
    inner = [tt.Group(range(60), tt.between(10, 60))] if groups == "nested" else []
    model = tt.CountModel(logits, [*inner, tt.Group(None, total)])
    assert 0.0 <= model.entropy <= 1e-15


@pytest.mark.parametrize("special", [3.0, -np.inf, np.inf])
def test_entropies_of_nested_models_need_no_more_digits_than_transforms_leave(special, monkeypatch):
    """Noise of transforms in 1000 marginals failed the certificate, and 130 inferences around the mode followed."""
    rng = np.random.default_rng(1000)
    n = 1000
    nu = np.where(rng.random(n) < 0.5, -2.0, special)
    noise = np.random.default_rng
    groups = [
        tt.Group(range(n // 2), noise(n // 2).normal(size=n // 2 + 1)),
        tt.Group(None, noise(n).normal(size=n + 1)),
    ]
    model = tt.CountModel(nu, groups)
    problem = model._solved.problem
    want = entropy_by_parts(without_edges(problem.tree.program, problem.nu, problem.full_tables))[0]
    monkeypatch.setattr(information, "_from_distributions", None)
    assert model.entropy == pytest.approx(want, rel=1e-10)


@pytest.mark.parametrize("edges", [None, [(0, 1), (1, 2)]])
def test_the_divergence_of_a_model_from_itself_is_zero_and_takes_no_integral(edges, monkeypatch):
    def model(potential, logits=(0.3, -1.0, 1e6)):
        forest = None if edges is None else tt.Forest(edges, np.full((len(edges), 2, 2), 0.5))
        return tt.CountModel(np.array(logits), potential, edges=forest)

    for name in ("count_divergence", "forest_divergence"):
        monkeypatch.setattr(divergence, name, None)
    assert model(tt.between(1, 2)).kl_divergence(model(tt.between(1, 2))) == 0.0
    with pytest.raises(tt.InfeasibleError):
        model(tt.exactly(0), (math.inf, 0.0, 0.0)).kl_divergence(model(tt.exactly(0), (math.inf, 0.0, 0.0)))


def test_a_short_way_between_models_of_the_same_groups_takes_six_products(monkeypatch):
    n, rng, asked = 5000, np.random.default_rng(3), []
    theta, step = rng.normal(size=n), rng.normal(size=n)
    tangent = CountSolver.tangent
    monkeypatch.setattr(CountSolver, "tangent", lambda *a, **k: asked.append(1) or tangent(*a, **k))
    monkeypatch.setattr(tt.CountTree, "with_groups", None)
    law = tt.CountModel(theta, tt.exactly(n // 3))
    for size in (1e-3, 1e-6):
        near = tt.CountModel(theta + size * step, tt.exactly(n // 3))
        half = 0.5 * size**2 * (step @ law.hessian_vector_product(step, counts=False).logits)
        asked.clear()
        assert law.kl_divergence(near) == pytest.approx(half, rel=10.0 * size)
        assert len(asked) <= 6
    assert law.kl_divergence(tt.CountModel(theta, tt.exactly(n // 3 + 1))) == math.inf


@pytest.mark.parametrize("mask", [-1e4, -1e9])
def test_finite_masks_leave_expectations_their_digits(mask, monkeypatch):
    n, rng = 6000, np.random.default_rng(4)
    theta, masked = rng.normal(size=n), rng.random(n) < 0.5
    for potential in (tt.exactly(n // 3), tt.uniform(), rng.normal(size=n + 1)):
        exact = tt.CountModel(np.where(masked, -np.inf, theta), potential).entropy
        with monkeypatch.context() as patched:
            patched.setattr(information, "_under_tilt", None)
            found = tt.CountModel(np.where(masked, mask, theta), potential).entropy
        assert found == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("step", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("far", [60.0, 1e3, 1e6])
def test_decided_variables_leave_the_others_their_digits_and_cost_no_walk(far, step, monkeypatch):
    rng = np.random.default_rng(6)
    logits = np.array([far, -far, far, -far, -2.0 * far, 0.3, -0.6, 1.0])
    model, other = (tt.CountModel(x, tt.exactly(4)) for x in (logits, logits + step * rng.normal(size=8)))
    if config.native() is not None:  # array code walks
        monkeypatch.setattr(divergence, "_by_chain_rule", None)
    with mp.workdps(60):
        assert close(model.entropy, exact_entropy(model))
        assert close_divergence(model.kl_divergence(other), exact_divergence(model, other))


def test_a_change_between_all_nodes_of_an_integral_is_seen():
    # All are off, then all are on: the covariance along the way is nothing but a peak a thousandth as wide as the way.
    p, q = (tt.CountModel(np.full(4, x), tt.one_of([0, 4])) for x in (-1251.0, 1249.0))
    found = divergence.count_divergence(p._solved.problem, q._solved.problem, p._odds, q._odds)
    assert found == pytest.approx(4.0 * 1249.0, rel=1e-12)


def test_rows_without_their_decided_variables_are_as_wide_as_the_widest():
    logits = np.array([[0.5, 80.0, -90.0, 0.1], [70.0, 70.0, -70.0, 0.2], [0.1, 0.2, 0.3, -99.0]])
    off, on = logits < -50.0, logits > 50.0
    problem = tt.CountModel(logits, np.arange(5.0) ** 2)._solved.problem
    small = flat.without(problem, off, on)
    assert np.array_equal(small.nu, [[0.5, 0.1, -np.inf], [0.2, -np.inf, -np.inf], [0.1, 0.2, 0.3]])
    inf = np.inf
    assert np.array_equal(small.tables, [[1.0, 4.0, 9.0, -inf], [4.0, 9.0, -inf, -inf], [0.0, 1.0, 4.0, 9.0]])


def test_the_same_single_configuration_is_no_distance():
    """Sums of 2,000 that cancel left 2e-13 of it."""
    x, alone = [999.9102622497502, 998.8836911186368, -302.61162284334983], [0.0, -np.inf, -np.inf, -np.inf]
    p = tt.CountModel(np.full(3, -np.inf))
    q = tt.CountModel(x, [tt.Group([0, 1], [0.0, -np.inf, 0.0]), tt.Group(None, alone)])
    assert p.kl_divergence(q) == 0.0
    assert q.kl_divergence(p) == 0.0
