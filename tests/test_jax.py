"""tallytree.jax against the native engine and against enumeration, under the transformations of JAX."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states

jax = pytest.importorskip("jax", reason="tallytree.jax needs JAX: pip install tallytree[jax]")
jnp = jax.numpy
ttj = pytest.importorskip("tallytree.jax")

INF = np.inf
D = 7  # one padded size for most tests, so that little is compiled
TREE = tt.CountTree.from_groups([[0, 1, 2], range(6), [6], range(6), None], D)


@pytest.fixture(autouse=True, params=[False], ids=["float32-default"])
def _flag(request):
    with jax.enable_x64(request.param):
        yield


def flat_cases():
    """Log-odds (B, 7) and tables (B, 8), ordinary and adversarial."""
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(160, D)) * np.repeat([0.1, 1, 5, 40], 40)[:, None]
    logits[rng.random(logits.shape) < 0.05] = -INF
    logits[rng.random(logits.shape) < 0.05] = INF
    tables = rng.normal(size=(160, D + 1)) * np.tile([0.0, 1, 50, 500, 3e4], 32)[:, None]
    tables[rng.random(tables.shape) < 0.1] = -INF
    one = np.arange(D + 1) == rng.integers(0, D + 1, (160, 1))
    tables = np.where((np.arange(160) % 4 == 3)[:, None], np.where(one, 0.0, -INF), tables)
    forced, excluded = (logits == INF).sum(1), (logits == -INF).sum(1)
    counts = np.arange(D + 1)
    reach = (counts >= forced[:, None]) & (counts <= D - excluded[:, None]) & (tables > -INF)
    return logits[reach.any(1)], tables[reach.any(1)]


def nested_cases():
    """Log-odds (B, 7) and packed tables of TREE, possible ones."""
    rng = np.random.default_rng(6)
    logits = rng.normal(size=(160, D)) * np.repeat([0.1, 1, 5, 40], 40)[:, None]
    logits[rng.random(logits.shape) < 0.03] = -INF
    total = int(TREE.family.group_offset[-1])
    tables = rng.normal(size=(160, total)) * np.tile([0.0, 1, 50, 500, 3e4], 32)[:, None]
    tables[rng.random(tables.shape) < 0.05] = -INF
    keep = []
    for row, table in zip(logits, tables):
        try:
            tt.CountModel.from_tree(TREE, row, table).log_partition  # noqa: B018
            tt.CountModel.from_tree(TREE, row, table).marginals  # noqa: B018
            keep.append(True)
        except tt.InfeasibleError:
            keep.append(False)
    return logits[keep], tables[keep]


def assert_contract(found, exact, tolerance=1e-9):
    """Same infinities, and close where finite."""
    found, exact = np.asarray(found, float), np.asarray(exact, float)
    assert not np.isnan(found).any()
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(found[~finite], exact[~finite])
    np.testing.assert_allclose(found[finite], exact[finite], rtol=1e-10, atol=tolerance)


def check_against_native(model, logits, groups, tables=None):
    with jax.enable_x64(True):
        assert_contract(ttj.log_partition(logits, groups, tables=tables), model.log_partition, 1e-10)
        assert_contract(ttj.posterior_logits(logits, groups, tables=tables), model.posterior_logits)
        np.testing.assert_allclose(
            ttj.marginals(logits, groups, tables=tables), model.marginals, rtol=1e-9, atol=1e-300
        )
        entropy = np.asarray(ttj.entropy(logits, groups, tables=tables))
        np.testing.assert_allclose(entropy, model.entropy, rtol=1e-10, atol=1e-10)
        mode = np.asarray(ttj.mode(logits, groups, tables=tables))
        np.testing.assert_allclose(model.log_prob(mode), model.log_prob(model.mode()), rtol=1e-9, atol=1e-7)
        bound = np.asarray(ttj.error_bound(logits, groups, tables=tables))
        found, exact = np.asarray(ttj.posterior_logits(logits, groups, tables=tables)), model.posterior_logits
        error = np.abs(np.where(np.isfinite(exact), found, 0.0) - np.where(np.isfinite(exact), exact, 0.0))
        assert (error.max(-1) <= bound + 1e-15 * (1 + np.abs(model.log_partition)) + 1e-12).all()
        for group in [None, *range(model.n_groups)]:
            found = np.asarray(ttj.count_log_probs(logits, groups, group, tables=tables))
            exact = np.asarray(model.count_log_probs(group) if group is not None else model.count_log_probs())
            likely = exact > np.log(1e-200)
            np.testing.assert_allclose(found[likely], exact[likely], rtol=1e-9, atol=1e-8)
            assert (found[~likely] < -400).all()


def test_flat_models_agree_with_the_native_engine():
    logits, tables = flat_cases()
    assert len(logits) > 100
    check_against_native(tt.CountModel(logits, tables), logits, tables)


def test_nested_models_agree_with_the_native_engine():
    logits, tables = nested_cases()
    assert len(logits) > 100
    check_against_native(tt.CountModel.from_tree(TREE, logits, tables), logits, TREE, tables)


@pytest.mark.parametrize("kind", ["flat", "nested"])
def test_under_jit_and_vmap_the_answers_are_the_same(kind):
    logits, tables = flat_cases() if kind == "flat" else nested_cases()
    groups = None if kind == "flat" else TREE

    def answers(x, t):
        named = (t, None) if groups is None else (groups, t)
        return ttj.log_partition(x, *named), ttj.posterior_logits(x, *named)

    with jax.enable_x64(True):
        batch = answers(logits, tables)
        mapped = jax.jit(jax.vmap(answers))(logits, tables)
        for a, b in zip(batch, mapped):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_float32_answers_are_those_of_float64_rounded():
    logits, tables = flat_cases()
    small = logits.astype(np.float32)
    model = tt.CountModel(small, tables)
    found = ttj.posterior_logits(small, tables)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, np.asarray(model.posterior_logits), rtol=2e-7, atol=2e-7)
    np.testing.assert_allclose(ttj.log_partition(small, tables), model.log_partition, rtol=2e-7, atol=2e-7)
    half = ttj.marginals(jnp.zeros(4, jnp.bfloat16), tt.exactly(1))
    assert half.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(half, float), 0.25)


@pytest.mark.parametrize("n", [0, 1, 2, 20])
def test_sizes_from_none_to_many(n):
    rng = np.random.default_rng(n)
    logits, table = rng.normal(size=(2, n)) * 3, rng.normal(size=(2, n + 1)) * 20
    model = tt.CountModel(logits, table)
    with jax.enable_x64(True):
        assert_contract(ttj.log_partition(logits, table), model.log_partition, 1e-10)
        assert_contract(ttj.posterior_logits(logits, table), model.posterior_logits)
        assert_contract(ttj.count_log_probs(logits, table), model.count_log_probs(), 1e-8)
    assert ttj.marginals(np.zeros((0, n), np.float32), table[0]).shape == (0, n)


@pytest.mark.parametrize(
    ("logits", "groups"),
    [
        (np.zeros(4), [0.3, -0.1, -0.3, 1e5, 0.1]),
        (np.full(4, -20.0), [-96869.1, 6832.251643527676, -40337.3, 2365.9, -84638.7]),
        (
            [3174.06, -7344.85, 1015.71, 6813.79],
            [
                tt.Group([0, 1, 2], [96596.2, 66761.8, -38589.5, 72118.71229314126]),
                tt.Group(None, [33258.4, -64693.2, 32550.1, 72879.13024221949, -13283.7]),
            ],
        ),
        (1e5 + np.array([0.0, 0.3, -1.0, 2.0]), tt.exactly(2)),
    ],
)
def test_entropies_of_large_log_odds_and_tables_keep_their_digits(logits, groups):
    """Probabilities are off by their rounding, which must not be multiplied by numbers of 1e5."""
    with jax.enable_x64(True):
        found = float(ttj.entropy(np.asarray(logits), groups))
    exact = float(tt.CountModel(logits, groups).entropy)
    assert abs(found - exact) <= 1e-10 * (1.0 + exact)


def test_far_tails_need_no_luck():
    n = 64
    logits = np.full(n, -20.0)
    with jax.enable_x64(True):
        odds = ttj.posterior_logits(logits, tt.exactly(n // 2))
        np.testing.assert_allclose(odds, 0.0, atol=1e-9)
        found = ttj.count_log_probs(logits)
        exact = tt.PoissonBinomial(logits=logits).logpmf(np.arange(n + 1))
        np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-13)


def test_a_second_size_in_the_same_bucket_compiles_nothing():
    events = []

    def listen(name, *_args, **_named):
        if "backend_compile" in name:
            events.append(name)

    ttj.log_partition(np.zeros(27, np.float32), tt.exactly(3))
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        jax.jit(lambda x: 3.0 * x + 0.7)(1.0)  # something new: the listener hears it
        before = len(events)
        for n in (25, 30, 31):
            ttj.log_partition(np.zeros(n, np.float32), tt.exactly(3))
        assert before > 0
        assert len(events) == before
    finally:
        jax.monitoring.clear_event_listeners()


def test_samples_follow_the_law():
    rng = np.random.default_rng(3)
    logits = rng.normal(size=4).astype(np.float32)
    groups = [tt.Group([0, 1, 2], rng.normal(size=4)), tt.Group(None, tt.at_least(2))]
    model = tt.CountModel(logits, groups)
    states = all_states((2,) * 4)
    expected = np.exp(model.log_prob(states)) * 20000
    drawn = np.asarray(ttj.sample(jax.random.key(1), logits, groups, sample_shape=(20000,))).astype(int)
    observed = np.bincount(drawn @ [8, 4, 2, 1], minlength=16)
    possible = expected > 0
    assert observed[~possible].sum() == 0
    statistic = ((observed - expected)[possible] ** 2 / expected[possible]).sum()
    assert statistic < 40  # 12 states or fewer: probability below 1e-4
    flat = np.asarray(ttj.sample(jax.random.key(2), np.zeros((2, D)), tt.exactly(3), sample_shape=(500,)))
    assert flat.shape == (500, 2, D)
    assert (flat.sum(-1) == 3).all()
    assert np.abs(flat.mean((0, 1)) - 3 / D).max() < 0.08


@pytest.mark.parametrize(
    "groups", [tt.exactly(3), [tt.Group([0, 1, 2], tt.at_least(1)), tt.Group(None, tt.exactly(3))]]
)
def test_draws_and_modes_under_jit_and_vmap(groups):
    logits = np.random.default_rng(1).normal(size=(3, D)).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), 3)
    drawn = jax.jit(jax.vmap(lambda key, x: ttj.sample(key, x, groups)))(keys, logits)
    np.testing.assert_array_equal(drawn.sum(-1), 3)
    found = jax.jit(jax.vmap(lambda x: ttj.mode(x, groups)))(logits)
    np.testing.assert_array_equal(found, tt.CountModel(logits, groups).mode())


def test_potentials_with_one_number_per_model():
    rng = np.random.default_rng(4)
    logits, k = rng.normal(size=(3, D)), np.array([0, 3, 7])
    with jax.enable_x64(True):
        found = jax.jit(lambda x, k: ttj.marginals(x, ttj.exactly(k)))(logits, k)
        for i in range(3):
            np.testing.assert_allclose(
                found[i], tt.CountModel(logits[i], tt.exactly(int(k[i]))).marginals, atol=1e-12
            )
        pairs = [
            (ttj.at_least(2), tt.at_least(2)),
            (ttj.at_most(2), tt.at_most(2)),
            (ttj.between(1, 2), tt.between(1, 2)),
            (ttj.gaussian(2.0, 0.5), tt.gaussian(2.0, 0.5)),
            (ttj.poisson(2.0), tt.poisson(2.0)),
            (ttj.geometric(0.3), tt.geometric(0.3)),
            (ttj.noisy_or(0.2, 0.01), tt.noisy_or(0.2, 0.01)),
        ]
        for ours, theirs in pairs:
            finite = np.isfinite(theirs.log_table(5))
            difference = np.asarray(ours.log_table(5))[finite] - theirs.log_table(5)[finite]
            assert np.ptp(difference) < 1e-12, ours  # a constant factor is a convention
            assert np.isinf(np.asarray(ours.log_table(5))[~finite]).all()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ttj.marginals(jnp.array([0.0, jnp.nan]), tt.exactly(1)), tt.ParameterError, "NaN"),
        (lambda: ttj.marginals(3.0), tt.ParameterError, "last axis"),
        (lambda: ttj.marginals(jnp.zeros(3), jnp.zeros(3)), tt.ParameterError, "4 entries"),
        (lambda: ttj.marginals(jnp.zeros(3), jnp.array([0.0, jnp.inf, 0, 0])), tt.ParameterError, "inf"),
        (lambda: ttj.marginals(jnp.zeros(3), ttj.exactly(4)), tt.ParameterError, "k <= n = 3"),
        (lambda: ttj.exactly(1.5), tt.ParameterError, "integer"),
        (lambda: ttj.exactly(-1), tt.ParameterError, "negative"),
        (lambda: ttj.between(4, 2), tt.ParameterError, "lo <= hi"),
        (lambda: ttj.gaussian(1.0, 0.0), tt.ParameterError, "positive"),
        (lambda: ttj.noisy_or(1.5), tt.ParameterError, r"\[0, 1\]"),
        (lambda: ttj.marginals(jnp.zeros(3), TREE), tt.ParameterError, "7 entries"),
        (lambda: ttj.marginals(jnp.zeros(7), TREE, [None]), tt.ParameterError, "one entry per group"),
        (lambda: ttj.marginals(jnp.zeros(3), None, [None]), tt.ParameterError, "CountTree"),
        (lambda: ttj.marginals(jnp.array([-jnp.inf, 0.0]), tt.exactly(2)), tt.InfeasibleError, "impossible"),
        (lambda: ttj.count_log_probs(jnp.zeros(3), tt.exactly(1), 2), tt.ParameterError, "group"),
        (lambda: ttj.sample(0, jnp.zeros(3)), tt.ParameterError, "jax.random"),
        (lambda: ttj.marginals(jnp.zeros((2, 3)), jnp.zeros((3, 4))), tt.ParameterError, "broadcast"),
    ],
)
def test_bad_input_is_refused_in_words(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_an_impossible_model_under_jit_is_not_a_number_and_has_no_gradient():
    logits = jnp.array([-jnp.inf, 0.0, 0.0])
    value, gradient = jax.jit(jax.value_and_grad(lambda x: ttj.log_partition(x, tt.exactly(3))))(logits)
    assert value == -jnp.inf
    np.testing.assert_array_equal(gradient, 0.0)
    assert np.isnan(jax.jit(lambda x: ttj.marginals(x, tt.exactly(3)))(logits)).all()


def test_importing_tallytree_imports_no_jax():
    code = "import sys, tallytree; assert 'jax' not in sys.modules; print('fine')"
    assert (
        "fine"
        in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )


def test_without_jax_the_message_names_the_extra():
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "try:\n    import tallytree.jax\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "tallytree[jax]" in done.stdout


@pytest.mark.parametrize("groups", ["flat", "nested"])
def test_exported_functions_take_batches_of_any_size(groups):
    """Rows that the quick pass refuses are among them; one row is fewer than the slow pass takes at a time."""
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(6, D)).astype(np.float32)
    logits[1] = [900, -900, 700, -700, 500, -500, 0]
    potential = (
        tt.exactly(2)
        if groups == "flat"
        else [tt.Group([0, 1, 2], tt.at_most(1)), tt.Group(None, tt.exactly(4))]
    )

    @jax.jit
    def answers(x):
        (_, marginals), gradient = jax.value_and_grad(
            lambda x: (ttj.log_partition(x, potential).sum(), ttj.marginals(x, potential)), has_aux=True
        )(x)
        return marginals, gradient, ttj.mode(x, potential)

    batch = jax.export.symbolic_shape("batch")[0]
    exported = jax.export.export(answers)(jax.ShapeDtypeStruct((batch, D), jnp.float32))
    for rows in (logits, logits[1:2]):
        found = exported.call(rows)
        exact = np.stack([tt.CountModel(x, potential).marginals for x in rows.astype(float)])
        np.testing.assert_allclose(found[0], exact, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[1], exact, rtol=1e-5, atol=1e-6)
        assert found[2].shape == rows.shape


@pytest.mark.filterwarnings("error:Explicitly requested dtype")
@pytest.mark.parametrize("groups", ["flat", "nested", "wide"])
def test_exported_gradients_take_batches_of_any_size(groups):
    """Backwards through the passes, in the 64 bits in which they run and not in those of the caller."""
    rng = np.random.default_rng(4)
    n = 40 if groups == "wide" else D
    logits = rng.normal(size=(2, n)).astype(np.float32)
    potential = [tt.Group([0, 1, 2], tt.at_most(1)), tt.Group(None, rng.normal(size=n + 1))]
    group = 1
    if groups != "nested":
        potential, group = potential[1].potential, None
    along = rng.normal(size=n)

    @jax.jit
    @jax.grad
    def gradient(x):
        third = ttj.count_log_probs(x, potential, group)[..., 3]
        return (ttj.marginals(x, potential) @ along + ttj.entropy(x, potential) + third).sum()

    batch = jax.export.symbolic_shape("batch")[0]
    exported = jax.export.export(gradient)(jax.ShapeDtypeStruct((batch, n), jnp.float32))
    for row, of_row in zip(logits.astype(float), exported.call(logits)):
        model = tt.CountModel(row, potential)
        beside = tt.CountModel(np.stack([row - 1e-4 * np.eye(n), row + 1e-4 * np.eye(n)]), potential)
        value = beside.entropy + beside.count_log_probs(group)[..., 3]
        exact = model.hessian_vector_product(along).logits + (value[1] - value[0]) / 2e-4
        np.testing.assert_allclose(of_row, exact, rtol=1e-5, atol=1e-5)
