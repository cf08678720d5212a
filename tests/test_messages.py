"""Wrong arguments get errors that name the next step; that none is raw is in `test_wrong_calls.py`."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import tallytree as tt

LOGITS = np.array([0.5, -1.0, 0.3, 2.0])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            [tt.exactly(1)],
            r"must be a Group.*entry 0 of `groups` is exactly\(1\).*Group\(members, exactly\(1\)\)",
        ),
        ((tt.Group([0, 1]), tt.at_most(2)), r"entry 1 of `groups` is at_most\(2\).*Write Group"),
        ([None], "entry 0 of `groups` is None"),
        ([[0, 1], [2, 3]], r"entry 0 of `groups` is \[0, 1\].*Group\(members, potential\)"),
        ([([0, 1], tt.exactly(1))], r"Write Group\(members, potential\)"),
        ([range(2), range(2, 4)], r"entry 0 of `groups` is range\(0, 2\)"),
        ({(0, 1): tt.exactly(1)}, "a list of Group"),
        (tt.CountTree.flat(4), "from_tree"),
        (2, "For a fixed count use `exactly`"),
        ("exactly(1)", "parse_potential"),
        (tt.exactly, r"Call it with its arguments, such as `exactly\(1\)`"),
        ([tt.Group([0, 1]), tt.Group([1, 2])], "FactorGraph.*loopy_bp"),
        (
            [tt.Group([0]), tt.Group([0, 1], tt.exactly(3))],
            r"Group 1: `exactly\(3\)` needs a group of at least 3",
        ),
        ([tt.Group([0, 1], "x"), tt.Group([0])], "Group 0: a potential must be"),
        (
            [tt.Group([0, 1], [[1.0], [1.0, 2.0]]), tt.Group([0])],
            "^The table of group 0 must be an array of real numbers",
        ),
    ],
)
def test_wrong_groups_name_the_next_step(groups, message):
    with pytest.raises((tt.ParameterError, tt.StructureError), match=message) as caught:
        tt.CountModel(LOGITS, groups)
    assert "``" not in str(caught.value)


def test_probabilities_above_one_name_an_argument_that_exists():
    with pytest.raises(tt.ParameterError, match="Log-odds go in `logits`"):
        tt.PoissonBinomial([0.5, 1.5])
    for call in (tt.k_out_of_n, tt.birnbaum_importance):
        with pytest.raises(tt.ParameterError, match=r"1\.5.*turn log-odds into them with `expit`"):
            call([0.5, 1.5], 1)


def test_an_impossible_nest_names_its_groups():
    groups = [
        tt.Group([0, 1], tt.exactly(2)),
        tt.Group([0, 1, 2], tt.at_most(1)),
        tt.Group(None, tt.exactly(3)),
    ]
    with pytest.raises(tt.InfeasibleError, match="groups 0 and 1 cannot be satisfied together"):
        _ = tt.CountModel(LOGITS, groups).marginals
    with pytest.raises(
        tt.InfeasibleError,
        match=r"at batch index \(1,\).*no count satisfies the potential with the variables",
    ):
        _ = tt.CountModel([[0.0] * 4, [0.0, 0.0, -np.inf, -np.inf]], tt.exactly(3)).log_partition
    pairs = [tt.Group([0, 1], tt.one_of([0, 2])), tt.Group([2, 3], tt.one_of([0, 2]))]
    model = tt.CountModel(LOGITS, [*pairs, tt.Group(None, tt.parity("odd"))])
    with pytest.raises(tt.InfeasibleError, match="groups 0, 1 and 2 cannot be satisfied together") as caught:
        model.mode()
    assert caught.value.groups == (0, 1, 2)
    assert pickle.loads(pickle.dumps(caught.value)).groups == (0, 1, 2)


def test_a_batch_of_tables_without_edges_is_a_batch():
    for shape in ((3, 0, 2, 2), (3, 1, 2, 2)):
        model = tt.CountModel(LOGITS, tt.exactly(2), edges=tt.Forest([], np.zeros(shape)))
        want = tt.CountModel(LOGITS, tt.exactly(2)).marginals
        np.testing.assert_allclose(model.marginals, np.broadcast_to(want, (3, 4)), rtol=1e-12)


def test_evidence_that_clashes_is_said_by_its_variables():
    model = tt.CountModel(LOGITS, tt.exactly(2)).condition({0: 1, 1: 1, 3: 1})
    with pytest.raises(tt.InfeasibleError, match=r"groups 0, 1 \(variable 0 = 1\), 2 \(.* 1 = 1\) and 3 \("):
        _ = model.marginals


def test_a_number_in_place_of_a_potential_is_taken_for_a_count():
    calls = (
        lambda: tt.CountModel(LOGITS, 2),
        lambda: tt.CountModel(LOGITS, [tt.Group([0, 1], 2)]),
        lambda: tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), 2),
        lambda: tt.ThinnedModel(LOGITS, [0.5] * 4, 2),
        lambda: tt.FactorGraph(LOGITS, [tt.Group([0, 1], np.int64(2))]),
        lambda: tt.RaggedBatch([LOGITS], 2),
        lambda: tt.ChunkedCountModel(LOGITS, 2),
        lambda: tt.assignment(np.zeros((2, 2)), rows=2),
    )
    for call in calls:
        with pytest.raises(tt.ParameterError, match=r"exactly\(2\)"):
            call()


def test_what_arrived_is_said_of_sequences():
    chain = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)))
    with pytest.raises(tt.ParameterError, match="between 0 and 1; 2 arrived"):
        chain.log_prob([0, 2, 1])
    with pytest.raises(tt.ParameterError, match="from 1 to 3; entry 1 is 9"):
        tt.ChainModel(np.zeros((2, 3, 2)), np.zeros((2, 2)), lengths=[3, 9])
