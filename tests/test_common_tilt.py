"""Large nested models whose total lies far from what their variables expect."""

import numpy as np
import pytest
from scipy.optimize import brentq

import tallytree as tt
from tallytree import config
from tallytree.engine import native, thresholds
from tallytree.engine.count import retilt

GROUPS, SIZE = 4, 9000
TOTAL = GROUPS * SIZE
ODDS = np.array([-0.3, 0.4, 1.1, -0.8])

pytestmark = pytest.mark.skipif(not native.present(), reason="needs the compiled engine")


def window(log_weights, slope, first=0):
    """Weights in long double under a tilt, where they matter, and the first count and logarithm taken out."""
    counts = first + np.arange(len(log_weights), dtype=np.longdouble)
    tilted = log_weights + slope * counts
    top = tilted.max()
    held = np.flatnonzero(tilted > top - 80)
    return np.exp(tilted[held[0] : held[-1] + 1] - top), first + int(held[0]), top


def slope_to(mean, free=SIZE):
    """The tilt under which the groups together expect this count."""
    return brentq(lambda s: free * np.sum(1 / (1 + np.exp(-ODDS - s))) - mean, -40, 40)


def exchangeable(tables, outermost, centre, forced=0, excluded=0):
    """log Z and the posterior log-odds of the free variables of every group, whose members are all alike."""
    free = SIZE - forced - excluded
    slope = np.longdouble(slope_to(centre - GROUPS * forced, free))
    steps = np.log(np.arange(1, free + 1, dtype=np.longdouble))
    log_binomial = np.concatenate([[0], np.cumsum(steps[::-1] - steps)])
    laws = []
    for odds, table in zip(ODDS, tables):
        weights = log_binomial + np.longdouble(odds) * np.arange(free + 1) + table[forced : forced + free + 1]
        laws.append(window(weights, slope, forced))

    def whole(factors):
        product = np.ones(1, np.longdouble)
        for factor in factors:
            product = np.convolve(product, factor)
        start = sum(law[1] for law in laws)
        z = start + np.arange(len(product))
        return np.sum(product * np.exp(outermost[z] - shift - slope * z.astype(np.longdouble)))

    start, length = sum(law[1] for law in laws), sum(len(law[0]) for law in laws) - len(laws) + 1
    z = start + np.arange(length)
    shift = (outermost[z] - slope * z.astype(np.longdouble)).max()
    values = [law[0] for law in laws]
    normaliser = whole(values)
    odds = []
    for g, (value, first, _) in enumerate(laws):
        weighted = [*values]
        weighted[g] = value * (first - forced + np.arange(len(value)))
        mean = whole(weighted) / normaliser
        odds.append(np.log(mean / (free - mean)))
    log_z = np.log(normaliser) + shift + sum(law[2] for law in laws)
    return float(log_z), np.array(odds, float)


def model(outermost, tables, forced=0, excluded=0):
    logits = np.repeat(ODDS, SIZE).reshape(GROUPS, SIZE).copy()
    logits[:, :forced] = np.inf
    logits[:, forced : forced + excluded] = -np.inf
    groups = [tt.Group(range(g * SIZE, (g + 1) * SIZE), t) for g, t in enumerate(tables)]
    return tt.CountModel(logits.reshape(-1), [*groups, tt.Group(None, outermost)])


def spike(*counts):
    table = np.full(TOTAL + 1, -np.inf)
    table[list(counts)] = np.arange(len(counts))
    return table


def bell(centre, width):
    return -(((np.arange(TOTAL + 1) - centre) / width) ** 2) / 2


