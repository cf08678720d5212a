"""Poisson-binomial distributions in chunks against those in memory."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tallytree as tt

RNG = np.random.default_rng(2)
PROBS = RNG.beta(1, 4, 30_000)
FEW = RNG.beta(1, 2, 60)


@pytest.mark.parametrize(
    "probs", [PROBS, FEW, FEW[:1], FEW[:0], np.r_[PROBS[:9_000], 0.0, 1.0, 1.0]], ids=len
)
def test_probabilities_are_those_of_the_model_in_memory(probs):
    exact = tt.PoissonBinomial(probs)
    chunked = tt.ChunkedPoissonBinomial(probs, chunk_size=7_000)
    n, mean, sd = len(probs), exact.mean(), exact.std()
    counts = [
        0,
        n,
        -1,
        n + 1,
        0.5,
        *np.clip(np.round(mean + sd * np.array([-30, -6, -1, 0, 1, 6, 30])), 0, n),
    ]
    for name in ("logpmf", "logcdf", "logsf"):
        found, wanted = getattr(chunked, name)(counts), getattr(exact, name)(counts)
        near = np.isclose(found, wanted, rtol=1e-9, atol=1e-9)
        assert np.all(near | (found == wanted)), (name, found, wanted)
    assert (chunked.mean(), chunked.var()) == pytest.approx((mean, exact.var()))
    if exact.var() > 0:
        assert chunked.stats("sk") == pytest.approx(exact.stats("sk"))
    levels = [0.001, 0.1, 0.5, 0.9, 0.999, 1e-20, 1.0 - 1e-12, 1.0, 0.0]
    assert np.array_equal(chunked.ppf(levels), exact.ppf(levels))
    assert np.array_equal(chunked.isf(levels), exact.isf(levels))
    assert (chunked.median(), chunked.interval(0.9), chunked.support()) == (
        exact.median(),
        exact.interval(0.9),
        exact.support(),
    )


def test_log_odds_and_files_are_taken(tmp_path):
    np.save(tmp_path / "p.npy", PROBS.astype(np.float32))
    logits = np.log(PROBS) - np.log1p(-PROBS)
    k = round(PROBS.sum())
    wanted = tt.PoissonBinomial(PROBS).logpmf(k)
    assert tt.ChunkedPoissonBinomial(logits=logits, chunk_size=999).logpmf(k) == pytest.approx(
        wanted, abs=1e-9
    )
    single = tt.PoissonBinomial(PROBS.astype(np.float32).astype(np.float64)).logpmf(k)
    assert tt.ChunkedPoissonBinomial(tmp_path / "p.npy").logpmf(k) == pytest.approx(single, abs=1e-9)


def test_one_pass_serves_many_counts(monkeypatch):
    from tallytree.chunked.passes import Passes

    passes = []
    original = Passes.fold
    monkeypatch.setattr(Passes, "fold", lambda self, *a: passes.append(a[0]) or original(self, *a))
    x = tt.ChunkedPoissonBinomial(PROBS, chunk_size=7_000)
    x.logpmf(np.arange(5_000, 7_000, 100))
    assert len(passes) <= 4


def test_what_cannot_be_used_is_named():
    with pytest.raises(
        tt.SourceError, match=r"between 0 and 1; 1.5 arrived in chunk 1 at position 1 \(entry 3\)"
    ):
        tt.ChunkedPoissonBinomial(np.array([0.1, 0.2, 0.3, 1.5]), chunk_size=2).logpmf(1)
    with pytest.raises(tt.ParameterError, match="exactly one of"):
        tt.ChunkedPoissonBinomial()
    with pytest.raises(tt.ParameterError, match="between 0 and 1"):
        tt.ChunkedPoissonBinomial(FEW).ppf(1.5)


def test_a_model_takes_probabilities():
    single = PROBS.astype(np.float32)
    wide = single.astype(np.float64)
    model = tt.ChunkedCountModel(single, tt.exactly(900), scale="prob", chunk_size=7_000)
    exact = tt.CountModel(np.log(wide) - np.log1p(-wide), tt.exactly(900))
    found = model.marginals()
    assert found.dtype == np.float32
    assert np.allclose(found, exact.marginals, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize(
    "travel",
    [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy],
    ids=["pickle", "deep", "copy"],
)
def test_a_distribution_travels(tmp_path, travel, asked):
    np.save(tmp_path / "p.npy", PROBS)
    found = tt.ChunkedPoissonBinomial(tmp_path / "p.npy", chunk_size=7_000)
    if asked:
        found.ppf(0.5), found.mean()
    again = travel(found)
    exact = tt.PoissonBinomial(PROBS)
    assert repr(again) == repr(found)
    assert again.logpmf(6_000) == pytest.approx(exact.logpmf(6_000), rel=1e-9)
    assert (again.mean(), again.ppf(0.9)) == (found.mean(), found.ppf(0.9))
