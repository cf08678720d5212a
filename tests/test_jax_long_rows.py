"""Long rows of tallytree.jax: the characteristic function, its certificate, and models that it does not serve."""

from __future__ import annotations

import time

import numpy as np
import pytest

import tallytree as tt

jax = pytest.importorskip("jax", reason="tallytree.jax needs JAX: pip install tallytree[jax]")
jnp = jax.numpy
ttj = pytest.importorskip("tallytree.jax")

from tallytree.jax import characteristic, flat, frequencies, ladder, stages  # noqa: E402
from tallytree.jax.frequencies import characteristic as characteristic_function  # noqa: E402

INF = np.inf
N = 40  # one padded size, 64, for all tests
COUNTS = np.arange(N + 1)


def one_hot(k):
    return np.where(k == COUNTS, 0.0, -INF)


def mixed_batch():
    """Log-odds (B, 40) and tables (B, 41): easy ones, far tails, two modes, rough tables, infinite log-odds."""
    rng = np.random.default_rng(11)
    tables = [one_hot(k) for k in (0, 1, 4, 20, 39, 40)]
    tables += [np.where(k <= COUNTS, 0.0, -INF) for k in (1, 30)]
    tables += [-0.5 * ((COUNTS - m) / s) ** 2 for m, s in ((3, 0.3), (20, 4.0), (35, 100.0))]
    tables += [np.zeros(N + 1), COUNTS * 3.0, COUNTS * -30.0]
    tables += [np.maximum(one_hot(2), one_hot(37)), np.maximum(one_hot(0), one_hot(40) - 5.0)]
    tables += [rng.normal(size=N + 1) * s for s in (1.0, 20.0, 500.0)]
    logits = np.concatenate([rng.normal(size=(len(tables), N)) * s for s in (0.1, 1.0, 6.0, 60.0)])
    tables = np.tile(tables, (4, 1))
    middle = (rng.random(logits.shape) < 0.04) & np.isfinite(tables[:, 5:6] + tables[:, 30:31])
    logits[middle] = rng.choice([-INF, INF], middle.sum())
    return logits, tables


@pytest.fixture(scope="module")
def answers():
    logits, tables = mixed_batch()
    with jax.enable_x64(True):
        odds = jax.jit(ttj.posterior_logits)(logits, tables)
        found = odds, ttj.log_partition(logits, tables), ttj.error_bound(logits, tables)
    return tuple(np.asarray(x) for x in found)


