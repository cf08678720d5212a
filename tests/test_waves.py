"""Loose variables and sets with many children by characteristic functions, against scaled long doubles."""

import numpy as np
import pytest

import tallytree as tt
from oracle_nested import log_space_tree
from tallytree import config

native = pytest.importorskip("tallytree._native")
LEVELS = native.levels()


def table(potential, n):
    return potential.log_table(n)


def blocks(rng, sizes, sd=1.0, start=0):
    """Disjoint runs of variables with random tables."""
    sets = []
    for n in sizes:
        sets.append((range(start, start + n), rng.normal(0, sd, n + 1)))
        start += n
    return sets


def total(rng, n, sd=1.0):
    return (range(n), rng.normal(0, sd, n + 1))


def cases():
    rng = np.random.default_rng(5)
    normal = rng.normal(size=1600)
    yield "two large groups", normal, [*blocks(rng, [700, 500]), total(rng, 1600)]
    far = normal.copy()
    far[3], far[900] = 20.0, -25.0
    yield "two far logits", far, [*blocks(rng, [700, 500]), total(rng, 1600)]
    inner = blocks(rng, [400, 300])
    yield (
        "a group inside a group",
        normal,
        [*inner, (range(1100), rng.normal(size=1101)), *blocks(rng, [50], start=1200), total(rng, 1600)],
    )
    shuffled = rng.permutation(1600)
    yield (
        "scattered",
        normal,
        [(shuffled[list(m)], t) for m, t in blocks(rng, [700, 500])] + [total(rng, 1600)],
    )
    yield (
        "restricted counts",
        normal,
        [
            (range(700), table(tt.at_most(340), 700)),
            (range(700, 1400), table(tt.exactly(350), 700)),
            (range(1600), table(tt.at_least(770), 1600)),
        ],
    )
    yield "little variance", normal - 5, [*blocks(rng, [700, 500]), total(rng, 1600)]
    yield "out of reach", normal, [(range(700), table(tt.exactly(640), 700)), total(rng, 1600)]
    infinite = normal.copy()
    infinite[[5, 1599]] = np.inf, -np.inf
    yield "infinite logits", infinite, [*blocks(rng, [700, 500]), total(rng, 1600)]
    few = normal.copy()
    few[20:1000:2], few[21:1000:3] = np.inf, -np.inf
    scattered = [(shuffled[list(m)], t) for m, t in blocks(rng, [700, 500])]
    yield "many infinite logits", few, [*scattered, total(rng, 1600)]
    almost = normal.copy()
    almost[:690], almost[700:1200] = np.inf, -np.inf
    yield "hardly any finite logits", almost, [*blocks(rng, [700, 500]), total(rng, 1600)]
    yield (
        "infinite logits, restricted counts",
        few,
        [
            (range(700), table(tt.at_most(440), 700)),
            (range(700, 1400), table(tt.exactly(350), 700)),
            (range(1600), table(tt.at_least(800), 1600)),
        ],
    )
    yield (
        "rough tables",
        normal,
        [
            *blocks(rng, [300, 300], sd=3.0),
            *blocks(rng, [10] * 50, sd=3.0, start=600),
            total(rng, 1600, sd=3.0),
        ],
    )
    # Sixteen or more large groups under one table are merged all at once.
    many = rng.normal(size=4300)
    fixed = many.copy()
    fixed[::40], fixed[7::90] = np.inf, -np.inf
    yield "many large groups, infinite logits", fixed, [*blocks(rng, [265] * 16), total(rng, 4300)]
    yield "many large groups", many, [*blocks(rng, [265] * 16), total(rng, 4300)]
    yield (
        "large groups on a lattice",
        many,
        [
            *[(range(i, i + 265), table(tt.parity("even"), 265)) for i in range(0, 4240, 265)],
            total(rng, 4300),
        ],
    )
    yield (
        "restricted large groups",
        many,
        [
            *[(range(i, i + 265), table(tt.at_most(135), 265)) for i in range(0, 4240, 265)],
            (range(4300), table(tt.at_least(2100), 4300)),
        ],
    )


CASES = {name: (theta, sets) for name, theta, sets in cases()}


@pytest.fixture(scope="module")
def truth():
    found = {}

    def of(name):
        if name not in found:
            found[name] = log_space_tree(*CASES[name])
        return found[name]

    return of


def model_of(name):
    theta, sets = CASES[name]
    return tt.CountModel(theta, [tt.Group(list(members), log_f) for members, log_f in sets])