CASES = {
    "few": (spike(TOTAL // 10), TOTAL // 10),
    "very few": (spike(40), 40),
    "almost all": (spike(TOTAL - 60), TOTAL - 60),
    "three counts": (spike(3000, 3001, 3010), 3005),
    "a narrow bell": (bell(5000, 20.0), 5050),
}


@pytest.fixture(scope="module")
def tables():
    return np.random.default_rng(0).normal(size=(GROUPS, SIZE + 1))


@pytest.mark.parametrize("fixed", [(0, 0), (7, 11)])
@pytest.mark.parametrize("name", CASES)
def test_totals_far_away_are_right(name, fixed, tables):
    outermost, centre = CASES[name]
    assert TOTAL >= thresholds.TILT_WORTH
    log_z, odds = exchangeable(tables, outermost, centre, *fixed)
    found = model(outermost, tables, *fixed)
    assert found.log_partition == pytest.approx(log_z, rel=1e-12, abs=1e-9)
    got = found.posterior_logits.reshape(GROUPS, SIZE)
    np.testing.assert_allclose(got[:, sum(fixed) :], np.repeat(odds, SIZE - sum(fixed)).reshape(GROUPS, -1),
                               rtol=1e-10, atol=1e-9)  # fmt: skip
    assert np.all(got[:, : fixed[0]] == np.inf)
    assert np.all(got[:, fixed[0] : sum(fixed)] == -np.inf)


def test_batches_of_models_have_a_tilt_each(tables):
    logits = np.stack([np.repeat(ODDS, SIZE), np.repeat(ODDS[::-1], SIZE), np.zeros(TOTAL)])
    groups = [tt.Group(range(g * SIZE, (g + 1) * SIZE), t) for g, t in enumerate(tables)]
    together = tt.CountModel(logits, [*groups, tt.Group(None, tt.exactly(2000))])
    for b, row in enumerate(logits):
        alone = tt.CountModel(row, [*groups, tt.Group(None, tt.exactly(2000))])
        np.testing.assert_allclose(together.posterior_logits[b], alone.posterior_logits, rtol=0, atol=1e-11)
        assert together.log_partition[b] == pytest.approx(alone.log_partition, rel=1e-14)


def test_an_impossible_total_is_refused(tables):
    closed = tables.copy()
    closed[:, 100:] = -np.inf
    with pytest.raises(tt.InfeasibleError):
        model(spike(TOTAL // 2), closed).log_partition  # noqa: B018


@pytest.mark.parametrize(("name", "needed"), [("few", True), ("almost all", True), ("middle", False)])
def test_passes_that_cannot_succeed_are_left_out(name, needed, tables):
    outermost = CASES[name][0] if name in CASES else spike(int(SIZE * (1 / (1 + np.exp(-ODDS))).sum()))
    problem = model(outermost, tables)._params
    program = model(outermost, tables).tree.program
    assert retilt.needed(program, problem.nu, problem.packed) == needed


def test_counts_from_near_the_mean_round_less(tables):
    asked = model(spike(TOTAL // 10), tables)
    nu, packed, program = asked._params.nu, asked._params.packed, asked.tree.program
    tilt = np.array([slope_to(TOTAL // 10)])
    far = native.tree_pass(program, nu, packed, "waves", tilt=tilt)
    near = native.tree_pass(program, nu, packed, "waves", tilt=tilt, centre=np.array([TOTAL // 10.0]))
    assert near.bound[0] < 0.7 * far.bound[0]
    assert near.log_mean[0] == pytest.approx(far.log_mean[0], rel=1e-13)
    np.testing.assert_allclose(near.messages, far.messages, rtol=0, atol=far.bound[0])


def test_the_array_engine_agrees_about_a_total_far_away():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=600)
    groups = [tt.Group(range(200 * g, 200 * g + 200), rng.normal(size=201)) for g in range(3)]
    compiled = tt.CountModel(logits, [*groups, tt.Group(None, tt.exactly(20))], method="fft-tree")
    with config.using(engine="array"):
        plain = tt.CountModel(logits, [*groups, tt.Group(None, tt.exactly(20))])
        np.testing.assert_allclose(compiled.posterior_logits, plain.posterior_logits, rtol=1e-10, atol=1e-7)
