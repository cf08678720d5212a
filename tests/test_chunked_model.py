"""Count models in chunks: the answers of the model in memory, whatever the chunks."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from scipy import stats

import tallytree as tt
from oracle_states import all_states

RNG = np.random.default_rng(11)
LONG = RNG.normal(size=50_000) * 1.5  # more than the solver would simply collect
N = len(LONG)
POTENTIALS = [
    None, tt.exactly(5_000), tt.exactly(0), tt.exactly(N), tt.at_least(40_000), tt.at_most(10), tt.poisson(25_000.0),
    tt.between(24_000, 25_000), tt.gaussian(20_000.0, 100.0), tt.noisy_or(1e-4), tt.parity("odd"), tt.modulo(3, 1),
    tt.geometric(0.5), tt.one_of([1_000, 49_000]), tt.quadratic(-1e-3), tt.quadratic(1e-5), tt.all_or_none(100.0),
    tt.spike_and_slab(3.0), tt.table(20 * np.sin(np.arange(N + 1) / 500)), tt.at_least(20_000) * tt.geometric(0.9),
    ~tt.exactly(100), tt.poisson(900.0) ** 0.5,
]  # fmt: skip


def agree(found, exact, absolute=1e-9, relative=1e-10):
    found, exact = np.asarray(found, np.float64), np.asarray(exact, np.float64)
    same = found == exact
    with np.errstate(invalid="ignore"):
        near = np.abs(found - exact) <= np.maximum(absolute, relative * np.abs(exact))
    assert np.all(same | near)


@pytest.mark.parametrize("potential", POTENTIALS, ids=repr)
def test_answers_are_those_of_the_model_in_memory(potential):
    exact = tt.CountModel(LONG, potential)
    model = tt.ChunkedCountModel(LONG, potential, chunk_size=7_001)
    assert abs(model.log_partition - exact.log_partition) <= 1e-10 * (1 + abs(exact.log_partition))
    assert model.error_bound <= 1e-9
    agree(model.posterior_logits(), exact.posterior_logits)
    agree(model.marginals(), exact.marginals, 1e-12, 0)
    window = model.count_log_probs()
    every = exact.count_log_probs()
    here = every[window.first : window.first + len(window.log_probs)]
    likely = here > -200.0
    agree(window.log_probs[likely], here[likely], 1e-8)
    assert math.isclose(np.exp(here).sum(), 1.0, rel_tol=1e-12)
    drawn = model.sample(rng=5)
    assert np.isfinite(exact.log_prob(drawn))
    assert model.log_prob(drawn) == pytest.approx(exact.log_prob(drawn), abs=1e-7)


@pytest.mark.parametrize("potential", [tt.exactly(2_000), tt.gaussian(2_000.0, 10.0), None], ids=repr)
def test_infinite_log_odds_and_evidence_decide(potential):
    logits = LONG[:20_000].copy()
    logits[RNG.random(20_000) < 0.05] = -np.inf
    logits[RNG.random(20_000) < 0.02] = np.inf
    known = {3: 1, 4: 0, 9_999: 1, 19_999: 0, -2: 1}
    logits[[3, 4, 9_999, 19_998]] = [0.3, -0.2, -1.5, 2.0]
    exact = tt.CountModel(logits, potential).condition({i % 20_000: v for i, v in known.items()})
    model = tt.ChunkedCountModel(logits, potential, chunk_size=3_000).condition(known)
    assert abs(model.log_partition - exact.log_partition) <= 1e-10 * (1 + abs(exact.log_partition))
    agree(model.posterior_logits(), exact.posterior_logits)
    agree(model.marginals(), exact.marginals, 1e-12, 0)
    assert np.array_equal(model.mode(), exact.mode())
    drawn = model.sample(rng=1)
    assert model.log_prob(drawn) == pytest.approx(exact.log_prob(drawn), abs=1e-7)
    flipped = drawn.copy()
    flipped[3] = 0
    assert model.log_prob(flipped) == -np.inf


def test_evidence_that_contradicts_is_refused():
    model = tt.ChunkedCountModel(np.zeros(5), tt.exactly(2), evidence={1: 1})
    with pytest.raises(tt.ParameterError, match="variable 1 is 1 already, and 0"):
        model.condition({1: 0})
    with pytest.raises(tt.ParameterError, match="between -5 and 4, the number of a variable; 5 arrived"):
        model.condition({5: 0})
    with pytest.raises(tt.ParameterError, match="0 or 1"):
        model.condition({2: 7})
    impossible = tt.ChunkedCountModel(np.array([-np.inf, 0.0]), evidence={0: 1})
    with pytest.raises(tt.InfeasibleError):
        _ = impossible.log_partition


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("chunk_size", [1, 3])
def test_few_variables(n, chunk_size):
    logits = RNG.normal(size=n)
    for potential in (None, tt.exactly(n), tt.at_most(1), tt.table(RNG.normal(size=n + 1))):
        exact = tt.CountModel(logits, potential)
        model = tt.ChunkedCountModel(logits, potential, chunk_size=chunk_size)
        assert model.log_partition == pytest.approx(exact.log_partition, abs=1e-12)
        agree(model.posterior_logits(), exact.posterior_logits)
        assert np.array_equal(model.mode(), exact.mode())
        assert model.sample(rng=0).shape == (n,)
        agree(model.count_log_probs(window=False), exact.count_log_probs() if n else [0.0], 1e-9)


def test_impossible_models_are_refused():
    for potential, logits in ((tt.exactly(3), [-np.inf] * 5), (tt.at_most(1), [np.inf] * 3)):
        model = tt.ChunkedCountModel(np.array(logits), potential)
        with pytest.raises(tt.InfeasibleError, match="probability zero"):
            _ = model.log_partition
        with pytest.raises(tt.InfeasibleError, match="probability zero"):
            model.mode()
    with pytest.raises(tt.ParameterError, match="at least 9 variables"):
        tt.ChunkedCountModel(np.zeros(5), tt.exactly(9))
    long = np.full(10_000, -np.inf)
    with pytest.raises(tt.InfeasibleError):
        _ = tt.ChunkedCountModel(long, tt.exactly(1)).log_partition


def test_numbers_that_stand_for_infinite_ones_are_taken_for_these():
    logits = LONG[:6_000].copy()
    logits[[5, 9]] = -1e20, 1e30
    exact = tt.CountModel(logits, tt.exactly(900))
    model = tt.ChunkedCountModel(logits, tt.exactly(900), chunk_size=1_000)
    assert model.log_partition == pytest.approx(exact.log_partition, rel=1e-12)
    agree(model.posterior_logits(), exact.posterior_logits)


def test_bits_depend_on_chunks_alone(tmp_path):
    np.save(tmp_path / "x.npy", LONG)
    found = []
    for workers, scheduler in ((1, None), (2, None), (5, None), (None, "dask")):
        model = tt.ChunkedCountModel(
            tmp_path / "x.npy", tt.exactly(9_000), chunk_size=1_500, workers=workers, scheduler=scheduler
        )
        parts = [np.concatenate(list(a)) for a in (model.marginals(), model.sample(rng=3), model.mode())]
        found.append((float(model.log_partition), *(part.tobytes() for part in parts)))
    assert len(set(found)) == 1


def test_log_prob_takes_every_kind_of_configuration(tmp_path):
    y = (LONG > 1.0).astype(np.uint8)
    exact = tt.CountModel(LONG, tt.gaussian(15_000.0, 50.0)).log_prob(y)
    model = tt.ChunkedCountModel(LONG, tt.gaussian(15_000.0, 50.0), chunk_size=8_000)
    np.save(tmp_path / "y.npy", y)
    for given in (y, y.astype(bool), y.astype(float), tmp_path / "y.npy"):
        assert model.log_prob(given) == pytest.approx(exact, abs=1e-7)
    with pytest.raises(tt.SourceError, match=r"2.* arrived in chunk 2 at position 4 \(entry 16,004\)"):
        model.log_prob(np.where(np.arange(N) == 16_004, 2, y))
    with pytest.raises(tt.ParameterError, match="as many entries"):
        model.log_prob(y[:-1])


# -- the mode ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [1, 1 << 21])
def test_the_mode_is_exact_with_ties(listed, monkeypatch):
    monkeypatch.setattr("tallytree.chunked.mode.LISTED", listed)
    for trial in range(20):
        n = int(RNG.integers(1, 40))
        logits = RNG.choice(
            [-1.5, -0.0, 0.0, 0.5, 2.0, np.inf, -np.inf], n, p=[0.2, 0.2, 0.1, 0.2, 0.2, 0.05, 0.05]
        )
        k = int(RNG.integers(0, n + 1))
        for potential in (
            tt.exactly(k),
            tt.at_least(k),
            tt.at_most(k),
            None,
            tt.gaussian(k, 1.5),
            tt.one_of([0, k, n]),
        ):
            exact = tt.CountModel(logits, potential)
            model = tt.ChunkedCountModel(logits, potential, chunk_size=int(RNG.integers(1, 9)))
            try:
                wanted = exact.mode()
            except tt.InfeasibleError:
                with pytest.raises(tt.InfeasibleError):
                    model.mode()
                continue
            assert np.array_equal(model.mode(), wanted), (trial, logits, potential)
            assert model.max_log_weight == pytest.approx(exact.max_log_weight, abs=1e-12)


@pytest.mark.parametrize("listed", [100, 1 << 21])
def test_the_mode_of_many_variables(listed, monkeypatch):
    monkeypatch.setattr("tallytree.chunked.mode.LISTED", listed)
    logits = LONG.round(2)  # many ties
    for potential in (
        tt.exactly(123),
        tt.exactly(40_001),
        tt.poisson(30_000.0),
        tt.gaussian(700.0, 3.0),
        None,
    ):
        model = tt.ChunkedCountModel(logits, potential, chunk_size=6_007)
        assert np.array_equal(model.mode(), tt.CountModel(logits, potential).mode())


# -- draws ---------------------------------------------------------------------------------------------------------


def test_a_draw_follows_the_law_across_chunk_boundaries(monkeypatch):
    """Chi-square over all configurations of a small model, solved as a large one."""
    from tallytree.chunked import flat
    from tallytree.engine.count import chunks as verbs

    original = verbs.solve
    monkeypatch.setattr(flat.verbs, "solve", lambda table, mixture=None: original(table, mixture, few=0))
    logits = np.array([0.5, -1.0, 2.0, 0.0, -0.5, 1.0, -2.0])
    for potential in (tt.exactly(3), tt.gaussian(3.0, 1.0), None):
        exact = tt.CountModel(logits, potential)
        states = all_states((2,) * 7).astype(np.uint8)
        p = np.exp(exact.log_prob(states))
        model = tt.ChunkedCountModel(logits, potential, chunk_size=2, workers=1)
        _ = model.log_partition
        draws = 800
        codes = [int("".join(map(str, model.sample(rng=i))), 2) for i in range(draws)]
        seen = np.bincount(codes, minlength=128)
        assert seen[p == 0].sum() == 0
        likely = p * draws >= 5
        observed = np.append(seen[likely], seen[~likely].sum())
        expected = np.append(p[likely], p[~likely].sum()) * draws
        if expected[-1] == 0:
            observed, expected = observed[:-1], expected[:-1]
        assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-4


def test_the_counts_of_chunks_follow_their_law():
    """The count of the first chunk of a large model against its hypergeometric-like law in memory."""
    logits = LONG[:9_000]
    model = tt.ChunkedCountModel(logits, tt.exactly(1_500), chunk_size=3_000)
    counts = [int(model.sample(rng=i)[:3_000].sum()) for i in range(150)]
    exact = tt.CountModel(logits, [tt.Group(range(3_000), tt.uniform()), tt.Group(None, tt.exactly(1_500))])
    law = np.exp(exact.count_log_probs(0))
    upto = np.cumsum(law)
    u = np.array([upto[c] - law[c] * 0.5 for c in counts])
    assert stats.kstest(u, "uniform").pvalue > 1e-4


def test_a_draw_depends_on_the_seed_alone():
    model = tt.ChunkedCountModel(LONG, tt.exactly(100), chunk_size=9_000)
    assert np.array_equal(model.sample(rng=1), model.sample(rng=1))
    assert not np.array_equal(model.sample(rng=1), model.sample(rng=2))
    assert model.sample(rng=1).sum() == 100


# -- the object ----------------------------------------------------------------------------------------------------


def test_importing_tallytree_imports_none_of_the_packages():
    import subprocess
    import sys

    code = (
        "import sys, tallytree as tt; tt.ChunkedCountModel([0.0], tt.exactly(1)).marginals();"
        "print([m for m in ('dask', 'distributed', 'zarr', 'pyarrow', 'tqdm') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"


def test_evidence_does_not_contradict_itself():
    n = len(LONG)
    with pytest.raises(
        tt.ParameterError, match="`evidence` contradicts what is known: variable 3 is 1 already, and 0"
    ):
        tt.ChunkedCountModel(LONG, tt.exactly(500), evidence={3: 1, 3 - n: 0})
    with pytest.raises(tt.ParameterError, match="variable 3 is 1 already, and 0"):
        tt.ChunkedCountModel(LONG, tt.exactly(500)).condition({3: 1}).condition({3 - n: 0})
    twice = tt.ChunkedCountModel(LONG, tt.exactly(500), evidence={3: 1, 3 - n: 1})
    assert twice.log_partition == tt.ChunkedCountModel(LONG, tt.exactly(500), evidence={3: 1}).log_partition


def test_a_model_travels(tmp_path):
    np.save(tmp_path / "x.npy", LONG)
    model = tt.ChunkedCountModel(tmp_path / "x.npy", tt.exactly(500), evidence={3: 1})
    log_z = model.log_partition
    again = pickle.loads(pickle.dumps(model))
    assert repr(again) == repr(model)
    assert again.log_partition == log_z
    assert copy.copy(model).log_partition == log_z


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk_size": 0}, "`chunk_size` must be"),
        ({"workers": 0}, "`workers` must be an integer of at least 1"),
        ({"scheduler": "spark"}, "`scheduler` must be"),
        ({"group_potential": tt.exactly(1)}, "without `groups`"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(tt.ParameterError, match=message):
        tt.ChunkedCountModel(np.zeros(3), tt.exactly(1), **options)


def test_a_batch_of_potentials_is_refused():
    with pytest.raises(tt.ParameterError, match="a single potential"):
        tt.ChunkedCountModel(np.zeros(3), tt.exactly([1, 2]))


@pytest.mark.parametrize("size", [3, (2, 3), np.random.default_rng(0)])
def test_a_number_of_draws_is_not_taken_for_a_seed(size):
    model = tt.ChunkedCountModel(np.zeros(6), tt.exactly(2))
    with pytest.raises(tt.ParameterError, match=r"`size` must be None.* arrived\. A seed .* `rng=`"):
        model.sample(size)
    assert np.array_equal(model.sample(None, 3), model.sample(rng=3))
