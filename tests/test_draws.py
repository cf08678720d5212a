"""Samples: goodness of fit against enumeration, never an impossible state, same seed same samples, shapes, errors.

Seeds are fixed, so a test that passes once passes always.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import gammaln

import tallytree as tt
from helpers import model_of
from oracle_enumeration import enumerate_model
from strategies import nested_models, random_case
from tallytree import config
from tallytree.engine import thresholds
from tallytree.engine.law import log_convolve
from tallytree.structure.nested.blocks import BLOCK, cut

INF = math.inf
NATIVE = config.native()
LEVELS = [] if NATIVE is None else NATIVE.levels()
ENGINES = ["array", *LEVELS]


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    """The array engine, or the compiled one at an instruction-set level."""
    use(monkeypatch, request.param)
    return request.param


def use(monkeypatch, name):
    if name == "array":
        monkeypatch.setenv("TALLYTREE_ENGINE", "array")
    else:
        monkeypatch.delenv("TALLYTREE_ENGINE", raising=False)
        monkeypatch.setenv("TALLYTREE_LEVEL", name)
    monkeypatch.setattr(config, "_current", None)  # the environment is read again


def chi_square(counts, expected):
    """p-value with cells pooled, most likely first, to an expected count of at least 10; None for a single cell."""
    order = np.argsort(-expected, kind="stable")
    cells, seen = [], []
    e = o = 0.0
    for i in order:
        e, o = e + expected[i], o + counts[i]
        if e >= 10.0:
            cells.append(e)
            seen.append(o)
            e = o = 0.0
    if not cells:
        return None
    cells[-1] += e
    seen[-1] += o
    if len(cells) == 1:
        return None
    cells, seen = np.array(cells), np.array(seen)
    return float(stats.chi2.sf(((seen - cells) ** 2 / cells).sum(), len(cells) - 1))


def states_seen(y):
    return np.bincount(y.astype(np.int64) @ (1 << np.arange(y.shape[-1])[::-1]), minlength=2 ** y.shape[-1])


# -- the law -------------------------------------------------------------------------------------------------------


def p_values(models, samples, seed):
    """Goodness of fit of many random models, half of them tame so that many cells are filled."""
    found = []
    for i in range(models):
        tame = {"theta_scale": 1.0, "table_scale": 0.5} if i % 2 else {}
        case = random_case(seed + i, max_variables=8, **tame)
        oracle = enumerate_model(case.theta, case.sets)
        counts = states_seen(model_of(case).sample(samples, rng=seed + i))
        assert counts[np.isneginf(oracle.log_probs)].sum() == 0
        found.append(chi_square(counts, samples * np.exp(oracle.log_probs)))
    return [p for p in found if p is not None]


def test_samples_have_the_law_of_the_model(engine):
    found = p_values(200, 3000, seed=1000)
    assert len(found) > 100
    assert stats.kstest(found, "uniform").pvalue > 0.01
    assert min(found) > 1e-5


@pytest.mark.parametrize("name", ENGINES[:2])
def test_single_samples_have_the_law_of_the_model(name, monkeypatch):
    # One sample at a time uses narrow groups of lanes and other counters than many at once.
    use(monkeypatch, name)
    case = random_case(3, 5, shape="balanced", theta_scale=1.0, table_scale=0.5, zeros=False, infinite=False)
    model, rng = model_of(case), np.random.default_rng(0)
    y = np.stack([model.sample(rng=rng) for _ in range(2000)])
    expected = 2000 * np.exp(enumerate_model(case.theta, case.sets).log_probs)
    assert chi_square(states_seen(y), expected) > 0.01


def standardised(y, marginals):
    assert np.all(y[:, marginals == 0] == 0)
    assert np.all(y[:, marginals == 1] == 1)
    inside = (marginals > 1e-3) & (marginals < 1 - 1e-3)
    p = marginals[inside]
    return (y[:, inside].mean(0) - p) / np.sqrt(p * (1 - p) / len(y))


def assert_marginals_fit(y, model):
    z = standardised(y, np.asarray(model.marginals))
    assert np.abs(z).max() < 5.5
    assert abs(np.mean(z**2) - 1.0) < 6.0 * math.sqrt(2.0 / len(z)) + 0.05


def large_models():
    rng = np.random.default_rng(5)
    n = 5000
    k = np.arange(n + 1)
    yield "exactly", tt.CountModel(rng.normal(-1, 1, n), tt.exactly(n // 10))
    yield "wide", tt.CountModel(rng.normal(0, 0.3, n), gammaln(k + 1) + gammaln(n - k + 1))
    yield (
        "two modes",
        tt.CountModel(
            rng.normal(-1, 1, n),
            np.logaddexp(-(((k - 900) / 30) ** 2) + 178.0, -(((k - 2400) / 20) ** 2) + 440),
        ),
    )
    yield "spiky", tt.CountModel(rng.normal(0, 1, n), 100.0 * rng.normal(size=n + 1))
    yield "wild logits", tt.CountModel(rng.normal(0, 100, n), rng.normal(0, 20, n + 1))
    fixed = np.repeat([INF, -INF, 0.0], [300, 500, n - 800]) + rng.normal(0, 1, n)
    yield "fixed variables", tt.CountModel(fixed, np.where(k % 7 == 3, -(((k - 2400) / 20) ** 2), -INF))
    groups = [tt.Group(range(i, i + 25), rng.normal(0, 1, 26)) for i in range(0, 1000, 25)]
    groups += [tt.Group(range(0, 500), tt.parity("odd")), tt.Group(range(1000), tt.gaussian(400.0, 8.0))]
    yield "nested", tt.CountModel(rng.normal(0, 1, 1200), groups)


LARGE = dict(large_models())


@pytest.mark.parametrize("windows_from", [4096, 1 << 14])
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("engine_name", ENGINES[:2])
def test_large_models_have_the_right_marginals_and_counts(name, engine_name, windows_from, monkeypatch):
    use(monkeypatch, engine_name)
    monkeypatch.setattr(thresholds, "LONG_DRAWS", windows_from)
    model = LARGE[name].replace()  # nothing cached from another engine
    y = model.sample(1000, rng=17)
    assert_marginals_fit(y, model)
    for group in range(model.tree.family.n_groups)[-3:]:
        members = model.tree.groups[group]
        counts = np.bincount(y[:, members].sum(1, dtype=np.int64), minlength=len(members) + 1)
        p = chi_square(counts, 1000 * np.exp(model.count_log_probs(group)))
        assert p is None or p > 1e-4


def test_inner_tables_count_once(engine):
    # Squaring inner tables when drawing is the classic error; here it would make 0.9 of 0.75.
    model = tt.CountModel(
        np.zeros(4), [tt.Group([0, 1], [0.0, -INF, math.log(3.0)]), tt.Group([2, 3]), tt.Group(None)]
    )
    y = model.sample(20000, rng=0)
    assert abs(y[:, :2].all(-1).mean() - 0.75) < 0.015


def test_variables_in_no_group_are_independent(engine):
    logits = np.array([-INF, -2.0, 0.0, 1.0, INF])
    y = tt.CountModel(logits).sample(20000, rng=4)
    np.testing.assert_allclose(y.mean(0), 1 / (1 + np.exp(-logits)), atol=0.02)
    assert y[:, 0].max() == 0
    assert y[:, 4].min() == 1


def test_rare_states_keep_their_probability(engine):
    # P(y = 1) below the 15 bits of the first comparison: the bits after a tie decide.
    p = 2.0**-13 / 3.0
    y = tt.CountModel(np.full(64, math.log(p / (1 - p))), tt.at_most(64)).sample(20000, rng=2)
    expected = y.size * p
    assert abs(y.sum(dtype=np.int64) - expected) < 4.5 * math.sqrt(expected)


# -- impossible states ---------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(case=nested_models(12, zeros=True), seed=st.integers(0, 2**32), name=st.sampled_from(ENGINES))
def test_no_impossible_state_is_ever_drawn(case, seed, name):
    with pytest.MonkeyPatch.context() as patch:
        use(patch, name)
        model = model_of(case)
        assert np.isfinite(model.log_prob(model.sample(100, rng=seed))).all()


def test_no_impossible_state_in_large_models(engine):
    rng = np.random.default_rng(8)
    logits = rng.normal(0, 300, 700)
    logits[rng.random(700) < 0.2] = INF
    logits[rng.random(700) < 0.2] = -INF
    forced = int((logits == INF).sum())
    table = np.where((np.arange(701) - forced) % 7 == 3, rng.normal(0, 500, 701), -INF)
    y = tt.CountModel(logits, table).sample(300, rng=0)
    assert np.all((y.sum(1, dtype=np.int64) - forced) % 7 == 3)
    assert np.all(y[:, logits == INF] == 1)
    assert np.all(y[:, logits == -INF] == 0)


@pytest.mark.parametrize("k", [0, 1, 63, 64, 65, 127, 128])
def test_full_and_empty_blocks(engine, k):
    y = tt.CountModel(np.linspace(-3, 3, 128), tt.exactly(k)).sample(130, rng=1)
    assert np.all(y.sum(1, dtype=np.int64) == k)


def test_impossible_models_raise(engine):
    with pytest.raises(tt.InfeasibleError, match="probability zero"):
        tt.CountModel([INF, INF, 0.0], tt.exactly(1)).sample(3)
    logits = np.zeros((2, 3))
    logits[1] = -INF
    with pytest.raises(tt.InfeasibleError, match=r"batch index \(1,\)"):
        tt.CountModel(logits, tt.exactly(1)).sample()
    n = 5000
    with pytest.raises(tt.InfeasibleError):
        tt.CountModel(np.full(n, -INF), tt.exactly(1)).sample()


# -- streams -------------------------------------------------------------------------------------------------------


def many_models():
    rng = np.random.default_rng(11)
    tree = tt.CountTree.balanced(300)
    yield tt.CountModel.from_tree(
        tree, rng.normal(size=300), [rng.normal(size=len(g) + 1) for g in tree.groups]
    )
    yield tt.CountModel(rng.normal(size=9000), tt.exactly(1000))
    yield tt.CountModel(
        rng.normal(size=6000), [tt.Group(range(i, i + 30), tt.exactly(3)) for i in range(0, 5000, 30)]
    )


@pytest.mark.parametrize("size", [1, 5, 700])
def test_the_same_seed_gives_the_same_samples_whatever_the_threads_and_the_level(size, monkeypatch):
    for model in many_models():
        seen = set()
        monkeypatch.setattr(thresholds, "LONG_DRAWS", 4096)
        for level in LEVELS or ["array"]:
            use(monkeypatch, level)
            for threads in ("1", "2", "3"):
                monkeypatch.setenv("TALLYTREE_NUM_THREADS", threads)
                monkeypatch.setattr(config, "_current", None)
                seen.add(model.replace().sample(size, rng=7).tobytes())
        assert len(seen) == 1


def test_seeds_generators_and_none(engine):
    model = tt.CountModel(np.zeros(50), tt.exactly(20))
    assert np.array_equal(model.sample(10, rng=3), model.sample(10, rng=np.random.default_rng(3)))
    assert not np.array_equal(model.sample(10, rng=3), model.sample(10, rng=4))
    assert not np.array_equal(model.sample(10), model.sample(10))
    rng = np.random.default_rng(3)
    assert not np.array_equal(model.sample(10, rng=rng), model.sample(10, rng=rng))


def test_drawing_leaves_global_state_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    tt.CountModel(np.zeros(5), tt.exactly(2)).sample(10)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("level", LEVELS)
def test_philox_known_answers(level):
    hooks = pytest.importorskip("tallytree._native.hooks")
    # Published vectors of Philox 4x32-10: counter, key, output.
    ones, pi = [0xFFFFFFFF] * 4, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    vectors = [
        ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (ones, ones[:2], [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (pi, [0xA4093822, 0x299F31D0], [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ]
    for (a, b, c, d), key, want in vectors:
        words = hooks.sample_random(np.array([*key, c, 0], np.uint32), d, a, b, level)
        got = [
            int(words[0]) & 0xFFFFFFFF,
            int(words[0]) >> 32,
            int(words[16]) & 0xFFFFFFFF,
            int(words[16]) >> 32,
        ]
        assert got == want


# -- shapes and errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "lead"), [(None, ()), (0, (0,)), (3, (3,)), ((2, 3), (2, 3)), ((), ()), (np.int64(2), (2,))]
)
@pytest.mark.parametrize("batch", [(), (4,), (2, 1)])
@pytest.mark.parametrize("variables", [0, 1, 5])
def test_shapes(engine, size, lead, batch, variables):
    model = tt.CountModel(np.zeros((*batch, variables)), tt.at_most(variables))
    y = model.sample(size, rng=0)
    assert y.shape == (*lead, *batch, variables)
    assert y.dtype == np.uint8
    sparse = model.sample(size, rng=0, sparse=True)
    assert sparse.shape == y.shape
    assert np.array_equal(sparse.to_dense(), y)


def test_batches_draw_from_every_model_by_itself(engine):
    logits = np.array([[INF, -INF, 0.0, 0.0], [-INF, INF, 0.0, 0.0]])
    y = tt.CountModel(
        logits, np.array([[-INF, -INF, 0.0, -INF, -INF], [-INF, 0.0, -INF, -INF, -INF]])
    ).sample(500, 0)
    assert np.all(y[:, 0, 0] == 1)
    assert np.all(y[:, 1] == [0, 1, 0, 0])
    assert np.all(y[:, 0].sum(-1) == 2)
    assert abs(y[:, 0, 2].mean() - 0.5) < 0.1


def test_equal_models_of_a_batch_are_drawn_independently(engine):
    y = tt.CountModel(np.zeros((2, 40)), tt.exactly(20)).sample(200, rng=0)
    assert abs((y[:, 0] == y[:, 1]).mean() - 0.5) < 0.03
    assert abs((y[1:] == y[:-1]).mean() - 0.5) < 0.03


def test_sparse_samples_are_the_dense_ones(engine, monkeypatch):
    from tallytree.engine.sample import sampler

    monkeypatch.setattr(sampler, "CHUNK", 1 << 16)  # several chunks
    model = tt.CountModel(np.random.default_rng(0).normal(size=(2, 300)), tt.exactly(7))
    dense = model.sample((5, 60), rng=9)
    sparse = model.sample((5, 60), rng=9, sparse=True)
    assert np.array_equal(sparse.to_dense(), dense)
    matrix = sparse.to_scipy()
    assert matrix.shape == (600, 300)
    assert np.array_equal(matrix.toarray(), dense.reshape(600, 300))
    assert sparse.indptr[-1] == len(sparse.indices) == 600 * 7


@pytest.mark.parametrize("size", [-1, 2.5, True, "3", (2, -1), (2, 0.5), [[1]]])
def test_bad_sizes(size):
    with pytest.raises(tt.ParameterError, match="`size` must be"):
        tt.CountModel(np.zeros(3)).sample(size)


@pytest.mark.parametrize("rng", [-1, 2.5, True, "seed", object()])
def test_bad_rng(rng):
    with pytest.raises(tt.ParameterError, match="`rng` must be"):
        tt.CountModel(np.zeros(3)).sample(2, rng)


def test_sparse_must_be_a_truth_value():
    with pytest.raises(tt.ParameterError, match="`sparse` must be True or False"):
        tt.CountModel(np.zeros(3)).sample(2, sparse="yes")


# -- parts ---------------------------------------------------------------------------------------------------------


def reference_convolution(a, b):
    out = np.full(len(a) + len(b) - 1, -INF, np.longdouble)
    for i, value in enumerate(np.asarray(a, np.longdouble)):
        out[i : i + len(b)] = np.logaddexp(out[i : i + len(b)], value + np.asarray(b, np.longdouble))
    return out


def messages():
    rng = np.random.default_rng(21)
    n = np.arange(200)
    yield "smooth", -0.5 * (n - 60.0) ** 2, -0.3 * (n[:90] - 10.0) ** 2
    yield "spiky", 300.0 * rng.normal(size=120), 2000.0 * rng.normal(size=70)
    yield "zeros", np.where(n % 3 == 0, -n * 40.0, -INF), np.where(n[:50] % 6 == 1, 0.0, -INF)
    yield "gaps", np.where(n % 100 < 9, rng.normal(size=200), -INF), np.where(n % 70 < 4, -3.0 * n, -INF)
    yield "point", np.array([3.0]), rng.normal(size=30)
    yield "nothing", np.full(4, -INF), np.zeros(5)


@pytest.mark.parametrize("case", list(messages()), ids=lambda case: case[0])
def test_log_convolution_has_relative_accuracy_everywhere(engine, case):
    _, a, b = case
    want = reference_convolution(a, b)
    first, last = len(want) // 7, len(want) - 1 - len(want) // 9
    got = (
        log_convolve(a, b, first, last)
        if engine == "array"
        else pytest.importorskip("tallytree._native.hooks").log_convolve(a, b, first, last, engine)
    )
    want = np.asarray(want[first : last + 1], float)
    assert np.array_equal(np.isneginf(got), np.isneginf(want))
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=1e-13, atol=1e-12)


def test_every_variable_is_in_one_block():
    tree = tt.CountTree.from_groups([range(10, 300), range(10, 200), range(20, 30), [500, 501]], 510)
    program = tree.program
    forest = cut(program, program.roots, free=True)
    everything = np.sort(np.concatenate([forest.variables, forest.free]))
    assert np.array_equal(everything, np.arange(510))
    assert np.diff(forest.start).max() <= BLOCK
    inner = forest.table[: forest.n_blocks] >= 0
    assert sorted(forest.size[: forest.n_blocks][inner]) == [2, 10]
    assert np.all(forest.left < forest.n_blocks + np.arange(len(forest.left)))


@pytest.mark.parametrize(
    ("logits", "table"),
    [([0.0], [-np.inf, -np.inf]), ([-np.inf], [-np.inf, 0.0]), ([0.0, -np.inf], [-np.inf, -np.inf, 0.0])],
)
def test_impossible_models_of_few_variables_draw_nothing(logits, table):
    impossible = tt.CountModel(logits, [tt.Group(range(len(logits)), table)])
    batch = tt.CountModel([logits, logits], [tt.Group(range(len(logits)), table)])
    for model in (impossible, batch):
        with pytest.raises(tt.InfeasibleError):
            model.sample(3, rng=0)
        with pytest.raises(tt.InfeasibleError):
            model.sample(rng=0)
