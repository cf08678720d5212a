"""What users see of any model, whatever its kind: dtypes, sizes, group numbers, errors, pickling, equality, threads."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tallytree as tt
from model_kinds import KINDS
from tallytree import config

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
VECTORS = ("marginals",)


def with_(*answers):
    """The kinds of models that have these answers."""
    having = {name: kind for name, kind in KINDS.items() if kind.lacks.isdisjoint(answers)}
    return pytest.mark.parametrize("kind", having.values(), ids=having.keys())


def scalars(kind):
    return [name for name in ("log_partition", "entropy", "error_bound") if name not in kind.lacks]


def states_of(kind, model):
    """A configuration of every model of a batch."""
    return model.sample(rng=0) if "mode" in kind.lacks else model.mode()


@every_kind
def test_vectors_have_the_dtype_of_the_numbers_and_scalars_are_double(kind):
    for dtype in (np.float32, np.float64):
        model = kind.model(dtype=dtype)
        assert all(getattr(model, name).dtype == dtype for name in VECTORS)
        assert "groups" in kind.lacks or model.count_log_probs(0).dtype == dtype
        assert all(np.asarray(getattr(model, name)).dtype == np.float64 for name in scalars(kind))
        assert np.asarray(model.log_prob(states_of(kind, model))).dtype == np.float64


@every_kind
def test_single_precision_is_computed_in_double(kind):
    single, double = (
        kind.model(dtype=np.float32),
        kind.make(kind.numbers(dtype=np.float32).astype(np.float64)),
    )
    assert np.array_equal(single.log_partition, double.log_partition)
    assert np.array_equal(single.marginals, double.marginals.astype(np.float32))


@every_kind
def test_answers_have_the_batch_axes_in_front(kind):
    model = kind.model()
    batch = model.batch_shape
    assert model.marginals.shape[: len(batch)] == batch
    assert all(np.shape(getattr(model, name)) == batch for name in scalars(kind))
    assert states_of(kind, model).shape[: len(batch)] == batch
    assert "groups" in kind.lacks or model.count_log_probs().shape[: len(batch)] == batch


@every_kind
@pytest.mark.parametrize("size", [None, 0, 3, (2, 3), (0, 2), ()])
def test_axes_of_size_lead_in_samples(kind, size):
    model = kind.model()
    lead = () if size is None else (size,) if isinstance(size, int) else size
    assert model.sample(size, rng=0).shape == lead + states_of(kind, model).shape


@every_kind
@pytest.mark.parametrize("size", [-1, 2.5, True, "3", (2, -1), (1.5,)])
def test_a_size_that_is_no_size_is_refused(kind, size):
    with pytest.raises(tt.ParameterError, match="size"):
        kind.model().sample(size, rng=0)


@every_kind
@pytest.mark.parametrize("rng", [-1, 1.5, True, "seed"])
def test_a_seed_that_is_no_seed_is_refused(kind, rng):
    with pytest.raises(tt.ParameterError, match="rng"):
        kind.model().sample(rng=rng)


@every_kind
def test_rng_takes_what_numpy_takes(kind):
    model = kind.model()
    wanted = model.sample(20, rng=np.random.default_rng(5))
    for source in (5, np.random.SeedSequence(5), np.random.PCG64(5)):
        assert np.array_equal(model.sample(20, rng=source), wanted)
    state = np.random.RandomState(5)
    model.sample(rng=state)
    assert state.randint(1 << 30) != np.random.RandomState(5).randint(1 << 30)  # its stream went on


@every_kind
def test_the_same_seed_gives_the_same_samples_whatever_the_threads(kind):
    drawn = []
    for threads in (1, 2, 3):
        with config.using(threads=threads):
            drawn.append(kind.model().sample(50, rng=3))
    assert np.array_equal(drawn[0], drawn[1])
    assert np.array_equal(drawn[0], drawn[2])


@every_kind
def test_samples_have_positive_probability(kind):
    model = kind.model()
    assert np.isfinite(model.log_prob(model.sample(100, rng=1))).all()


@with_("groups")
def test_negative_group_numbers_count_from_the_end(kind):
    model = kind.model()
    assert np.array_equal(model.count_log_probs(-1), model.count_log_probs(model.n_groups - 1))
    assert np.array_equal(model.count_log_probs(-model.n_groups), model.count_log_probs(0))


@with_("groups")
@pytest.mark.parametrize("group", [99, -99, 1.5, True, "0"])
def test_groups_that_do_not_exist_are_refused(kind, group):
    with pytest.raises(tt.ParameterError, match="group"):
        kind.model().count_log_probs(group)


@every_kind
def test_nan_is_refused_before_any_work(kind):
    numbers = kind.numbers()
    numbers.flat[0] = np.nan
    with pytest.raises(tt.ParameterError, match="NaN"):
        kind.make(numbers)


@every_kind
def test_half_precision_is_refused(kind):
    with pytest.raises(tt.ParameterError, match="half"):
        kind.make(kind.numbers().astype(np.float16))


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.impossible])
@pytest.mark.parametrize(
    "ask", ["log_partition", "marginals", "entropy", "error_bound", "mode", "sample", "count_log_probs"]
)
def test_every_question_to_an_impossible_model_is_answered_by_one_error(name, ask):
    kind = KINDS[name]
    if not kind.lacks.isdisjoint({ask, "groups" if ask == "count_log_probs" else ask}):
        pytest.skip("this kind has no such answer")
    model = kind.impossible()
    with pytest.raises(tt.InfeasibleError, match="probability zero"):
        _answer(model, ask)


def _answer(model, name):
    found = getattr(model, name)
    return found() if callable(found) else found


@every_kind
@pytest.mark.parametrize("evidence", [{99: 1}, {-1: 1}, {0: 7}, {0: 0.5}, {0.5: 1}, [0], 3])
def test_evidence_that_makes_no_sense_is_refused(kind, evidence):
    with pytest.raises(tt.ParameterError, match="evidence"):
        kind.model().condition(evidence)


@every_kind
def test_conditioning_on_nothing_changes_nothing(kind):
    model = kind.model()
    np.testing.assert_allclose(model.condition({}).marginals, model.marginals, rtol=1e-12)


@every_kind
def test_models_survive_pickling_and_copies_are_the_model_itself(kind):
    model = kind.model()
    fresh, solved = pickle.loads(pickle.dumps(model)), None
    assert fresh == model
    assert hash(fresh) == hash(model)
    assert np.array_equal(fresh.marginals, model.marginals)
    solved = pickle.loads(pickle.dumps(model))  # after the answers are there
    assert np.array_equal(solved.log_partition, model.log_partition)
    assert copy.copy(model) is model
    assert copy.deepcopy(model) is model


@every_kind
def test_equal_numbers_make_equal_models(kind):
    assert kind.model(1) == kind.model(1)
    assert kind.model(1) != kind.model(2)
    assert kind.model(1) != "a model"


@every_kind
def test_a_model_says_its_name_and_its_size(kind):
    model = kind.model()
    assert repr(model).startswith(f"{type(model).__name__}(n_")
    assert ("batch_shape" in repr(model)) == bool(model.batch_shape)


@every_kind
def test_answers_and_parameters_cannot_be_changed(kind):
    numbers = kind.numbers()
    model = kind.make(numbers)
    before = np.array(model.marginals)
    numbers[...] = 0.0
    assert np.array_equal(model.marginals, before)
    for values in (model.marginals, *([] if "groups" in kind.lacks else [model.count_log_probs()])):
        with pytest.raises(ValueError, match="read-only"):
            values[...] = 0.0


@every_kind
def test_many_threads_may_ask_at_once(kind):
    model = kind.model()
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(
                lambda _: (
                    model.marginals,
                    model.sample(5, rng=0),
                    *(getattr(model, name) for name in scalars(kind)),
                ),
                range(24),
            )
        )
    for answers in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(answers, found[0], strict=True))


@every_kind
def test_both_engines_agree(kind):
    compiled = kind.model()
    with config.using(engine="array"):
        plain = kind.model()
        np.testing.assert_allclose(plain.log_partition, compiled.log_partition, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(plain.marginals, compiled.marginals, rtol=1e-9)
        if "entropy" not in kind.lacks:
            np.testing.assert_allclose(plain.entropy, compiled.entropy, rtol=1e-9)
        assert np.array_equal(states_of(kind, plain), states_of(kind, compiled))


@every_kind
def test_replacing_the_numbers_gives_the_model_of_these_numbers(kind):
    other = kind.model(0).replace(**{kind.parameter: kind.numbers(5)})
    np.testing.assert_allclose(other.marginals, kind.model(5).marginals, rtol=1e-12)


@with_("mode")
def test_the_mode_is_at_least_as_probable_as_any_sample(kind):
    model = kind.model()
    assert np.all(
        model.log_prob(model.mode()) >= model.log_prob(model.sample(200, rng=2)).max(axis=0) - 1e-12
    )


KEPT = (
    "log_partition",
    "entropy",
    "error_bound",
    "marginals",
    "posterior_logits",
    "log_marginals",
    "max_log_weight",
    "logits",
)


@every_kind
def test_answers_that_are_kept_cannot_be_changed(kind):
    model = kind.model()
    found = [(name, getattr(model, name)) for name in KEPT if hasattr(model, name)]
    assert found
    for name, array in found:
        fresh = not np.shares_memory(array, getattr(model, name))
        assert fresh or not isinstance(array, np.ndarray) or not array.flags.writeable, name


def test_results_of_procedures_cannot_be_changed():
    graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.exactly(1))])
    beliefs = tt.loopy_bp(graph)
    assigned = tt.assignment(np.zeros((2, 2)), rows=tt.exactly(1)).loopy_bp()
    fitted = tt.learn.fit_conditional(
        tt.CountTree.flat(2), np.ones((4, 1)), np.array([[0, 1], [1, 0], [1, 1], [0, 0]])
    )
    kept = [
        beliefs.marginals,
        beliefs.mode,
        beliefs.log_odds,
        assigned.marginals,
        assigned.row_counts,
        assigned.column_counts,
    ]
    assert not any(array.flags.writeable for array in [*kept, fitted.coef, fitted.intercept, fitted.tables])
