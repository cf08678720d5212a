"""Derivatives of tallytree.jax: every mode, every composition, infinite log-odds and vanishing bags included."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import tallytree as tt

jax = pytest.importorskip("jax", reason="tallytree.jax needs JAX: pip install tallytree[jax]")
jnp = jax.numpy
lax = jax.lax
ttj = pytest.importorskip("tallytree.jax")

D = 4
LOGITS = np.random.default_rng(0).normal(size=(2, D))
TABLE = np.array([0.3, -1.0, 0.0, 2.0, -np.inf])
GROUPS = [tt.Group([0, 1, 2], [0.0, 1.0, -2.0, 0.5]), tt.Group(None, tt.at_least(1))]


def covariance(logits, groups):
    return np.asarray(tt.CountModel(logits, groups).covariance())


@pytest.mark.parametrize("groups", [TABLE, GROUPS], ids=["flat", "nested"])
def test_the_hessian_is_the_covariance_both_ways(groups):
    logits = LOGITS[0].astype(np.float32)  # with the global flag off: 64 bits inside all the same

    def log_z(x):
        return ttj.log_partition(x, groups)

    exact = covariance(logits, groups)
    gradient, forward = jax.jit(lambda x: (jax.grad(log_z)(x), jax.hessian(log_z)(x)))(logits)
    np.testing.assert_allclose(gradient, tt.CountModel(logits, groups).marginals, rtol=1e-6)
    np.testing.assert_allclose(forward, exact, atol=3e-7)
    backward = jax.jit(jax.jacrev(lambda x: ttj.marginals(x, groups)))(logits)
    np.testing.assert_allclose(backward, exact, atol=3e-7)


def test_tables_have_gradients_and_second_derivatives():
    logits, table = LOGITS[0], [*TABLE[:-1].tolist(), -0.5]

    def log_z(x, t):
        return ttj.log_partition(x, t)

    with jax.enable_x64(True):
        t = jnp.asarray(table)
        found = jax.grad(log_z, argnums=1)(jnp.asarray(logits), t)
        probs = np.exp(tt.CountModel(logits, np.array(table)).count_log_probs())
        np.testing.assert_allclose(found, probs, rtol=1e-12)
        second = jax.jit(jax.hessian(log_z, argnums=1))(jnp.asarray(logits), t)
        np.testing.assert_allclose(second, np.diag(probs) - np.outer(probs, probs), atol=1e-13)


def test_third_derivatives_are_third_cumulants():
    table = TABLE
    states = np.array([[int(b) for b in np.binary_repr(i, D)] for i in range(2**D)])
    weight = np.exp(tt.CountModel(LOGITS[0], table).log_prob(states))
    centred = states - weight @ states
    exact = np.einsum("s,si,sj,sk->ijk", weight, centred, centred, centred)
    with jax.enable_x64(True):
        found = jax.jit(jax.jacfwd(jax.hessian(lambda x: ttj.log_partition(x, table))))(
            jnp.asarray(LOGITS[0])
        )
    np.testing.assert_allclose(found, exact, atol=1e-13)


def test_jvp_vjp_scan_map_and_vmap_agree():
    table = TABLE
    x, v = jnp.asarray(LOGITS, jnp.float32), jnp.ones(D, jnp.float32)

    def mu(x):
        return ttj.marginals(x, table)

    @jax.jit
    def all_ways(x, v):
        one = jax.jvp(mu, (x[0],), (v,))[1]
        other = jax.vjp(mu, x[0])[1](v)[0]
        scanned = lax.scan(lambda c, row: (c, mu(row)), 0.0, x)[1]
        return one, other, scanned, lax.map(mu, x), jax.vmap(mu)(x), mu(x)

    one, other, *rest = all_ways(x, v)
    np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(one, covariance(LOGITS[0], table) @ np.ones(D), atol=1e-6)
    for answer in rest:
        np.testing.assert_allclose(answer, tt.CountModel(LOGITS, table).marginals, rtol=1e-6)


def test_a_mapped_gradient_of_a_loss_of_marginals():
    def loss(x):
        return jnp.sum(ttj.marginals(x, TABLE) ** 2)

    found = jax.jit(jax.vmap(jax.grad(loss)))(jnp.asarray(LOGITS, jnp.float32))
    for row, gradient in zip(LOGITS, found):
        mu = tt.CountModel(row, TABLE).marginals
        np.testing.assert_allclose(gradient, 2 * covariance(row, TABLE) @ mu, atol=1e-6)


def test_shard_map_over_a_batch_axis():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("batch",))
    spec = jax.sharding.PartitionSpec("batch")
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        pytest.skip("jax.shard_map came with a later JAX")
    mapped = shard_map(
        lambda x: ttj.log_partition(x, TABLE), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
    found = jax.jit(mapped)(jnp.asarray(LOGITS, jnp.float32))
    np.testing.assert_allclose(found, tt.CountModel(LOGITS, TABLE).log_partition, rtol=1e-6)


def test_infinite_log_odds_and_impossible_counts_have_finite_derivatives():
    logits = jnp.array([-jnp.inf, jnp.inf, 0.5, -1.0])
    found = jax.jit(jax.hessian(lambda x: ttj.log_partition(x, tt.exactly(2))))(logits)
    p = 1 / (1 + np.exp(-1.5))
    exact = np.zeros((4, 4))
    exact[2:, 2:] = p * (1 - p) * np.array([[1, -1], [-1, 1]])
    np.testing.assert_allclose(found, exact, atol=1e-6)
    entropy = jax.grad(lambda x: ttj.entropy(x, tt.exactly(2)))(logits)
    assert np.isfinite(entropy).all()


def test_far_log_odds_count_once_in_the_gradient():
    """Beyond 1e12 a variable is decided: log Z moves with a forced one, and with an excluded one not at all."""
    with jax.enable_x64(True):
        x = jnp.asarray([1e20, 0.5, -1e20, np.inf, -np.inf, 0.1])
        value, gradient = jax.value_and_grad(lambda x: ttj.log_partition(x, tt.at_most(3)))(x)
    p = np.exp([0.5, 0.1]) / (1.0 + np.exp(0.5) + np.exp(0.1))  # one of the two, or none
    np.testing.assert_allclose(gradient, [1.0, p[0], 0.0, 0.0, 0.0, p[1]], rtol=1e-12)
    np.testing.assert_allclose(value, 1e20)


def test_a_shared_table_is_a_table_for_every_model_and_gradients_go_through_vmap():
    def mapped(x, table):
        return jnp.sum(jnp.sin(jax.vmap(lambda x: ttj.marginals(x, table))(x)))

    def in_a_batch(x, tables):
        return jnp.sum(jnp.sin(ttj.marginals(x, tables)))

    with jax.enable_x64(True):
        x, table = jnp.asarray(LOGITS), jnp.asarray(np.where(np.isfinite(TABLE), TABLE, -3.0))
        found = jax.jit(jax.grad(mapped, (0, 1)))(x, table)
        exact = jax.jit(jax.grad(in_a_batch, (0, 1)))(x, jnp.broadcast_to(table, (2, D + 1)))
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], np.asarray(exact[1]).sum(0), rtol=1e-12)


def test_a_bag_of_probability_1e_300_has_the_right_gradient():
    with jax.enable_x64(True):
        logits = jnp.array([-200.0, -240.0, -260.0, -300.0, -1.0, 0.5, -np.inf])
        offsets, counts = np.array([0, 4, 7]), np.array([2, 1])
        value, gradient = jax.value_and_grad(
            lambda x: ttj.losses.bag_nll(x, offsets, counts, offsets=True, reduction="sum")
        )(logits)
    with mpmath.workdps(60):
        w = [mpmath.e ** mpmath.mpf(float(x)) for x in logits]
        pairs = {(i, j): w[i] * w[j] for i in range(4) for j in range(i)}
        total = sum(pairs.values())
        free = mpmath.fprod(1 + x for x in w)
        exact = -mpmath.log(total) - mpmath.log(w[4] + w[5]) + mpmath.log(free)
        slope = [w[i] / (1 + w[i]) - sum(v for p, v in pairs.items() if i in p) / total for i in range(4)]
        slope += [w[i] / (1 + w[i]) - w[i] / (w[4] + w[5]) for i in (4, 5)] + [0]
    value = float(np.asarray(value))
    assert value > 300 * np.log(10) / 2
    np.testing.assert_allclose(value, float(exact), rtol=1e-13)
    np.testing.assert_allclose(np.asarray(gradient), [float(s) for s in slope], rtol=1e-11, atol=1e-15)


def test_losses_are_probabilities_of_counts():
    rng = np.random.default_rng(8)
    logits = rng.normal(size=(3, D)).astype(np.float32)
    counts = np.array([0, 2, 4])
    exact = [-tt.PoissonBinomial(logits=row).logpmf(c) for row, c in zip(logits.astype(float), counts)]
    np.testing.assert_allclose(ttj.losses.bag_nll(logits, None, counts, reduction="none"), exact, rtol=1e-5)
    np.testing.assert_allclose(ttj.losses.proportion_nll(logits, None, counts / D), np.mean(exact), rtol=1e-5)
    none = np.log1p(np.exp(logits.astype(float))).sum(1)
    some = -np.log(-np.expm1(-none))
    found = ttj.losses.mil_nll(logits, None, np.array([0, 1, 1]), reduction="none")
    np.testing.assert_allclose(found, [none[0], some[1], some[2]], rtol=1e-5)
    labelled = np.zeros((3, D), bool)
    labelled[:, 0] = True
    found = ttj.losses.positive_unlabelled_nll(logits, labelled, None, np.array([1, 2, 3]), reduction="none")
    for row, k, loss in zip(logits.astype(float), (1, 2, 3), found):
        rest = tt.PoissonBinomial(logits=row[1:]).logpmf(k - 1)
        np.testing.assert_allclose(loss, np.log1p(np.exp(-row[0])) - rest, rtol=1e-5)


def test_bags_by_index_by_offsets_and_by_rows_are_the_same():
    logits = jnp.asarray(np.random.default_rng(9).normal(size=7), jnp.float32)
    index, counts = np.array([2, 0, 0, 2, 2, 0, 2]), np.array([1, 0, 3])  # bag 1 is empty
    order = np.argsort(index, kind="stable")
    rows = np.full((3, 4), -np.inf, np.float32)
    rows[0, :3], rows[2] = logits[np.array([1, 2, 5])], logits[np.array([0, 3, 4, 6])]

    @jax.jit
    def three_ways(x):
        one = ttj.losses.bag_nll(x, index, counts, reduction="none")
        two = ttj.losses.bag_nll(x[order], np.array([0, 3, 3]), counts, offsets=True, reduction="none")
        return one, two, jax.grad(lambda x: ttj.losses.bag_nll(x, index, counts, reduction="sum"))(x)

    one, two, gradient = three_ways(logits)
    exact = [-tt.PoissonBinomial(logits=r[r > -np.inf]).logpmf(c) for r, c in zip(rows.astype(float), counts)]
    np.testing.assert_allclose(one, exact, rtol=1e-6)
    np.testing.assert_array_equal(one, two)
    conditional = [tt.CountModel(rows[b], tt.exactly(int(counts[b]))).marginals for b in (0, 2)]
    free = 1 / (1 + np.exp(-np.asarray(logits, float)))
    expected = np.concatenate([conditional[0][:3], conditional[1]])
    np.testing.assert_allclose(np.asarray(gradient)[order], free[order] - expected, atol=1e-6)


def test_items_that_are_never_on_belong_to_their_bag():
    """Three of four items are on; the fourth is never on, but it counts when a share becomes a count."""
    logits, bags = jnp.array([0.0, 0.5, -0.3, -np.inf]), np.zeros(4, int)
    p = 1 / (1 + np.exp(-np.array([0.0, 0.5, -0.3])))
    expected = -np.log(p).sum()
    losses = ttj.losses
    for given in ({"bags": bags}, {"bags": np.array([0]), "offsets": True}):
        found = losses.proportion_nll(logits, proportions=jnp.array([0.75]), **given)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    traced = jax.jit(lambda x: losses.proportion_nll(x, bags, jnp.array([0.75])))(logits)
    np.testing.assert_allclose(traced, expected, rtol=1e-6)
    padded = losses.proportion_nll(logits[None], None, jnp.array([2 / 3]))
    np.testing.assert_allclose(padded, losses.bag_nll(logits[:3], bags[:3], np.array([2])), rtol=1e-6)
    assert losses.bag_nll(logits, bags, np.array([4])) == np.inf
    assert losses.mil_nll(logits[3:], bags[:1], np.array([1])) == np.inf
    labelled = np.array([True, False, False, False])
    assert losses.positive_unlabelled_nll(logits, labelled, bags, np.array([4])) == np.inf


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ttj.losses.bag_nll(jnp.zeros(4), [0, 3], [1], offsets=True), "start of every bag"),
        (lambda: ttj.losses.bag_nll(jnp.zeros(4), [0, 0, 1, 1], [1]), "from 0 to 0"),
        (lambda: ttj.losses.bag_nll(jnp.zeros(4), [0, 0, 1], [1, 1]), "bag of every item, 4 in all"),
        (lambda: ttj.losses.bag_nll(jnp.zeros((2, 4)), [0, 0, 1, 1], [1, 1]), "one axis"),
        (lambda: ttj.losses.bag_nll(jnp.zeros(4), [0.0, 0, 1, 1], [1, 1]), "integers on one axis"),
        (lambda: ttj.losses.bag_nll(jnp.zeros((2, 4)), None, [1]), "one entry per bag"),
        (lambda: ttj.losses.bag_nll(jnp.zeros(4), [0, 0, 1, 1], [1, 3]), "entry 1 is 3"),
        (lambda: ttj.losses.bag_nll(jnp.zeros(4), [0, 0, 1, 1], [0.5, 1]), "integers"),
        (lambda: ttj.losses.bag_nll(jnp.zeros(4), [0] * 4, [1], reduction="max"), "reduction"),
        (lambda: ttj.losses.proportion_nll(jnp.zeros(4), [0] * 4, [1.5]), r"\[0, 1\]"),
        (lambda: jax.jit(ttj.losses.bag_nll)(jnp.zeros(2), jnp.array([0, 0]), jnp.array([1])), "traced"),
    ],
)
def test_losses_refuse_bad_input_in_words(call, words):
    with pytest.raises(tt.ParameterError, match=words):
        call()
