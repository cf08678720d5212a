"""FactorGraph: what it accepts, what it says, what it refuses."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states


def small() -> tt.FactorGraph:
    inner = tt.CountModel(
        [0.3, -0.2, 0.1], [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, [0.0, 1.0, 0.5, -1.0])]
    )
    groups = [
        tt.Group([0, 1, 2], tt.between(1, 2)),
        tt.Group([2, 3, 4], inner),
        tt.Group([0, 4], [0.1, 0.2, -np.inf]),
    ]
    return tt.FactorGraph([0.5, -0.5, 0.0, 1.0, -1.0], groups, edges=([[1, 3]], [[[0.0, 0.5], [0.2, -1.0]]]))


def test_log_weight_is_the_product_of_all_factors():
    graph = small()
    inner = graph.groups[1].potential
    for y in all_states((2,) * 5):
        y = np.array(y)
        want = float(np.dot(graph.logits, y))
        want += tt.between(1, 2).log_table(3)[y[:3].sum()] + np.array([0.1, 0.2, -np.inf])[y[0] + y[4]]
        want += np.array([[0.0, 0.5], [0.2, -1.0]])[y[1], y[3]]
        z = y[2:]
        want += 0.3 * z[0] - 0.2 * z[1] + 0.1 * z[2] + np.array([0.0, 1.0, 0.5, -1.0])[z.sum()]
        want += 0.0 if z[0] + z[1] >= 1 else -np.inf
        assert (
            graph.log_weight(y) == pytest.approx(want, abs=1e-9)
            if np.isfinite(want)
            else graph.log_weight(y) == want
        )
    assert inner.n_variables == 3


def test_log_weight_takes_batches_and_infinite_logits():
    graph = tt.FactorGraph([np.inf, -np.inf, 2.0], [tt.Group([0, 2], tt.at_least(1))])
    y = [[1, 0, 1], [0, 0, 1], [1, 1, 0]]
    assert graph.log_weight(y).tolist() == [2.0, -np.inf, -np.inf]


def test_graph_is_frozen_picklable_and_comparable():
    graph = small()
    for other in (pickle.loads(pickle.dumps(graph)), copy.copy(graph), copy.deepcopy(graph)):
        assert other == graph
        assert hash(other) == hash(graph)
    with pytest.raises(ValueError, match="read-only"):
        graph.logits[0] = 1.0
    changed = graph.replace(logits=np.zeros(5))
    assert changed != graph
    assert changed.groups[2].potential is graph.groups[2].potential
    assert repr(graph) == "FactorGraph(n_variables=5, n_groups=3, n_edges=1)"
    assert graph != "graph"


def test_parameters_are_copied():
    table, logits = np.zeros(3), np.zeros(2)
    graph = tt.FactorGraph(logits, [tt.Group([0, 1], table)])
    table[:] = -1.0
    logits[:] = 5.0
    assert graph.log_weight([1, 1]) == 0.0


def test_logits_of_a_model_add_to_those_of_the_variables():
    inner = tt.CountModel([1.0, np.inf], tt.at_most(2))
    graph = tt.FactorGraph([0.5, 0.5], [tt.Group([0, 1], inner)])
    assert graph.total_logits.tolist() == [1.5, np.inf]
    clash = tt.FactorGraph([0.5, -np.inf], [tt.Group([0, 1], inner)])
    with pytest.raises(tt.InfeasibleError, match="Variable 1"):
        _ = clash.total_logits


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: tt.FactorGraph(np.zeros((2, 2))), tt.ParameterError, "one-dimensional"),
        (lambda: tt.FactorGraph(np.zeros(2), [tt.exactly(1)]), tt.ParameterError, "Wrap every entry"),
        (lambda: tt.FactorGraph(np.zeros(2), tt.exactly(1)), tt.ParameterError, "Wrap every entry"),
        (
            lambda: tt.FactorGraph(np.zeros(2), [tt.Group([0, 2], None)]),
            tt.StructureError,
            "names variable 2",
        ),
        (lambda: tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], [0.0])]), tt.ParameterError, "3 entries"),
        (
            lambda: tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], np.zeros((2, 3)))]),
            tt.ParameterError,
            "one-dimens",
        ),
        (
            lambda: tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], tt.CountModel(np.zeros(3)))]),
            tt.StructureError,
            "with 3 variables",
        ),
        (
            lambda: tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], tt.CountModel(np.zeros((4, 2))))]),
            tt.StructureError,
            "batch shape",
        ),
        (lambda: tt.FactorGraph(np.zeros(2), edges=[[0, 1]]), tt.ParameterError, "`edges` must be a tuple"),
        (
            lambda: tt.FactorGraph(np.zeros(2), edges=([[0, 5]], np.zeros((2, 2)))),
            tt.StructureError,
            "from 0 to 1, .* is 5",
        ),
        (
            lambda: tt.FactorGraph(np.zeros(2), edges=([[1, 1]], np.zeros((2, 2)))),
            tt.StructureError,
            "to itself",
        ),
        (
            lambda: tt.FactorGraph(np.zeros(2), edges=([[0.5, 1]], np.zeros((2, 2)))),
            tt.StructureError,
            "integers",
        ),
        (
            lambda: tt.FactorGraph(np.zeros(2), edges=([[0, 1]], np.zeros((3, 2)))),
            tt.ParameterError,
            r"2, 2\)",
        ),
        (
            lambda: tt.FactorGraph(np.zeros(2), edges=([[0, 1]], [[0.0, np.inf], [0.0, 0.0]])),
            tt.ParameterError,
            "below",
        ),
        (lambda: tt.FactorGraph(np.zeros(2)).replace(logits=np.zeros(3)), tt.ParameterError, "shape"),
    ],
)
def test_bad_input_is_refused_with_a_reason(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_edges_accept_an_object_and_one_table_for_all():
    class Edges:
        pairs = np.array([[0, 1], [1, 2]])
        log_tables = np.array([[0.0, 0.0], [0.0, 1.0]])

    graph = tt.FactorGraph(np.zeros(3), edges=Edges())
    assert graph.n_edges == 2
    assert graph.log_weight([1, 1, 1]) == 2.0
    assert tt.FactorGraph(np.zeros(3), edges=([], [])).n_edges == 0


@pytest.mark.parametrize("table", [[[0, 1], [1]], ["a", 2, 3], [0.0, 1j, 3.0]])
def test_the_table_of_a_group_is_named_without_quotes(table):
    with pytest.raises(tt.ParameterError, match=r"^The table of group 0 must"):
        tt.FactorGraph([0.0, 1.0], [tt.Group([0, 1], table)])
