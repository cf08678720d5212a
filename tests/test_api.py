"""Shapes, dtypes, errors, laziness, pickling, threads: the model as a Python object."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tallytree as tt
from tallytree import config
from tallytree.engine import maximize
from tallytree.engine.count import conflict, infer

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, NAN],), "`logits` must be an array of log-odds; entry 1 is NaN"),
        (([[0.0, 1.0], [NAN, 0.0]],), r"entry \(1, 0\) is NaN"),
        (([1j, 0.0],), "dtype complex128 arrived"),
        (([[0.0], [0.0, 1.0]],), "different lengths"),
        ((["a", "b"],), "real numbers"),
        ((0.5,), r"shape \(\) and dtype float64 arrived"),
        ((np.zeros(3, np.float16),), "digits of half precision are too few"),
        (([0.0, 0.0], [0.0, 0.0]), "`groups` must have 3 entries.*2 variables; one with 2 entries arrived"),
        (([0.0, 0.0], [0.0, NAN, 0.0]), "entry 1 is NaN"),
        (([0.0, 0.0], [0.0, INF, 0.0]), "entry 1 is inf"),
        (([0.0, 0.0], [0.0, 1j, 0.0]), "complex"),
        (([0.0, 0.0], tt.exactly(3)), "3"),
        (([0.0, 0.0], [tt.Group([0, 1], np.zeros(5))]), "must have 3 entries"),
        (([0.0, 0.0], [tt.Group([0, 1], None), 3.0]), "entry 1 of `groups` is 3.0"),
        ((np.zeros((2, 3)), np.zeros((3, 4))), "does not broadcast"),
        (([0.0, 0.0], lambda c: np.zeros(7)), "7"),
    ],
)
def test_bad_input_gets_a_typed_error_before_any_work(arguments, message):
    with pytest.raises(tt.ParameterError, match=message):
        tt.CountModel(*arguments)


@pytest.mark.parametrize("k", [-1, 2.5, True, "3"])
def test_counts_must_be_non_negative_integers(k):
    with pytest.raises(tt.ParameterError):
        tt.exactly(k)


def test_errors_share_one_base_class():
    for error in (tt.ParameterError, tt.StructureError, tt.InfeasibleError, tt.PrecisionError):
        assert issubclass(error, tt.TallyTreeError)
    assert issubclass(tt.ParameterError, ValueError)
    assert issubclass(tt.StructureError, ValueError)


def test_impossible_models_name_the_batch_index():
    logits = np.zeros((2, 3, 4))
    logits[1, 2] = -INF
    with pytest.raises(tt.InfeasibleError, match=r"at batch index \(1, 2\)"):
        tt.CountModel(logits, tt.exactly(2)).marginals  # noqa: B018


def test_a_model_without_variables_has_defined_answers():
    free = tt.CountModel([])
    assert free.log_partition == 0.0
    assert free.marginals.shape == (0,)
    assert free.entropy == 0.0
    assert free.log_prob([]) == 0.0
    np.testing.assert_array_equal(free.count_log_probs(), [0.0])
    weighted = tt.CountModel(np.zeros((3, 0)), [2.0])
    np.testing.assert_array_equal(weighted.log_partition, [2.0, 2.0, 2.0])
    assert tt.CountModel([], tt.exactly(0)).log_partition == 0.0
    with pytest.raises(tt.InfeasibleError):
        tt.CountModel([], [-INF]).log_partition  # noqa: B018


def test_a_batch_of_size_zero_is_answered():
    model = tt.CountModel(np.zeros((0, 5)), [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, tt.exactly(2))])
    assert model.log_partition.shape == (0,)
    assert model.marginals.shape == (0, 5)
    assert model.count_log_probs().shape == (0, 6)
    assert tt.CountModel(np.zeros((0, 5)), tt.exactly(2)).posterior_logits.shape == (0, 5)


def test_one_variable():
    model = tt.CountModel([0.3], [0.0, 1.0])
    np.testing.assert_allclose(model.posterior_logits, [1.3])
    np.testing.assert_allclose(np.exp(model.count_log_probs()).sum(), 1.0)
    assert tt.CountModel([0.3], tt.exactly(1)).posterior_logits[0] == INF


def test_infinite_logits_exclude_and_force():
    model = tt.CountModel([INF, -INF, 0.0, 0.0], tt.exactly(2))
    np.testing.assert_allclose(model.marginals, [1.0, 0.0, 0.5, 0.5])
    assert model.posterior_logits[0] == INF
    assert model.posterior_logits[1] == -INF
    np.testing.assert_allclose(model.log_partition, np.log(2.0))
    np.testing.assert_allclose(model.log_prob([[1, 0, 1, 0], [0, 0, 1, 1]]), [np.log(0.5), -INF])
    assert np.isfinite(model.entropy)


def test_batch_axes_of_logits_and_tables_broadcast():
    rng = np.random.default_rng(0)
    logits, table = rng.normal(size=(4, 1, 6)), rng.normal(size=(3, 7))
    model = tt.CountModel(logits, table)
    assert model.batch_shape == (4, 3)
    assert model.marginals.shape == (4, 3, 6)
    assert model.log_partition.shape == (4, 3)
    single = tt.CountModel(logits[2, 0], table[1])
    np.testing.assert_allclose(model.marginals[2, 1], single.marginals, rtol=1e-12)
    assert model.log_prob(np.zeros(6)).shape == (4, 3)
    assert model.log_prob(np.zeros((5, 1, 1, 6))).shape == (5, 4, 3)


def test_single_precision_in_is_single_precision_out():
    logits = np.linspace(-3, 3, 9, dtype=np.float32)
    model = tt.CountModel(logits, tt.exactly(4))
    exact = tt.CountModel(logits.astype(float), tt.exactly(4))
    for name in ("marginals", "posterior_logits"):
        assert getattr(model, name).dtype == np.float32
        np.testing.assert_array_equal(getattr(model, name), getattr(exact, name).astype(np.float32))
    assert model.log_partition.dtype == np.float64
    assert model.count_log_probs().dtype == np.float32
    assert model.logits.dtype == np.float32


def test_integers_and_lists_are_accepted():
    assert tt.CountModel([0, 1, 2], tt.exactly(1)).marginals.dtype == np.float64
    assert tt.CountModel(range(3), lambda c: -0.5 * c**2).marginals.shape == (3,)


def test_a_model_keeps_copies_and_gives_read_only_answers():
    logits, table = np.zeros(4), np.zeros(5)
    model = tt.CountModel(logits, table)
    logits[:], table[:] = 7.0, -INF
    np.testing.assert_allclose(model.marginals, 0.5)
    assert logits.flags.writeable
    assert table.flags.writeable
    for answer in (model.marginals, model.logits, model.tables[0], model.posterior_logits):
        with pytest.raises(ValueError):
            answer[0] = 1.0


def test_nothing_is_computed_before_it_is_asked_for_and_nothing_twice(monkeypatch):
    calls = []
    real = infer.infer
    monkeypatch.setattr(infer, "infer", lambda *a, **k: calls.append(1) or real(*a, **k))
    model = tt.CountModel(np.zeros(6), [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, tt.exactly(3))])
    assert not calls
    for _ in range(2):
        for name in ("marginals", "log_partition", "posterior_logits", "error_bound", "entropy"):
            getattr(model, name)
    assert len(calls) == 1
    assert model.marginals is model.marginals


def test_models_compare_copy_pickle_and_print():
    groups = [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, tt.exactly(2))]
    model = tt.CountModel(np.arange(4.0), groups)
    assert repr(model) == "CountModel(n_variables=4, n_groups=2)"
    assert repr(tt.CountModel(np.zeros((2, 3)), tt.exactly(1), method="chain")) == (
        "CountModel(n_variables=3, n_groups=1, batch_shape=(2,), method='chain')"
    )
    model.marginals  # noqa: B018 - a filled cache must not change anything
    for twin in (pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy(model)):
        assert twin == model
        assert hash(twin) == hash(model)
        np.testing.assert_array_equal(twin.marginals, model.marginals)
    assert model != tt.CountModel(np.arange(4.0) + 1, groups)
    assert model != tt.CountModel(np.arange(4.0), groups[:1])
    assert model != 3


def test_replace_keeps_the_structure():
    groups = [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, tt.exactly(2))]
    model = tt.CountModel(np.zeros(4), groups)
    moved = model.replace(logits=np.arange(4.0))
    assert moved.tree is model.tree
    assert moved == tt.CountModel(np.arange(4.0), groups)
    other = model.replace(tables={1: tt.exactly(3)})
    np.testing.assert_allclose(other.marginals.sum(), 3.0)
    np.testing.assert_allclose(model.marginals.sum(), 2.0)
    assert model.replace() == model
    packed = model.replace(tables=np.concatenate(other.tables))
    np.testing.assert_allclose(packed.marginals, other.marginals)
    with pytest.raises(tt.ParameterError, match=r"shape \(\.\.\., 4\); an array of shape \(5,\)"):
        model.replace(logits=np.zeros(5))
    with pytest.raises(tt.ParameterError, match="0 to 1"):
        model.replace(tables={7: None})
    with pytest.raises(tt.ParameterError, match="8 entries on the last axis"):
        model.replace(tables=np.zeros(4))


def test_from_tree_takes_a_list_or_packed_tables():
    tree = tt.CountTree.balanced(4)
    tables = [np.zeros(5), np.arange(3.0), -np.arange(3.0)]
    a = tt.CountModel.from_tree(tree, np.zeros(4), tables)
    b = tt.CountModel.from_tree(tree, np.zeros(4), np.concatenate(tables))
    assert a == b
    batched = tt.CountModel.from_tree(tree, np.zeros(4), np.tile(np.concatenate(tables), (5, 1)))
    assert batched.batch_shape == (5,)
    with pytest.raises(tt.ParameterError, match="one entry per group"):
        tt.CountModel.from_tree(tree, np.zeros(4), tables[:2])
    with pytest.raises(tt.ParameterError, match=r"shape \(\.\.\., 4\)"):
        tt.CountModel.from_tree(tree, np.zeros(5), tables)
    with pytest.raises(tt.ParameterError, match="CountTree"):
        tt.CountModel.from_tree("tree", np.zeros(4), tables)


def test_evidence_is_checked():
    model = tt.CountModel(np.zeros(3), tt.exactly(1))
    for evidence, message in [
        ({5: 1}, "`evidence` must be an integer between 0 and 2"),
        ({0: 2}, "between 0 and 1"),
        ([1], "Mapping"),
        ({0: 0.5}, "between 0 and 1"),
    ]:
        with pytest.raises(tt.ParameterError, match=message):
            model.condition(evidence)
    with pytest.raises(tt.ParameterError, match="between 0 and 3"):
        model.condition_count(0, 4)
    with pytest.raises(tt.ParameterError, match="0 to 0"):
        model.condition_count(3, 1)
    with pytest.raises(tt.InfeasibleError):
        model.condition({0: 1, 1: 1}).marginals  # noqa: B018


def test_configurations_are_checked():
    model = tt.CountModel(np.zeros(3), tt.exactly(1))
    for bad in ([0, 1], [0, 1, 2], [0.5, 0, 0], "abc", [NAN, 0, 1]):
        with pytest.raises(tt.ParameterError, match="`y`"):
            model.log_prob(bad)


def test_divergence_needs_models_that_fit():
    model = tt.CountModel(np.zeros(3), [tt.Group([0, 1], tt.at_least(1))])
    with pytest.raises(tt.ParameterError, match="over 3 variables"):
        model.kl_divergence(tt.CountModel(np.zeros(4)))
    with pytest.raises(tt.StructureError, match="nested"):
        model.kl_divergence(tt.CountModel(np.zeros(3), [tt.Group([1, 2], tt.at_least(1))]))


def test_cavity_log_odds_are_right_where_logits_are_infinite():
    logits = np.array([0.4, INF, -INF, -1.0])
    model = tt.CountModel(logits, tt.gaussian(2.0, 1.0))
    log_f = tt.gaussian(2.0, 1.0).log_table(4)
    for d in range(4):
        rest = np.delete(logits, d)
        pmf = np.exp(tt.CountModel(rest).count_log_probs())
        want = np.log(pmf @ np.exp(log_f[1:])) - np.log(pmf @ np.exp(log_f[:-1]))
        np.testing.assert_allclose(model.cavity_logits[d], want, rtol=1e-10)


def test_one_model_serves_eight_threads():
    rng = np.random.default_rng(0)
    groups = [tt.Group(range(i, i + 50), rng.normal(size=51)) for i in range(0, 400, 50)]
    groups.append(tt.Group(None, rng.normal(size=401)))
    logits = rng.normal(size=400)
    expected = tt.CountModel(logits, groups)
    want = (expected.marginals, expected.log_partition, expected.count_log_probs(3))
    shared = tt.CountModel(logits, groups)

    def ask(i):
        answers = [shared.marginals, shared.log_partition, shared.count_log_probs(3)]
        return answers if i % 2 else answers[::1]

    with ThreadPoolExecutor(8) as pool:
        for answers in pool.map(ask, range(64)):
            for got, right in zip(answers, want):
                np.testing.assert_array_equal(got, right)


def test_configuration_is_shown(capsys, monkeypatch):
    tt.show_config()
    text = capsys.readouterr().out
    assert "tallytree" in text
    assert "threads:" in text
    monkeypatch.setenv("TALLYTREE_NUM_THREADS", "3")
    assert config.from_environment().threads == 3
    for name, value in [("NUM_THREADS", "none"), ("ENGINE", "steam"), ("LEVEL", "v9")]:
        with monkeypatch.context() as patch:
            patch.setenv(f"TALLYTREE_{name}", value)
            with pytest.raises(tt.ParameterError, match=f"TALLYTREE_{name}"):
                config.from_environment()


def test_models_on_one_tree_can_be_solved_in_parallel():
    rng = np.random.default_rng(1)
    tree = tt.CountTree.balanced(300)
    tables = rng.normal(size=tree.program.table_total)
    logits = rng.normal(size=(32, 300))
    alone = [tt.CountModel.from_tree(tree, row, tables).marginals for row in logits]
    with ThreadPoolExecutor(8) as pool:
        together = pool.map(lambda row: tt.CountModel.from_tree(tree, row, tables).marginals, logits)
        for got, right in zip(together, alone):
            np.testing.assert_array_equal(got, right)


def test_possible_intervals_agree_with_the_best_configuration():
    """To name 51 groups of 10^4 variables that conflict took 4 s, a hundred inferences."""
    rng, seen = np.random.default_rng(0), []
    for _ in range(200):
        n = int(rng.integers(2, 14))
        ends = np.sort(rng.choice(n + 1, 2, replace=False))
        order = rng.permutation(n)
        parts = order, order[ends[0] : ends[1]], order[: ends[0]]
        tree = tt.CountTree.from_groups([part for part in parts if len(part)], n)
        sizes = np.diff(tree.family.set_offset)
        nu = np.where(rng.random(n) < 0.3, rng.choice([np.inf, -np.inf], n), 0.0)
        table = np.full(int(sizes.sum()), -np.inf)
        for start, size in zip(tree.family.set_offset, sizes):
            first, last = np.sort(rng.integers(0, size, 2))
            table[start + first : start + last + 1] = 0.0
        want = maximize.max_value(tree, nu[None], table[None])[0] > -np.inf
        assert conflict._by_intervals(tree.family, nu, table) == want
        seen.append(want)
    assert 20 < sum(seen) < 180


@pytest.mark.parametrize(
    ("logits", "groups", "reason"),
    [
        (np.zeros(6), [([0, 1], 2), ([2, 3], None), ([0, 1, 2, 3], 1), (None, 1)], "groups 0 and 2 cannot"),
        (np.zeros(6), [([0, 1], 2), ([2, 3], 2), ([4], 0), (None, 3)], "groups 0, 1 and 3 cannot"),
        (
            [0.0, -np.inf, 0.0],
            [([0, 1], 2), (None, None)],
            "group 0 cannot be satisfied together with the variables",
        ),
        ([0.0, 0.0], [([0], 1), ([0], 0), (None, None)], r"groups 0 \(variable 0 = 1\) and 1 \(var"),
        ([0.0, -np.inf], [(None, 2)], "no count satisfies the potential with the variables"),
    ],
)
def test_an_impossible_model_names_the_groups_that_conflict(logits, groups, reason):
    chosen = [tt.Group(g, None if k is None else tt.exactly(k)) for g, k in groups]
    model = tt.CountModel(logits, chosen)
    for ask in (lambda: model.log_partition, model.mode, model.sample, lambda: model.entropy):
        with pytest.raises(tt.InfeasibleError, match=reason):
            ask()


@pytest.mark.parametrize("size", [-1, 2.5, (2, -3), (2, 1.5), "a", True])
def test_a_size_that_counts_nothing_is_refused(size):
    with pytest.raises(tt.ParameterError, match="`size` must be"):
        tt.CountModel([0.0, 0.0]).sample(size)