def one_pass(model, level="", threads=1, tilt=None, cavities=False):
    program, nu, tables = model.tree.program, model._params.nu, model._params.packed
    plan = native.TreePlan(
        program.left, program.right, program.table_offset, program.n_leaves, program.table_total
    )
    assert plan.has_waves()
    log_mean, messages, _, bound = plan.tree_pass(
        nu, tables, tilt, "waves", False, True, cavities, threads=threads, level=level
    )
    return log_mean[0], messages[0], bound[0]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", CASES)
def test_the_bound_covers_the_error(name, level, truth):
    model, exact = model_of(name), truth(name)
    log_mean, messages, bound = one_pass(model, level)
    theta = CASES[name][0]
    finite = np.isfinite(theta)
    softplus = np.logaddexp(0.0, theta[finite]).sum()
    error = np.abs(messages[finite] - (exact.posterior_logits[finite] - theta[finite])).max()
    of_mean = abs(log_mean + softplus - exact.log_partition)
    assert np.isinf(bound) or error <= bound + 1e-14 * np.abs(exact.posterior_logits[finite]).max()
    assert np.isinf(bound) or of_mean <= bound + 1e-14 * abs(exact.log_partition)


CERTIFIED = [
    "two large groups", "two far logits", "a group inside a group", "scattered", "restricted counts",
    "many large groups", "infinite logits", "many infinite logits", "infinite logits, restricted counts",
    "many large groups, infinite logits",
]  # fmt: skip


@pytest.mark.parametrize("name", CERTIFIED)
def test_ordinary_models_are_certified(name):
    assert one_pass(model_of(name))[2] < 1e-9


@pytest.mark.parametrize("name", [name for name in CASES if "nfinite" in name])
def test_variables_with_infinite_logits_have_cavities_all_the_same(name):
    model, (theta, sets) = model_of(name), CASES[name]
    messages = one_pass(model)[1]
    fixed = np.isinf(theta)
    np.testing.assert_array_equal(messages[fixed], theta[fixed])
    for d in np.flatnonzero(fixed)[::397]:
        free = theta.copy()
        free[d] = 0.0
        cavity = log_space_tree(free, sets).posterior_logits[d]
        assert model.cavity_logits[d] == pytest.approx(cavity, rel=1e-10, abs=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_models_meet_the_contract(name, truth):
    model, exact = model_of(name), truth(name)
    np.testing.assert_allclose(model.posterior_logits, exact.posterior_logits, rtol=1e-10, atol=1e-9)
    assert model.log_partition == pytest.approx(exact.log_partition, rel=1e-12)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(
            model.marginals, 1 / (1 + np.exp(-exact.posterior_logits)), rtol=1e-9, atol=1e-300
        )


@pytest.mark.parametrize("name", ["two large groups", "many large groups", "a group inside a group"])
def test_results_do_not_depend_on_the_number_of_threads(name):
    model = model_of(name)
    one, three = one_pass(model, threads=1), one_pass(model, threads=3)
    assert one[0] == three[0]
    assert one[2] == three[2]
    np.testing.assert_array_equal(one[1], three[1])


@pytest.mark.parametrize("name", ["two large groups", "many large groups"])
def test_a_tilt_changes_nothing_but_rounding(name, truth):
    model, exact = model_of(name), truth(name)
    theta = CASES[name][0]
    log_mean, messages, bound = one_pass(model, tilt=np.array([0.004]))
    assert bound < 1e-6
    np.testing.assert_allclose(theta + messages, exact.posterior_logits, atol=bound + 1e-13)
    assert log_mean + np.logaddexp(0.0, theta).sum() == pytest.approx(exact.log_partition, abs=bound + 1e-11)


def test_batches_solve_every_model(truth):
    theta, sets = CASES["two large groups"]
    rows = np.stack([theta, theta[::-1], 0.5 * theta])
    groups = [tt.Group(members, log_f) for members, log_f in sets]
    batch = tt.CountModel(rows, groups)
    for row, logits in zip(rows, batch.posterior_logits):
        np.testing.assert_allclose(logits, tt.CountModel(row, groups).posterior_logits, rtol=0, atol=1e-13)


def test_the_array_engine_agrees():
    theta, sets = CASES["two large groups"]
    groups = [tt.Group(members, log_f) for members, log_f in sets]
    compiled = tt.CountModel(theta, groups).posterior_logits
    with config.using(engine="array"):
        np.testing.assert_allclose(tt.CountModel(theta, groups).posterior_logits, compiled, atol=1e-9)
