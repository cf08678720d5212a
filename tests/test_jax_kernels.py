"""Kernels of tallytree.jax for CUDA devices, by Pallas' interpreter, and the linear maps that are made of them."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="tallytree.jax needs JAX: pip install tallytree[jax]")
pytest.importorskip("jax.experimental.pallas.triton", reason="the kernels need Pallas, which comes with JAX")
jnp = jax.numpy
pytest.importorskip("tallytree.jax")

from tallytree.jax import arithmetic, characteristic, frequencies, kernels, stages  # noqa: E402
from tallytree.jax.tree import solve  # noqa: E402
from tallytree.structure.nested.schedule import full_schedule  # noqa: E402


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def problem(rows, n):
    """Probabilities, chosen frequencies and which of them count, with 1 - cos w and sin w as NumPy arrays."""
    rng = np.random.default_rng(rows * n)
    p = rng.random((rows, n))
    period = jnp.asarray(rng.uniform(n / 3, n + 1, (rows, 1)))
    chosen = frequencies.choose_frequencies(period, jnp.asarray(rng.uniform(0.5, 8.0, (rows, 1))), n)
    used = np.arange(chosen.versine.shape[1]) < np.asarray(chosen.needed)[:, None]
    return p, chosen, used, np.asarray(chosen.versine), np.asarray(chosen.sine)


SHAPES = [
    (32, 64),
    (3, 32),
    (1, 4096),
]  # programs of several models, of stretches, and several stretches a program


@pytest.mark.parametrize(("rows", "n"), SHAPES)
def test_products_are_the_characteristic_function(rows, n):
    p, chosen, used, versine, sine = problem(rows, n)
    re, im = kernels.products(p, chosen.versine, chosen.sine, chosen.needed, interpret=True)
    factors = 1.0 - p[:, :, None] * (versine - 1j * sine)[:, None]
    exact = np.prod(factors, 1)
    assert used.sum(1).min() > 3
    np.testing.assert_allclose((np.asarray(re) + 1j * np.asarray(im))[used], exact[used], atol=1e-14)


@pytest.mark.parametrize(("rows", "n"), SHAPES)
def test_sums_over_variables_and_over_frequencies(rows, n):
    p, chosen, used, versine, _ = problem(rows, n)
    v = 0.9 * 2.0 * p * (1.0 - p)
    weight = 1.0 / (1.0 - v[:, :, None] * versine[:, None])
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(2, rows, n)), rng.normal(size=(3, rows, versine.shape[1]))
    found = kernels.over_variables(v, chosen.versine, tuple(x), chosen.needed, interpret=True)
    for sums, given in zip(found, x):
        exact = (given[:, :, None] * weight).sum(1)
        np.testing.assert_allclose(np.asarray(sums)[used], exact[used], rtol=1e-12, atol=1e-11)
    for power in (1, 2):
        found = kernels.over_frequencies(power, v, chosen.versine, tuple(a), chosen.needed, interpret=True)
        for sums, given in zip(found, a):
            exact = ((given * used)[:, None] * weight**power).sum(2)
            np.testing.assert_allclose(sums, exact, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(("rows", "n"), SHAPES)
def test_transforms_read_the_window_of_a_table_and_nothing_else(rows, n):
    _, chosen, used, versine, sine = problem(rows, n)
    counts = np.arange(n + 1)
    first, last = np.arange(rows) % 5, n - np.arange(rows) % 3  # the last entry of all is among them
    f = np.random.default_rng(1).random((rows, n + 1))
    f = np.where((counts >= first[:, None]) & (counts <= last[:, None]), f, 0.0)
    window = np.stack([first, last], 1).astype(np.int32)
    by_kernel = kernels.transform(jnp.asarray(f), chosen, jnp.asarray(window), interpret=True)
    by_turns = frequencies.transform(jnp.asarray(f), chosen, jnp.asarray(window))
    w = np.arctan2(sine, 1.0 - versine)
    for row in range(rows):
        exact = np.exp(-1j * w[row, used[row], None] * counts) @ f[row]
        for re, im in (by_kernel, by_turns):
            found = (np.asarray(re) + 1j * np.asarray(im))[row, used[row]]
            np.testing.assert_allclose(found, exact, atol=1e-13 * n)


@pytest.fixture
def as_on_a_device(monkeypatch):
    for module in (stages, frequencies, arithmetic):
        monkeypatch.setattr(module, "on_cpu", lambda: False)

    def kernels_are(interpreted):
        monkeypatch.setattr(stages, "INTERPRETED", interpreted)

    return kernels_are


def test_maps_made_of_kernels_have_the_derivatives_of_plain_sums(as_on_a_device):
    """Forward, backward, and backward over forward: the last differentiates the system of equations itself."""
    p, chosen, used, versine, _ = problem(3, 32)
    v, rng = jnp.asarray(0.9 * 2.0 * p * (1.0 - p)), np.random.default_rng(2)
    x = jnp.asarray(rng.normal(size=v.shape))
    a = jnp.asarray(rng.normal(size=versine.shape) * used)
    answer, along = jnp.asarray(rng.normal(size=versine.shape) * used), jnp.asarray(rng.normal(size=v.shape))

    def both(v, x, a):
        there = frequencies.pairs_over_variables(v, chosen.versine, (x, x * x), chosen.needed)
        back = frequencies.pairs_over_frequencies(1, v, chosen.versine, (a,), chosen.needed)
        return sum(jnp.vdot(answer, y) for y in there) + jnp.vdot(along, back[0])

    gradient = jax.grad(both, (1, 2))  # of what the maps are linear in, as the rules use them

    def curved(v):
        return sum(jnp.sum(g**2) for g in gradient(v, x, a))

    def everything():
        return *gradient(v, x, a), jax.grad(curved)(v), jax.jvp(curved, (v,), (along,))[1]

    weight = 1.0 / (1.0 - np.asarray(v)[:, :, None] * versine[:, None])
    exact_x = (1.0 + 2.0 * np.asarray(x)) * (weight * np.asarray(answer)[:, None]).sum(2)
    exact_a = (weight * np.asarray(along)[:, :, None]).sum(1)
    step = 1e-6 * np.asarray(along)
    for interpreted in (False, True):
        as_on_a_device(interpreted)
        to_x, to_a, bent, moved = jax.jit(lambda: everything())()
        np.testing.assert_allclose(to_x, exact_x, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(np.asarray(to_a)[used], exact_a[used], rtol=1e-11, atol=1e-11)
        slope = (curved(v + step) - curved(v - step)) / 2e-6
        np.testing.assert_allclose(moved, slope, rtol=1e-6)
        np.testing.assert_allclose(jnp.vdot(bent, along), moved, rtol=1e-11)


def test_the_quick_pass_by_kernels_is_the_quick_pass(as_on_a_device, monkeypatch):
    rng = np.random.default_rng(3)
    nu = jnp.asarray(rng.normal(size=(3, 32)))
    table = jnp.asarray(rng.normal(size=(3, 33)) - 0.05 * (np.arange(33) - 9.0) ** 2)
    along = jnp.asarray(rng.normal(size=nu.shape))

    def answers(nu):
        found = characteristic.solve(nu, table)
        return found.messages, found.log_partition

    def everything():
        values, moved = jax.jvp(answers, (nu,), (along,))
        back = jax.vjp(answers, nu)[1]((along, jnp.ones(3)))[0]
        return *values, *moved, back, characteristic.solve(nu, table).bound

    as_on_a_device(True)
    by_kernels = jax.jit(everything)()
    monkeypatch.undo()
    with jax.enable_x64(True):
        plain = jax.jit(lambda: everything())()
    assert np.isfinite(np.asarray(plain[-1])).all()
    for a, b in zip(by_kernels, plain):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


def test_kernels_lower_for_cuda_whatever_the_flag_says(as_on_a_device):
    """No device is needed for this: Pallas writes the Triton module when a function is lowered."""
    import tallytree as tt
    import tallytree.jax as ttj

    as_on_a_device(False)
    with jax.enable_x64(False):
        x = np.zeros((3, 40), np.float32)
        traced = jax.jit(lambda x: ttj.posterior_logits(x, tt.exactly(7))).trace(x)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("triton") >= 3


def test_merges_lower_for_cuda_forward_and_backward(as_on_a_device):
    import tallytree as tt
    import tallytree.jax as ttj

    as_on_a_device(False)
    groups = [tt.Group(range(16), tt.at_most(9)), tt.Group(None, tt.exactly(12))]
    with jax.enable_x64(False):
        x = np.zeros((3, 32), np.float32)
        loss = jax.jit(jax.grad(lambda x: jnp.sum(ttj.marginals(x, groups) ** 2))).trace(x)
        text = loss.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("triton") >= 4


@pytest.mark.parametrize(("rows", "short", "long"), [(130, 4, 5), (3, 1, 17), (2, 20, 129)])
def test_sliding_messages_are_convolutions_and_correlations(rows, short, long):
    rng = np.random.default_rng(rows)
    a, b = rng.random((rows, short)), rng.random((rows, long))
    exact = [np.convolve(x, y) for x, y in zip(a, b)]
    for x, y in ((a, b), (b, a)):
        found = kernels.convolve(jnp.asarray(x), jnp.asarray(y), interpret=True)
        np.testing.assert_allclose(found, exact, rtol=1e-14)
    exact = [np.correlate(y, x, "valid") for x, y in zip(a, b)]
    found = kernels.correlate(jnp.asarray(b), jnp.asarray(a), interpret=True)
    np.testing.assert_allclose(found, exact, rtol=1e-14)


def test_merges_by_kernels_have_the_derivatives_of_polynomials(as_on_a_device):
    """Backward, and backward over backward, against the bilinear forms written out."""
    rng = np.random.default_rng(4)
    short, long = arithmetic.FEWEST, arithmetic.FEWEST + 3
    a, b = (jnp.asarray(rng.random((2, 3, w))) for w in (short, long))
    width = short + long - 1
    shifts = np.zeros((short, long, width))
    for i in range(short):
        for j in range(long):
            shifts[i, j, i + j] = 1.0
    up, down = rng.random((2, 3, width)), rng.random((2, 3, long - short + 1))

    def by_merges(a, b):
        law = arithmetic.convolve(a, b)
        return jnp.sum(up * law**2) + jnp.sum(down * arithmetic.correlate(b, a) ** 3)

    def written_out(a, b):
        law = jnp.einsum("...i,...j,ijk->...k", a, b, shifts)
        back = jnp.einsum(
            "...k,...i,ikj->...j", b, a, np.moveaxis(shifts[:, : long - short + 1, :long], 2, 1)
        )
        return jnp.sum(up * law**2) + jnp.sum(down * back**3)

    def twice(function):
        gradient = jax.grad(function, (0, 1))
        return jax.grad(lambda a, b: sum(jnp.sum(jnp.sin(1e-3 * g)) for g in gradient(a, b)), (0, 1))

    exact = (*jax.grad(written_out, (0, 1))(a, b), *twice(written_out)(a, b))
    for interpreted in (False, True):
        as_on_a_device(interpreted)
        found = jax.jit(lambda a, b: (*jax.grad(by_merges, (0, 1))(a, b), *twice(by_merges)(a, b)))(a, b)
        for x, y in zip(found, exact):
            np.testing.assert_allclose(x, y, rtol=1e-10)


def test_nested_models_by_kernels_are_those_of_the_native_engine(as_on_a_device, monkeypatch):
    import tallytree as tt

    monkeypatch.setattr(arithmetic, "FEWEST", 3)
    sets, potentials = [range(5), range(5, 11), None], [tt.gaussian(2.0, 1.0), tt.at_most(4), tt.exactly(5)]
    groups = [tt.Group(s, f) for s, f in zip(sets, potentials)]
    logits = np.random.default_rng(5).normal(size=(3, 11))
    native = tt.CountModel(logits, groups)
    tree = native.tree
    packed = [f.log_table(tree.group_size(i)) for i, f in enumerate(potentials)]
    tables = jnp.asarray(np.concatenate(packed))[None]
    as_on_a_device(True)
    schedule = full_schedule(tree.program)
    found = jax.jit(lambda x: solve(schedule, arithmetic.PLAIN, x, tables))(logits)
    np.testing.assert_allclose(logits + np.asarray(found.messages), native.posterior_logits, atol=1e-12)
    assert np.isfinite(np.asarray(found.bound)).all()
