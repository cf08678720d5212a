"""Wrong arguments get errors of this package that name the next step, never raw ones from below."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import tallytree as tt
from tallytree import config, potentials
from tallytree.models import reliability

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
            "^The table of group 0 must be a rectangular",
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


# -- nothing raw ---------------------------------------------------------------------------------------------------

WRONG = [
    *(
        None,
        True,
        -1,
        0,
        2.5,
        -0.5,
        np.inf,
        np.nan,
        10**30,
        "abc",
        "",
        b"x",
        [],
        [1],
        [-1],
        [[1], [1, 2]],
        (1, 2),
    ),
    *(
        {},
        {0: 1},
        {"a": 2},
        {0: np.array([0, 1])},
        set(),
        object(),
        lambda c: "x",
        lambda c: None,
        int,
        range(3),
    ),
    *(
        np.zeros((2, 3)),
        np.zeros(3),
        np.zeros((2, 0)),
        np.zeros((3, 4, 5)),
        np.array("a"),
        np.array([None, 1]),
    ),
    *(
        np.array([1 + 2j]),
        np.array(["a", "b"]),
        np.float16([1, 2, 3]),
        [np.inf] * 3,
        [np.nan] * 3,
        slice(0, 2),
    ),
    *(
        tt.exactly(1),
        tt.exactly(100),
        tt.Group([0, 1]),
        [tt.exactly(1)],
        [tt.Group([0, 1]), tt.Group([1, 2])],
    ),
]
MODELS = {
    "nested": tt.CountModel(LOGITS, [tt.Group([0, 1], tt.at_most(1)), tt.Group(None, tt.exactly(2))]),
    "flat": tt.CountModel(LOGITS, tt.exactly(2)),
    "batch": tt.CountModel(np.zeros((2, 4)), tt.exactly(2)),
    "empty": tt.CountModel([]),
}
RIGHT = {
    "from_tree": (MODELS["flat"].tree, LOGITS, [None]),
    "condition": ({0: 1},),
    "condition_count": (None, 2),
    "log_prob": ([0, 0, 1, 1],),
    "kl_divergence": (MODELS["flat"],),
    "pairwise": (0, 1),
    "hessian_vector_product": (np.ones(4),),
}


def public_methods(thing):
    return [name for name in dir(type(thing)) if name[0] != "_" and callable(getattr(type(thing), name))]


def survey(call, *right, **more):
    """Replace every argument by every wrong value; errors must be of this package."""
    parameters = inspect.signature(call).parameters
    named = dict(zip(parameters, right)) | more
    for name, parameter in parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        for value in WRONG:
            try:
                call(**(named | {name: value}))
            except tt.TallyTreeError as error:
                if not str(error).rstrip("`\"')").endswith("."):
                    pytest.fail(f"not a sentence: {error}")
            except Exception as error:
                pytest.fail(f"{call} with {name}={value!r}: {type(error).__name__}: {error}")


@pytest.mark.filterwarnings("ignore")
def test_no_raw_error_comes_from_making_a_model():
    survey(
        lambda logits, groups, method: tt.CountModel(logits, groups, method=method).marginals,
        LOGITS,
        None,
        "auto",
    )
    survey(
        lambda members, potential: tt.CountModel(LOGITS, [tt.Group(members, potential)]).marginals,
        [0, 1],
        None,
    )
    survey(tt.CountModel.from_tree, MODELS["nested"].tree, LOGITS, [None, None])
    survey(tt.RaggedBatch, [[0.0, 1.0], [1.0]], tt.exactly(1))
    survey(tt.Forest, [(0, 1)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", MODELS)
def test_no_raw_error_comes_from_a_method_of_a_model(kind):
    for name in public_methods(MODELS[kind]):
        survey(getattr(MODELS[kind], name), *RIGHT.get(name, ()))


def test_no_raw_error_comes_from_a_tree():
    survey(tt.CountTree.from_groups, [[0, 1], None], 4)
    survey(tt.CountTree.flat, 3)
    survey(tt.CountTree.balanced, 4)
    survey(tt.CountTree.from_parents, [4, 4, 5, 5, 6, 6, -1], 4)
    survey(tt.CountTree.from_linkage, np.array([[0, 1, 1.0, 2], [2, 3, 2.0, 3]]))
    for name in ("group_size", "with_groups", "with_singletons"):
        survey(getattr(MODELS["nested"].tree, name))


@pytest.mark.filterwarnings("ignore")
def test_no_raw_error_comes_from_a_potential():
    right = {
        **dict.fromkeys(("exactly", "at_least", "at_most", "poisson"), (1,)),
        **dict.fromkeys(("noisy_or", "noisy_and", "geometric", "spike_and_slab", "all_or_none"), (0.2,)),
        "between": (1, 2),
        "one_of": ([0, 2],),
        "parity": ("even",),
        "modulo": (3, 1),
        "gaussian": (1.0, 1.0),
        "quadratic": (1.0,),
        "exponential_mixture": ([1.0], [0.5]),
        "table": ([0.0, 0.0],),
        "parse_potential": ("exactly:1",),
        "as_potential": (None,),
    }
    for name, arguments in right.items():
        factory = getattr(potentials, name)
        survey(factory, *arguments)
        for method in ("log_table", "support", "mixture"):
            survey(getattr(factory(*arguments), method))


@pytest.mark.filterwarnings("ignore")
def test_no_raw_error_comes_from_a_distribution_or_a_system():
    survey(tt.PoissonBinomial, [0.1, 0.2, 0.3])
    survey(lambda weights: tt.PoissonBinomial([0.1, 0.2, 0.3], weights=weights).pmf(1), [1, 2, 3])
    x = tt.PoissonBinomial([[0.1, 0.2, 0.3]] * 2, weights=[1, 2, 3])
    for distribution in (x, x.given(low=1)):
        for name in public_methods(distribution):
            survey(getattr(distribution, name))
    for name in reliability.__all__:
        survey(getattr(reliability, name), [0.1, 0.2, 0.3], 1, *([2] if "to_l" in name else []))


def test_no_raw_error_comes_from_the_settings():
    def run(engine, level, threads):
        with config.using(engine=engine, level=level, threads=threads):
            return MODELS["flat"].replace(logits=LOGITS).marginals

    survey(run, None, None, None)


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
    with pytest.raises(tt.ParameterError, match="positions of `log_unary`; 9 arrived"):
        tt.ChainModel(np.zeros((2, 3, 2)), np.zeros((2, 2)), lengths=[3, 9])
