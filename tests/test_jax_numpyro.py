"""The NumPyro distributions: laws against enumeration, moments, pytrees, and NUTS against ConditionalLogit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states

jax = pytest.importorskip("jax", reason="tallytree.jax needs JAX: pip install tallytree[jax]")
numpyro = pytest.importorskip("numpyro", reason="these tests need NumPyro: pip install tallytree[numpyro]")
jnp = jax.numpy

from numpyro import distributions as dist  # noqa: E402
from numpyro.contrib.control_flow import scan  # noqa: E402
from numpyro.distributions.batch_util import promote_batch_shape  # noqa: E402

from tallytree.jax.numpyro import ConditionalBernoulli, CountDistribution, PoissonBinomial  # noqa: E402

STATES = all_states((2,) * 4)
LOGITS = np.array([0.3, -1.0, 2.0, 0.1], np.float32)
TABLE = np.array([0.0, 1.0, -0.5, 0.3, -np.inf], np.float32)


def exact_law(logits, log_f):
    weight = np.exp(STATES @ logits + np.asarray(log_f)[STATES.sum(1)])
    return weight / weight.sum()


def test_log_prob_is_the_law_by_enumeration():
    found = CountDistribution(LOGITS, TABLE).log_prob(STATES)
    np.testing.assert_allclose(np.exp(found), exact_law(LOGITS, TABLE), rtol=2e-6)
    one = np.where(np.arange(5) == 2, 0.0, -np.inf)
    subset = ConditionalBernoulli(2, LOGITS)
    np.testing.assert_allclose(np.exp(subset.log_prob(STATES)), exact_law(LOGITS, one), rtol=2e-6)
    law = np.bincount(STATES.sum(1), exact_law(LOGITS, np.zeros(5)))
    sums = PoissonBinomial(LOGITS)
    np.testing.assert_allclose(np.exp(sums.log_prob(np.arange(5))), law, rtol=2e-6)
    np.testing.assert_allclose(sums.mean, law @ np.arange(5), rtol=1e-6)


def test_moments_entropy_and_mode():
    d = CountDistribution(LOGITS, TABLE)
    p = exact_law(LOGITS, TABLE)
    np.testing.assert_allclose(d.mean, p @ STATES, rtol=1e-5)
    np.testing.assert_allclose(d.variance, (p @ STATES) * (1 - p @ STATES), rtol=1e-5)
    np.testing.assert_allclose(d.entropy(), -(p[p > 0] * np.log(p[p > 0])).sum(), rtol=1e-5)
    np.testing.assert_array_equal(d.mode, STATES[np.argmax(p)])
    draws = np.asarray(d.sample(jax.random.key(0), (4000,)))
    assert draws.shape == (4000, 4)
    np.testing.assert_allclose(draws.mean(0), p @ STATES, atol=0.04)
    counts = np.asarray(PoissonBinomial(LOGITS).sample(jax.random.key(0), (4000,)))
    assert abs(counts.mean() - float(PoissonBinomial(LOGITS).mean)) < 0.08


def test_pytree_round_trip_and_vmap_over_parameters():
    rows = jnp.stack([LOGITS, -LOGITS])
    d = ConditionalBernoulli(np.array([1, 2]), rows)
    leaves, structure = jax.tree_util.tree_flatten(d)
    again = jax.tree_util.tree_unflatten(structure, leaves)
    assert type(again) is ConditionalBernoulli
    assert again.batch_shape == (2,)
    assert again.event_shape == (4,)
    y = jnp.array([1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(again.log_prob(y), d.log_prob(y))
    found = jax.vmap(lambda x: CountDistribution(x, TABLE).log_prob(y))(rows)
    np.testing.assert_allclose(found, CountDistribution(rows, TABLE).log_prob(y), rtol=1e-6)
    jitted = jax.jit(lambda d, y: d.log_prob(y))(d, y)
    np.testing.assert_allclose(jitted, d.log_prob(y), rtol=1e-6)
    expanded = CountDistribution(LOGITS, TABLE).expand((3,))
    assert expanded.sample(jax.random.key(1)).shape == (3, 4)
    assert expanded.log_prob(y).shape == (3,)
    masked = CountDistribution(LOGITS, TABLE).mask(False)
    assert masked.log_prob(y) == 0.0


def law_of_sum(p):
    law = np.ones(1)
    for x in p:
        law = np.convolve(law, [1 - x, x])
    return law


def law_and_derivatives(p, k):
    """P(k), its gradient and its Hessian, from laws without one and without two of the trials."""

    def without(gone, counts):
        law = np.pad(law_of_sum(np.delete(p, gone)), (2, 2))
        return np.array([law[c + 2] for c in counts])

    n = len(p)
    gradient = [without([i], [k - 1]) - without([i], [k]) for i in range(n)]
    hessian = np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        hessian[i, j] = without([i, j], [k - 2, k - 1, k]) @ [1, -2, 1]
    return law_of_sum(p)[k], np.ravel(gradient), hessian


def log_pmf(p, k):
    return PoissonBinomial(probs=p).log_prob(k)


@pytest.mark.parametrize("wide", [False, True])
def test_gradients_in_probabilities_of_0_and_1(wide):
    """Nothing cancels near 1 either: in 64 bits one probability is as near as 1e-12."""
    cases = [
        ([0, 1, 0.5, 0.3], 2),
        ([0, 0, 1, 1], 2),
        ([1, 0.2, 0.6, 1], 3),
        ([0.5, 1 - 1e-12, 1e-12, 0.7], 2),
    ]
    with jax.enable_x64(wide):
        traced = jax.jit(jax.value_and_grad(log_pmf))
        for p, k in cases:
            p = np.asarray(p, np.float64 if wide else np.float32).astype(np.float64)
            value, slope, _ = law_and_derivatives(p, k)
            found = traced(jnp.asarray(p), k)
            np.testing.assert_allclose(found[0], np.log(value), rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(found[1], slope / value, rtol=1e-6, atol=1e-6)
        eager = jax.grad(log_pmf)(jnp.array([0, 1, 0.5, 0.3]), 2)
        np.testing.assert_allclose(eager, [-0.3, 0.7, 0.8, 0.0], rtol=1e-6, atol=1e-7)


def test_hessian_in_probabilities_of_0_and_1():
    with jax.enable_x64(True):
        hessian = jax.jit(jax.hessian(log_pmf))
        for p in ([0.0, 0.0], [1.0, 0.0], [1.0, 0.3], [0.4, 0.0], [0.4, 0.9]):
            for k in range(3):
                value, slope, bend = law_and_derivatives(np.array(p), k)
                if value > 0:
                    exact = bend / value - np.outer(slope, slope) / value**2
                    np.testing.assert_allclose(hessian(jnp.array(p), k), exact, rtol=1e-9, atol=1e-9)


def test_moments_law_and_entropy_have_derivatives_in_probabilities_of_0_and_1():
    with jax.enable_x64(True):
        p = jnp.array([0.0, 1.0, 0.5, 0.3])
        np.testing.assert_array_equal(jax.grad(lambda p: PoissonBinomial(probs=p).mean)(p), 1.0)
        np.testing.assert_allclose(jax.grad(lambda p: PoissonBinomial(probs=p).variance)(p), 1 - 2 * p)
        cdf = jax.jacrev(lambda p: PoissonBinomial(probs=p).cdf(jnp.arange(5)))(p)
        exact = np.cumsum([law_and_derivatives(p, k)[1] for k in range(5)], 0)
        np.testing.assert_allclose(cdf, exact, atol=1e-12)
    single = jnp.array(
        [0.0, 1.0, 0.5, 0.3]
    )  # JAX transposes outside of the functions that compute in 64 bits
    cdf = jax.jacrev(lambda p: PoissonBinomial(probs=p).cdf(jnp.arange(5)))(single)
    np.testing.assert_allclose(cdf, exact, atol=1e-6)
    law = jax.jacrev(lambda p: jnp.exp(PoissonBinomial(probs=p).count_log_probs()))(single)
    np.testing.assert_allclose(law[1:4], np.diff(exact, axis=0)[:3], atol=1e-6)
    d = PoissonBinomial(probs=jnp.array([0.0, 1.0, 0.5]))
    np.testing.assert_allclose(d.cdf(jnp.array([-1, 0, 1, 1.5, 2, 3, np.inf])), [0, 0, 0.5, 0.5, 1, 1, 1])
    np.testing.assert_allclose(d.entropy(), np.log(2), rtol=1e-6)
    np.testing.assert_array_equal(PoissonBinomial(probs=jnp.array([0.0, 0.25])).probs, [0.0, 0.25])


def test_infinite_log_odds_and_probabilities_of_0_and_1_pass_validation():
    logits = jnp.array([0.3, -jnp.inf, jnp.inf, 1.0])
    for d in (
        CountDistribution(logits, TABLE, validate_args=True),
        ConditionalBernoulli(2, logits, validate_args=True),
        PoissonBinomial(logits, validate_args=True),
        PoissonBinomial(probs=jax.nn.sigmoid(logits), validate_args=True),
    ):
        assert np.isfinite(d.log_prob(d.sample(jax.random.key(0), (5,)))).all()
    assert PoissonBinomial.support.is_discrete
    assert PoissonBinomial(probs=jnp.zeros(3)).log_prob(1) == -np.inf
    with pytest.warns(UserWarning, match="Out-of-support"):
        assert PoissonBinomial(jnp.zeros(2), validate_args=True).log_prob(7.0) == -np.inf
    assert set(ConditionalBernoulli.arg_constraints) == {"total_count", "logits"}
    with pytest.raises(tt.InfeasibleError):
        ConditionalBernoulli(3, jnp.array([0.0, -jnp.inf, 0.0])).log_prob(jnp.ones(3))


KINDS = {
    "one table": lambda x: CountDistribution(x, TABLE),
    "groups": lambda x: CountDistribution(x, [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, TABLE)]),
    "subsets": lambda x: ConditionalBernoulli(2, x),
    "subset per model": lambda x: ConditionalBernoulli(np.array([1, 2, 3]), x),
    "sums": PoissonBinomial,
    "sums of probs": lambda x: PoissonBinomial(probs=jax.nn.sigmoid(x)),
}
ROWS = np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_promoted_batch_shapes_are_those_of_all_leaves(kind):
    promoted, whole = promote_batch_shape(jax.vmap(KINDS[kind])(ROWS)), KINDS[kind](ROWS)
    assert promoted.batch_shape == whole.batch_shape == (5, 3)
    value = jnp.array([1.0, 0.0, 1.0, 0.0]) if whole.event_shape else jnp.array(2)
    np.testing.assert_array_equal(promoted.log_prob(value), whole.log_prob(value))
    expanded = promote_batch_shape(jax.vmap(lambda x: KINDS["subsets"](x[0]).expand([3]))(ROWS))
    assert expanded.batch_shape == (5, 3)


@pytest.mark.parametrize("make", [KINDS["subsets"], lambda x: KINDS["one table"](x[0])], ids=["rows", "one"])
def test_scan_with_a_plate_inside_gives_the_density_of_the_loop(make):
    def model(x):
        def step(carry, x):
            with numpyro.plate("rows", 3):
                return carry, numpyro.sample("y", make(x))

        return scan(step, 0.0, x)[1]

    drawn = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(ROWS)["y"]["value"]
    found = numpyro.infer.util.log_density(model, (ROWS,), {}, {"y": drawn})[0]
    alone = sum(jnp.sum(make(row).log_prob(y)) for row, y in zip(ROWS, drawn))
    np.testing.assert_allclose(found, alone, rtol=1e-5)


@pytest.mark.filterwarnings("error:Explicitly requested dtype")
def test_exported_gradients_in_probabilities_take_batches_of_any_size():
    """Validation computed log-odds of a size that nobody knew, and indices became gathers of another dtype."""

    @jax.jit
    @jax.grad
    def gradient(p):
        law = PoissonBinomial(probs=p)
        return (law.log_prob(2.0) + law.cdf(1.0) + law.entropy()).sum()

    batch = jax.export.symbolic_shape("batch")[0]
    exported = jax.export.export(gradient)(jax.ShapeDtypeStruct((batch, 3), jnp.float32))
    p = jnp.array([[0.2, 0.5, 0.9], [0.3, 0.6, 0.1]])
    for rows in (p, p[:1]):
        np.testing.assert_allclose(exported.call(rows), gradient(rows), rtol=1e-6)
    weighted = jax.jit(lambda p: PoissonBinomial(probs=p, weights=[1, 2, 3]).log_prob(3.0))
    with pytest.raises(tt.ParameterError, match="a batch of a known size"):
        jax.export.export(weighted)(jax.ShapeDtypeStruct((batch, 3), jnp.float32))


def test_log_prob_broadcasts_values_against_laws():
    d = ConditionalBernoulli(jnp.array([1, 2]), jnp.zeros((2, 3)))
    np.testing.assert_allclose(d.log_prob(jnp.array([1.0, 0.0, 0.0])), [-np.log(3), -np.inf])
    mixed = dist.MixtureSameFamily(dist.Categorical(jnp.array([0.5, 0.5])), d)
    np.testing.assert_allclose(mixed.log_prob(jnp.array([1.0, 0.0, 0.0])), -np.log(6), rtol=1e-6)
    values = jnp.array([[1.0, 0, 0], [0, 1, 0], [1, 1, 0], [1, 1, 1]])[:, None]
    assert d.log_prob(values).shape == (4, 2)
    np.testing.assert_allclose(jnp.exp(d.log_prob(values)).sum(0), [2 / 3, 1 / 3], rtol=1e-6)
    sums = PoissonBinomial(probs=jnp.array([[0.5, 0.5], [0.0, 1.0]]))
    np.testing.assert_allclose(
        jnp.exp(sums.log_prob(jnp.arange(3)[:, None])), [[0.25, 0], [0.5, 1], [0.25, 0]]
    )
    np.testing.assert_allclose(sums.cdf(jnp.arange(3)[:, None]), [[0.25, 0], [0.75, 1], [1, 1]])


def test_divergences_are_sums_over_states():
    other = np.array([-0.5, 0.2, 0.7, 1.0], np.float32)
    groups = [tt.Group([0, 1], tt.geometric(0.5)), tt.Group([2], tt.geometric(3.0))]
    weight = np.exp(STATES @ other) * 0.5 ** STATES[:, :2].sum(1) * 3.0 ** STATES[:, 2]
    p, q = exact_law(LOGITS, TABLE), weight / weight.sum()
    q_law, p_law = CountDistribution(other, groups), CountDistribution(LOGITS, TABLE)
    exact = (p[p > 0] * np.log(p[p > 0] / q[p > 0])).sum()
    np.testing.assert_allclose(dist.kl_divergence(p_law, q_law), exact, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(lambda p, q: dist.kl_divergence(p, q))(p_law, q_law), exact, rtol=1e-5)
    assert dist.kl_divergence(q_law, p_law) == np.inf  # four are possible under the first law only
    assert dist.kl_divergence(p_law, CountDistribution([0.0, -np.inf, 0.0, 0.0])) == np.inf
    assert dist.kl_divergence(p_law, CountDistribution([0.0, np.inf, 0.0, 0.0])) == np.inf
    np.testing.assert_allclose(dist.kl_divergence(p_law, p_law), 0.0, atol=1e-6)
    subsets = ConditionalBernoulli(1, jnp.zeros((2, 4))), ConditionalBernoulli(1, jnp.log(jnp.arange(1.0, 5)))
    exact = np.mean(np.log(0.25 / (np.arange(1, 5) / 10)))
    np.testing.assert_allclose(dist.kl_divergence(*subsets), [exact, exact], rtol=1e-5)
    a, b = np.array([0.0, 0.5, 0.3]), np.array([0.2, 0.5, 0.9])
    laws = law_of_sum(a)[:3], law_of_sum(b)[:3]
    sums = PoissonBinomial(probs=a), PoissonBinomial(probs=b)
    exact = (laws[0] * np.log(laws[0] / laws[1])).sum()
    np.testing.assert_allclose(dist.kl_divergence(*sums), exact, rtol=1e-5)
    assert dist.kl_divergence(*sums[::-1]) == np.inf
    np.testing.assert_allclose(dist.kl_divergence(sums[0].expand([2]), sums[1]), [exact] * 2, rtol=1e-5)


def test_draws_of_rare_trials_follow_their_law():
    d = PoissonBinomial(probs=jnp.full(4096, 1e-9))
    assert int(d.sample(jax.random.key(0), (4096,)).sum()) == 0  # 0.02 are expected


def test_bad_values_are_refused():
    with pytest.raises(tt.ParameterError, match="one of"):
        PoissonBinomial()
    with pytest.raises(tt.ParameterError, match=r"\[0, 1\]"):
        PoissonBinomial(probs=np.array([0.5, 1.5]))
    with pytest.raises(tt.ParameterError, match="k <= n = 4"):
        ConditionalBernoulli(5, LOGITS)
    with pytest.raises(tt.ParameterError, match="4 entries on the last axis"):
        ConditionalBernoulli(2, LOGITS).log_prob(jnp.array([1, 1]))


def test_nuts_on_matched_sets_agrees_with_conditional_logit():
    pytest.importorskip("sklearn")
    from tallytree.estimators import ConditionalLogit

    rng = np.random.default_rng(2)
    x = rng.normal(size=(150, 4, 2))
    truth = np.array([1.0, -0.7])
    cases = rng.integers(1, 3, 150)
    y = np.stack(
        [tt.CountModel(row @ truth, tt.exactly(int(k))).sample(rng=rng) for row, k in zip(x, cases)]
    ).reshape(150, 4)

    def model(x, cases, y=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
        with numpyro.plate("sets", len(x)):
            numpyro.sample("y", ConditionalBernoulli(cases, x @ beta), obs=y)

    kernel = numpyro.infer.NUTS(model)
    run = numpyro.infer.MCMC(kernel, num_warmup=150, num_samples=250, progress_bar=False)
    run.run(jax.random.key(0), jnp.asarray(x, jnp.float32), jnp.asarray(cases), jnp.asarray(y, jnp.float32))
    draws = np.asarray(run.get_samples()["beta"])
    spread = draws.std(0)
    assert (np.abs(draws.mean(0) - truth) < 2 * spread + 0.05).all()
    groups = np.repeat(np.arange(150), 4)
    fit = ConditionalLogit().fit(x.reshape(-1, 2), y.reshape(-1), groups=groups)
    assert (np.abs(draws.mean(0) - np.ravel(fit.coef_)) < 0.5 * spread).all()
    predicted = numpyro.infer.Predictive(model, run.get_samples())(
        jax.random.key(1), jnp.asarray(x[:3], jnp.float32), jnp.asarray(cases[:3])
    )["y"]
    np.testing.assert_array_equal(predicted.sum(-1), np.broadcast_to(cases[:3], (250, 3)))


def test_svi_with_plates_and_masks_finds_the_mode_of_the_posterior():
    """Three k-subsets of four with one common slope; masked rows must not matter. The mode is found by a search."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3, 4)).astype(np.float32)
    k, y = np.array([1, 2, 2]), np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1]], np.float32)
    seen = np.array([True, True, False])

    def model(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 2.0))
        with numpyro.plate("sets", 3), numpyro.handlers.mask(mask=seen):
            numpyro.sample("y", ConditionalBernoulli(k, beta * x), obs=y)

    guide = numpyro.infer.autoguide.AutoDelta(model)
    svi = numpyro.infer.SVI(model, guide, numpyro.optim.Adam(0.1), numpyro.infer.Trace_ELBO())
    found = svi.run(jax.random.key(0), 200, x, y, progress_bar=False)
    grid = np.linspace(-5, 5, 2001)
    log_posterior = -(grid**2) / 8
    for row, count, on in zip(x[:2].astype(float), k, y):
        subsets = STATES[STATES.sum(1) == count]
        weights = grid[:, None] * (subsets @ row)
        log_posterior += grid * (on @ row) - np.logaddexp.reduce(weights, 1)
    assert abs(float(found.params["beta_auto_loc"]) - grid[np.argmax(log_posterior)]) < 0.02
    drawn = numpyro.infer.Predictive(model, params=found.params, guide=guide, num_samples=5)
    np.testing.assert_array_equal(drawn(jax.random.key(1), x)["y"].sum(-1), np.broadcast_to(k, (5, 3)))
