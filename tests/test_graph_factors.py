"""Factors of all kinds in a graph: models with edges, infinite logits, masks, wild tables; against enumeration."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import tallytree as tt
from helpers import few
from oracle_graphs import Case, Factor, build, random_case, solve
from oracle_states import all_states
from tallytree import config
from tallytree.loopy import dual_decomposition, holder_bound, trw_bound
from tools.fuzz.binary import Binary
from tools.fuzz.graphs import GraphCase
from tools.fuzz.run import checked

INF = math.inf
ENGINES = ["array"] if config._extension is None else ["native", "array"]
MASKS = [-1e20, -1e300, float(np.finfo(np.float32).min)]


def wrong_answers(case: Case) -> list[tuple[str, str]]:
    """What the fuzzer says about a case, (answer, what was seen)."""
    factors = []
    for f in case.factors:
        inner = f.table
        if inner is None:
            groups = tuple((tuple(int(i) for i in places), table) for places, table in f.groups)
            inner = Binary(f.logits, groups, tuple(f.edges), has_edges=bool(f.edges))
        factors.append((tuple(int(v) for v in f.members), inner))
    return checked(GraphCase(case.logits, tuple(factors), tuple(case.pairs)), ENGINES[0], 0, 0).wrong


def pair_model(table) -> tt.CountModel:
    return tt.CountModel([0.0, 0.0], edges=tt.Forest([(0, 1)], [table]))


# -- models with edges -------------------------------------------------------------------------------------------------


def test_a_model_with_edges_keeps_them_as_a_factor():
    graph = tt.FactorGraph([0.0, 0.0], [tt.Group([0, 1], pair_model([[0.0, 0.0], [0.0, 3.0]]))])
    log_z = math.log(3.0 + math.exp(3.0))
    found = tt.loopy_bp(graph)
    right = (1.0 + math.exp(3.0)) / (3.0 + math.exp(3.0))
    np.testing.assert_allclose(found.marginals, right, rtol=1e-12)
    assert found.bethe_log_partition == pytest.approx(log_z, rel=1e-12)
    assert holder_bound(graph).value == pytest.approx(log_z, rel=1e-12)
    best = dual_decomposition(graph)
    assert best.mode.tolist() == [True, True]
    assert best.log_weight == best.upper_bound == 3.0
    counts = np.exp(found.count_log_probs(0))
    np.testing.assert_allclose(counts, np.array([1.0, 2.0, math.exp(3.0)]) / math.exp(log_z), rtol=1e-12)


def test_models_with_the_same_groups_and_other_edges_are_not_mixed_up():
    chain = tt.CountModel(np.zeros(3), tt.at_most(2), edges=tt.Forest([(0, 1), (1, 2)], [1.0, -2.0]))
    other = tt.CountModel(np.zeros(3), tt.at_most(2), edges=tt.Forest([(0, 2)], [[[0.0, -INF], [0.5, 1.0]]]))
    plain = tt.CountModel(np.zeros(3), tt.at_most(2))
    models = [chain, other, plain, chain]
    graph = tt.FactorGraph(np.zeros(12), [tt.Group(range(3 * i, 3 * i + 3), m) for i, m in enumerate(models)])
    found = tt.loopy_bp(graph)
    np.testing.assert_allclose(found.marginals, np.concatenate([m.marginals for m in models]), rtol=1e-12)
    assert found.bethe_log_partition == pytest.approx(sum(m.log_partition for m in models), rel=1e-12)


def test_a_bound_raises_the_tables_of_edges_too():
    table = np.array([[0.0, 2.0], [-1.0, 4.0]])
    inside = tt.FactorGraph(
        np.zeros(3), [tt.Group([0, 1], pair_model(table)), tt.Group([1, 2], tt.exactly(1))]
    )
    outside = tt.FactorGraph(np.zeros(3), [tt.Group([1, 2], tt.exactly(1))], edges=([[0, 1]], table))
    assert holder_bound(inside).value == pytest.approx(holder_bound(outside).value, rel=1e-7)
    assert holder_bound(inside).value >= np.logaddexp.reduce(table.ravel())


def test_cavities_of_a_model_with_edges_are_right_for_infinite_logits():
    model = tt.CountModel(
        [INF, 0.0, -INF], edges=tt.Forest([(0, 1), (1, 2)], [[[0, 0], [0, 3.0]], [[0, 1.0], [0, 2.0]]])
    )
    # y_1 is on against off with y_0 = 1, y_2 = 0: 3 against 0; y_2 on against off: sum over y_1
    on, off = np.logaddexp(1.0, 3.0 + 2.0), np.logaddexp(0.0, 3.0)
    np.testing.assert_allclose(
        model.cavity_logits, [np.logaddexp(0, 3.0) - np.logaddexp(0, 0.0), 3.0, on - off], rtol=1e-12
    )


# -- infinite logits ---------------------------------------------------------------------------------------------------


def test_finite_logits_of_a_forced_variable_are_part_of_every_answer():
    graph = tt.FactorGraph(
        [INF, 0.0], [tt.Group([0, 1], tt.CountModel([2.0, 0.0])), tt.Group([0, 1], [0.0, 0.0, 0.0])]
    )
    assert graph.forced_log_weight == 2.0
    best = dual_decomposition(graph)
    assert best.log_weight == best.upper_bound == 2.0
    log_z = 2.0 + math.log(2.0)
    assert tt.loopy_bp(graph).bethe_log_partition == pytest.approx(log_z, rel=1e-12)
    assert tt.loopy_bp(graph, semiring="max").bethe_log_partition == pytest.approx(2.0, rel=1e-12)
    assert holder_bound(graph).value == pytest.approx(log_z, abs=1e-6)
    assert holder_bound(graph).value >= log_z - 1e-12


def test_max_product_keeps_what_hard_constraints_have_decided():
    # Once decided, a variable gets no message; the old one must stay what it was.
    case = Case(
        np.array([-2.0, -INF]),
        [
            Factor(np.array([0, 1]), table=np.array([-1.0, -INF, 1.0])),
            Factor(np.array([0, 1]), logits=np.zeros(2), groups=[(np.arange(2), np.array([0.0, 1.0, 2.0]))]),
        ],
        [(1, 0, np.array([[-1.0, -INF], [-INF, 0.5]]))],
    )
    found = tt.loopy_bp(build(case), semiring="max")
    assert found.mode.tolist() == [False, False]
    assert found.bethe_log_partition == pytest.approx(solve(case)[2], rel=1e-12)


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", few(range(6)))
def test_optimal_weights_never_make_a_possible_graph_impossible(seed):
    rng = np.random.default_rng(seed)
    for _ in range(5):
        n = 4
        groups = [tt.Group(rng.permutation(n)[: rng.integers(2, 5)], None) for _ in range(4)]
        groups = [tt.Group(g.members, rng.normal(size=len(g.members) + 1) * 3.0) for g in groups]
        graph = tt.FactorGraph(rng.normal(size=n) * 3.0, groups)
        y = all_states((2,) * n)
        log_z = np.logaddexp.reduce(graph.log_weight(y))
        equal, best = holder_bound(graph), holder_bound(graph, weights="optimal")
        assert log_z - 1e-9 <= best.value <= equal.value + 1e-6
        assert (best.weights > 0.0).all()
        assert best.weights.sum() == pytest.approx(1.0)


def test_belief_propagation_does_not_stop_while_large_messages_are_on_their_way():
    table = [-57789.0, 164476.0, 208891.0, -138866.0]
    logits = [35743.0, -75952.0, 51993.0]
    groups = [tt.Group([0, 1, 2], table), tt.Group([1], [-220228.0, 148023.0])]
    found = tt.loopy_bp(tt.FactorGraph(logits, groups))
    # with variable 1 on, a second one is worth 44415 plus its own log-odds, a third costs more than it brings
    assert found.marginals.round(6).tolist() == [0.0, 1.0, 1.0]


# -- masks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_finite_masks_behave_as_minus_infinity(mask):
    rng = np.random.default_rng(0)
    for _ in range(10):
        case = None
        while case is None or solve(case) is None:
            case = random_case(rng)
        masked = _with_masks(case, mask)
        one, other = build(case), build(masked)
        a, b = tt.loopy_bp(one, max_iter=40), tt.loopy_bp(other, max_iter=40)
        np.testing.assert_array_equal(a.log_odds, b.log_odds)
        assert a.bethe_log_partition == b.bethe_log_partition
        assert holder_bound(one, max_iter=5).value == holder_bound(other, max_iter=5).value
        assert wrong_answers(masked if solve(masked) is None else case) == []
        y = rng.integers(0, 2, size=(5, case.n))
        np.testing.assert_array_equal(one.log_weight(y), other.log_weight(y))


def _with_masks(case: Case, mask: float) -> Case:
    def hide(x):
        x = np.asarray(x, float)
        # a table without any finite entry stays as it is: there is nothing that a mask could be compared with
        return np.where(x == -INF, mask, x) if np.isfinite(x).any() else x

    def logits(x):
        return np.where(x == -INF, mask, x)

    factors = [
        Factor(
            f.members,
            None if f.table is None else hide(f.table),
            None if f.logits is None else logits(f.logits),
            [(p, hide(t)) for p, t in f.groups],
            [(i, j, hide(t)) for i, j, t in f.edges],
        )
        for f in case.factors
    ]
    return Case(logits(case.logits), factors, [(i, j, hide(t)) for i, j, t in case.pairs])


# -- random graphs -----------------------------------------------------------------------------------------------------

FOUND = {
    19: "the log-weight of a proved configuration rounded to above its bound",
    29: "cavities of a model with edges and an infinite logit ignored the edges",
    58: "weights of 1e-300 in the bound",
    67: "weights of 0 in the bound",
    87: "log-odds of the wrong sign behind an infinite logit",
    93: "max-product forgot a decision",
    234: "marginals of a tree with edges and an infinite logit",
    327: "convergence claimed after one sweep with messages in the thousands",
}


@pytest.mark.parametrize("index", [*FOUND, *range(20)])
def test_random_graphs_against_enumeration(index):
    case = random_case(np.random.default_rng([0, index]), tree=index % 2 == 0)
    assert wrong_answers(case) == [], FOUND.get(index)


# -- what is refused ---------------------------------------------------------------------------------------------------


def graph_of(potential) -> tt.FactorGraph:
    return tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], potential)])


def two_classes() -> tt.FactorGraph:
    return tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.at_least(1))])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: graph_of(tt.ChainModel(np.zeros((2, 2)), np.zeros((2, 2)))), "CountModel.*edges=Forest"),
        (lambda: graph_of(tt.PoissonBinomial([0.5, 0.5])), "a CountModel or None; PoissonBinomial"),
        (lambda: graph_of("abc"), "'abc' arrived"),
        (lambda: graph_of([[0, 1], [2]]), "rows of different lengths"),
        (lambda: graph_of(["a", "b", "c"]), "real numbers"),
        (
            lambda: tt.FactorGraph(np.zeros(2), [tt.Group([0, None], None)]),
            "Group 0 must be an array of integers",
        ),
        (lambda: tt.FactorGraph(np.zeros(2), edges=([[0, 1], [0]], np.zeros((2, 2)))), r"shape \(E, 2\)"),
        (lambda: tt.FactorGraph(np.zeros(2), edges=(None, None)), r"shape \(E, 2\)"),
        (lambda: two_classes().members(2), "0 to 1; 2 arrived"),
        (lambda: two_classes().members(0.5), "0.5 arrived"),
        (lambda: tt.FactorGraph(np.zeros(1)).members(0), "has no groups"),
        (lambda: tt.loopy_bp(two_classes()).cavity_log_odds(2), "between 0 and 1"),
        (lambda: tt.loopy_bp(two_classes()).cavity_log_odds(-1), "between 0 and 1"),
        (lambda: tt.loopy_bp(two_classes()).cavity_log_odds(None), "integer"),
        (lambda: holder_bound(two_classes(), tol=None), "`tol` must"),
        (lambda: holder_bound(two_classes(), tol=math.nan), "`tol` must"),
        (lambda: holder_bound(two_classes(), max_iter=-1), "`max_iter` must"),
        (lambda: holder_bound(two_classes(), max_iter=1.5), "`max_iter` must"),
        (lambda: holder_bound(two_classes(), start=3), "`start` must"),
        (lambda: holder_bound(two_classes(), start=holder_bound(graph_of(None))), "2 classes"),
        (lambda: dual_decomposition(two_classes(), temperatures=3), "`temperatures` must"),
        (lambda: dual_decomposition(two_classes(), temperatures=[None]), "`temperatures` must"),
        (lambda: dual_decomposition(two_classes(), temperatures=[INF]), "`temperatures` must"),
        (lambda: dual_decomposition(two_classes(), tol="x"), "`tol` must"),
        (lambda: dual_decomposition(two_classes(), max_iter=None), "`max_iter` must"),
    ],
)
def test_wrong_arguments_are_refused_with_a_reason(make, text):
    with pytest.raises((tt.ParameterError, tt.StructureError), match=text):
        make()


def test_numbers_of_numpy_serve_as_options():
    assert tt.loopy_bp(two_classes(), damping=np.float32(0.5), max_iter=np.int32(5)).iterations <= 5


def test_answers_are_double_precision_whatever_comes_in():
    model = tt.CountModel(np.array([4e6, 0.3], np.float32), np.zeros(3, np.float32))
    graph = tt.FactorGraph(np.array([0.1, 0.2], np.float32), [tt.Group([0, 1], model)])
    found = tt.loopy_bp(graph)
    on = np.float64(np.float32(0.3)) + np.float64(np.float32(0.2))
    first = 4e6 + np.float64(np.float32(0.1))
    assert found.marginals.dtype == found.log_odds.dtype == np.float64
    assert graph.log_weight([1, 1]) == first + on
    assert isinstance(graph.log_weight([1, 1]), np.float64)
    assert found.bethe_log_partition == pytest.approx(first + math.log1p(math.exp(on)), abs=1e-8)


# -- numbers past any exponent -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("far", [2e12, 1e16, 1e20, 1e300])
def test_log_odds_and_tables_of_any_size_decide_as_infinite_ones_do(far, engine):
    with config.using(engine=engine):
        groups = [tt.Group([0, 1, 2], [0.0, 1.0, 0.5, -1.0]), tt.Group([2, 3], [0.0, 0.3, 0.1])]
        sure = tt.loopy_bp(tt.FactorGraph([INF, 0.0, -INF, 0.5], groups))
        found = tt.loopy_bp(tt.FactorGraph([far, 0.0, -far, 0.5], groups))
        np.testing.assert_allclose(found.marginals, sure.marginals, atol=1e-12)
        top = [tt.Group([0, 1, 2], [0.0, far, 0.5, -1.0]), tt.Group([2, 3], [0.0, 0.3, -far])]
        one = [tt.Group([0, 1, 2], [-INF, 0.0, -INF, -INF]), tt.Group([2, 3], [0.0, 0.3, -INF])]
        found, sure = (tt.loopy_bp(tt.FactorGraph(np.zeros(4), g)) for g in (top, one))
        np.testing.assert_allclose(found.marginals, sure.marginals, atol=1e-12)
        assert found.bethe_log_partition == pytest.approx(far, rel=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_forced_member_beside_a_very_improbable_one_raises_no_warning(engine):
    pair = tt.CountModel([0.0, 0.0], [tt.Group([1, 0], [-INF, -INF, 0.0])])
    groups = [tt.Group([5, 4], [0.0, 0.0, 0.0]), tt.Group([5, 2], pair)]
    graph = tt.FactorGraph([0.0, 0.0, 0.0, 0.0, -10000.0, 0.0, 0.0], groups)
    with config.using(engine=engine), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tt.loopy_bp(graph).log_odds.tolist() == [0.0, 0.0, INF, 0.0, -10000.0, INF, 0.0]
        assert trw_bound(graph).value == pytest.approx(4 * math.log(2.0), rel=1e-9)


def test_a_search_for_a_bound_does_not_run_into_numbers_that_stand_for_infinity():
    """Where the bound is linear in a share the line search once tried shares of 1e12 and met a contradiction."""
    only_one = tt.CountModel(
        [116.1031508241573, -92.21229681186082],
        [tt.Group([0, 1], [0.0, 0.0, -INF])],
        edges=tt.Forest([(0, 1)], [[[-INF, 0.0], [0.0, 0.0]]]),
    )
    groups = [tt.Group([0, 1], only_one), tt.Group([1, 0], [-INF, 0.0, -INF]), tt.Group([1], [30.0, -30.0])]
    tables = [
        [[0.6101130274395548, 800.0], [-1.9853121975219694, 0.8934653013075993]],
        [[-51919.55836050514, 12557.25066856559], [-71587.86841329516, 78503.94812119858]],
    ]
    logits = [0.04865849726881671, 0.49232207498401853]
    graph = tt.FactorGraph(logits, groups, edges=([(1, 0), (0, 1)], tables))
    log_z = np.logaddexp.reduce(graph.log_weight([[0, 1], [1, 0]]))
    assert log_z <= holder_bound(graph).value < math.inf
    assert log_z <= trw_bound(graph).value < math.inf


def test_a_bound_where_every_variable_is_decided():
    groups = [tt.Group([0, 1], [0.0, 1.0, 2.0]), tt.Group([1, 0], [0.0, 0.5, 0.0])]
    graph = tt.FactorGraph([INF, -INF], groups)
    for bound in (holder_bound, trw_bound):
        assert bound(graph).value == pytest.approx(1.5, rel=1e-12)


def test_messages_that_drift_are_not_extrapolated_to_a_contradiction():
    """Two configurations are possible; steps that do not shrink were extrapolated to messages of -1e13."""
    at_least_one = tt.CountModel([0.0, -600.0], tt.at_least(1), edges=tt.Forest([], np.zeros((0, 2, 2))))
    groups = [
        tt.Group([0, 1], tt.at_most(1)), tt.Group([1, 2], at_least_one), tt.Group([2, 0, 1], tt.at_least(2)),
    ]  # fmt: skip
    graph = tt.FactorGraph(np.zeros(3), groups, edges=([(0, 1)], [[[0.0, 8.0], [0.0, 0.0]]]))
    for damping in (0.0, 0.2, 0.5):
        found = tt.loopy_bp(graph, damping=damping, max_iter=300)
        assert not np.isnan(found.log_odds).any()
        assert found.lower_bound <= -600.0 + math.log(1.0 + math.exp(8.0)) + 1e-6


@pytest.mark.parametrize("semiring", ["sum", "max"])
def test_messages_that_run_away_contradict_no_model(semiring):
    """Equal or not, and twice: messages double in every sweep, beyond what stands for infinity."""
    equal = tt.CountModel(np.zeros(3), [0.0, -INF, -INF, 0.0])
    unequal = tt.CountModel(np.zeros(3), [-60.0, 0.0, 0.0, -60.0], edges=tt.Forest([(0, 1)], coupling=0.1))
    groups = [tt.Group([0, 1, 2], equal), tt.Group([1, 2, 3], equal), tt.Group([0, 2, 3], unequal)]
    for logits in ([1.0, 1.0, 1.0, 1.0], [1.0, -3.0, 1.0, 0.5], [40.0, -40.0, 0.0, 3.0]):
        graph = tt.FactorGraph(logits, groups)
        for accelerate in (False, True):
            found = tt.loopy_bp(graph, damping=0.0, max_iter=60, accelerate=accelerate, semiring=semiring)
            assert not np.isnan(found.log_odds).any()