def test_every_row_is_right_whatever_stands_beside_it(answers):
    logits, tables = mixed_batch()
    model = tt.CountModel(logits, tables)
    odds, log_z, bound = answers
    exact = np.asarray(model.posterior_logits)
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(odds[~finite], exact[~finite])
    np.testing.assert_allclose(odds[finite], exact[finite], rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(log_z, model.log_partition, rtol=1e-10, atol=1e-10)
    error = np.where(finite, np.abs(np.where(finite, odds, 0.0) - np.where(finite, exact, 0.0)), 0.0)
    assert (error.max(1) <= bound + 1e-12).all()


@pytest.fixture(scope="module")
def padded():
    logits, tables = mixed_batch()
    fill = np.full((len(logits), 64 - N), -INF)
    return np.concatenate([logits, fill], 1), np.concatenate([tables, fill], 1)


def test_the_certificate_tells_rows_apart(padded):
    with jax.enable_x64(True):
        found = jax.jit(characteristic.solve)(*padded)
    served = np.isfinite(found.bound)
    kinds = len(served) // 4
    assert served[:12].all()  # one mode and log-odds of ordinary size
    assert not served[[14, kinds + 14]].any()  # two modes far apart
    assert 0.5 < served.mean() < 1.0


def test_only_doubtful_rows_are_sent_on(padded):
    """A slow pass that marks what it touches shows which rows it was given."""

    def marking(nu, tables):
        right = flat.solve_logarithms(nu, tables)
        return right._replace(log_partition=jnp.full_like(right.log_partition, 12345.0))

    with jax.enable_x64(True):
        found, certified = jax.jit(lambda nu, t: ladder.climb((characteristic.solve, marking), nu, t))(
            *padded
        )
    touched = np.asarray(found.log_partition) == 12345.0
    assert touched[~np.asarray(certified)].all()
    assert (touched & np.asarray(certified)).sum() < ladder._rows_at_once(len(touched), 65)


def test_derivatives_of_certified_and_doubtful_rows():
    logits, tables = mixed_batch()
    few = np.array([3, 9, 14])  # the middle of three is no easier than the first; the last has two modes
    with jax.enable_x64(True):
        x, t = jnp.asarray(logits[few]), jnp.asarray(tables[few])
        v = jnp.asarray(np.random.default_rng(0).normal(size=x.shape))

        @jax.jit
        def both_ways(x, t, v):
            forward = jax.jvp(lambda x: ttj.marginals(x, t), (x,), (v,))[1]
            backward = jax.vjp(lambda x: ttj.marginals(x, t), x)[1](v)[0]
            return forward, backward, jax.grad(lambda t: jnp.sum(ttj.log_partition(x, t)))(t)

        forward, backward, beliefs = both_ways(x, t, v)
    for i, row in enumerate(few):
        model = tt.CountModel(logits[row], tables[row])
        exact = np.asarray(model.covariance()) @ np.asarray(v)[i]
        np.testing.assert_allclose(forward[i], exact, atol=1e-9)
        np.testing.assert_allclose(backward[i], exact, atol=1e-9)
        np.testing.assert_allclose(beliefs[i], np.exp(model.count_log_probs()), atol=1e-11)


def test_the_characteristic_function_is_the_product_of_factors():
    rng = np.random.default_rng(1)
    p = rng.random((3, 64))
    with jax.enable_x64(True):
        chosen = frequencies.choose_frequencies(
            jnp.array([[5.0], [31.0], [65.0]]), jnp.array([[0.1], [3.0], [16.0]]), 64
        )
        re, im = map(
            np.asarray, characteristic_function(jnp.asarray(p), chosen.versine, chosen.sine, chosen.needed)
        )
    w = 2 * np.pi * np.arange(re.shape[1]) / np.asarray(chosen.period)
    exact = np.prod(1 - p[:, :, None] + p[:, :, None] * np.exp(1j * w[:, None, :]), 1)
    for row, count in enumerate(np.asarray(chosen.needed)):
        np.testing.assert_allclose((re + 1j * im)[row, :count], exact[row, :count], atol=1e-14)
    assert (np.asarray(chosen.period)[:, 0] >= [5, 31, 65]).all()


@pytest.mark.parametrize("n", [32, 256, 4096])
def test_powers_of_frequencies_are_exact_whatever_the_size(n):
    with jax.enable_x64(True):
        chosen = frequencies.choose_frequencies(jnp.array([[9.0], [77.0]]), jnp.array([[1.0], [30.0]]), n)
    period, size = np.asarray(chosen.period)[:, 0], chosen.small[0].shape[1]
    m = np.arange(chosen.share.shape[1])
    for table, step in ((chosen.small, 1), (chosen.large, size)):
        counts = step * np.arange(table[0].shape[1])
        for row in range(2):
            turns = (m * counts[:, None]) % int(period[row])
            exact = np.exp(-2j * np.pi * turns / period[row])
            found = np.asarray(table[0])[row] + 1j * np.asarray(table[1])[row]
            np.testing.assert_allclose(found, exact, atol=1e-14)
    assert (chosen.large[0].shape[1] - 1) * size == n


def test_blocks_of_rows_change_nothing(monkeypatch):
    """Batches are worked on in blocks that fit a cache, values and derivatives alike; a last block may be short."""
    rng = np.random.default_rng(2)
    nu, tables, v = (rng.normal(size=(7, m)) for m in (4, 5, 4))
    rungs = flat.solve_plain, flat.solve_logarithms

    def all_answers(nu, tables, v):
        found, certified = ladder.climb(rungs, nu, tables)
        zeros = jnp.zeros_like(tables)

        def moved(d):
            return ladder.differential(rungs, certified.at[3].set(False), (nu, tables), (d, zeros))[0]

        return found.messages, found.log_partition, moved(v), jax.vjp(moved, v)[1](v)[0]

    with jax.enable_x64(True):
        whole = jax.jit(all_answers)(nu, tables, v)
        monkeypatch.setattr(stages, "_CELLS", 12)  # three rows
        assert stages.rows_in_a_block(7, 4) == 3
        blocks = jax.jit(lambda *x: all_answers(*x))(nu, tables, v)
    for a, b in zip(whole, blocks):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    assert np.abs(whole[2]).min() > 0.0


def test_a_million_variables_are_certified():
    """The quick pass serves them: any other would take hours."""
    n = 1 << 20
    logits = np.random.default_rng(3).normal(size=(1, n))
    table = np.full((1, n + 1), -INF)
    table[0, n // 10] = 0.0
    with jax.enable_x64(True):
        found = jax.jit(characteristic.solve)(jnp.asarray(logits), jnp.asarray(table))
    want = tt.CountModel(logits[0], tt.exactly(n // 10)).posterior_logits
    error = np.abs(np.asarray(found.messages)[0] + logits[0] - want).max()
    assert error <= float(found.bound[0]) <= 1e-10


def test_the_slow_pass_is_not_run_for_a_certified_model():
    """Alone in its batch nothing in a loop would depend on the loop: XLA would run all of it every time."""
    x = np.random.default_rng(0).normal(size=3000)
    compiled = jax.jit(lambda x: ttj.marginals(x, tt.exactly(600)))
    found = [compiled(x)]
    start = time.process_time()
    found.append(compiled(x).block_until_ready())
    assert time.process_time() - start < 0.05  # 0.0003 s; the slow pass takes 0.14
    for part in found:
        np.testing.assert_allclose(part, tt.CountModel(x, tt.exactly(600)).marginals, rtol=2e-5)


def test_tables_are_judged_where_the_posterior_lies():
    """Entries of -10^6 far away from it do not spoil the certificate."""
    n = 3000
    with jax.enable_x64(True):
        nu, log_f = np.zeros((1, 4096)), tt.gaussian(n / 3, 0.4).log_table(4096)[None]
        nu[:, n:] = -INF
        found = jax.jit(characteristic.solve)(nu, log_f)
        assert float(found.bound[0]) < 1e-9
        exact = tt.CountModel(nu[0, :n], tt.gaussian(n / 3, 0.4))
        np.testing.assert_allclose(found.log_partition[0], exact.log_partition, rtol=1e-12)


def test_new_numbers_of_items_and_bags_compile_little():
    events = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.append(event))

    def compilations(items, n_bags=10):
        bags, before, x = np.arange(items) % n_bags, len(events), np.linspace(-1.0, 1.0, items)
        value, slope = jax.value_and_grad(lambda x: ttj.losses.bag_nll(x, bags, jnp.full(n_bags, 3)))(
            x.astype(np.float32)
        )
        exact = [-tt.PoissonBinomial(logits=x[bags == b]).logpmf(3) for b in range(n_bags)]
        assert value == pytest.approx(np.mean(exact), rel=1e-5)
        assert slope.shape == (items,)
        return sum("backend_compile" in event for event in events[before:])

    assert compilations(100) > 0
    assert [compilations(items) <= 3 for items in (101, 97, 110)] == [True] * 3
    assert [compilations(110, n_bags) <= 6 for n_bags in (9, 11, 13)] == [True] * 3
