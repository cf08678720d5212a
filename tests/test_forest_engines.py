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
    from tallytree.engine.arithmetic import Fourier, LogSpace
    from tallytree.engine.forest import ladder

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
    from tallytree.engine.arithmetic import Direct, Fourier
    from tallytree.engine.forest import ladder

    if config.native() is None:
        pytest.skip("the compiled engine is not installed")
    for case in cases(12, 20, families=["all", "subtrees", "unions"], sizes=(2, 400)):
        problem = model_of(case)._solver.problem
        for kind in (Direct, Fourier):
            fast = ladder.both_passes(problem, kind)
            with config.using(engine="array"):
                slow = ladder.both_passes(problem, kind)
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
    from tallytree.engine.arithmetic import LogSpace
    from tallytree.engine.forest import ladder

    for n in (314, 400):
        case = forest_case("broom", "all", n, rng, scale=3.0)
        model = model_of(case).replace(tables=[tt.gaussian(rng.uniform(0.2 * n, 0.8 * n), 10.0)])
        problem = model._solver.problem
        exact = ladder.run(problem, np.zeros((1, 1)), LogSpace).messages[0]
        assert_contract(model.posterior_logits, case.theta + exact[:, 1] - exact[:, 0])


def hubs_on_a_path(length, bristles, log_odds, coupling):
    """A long path with hubs whose bristles follow them: their rare state moves the counts around it by `bristles`."""
    rng = np.random.default_rng(1)
    hubs = np.sort(rng.choice(length, len(log_odds), replace=False))
    hanging = np.arange(len(hubs) * bristles) + length
    pairs = [(i, i + 1) for i in range(length - 1)] + list(zip(np.repeat(hubs, bristles), hanging))
    logits = np.concatenate([rng.normal(size=length) * 0.5, np.zeros(len(hanging))])
    logits[hubs] = log_odds
    tables = np.zeros((len(pairs), 2, 2))
    tables[:, [0, 1], [0, 1]] = np.where(np.arange(len(pairs)) < length - 1, 0.3, coupling)[:, None]
    return hubs, logits, tt.Forest(pairs, tables)


def test_a_rare_state_that_moves_the_count_of_its_surroundings_is_right_by_fft():
    # Around a hub the rare state's counts are below the noise of all transforms, and far from those of the other state.
    hubs, logits, edges = hubs_on_a_path(30_000, 40, np.linspace(40, 200, 20), 3.0)
    n = len(logits)
    model = tt.CountModel(logits, tt.gaussian(0.5 * n, 100.0), edges=edges)
    # The odds of a hub by Bayes' rule, from the models in which it is known.
    for hub in hubs[[0, 9, 19]]:
        log_z = [
            model.replace(logits=np.where(np.arange(n) == hub, s * np.inf, logits)).log_partition
            for s in (-1, 1)
        ]
        assert model.posterior_logits[hub] == pytest.approx(log_z[1] - log_z[0] + logits[hub], abs=1e-8)


def test_transforms_are_certified_for_rare_states():
    from tallytree.engine.arithmetic import Direct, Fourier
    from tallytree.engine.forest import ladder

    _, logits, edges = hubs_on_a_path(4000, 60, np.linspace(40, 200, 8), 3.0)
    for potential in (tt.exactly(len(logits) // 2), tt.gaussian(0.5 * len(logits), 40.0)):
        problem = tt.CountModel(logits, potential, edges=edges)._solver.problem
        tilts = ladder.Tilter(problem).first()
        fast, sure = (ladder.run(problem, tilts, kind) for kind in (Fourier, Direct))
        odds = [a.messages[0, :, 1] - a.messages[0, :, 0] for a in (fast, sure)]
        assert fast.bound[0] < 1e-9
        assert np.abs(odds[0] - odds[1]).max() < fast.bound[0] + sure.bound[0]


def test_a_failed_pass_is_given_no_bound_and_no_warning():
    """It may leave any number in the messages, NaN too; the other rows keep their bounds."""
    from tallytree.engine.arithmetic import Fourier
    from tallytree.engine.forest import ladder
    from tallytree.engine.forest.ladder import both_passes, noisy_bound

    edges = tt.Forest([(0, 1), (1, 2), (2, 3)], 0.5)
    problem = tt.CountModel(np.zeros((2, 4)), tt.exactly(2), edges=edges)._solver.problem
    found = both_passes(problem, Fourier)
    found.bound[1] = np.inf
    found.messages[1, 0] = np.nan, 1e4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bound = noisy_bound(problem, found)
        found.messages[1, 1] = np.inf, 1e4
        assert np.isfinite(ladder._rounded_at(problem, np.ones((2, 1)), found)[0])
    assert bound[0] < ladder.TOLERANCE
    assert bound[1] == np.inf


def test_counts_of_some_models_of_a_batch_are_theirs():
    """Tilts of three models were looked for among those of one."""
    rng = np.random.default_rng(4)
    edges = tt.Forest([(i, i + 1) for i in range(7)], coupling=0.4)
    whole = tt.CountModel(rng.normal(size=(3, 8)), 30.0 * rng.normal(size=(3, 9)), edges=edges)._solver
    part = type(whole)(whole.problem.take(np.array([2])))
    np.testing.assert_allclose(part.all_counts(), whole.all_counts()[2:], rtol=1e-12)
