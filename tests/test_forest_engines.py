"""Models with edges: certificates of the compiled engine, and the array engine beside it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tallytree as tt
from contract import assert_contract
from forest_cases import forest_case
from forest_models import cases, model_of


def test_the_certificate_covers_the_error_of_the_fft():
    from tallytree.engine.forest import ladder
    from tallytree.engine.forest.arithmetic import Fourier, LogSpace

    rng = np.random.default_rng(18)
    for shape in ("path", "star", "caterpillar", "random"):
        for scale in (0.3, 1.0, 3.0):
            case = forest_case(shape, "all", 300, rng, scale=scale)
            model = model_of(case).replace(tables=[tt.gaussian(rng.uniform(0.2, 0.8), 0.05, fraction=True)])
            tilts = ladder.Tilter(model._solver.problem).first()
            fast = ladder.run(model._solver.problem, tilts, Fourier)
            exact = ladder.run(model._solver.problem, 0 * tilts, LogSpace)
            odds = [a.messages[..., 1] - a.messages[..., 0] for a in (fast, exact)]
            error = np.abs(odds[0] - odds[1]).max()
            assert not error > fast.bound[0] + 1e-12 * np.abs(odds[1]).max(), (
                shape,
                scale,
                error,
                fast.bound,
            )


def test_the_array_engine_gives_the_same_answers_as_the_compiled_one():
    from tallytree import config
    from tallytree.engine.forest import passes
    from tallytree.engine.forest.arithmetic import Direct, Fourier

    if config.native() is None:
        pytest.skip("the compiled engine is not installed")
    for case in cases(12, 20, families=["all", "subtrees", "unions"], sizes=(2, 400)):
        problem = model_of(case)._solver.problem
        for kind in (Direct, Fourier):
            fast = passes.compiled(problem, kind)
            with config.using(engine="array"):
                slow = passes.both_passes(problem, kind)
            np.testing.assert_allclose(fast.log_mean, slow.log_mean, rtol=1e-13)
            np.testing.assert_allclose(fast.messages, slow.messages, atol=1e-9)
            np.testing.assert_allclose(np.exp(fast.log_edges), np.exp(slow.log_edges), atol=1e-10)
            np.testing.assert_allclose(np.exp(fast.log_beliefs), np.exp(slow.log_beliefs), atol=1e-10)


@pytest.mark.parametrize("shape", ["path", "random", "star"])
def test_without_the_compiled_engine_large_models_still_meet_the_contract(shape):
    from tallytree import config

    case = forest_case(shape, "all", 600, np.random.default_rng(21))
    compiled = model_of(case).replace(tables=[tt.exactly(200)])
    with config.using(engine="array"):
        odds = model_of(case).replace(tables=[tt.exactly(200)]).posterior_logits
    assert_contract(odds, compiled.posterior_logits)


def test_a_hub_that_moves_the_count_is_not_trusted_to_the_fft():
    # Given the improbable state of the hub the count lies elsewhere, where the transforms of the handle are noise.
    rng = np.random.default_rng(99)
    from tallytree.engine.forest import ladder
    from tallytree.engine.forest.arithmetic import LogSpace

    for n in (314, 400):
        case = forest_case("broom", "all", n, rng, scale=3.0)
        model = model_of(case).replace(tables=[tt.gaussian(rng.uniform(0.2 * n, 0.8 * n), 10.0)])
        problem = model._solver.problem
        exact = ladder.run(problem, np.zeros((1, 1)), LogSpace).messages[0]
        assert_contract(model.posterior_logits, case.theta + exact[:, 1] - exact[:, 0])


def test_messages_of_rows_without_a_certificate_are_not_looked_at(monkeypatch):
    """A failed pass may leave any number there, NaN too: no warning, and the other rows keep their bounds."""
    from tallytree.engine.forest import ladder

    edges = tt.Forest([(0, 1), (1, 2), (2, 3)], 0.5)
    model = tt.CountModel(np.zeros((2, 4)), tt.exactly(2), edges=edges)
    problem = model._solver.problem
    under, whole = ladder._UnderTilts(problem), ladder.run

    def failing(*arguments):
        found = whole(*arguments)
        found.bound[1] = np.inf
        found.messages[1, 0] = np.nan, 1e4
        return found

    monkeypatch.setattr(ladder, "run", failing)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = under._cautious_run(problem, np.zeros((2, len(problem.offset) - 1)))
    assert found.bound[0] < 1e-9
    assert found.bound[1] == np.inf
