"""Public callables with arguments that are right: what is not given here is the default of the signature."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import tallytree as tt
from public_names import methods
from tallytree import chunked, learn, loopy, potentials

THREE = [0.1, 0.2, 0.3]
DATA = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0]])
TREE = tt.CountTree.balanced(4)
X = np.array([[0.5, 1.0], [-0.2, 0.3], [0.1, -0.4], [0.9, 0.2], [-1.0, 0.6], [0.3, 0.3]])
CODES = np.array([0, 0, 0, 1, 1, 1])
CHOSEN = np.array([True, False, False, False, True, False])

# Right arguments by their names, wherever a row says nothing else.
USUAL: dict[str, Any] = {
    "logits": THREE, "probs": [0.1, 0.5, 0.7], "evidence": {0: 1}, "y": [0, 1, 0], "group": 0, "count": 1,
    "k": 1, "l": 2, "n": 3, "x": 1, "q": 0.5, "confidence": 0.9, "order": 2, "size": 2, "rng": 0, "random_state": 0,
    "n_variables": 3, "max_iter": 2, "max_iterations": 3, "sweeps": 2, "burn_in": 1, "chains": 2, "thin": 1,
    "potential": tt.between(1, 2), "rates": [0.5, 0.2, 0.9], "beta": np.zeros(2), "rows": DATA,
}  # fmt: skip


VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Call(NamedTuple):
    name: str
    call: Callable[..., Any]
    given: dict[str, Any]


def required(call: Callable[..., Any]) -> list[str]:
    """Arguments without a default."""
    named = inspect.signature(call).parameters.values()
    return [p.name for p in named if p.default is p.empty and p.kind not in VARIADIC]


def ask(found: Any) -> Any:
    """Everything that a result answers without arguments: answers are computed when they are asked for."""
    if inspect.isgenerator(found):
        return list(itertools.islice(found, 20))
    if not type(found).__module__.startswith("tallytree"):
        return found
    names = ("log_partition", "marginals", "entropy", "posterior_logits", "count_log_probs", "sum_log_probs")
    for name in (*names, "mode", "grid_error"):
        value = getattr(found, name, None)
        if callable(value) and not required(value):
            value()
    return found


def right(call: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Every argument of a call with a value that is right."""
    named = {
        p.name: p.default
        for p in inspect.signature(call).parameters.values()
        if p.kind not in VARIADIC and p.name[0] != "_"
    }
    named |= {name: USUAL[name] for name in named if name in USUAL} | given
    missing = [name for name, value in named.items() if value is inspect.Parameter.empty]
    assert not missing, f"{call} needs {missing}"
    return named


def calls(make: Callable[..., Any], label: str = "", /, **given: Any) -> Iterator[Call]:
    """One row: a function or a class."""
    yield Call(label or make.__name__, make, right(make, given))


def within(make: Callable[..., Any], use: Callable[[Any], Any], /, **given: Any) -> Iterator[Call]:
    """A row whose result is only looked at where it is used."""

    @functools.wraps(make)
    def used(**values: Any) -> Any:
        return use(make(**values))

    return calls(used, **given)


def methods_of(make: Callable[[], Any], **given: dict[str, Any]) -> Iterator[Call]:
    """Rows for all public methods of an object that take arguments."""
    thing = make()
    kind = type(thing).__name__
    for name, _, is_property in methods(type(thing)):
        if is_property or name in ("kept", "extra_repr", "enumerate_support", "rsample"):
            continue
        call = getattr(thing, name)
        arguments = right(call, given.get(name, {}))
        if arguments:
            # A new object every time, because answers are remembered.
            yield Call(
                f"{kind}.{name}", lambda name=name, **values: getattr(make(), name)(**values), arguments
            )


def nested() -> tt.CountModel:
    return tt.CountModel(THREE, [tt.Group([0, 1], tt.at_most(1)), tt.Group(None, tt.between(1, 2))])


def with_edges() -> tt.CountModel:
    return tt.CountModel(THREE, tt.between(1, 2), edges=tt.Forest([(0, 1), (1, 2)], coupling=0.4))


def forest() -> tt.Forest:
    return tt.Forest([(0, 1), (1, 2)], coupling=[0.4, -0.3])


def graph() -> tt.FactorGraph:
    return tt.FactorGraph(THREE, [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.at_most(1))])


def pairs() -> Any:
    return tt.assignment(np.zeros((3, 3)), tt.exactly(1), tt.exactly(1))


def limited(threads: Any) -> None:
    with tt.limit_threads(threads):
        pass


POTENTIALS: dict[str, dict[str, Any]] = {
    **{name: {"k": 1} for name in ("exactly", "at_least", "at_most")},
    "between": {"lo": 1, "hi": 2},
    "one_of": {"counts": [0, 2]},
    "parity": {},
    "modulo": {"m": 2},
    "noisy_or": {"rate": 0.3, "leak": 0.1},
    "noisy_and": {"rate": 0.3, "leak": 0.1},
    "gaussian": {"mean": 1.0, "sd": 0.5},
    "poisson": {"mean": 1.0},
    "geometric": {"ratio": 0.5},
    "spike_and_slab": {"spike": 1.0},
    "all_or_none": {"strength": 1.0},
    "quadratic": {"curvature": -1.0},
    "exponential_mixture": {"coefficients": [0.5, 0.5], "rates": [1.0, 0.5]},
    "table": {"log_values": [0.0, 1.0, 0.0, 1.0]},
}


def of_structures_and_potentials() -> Iterator[Call]:
    yield from calls(tt.CountTree.from_groups, groups=[[0, 1], [0, 1, 2]])
    yield from calls(tt.CountTree.from_linkage, linkage=[[0.0, 1.0, 0.5, 2.0]])
    yield from calls(tt.CountTree.from_parents, parents=[3, 3, 4, 4, -1])
    yield from calls(tt.CountTree.balanced)
    yield from calls(tt.CountTree.flat)
    for name, given in (("group_size", {"group": 0}), ("with_groups", {"extra": [[0]]})):
        yield from calls(getattr(TREE, name), **given)
    yield from calls(TREE.with_singletons, variables=np.array([0, 1]))
    yield from within(
        tt.Forest,
        lambda edges: tt.CountModel(THREE, edges=edges).marginals,
        pairs=[(0, 1), (1, 2)],
        log_tables=np.zeros((2, 2, 2)),
    )
    yield from methods_of(
        forest,
        boundary_width={"members": [0, 1]},
        compatible_with={"tree": TREE, "coupling": 0.4},
        fits={"groups": [tt.Group([0, 1], tt.exactly(1))]},
        replace={"coupling": [0.4, 0.2]},
    )
    for name, given in POTENTIALS.items():
        yield from within(getattr(tt, name), lambda made: tt.CountModel(THREE, made).marginals, **given)
        for question in ("log_table", "support", "mixture"):
            yield from calls(getattr(getattr(tt, name)(**given), question), f"{name}.{question}")
    yield from calls(potentials.as_potential, obj=tt.exactly(1))
    yield from calls(potentials.parse_potential, text="exactly(1)")
    yield from calls(limited, threads=1)


def of_models() -> Iterator[Call]:
    one = tt.exactly(1)
    rows = {"log_unary": np.zeros((3, 2)), "log_transitions": np.zeros((2, 2))}
    weighted = {"weights": [1.0, -0.5, 2.0], "log_f": np.cos, "step": 0.5}
    yield from calls(tt.CountModel, groups=one)
    yield from calls(tt.CountModel.from_tree, tree=TREE, logits=np.zeros(4), tables=None)
    yield from within(tt.Group, lambda made: tt.CountModel(THREE, [made]), members=[0, 1], potential=one)
    yield from calls(tt.ChainModel, **rows, counts=one)
    yield from calls(tt.FactorGraph, groups=[tt.Group([0, 1], one)])
    yield from calls(tt.LinearModel, **weighted)
    yield from calls(
        tt.LinearModel, "LinearModel(table)", weights=[1.0, 1.0, 2.0], log_f=np.zeros(5), step=1.0
    )
    yield from calls(tt.ThinnedModel, leak=0.1)
    yield from calls(tt.noisy_or_model, leak=0.1)
    yield from calls(tt.RaggedBatch, logits=[[0.1], [0.2, 0.3]], potentials=[one, tt.at_most(1)])
    yield from calls(tt.RaggedBatch, "RaggedBatch(sizes)", potentials=one, sizes=[1, 2])
    for make in (tt.k_out_of_n, tt.k_to_l_out_of_n, tt.birnbaum_importance):
        yield from calls(make)
    for make in (nested, with_edges, lambda: tt.CountModel(np.zeros((2, 3)), tt.exactly(2))):
        yield from methods_of(
            make, from_tree={"tree": TREE, "logits": np.zeros(4), "tables": None}, covariance={"rows": [0]},
            count_covariance={"first": 0, "second": 0}, kl_divergence={"other": make()}, mode_k={"k": 1},
            pairwise={"i": [0], "j": [1]},
        )  # fmt: skip
    yield from methods_of(lambda: tt.ChainModel(**rows, counts=one), log_prob={"labels": [0, 1, 0]})
    yield from methods_of(graph)
    yield from methods_of(
        lambda: tt.LinearModel(THREE, **weighted),
        replace={"logits": THREE, **weighted}, bracket={"question": "marginals"},
    )  # fmt: skip
    yield from methods_of(lambda: tt.LinearModel(THREE, **weighted).total, bracket={"question": "mean"})
    yield from methods_of(
        lambda: tt.ThinnedModel(THREE, [0.5, 0.2, 0.9], tt.between(1, 2), leak=0.1),
        replace={"logits": THREE, "rates": [0.5, 0.2, 0.9], "potential": one, "leak": 0.2},
    )
    yield from methods_of(lambda: tt.RaggedBatch([[0.1], [0.2, 0.3]], one), log_prob={"y": [[1], [0, 1]]})


def of_sums() -> Iterator[Call]:
    given = {"value": None, "low": 1, "high": 2}
    yield from calls(tt.PoissonBinomial, logits=None)
    named = functools.wraps(tt.PoissonBinomial)(lambda **values: tt.PoissonBinomial(**values).pmf(1))
    yield from calls(named, "PoissonBinomial(logits)", probs=None, weights=[1, 2, 3])
    batch = {
        "given": given,
        "bracket": {"question": "mean"},
        "mixture": {"weights": [0.5]},
        "rvs": {"size": (2, 1)},
    }
    yield from methods_of(lambda: tt.PoissonBinomial([[0.1, 0.5, 0.7]]), **batch)
    yield from methods_of(lambda: tt.PoissonBinomial([[0.1, 0.5, 0.7]], weights=[1, 2, 5]), **batch)
    mixture = tt.PoissonBinomial([[0.1, 0.5, 0.7]] * 2, weights=[1, 2, 5])
    yield from calls(tt.SumMixture, of=mixture, weights=[0.2, 0.8])
    yield from methods_of(lambda: mixture.mixture([0.2, 0.8]), given=given, bracket={"question": "mean"})
    yield from methods_of(lambda: tt.PoissonBinomial([0.1, 0.5, 0.7]).given(low=1), given=given)


def of_chunks() -> Iterator[Call]:
    six, source = np.array(THREE * 2), np.array(THREE)
    yield from calls(
        chunked.ChunkedCountModel, source=six, potential=tt.exactly(2), chunk_size=3, evidence=None
    )
    mean = functools.wraps(chunked.ChunkedPoissonBinomial)(
        lambda **values: chunked.ChunkedPoissonBinomial(**values).mean()
    )
    yield from calls(mean, probs=np.full(6, 0.5), logits=None, chunk_size=3)
    yield from methods_of(
        lambda: chunked.ChunkedCountModel(six, tt.exactly(2), chunk_size=4),
        log_prob={"y": np.array([1, 0, 0, 0, 1, 0])}, sample={"size": None},
    )  # fmt: skip
    yield from methods_of(
        lambda: chunked.ChunkedCountModel(
            source, groups=np.array([0, 0, 1]), group_potential=tt.at_most(1), chunk_size=2
        ),
        log_prob={"y": np.array([1, 0, 0])}, sample={"size": None},
    )  # fmt: skip
    yield from methods_of(lambda: chunked.ChunkedPoissonBinomial(np.array([0.1, 0.5, 0.7]), chunk_size=2))


def of_procedures() -> Iterator[Call]:
    strata = learn.strata_of_groups(CODES, CHOSEN)
    chosen = functools.partial(learn.ConditionalLikelihood, X, strata)
    table = tt.CountModel(np.zeros(3), [tt.Group(None, np.zeros(4))])
    parametric = functools.partial(learn.parametric, tt.poisson, mean=learn.Parameter("mean", 1.0))
    fit = functools.partial(
        learn.fit_conditional, tt.CountTree.flat(3), np.ones((4, 2)), DATA, max_iter=2, l2=0.1
    )
    for procedure in (
        tt.loopy_bp,
        loopy.dual_decomposition,
        loopy.holder_bound,
        loopy.trw_bound,
        loopy.mean_field,
    ):
        yield from calls(procedure, graph=graph())
    yield from methods_of(lambda: tt.loopy_bp(graph(), max_iter=3), cavity_log_odds={"factor": 0})
    yield from methods_of(lambda: loopy.holder_bound(graph(), max_iter=2), gap={"lower_bound": 0.0})
    yield from within(tt.assignment, lambda made: made.mode(), affinity=np.zeros((2, 3)), rows=tt.exactly(1))
    yield from methods_of(
        pairs, bounds={"max_iter": 2, "tol": 1e-3}, dual_decomposition={"max_iter": 2, "tol": 1e-3},
        log_weight={"y": np.eye(3)}, loopy_bp={"max_iter": 2, "tol": 1e-3, "damping": 0.1},
    )  # fmt: skip
    yield from calls(learn.fit, model=table, data=DATA, l2=0.1, method="l-bfgs", tol=1e-3, logits="free")
    yield from calls(learn.fit_conditional, tree=tt.CountTree.flat(3), X=np.ones((4, 2)), Y=DATA, tol=1e-3)
    yield from calls(learn.strata_of_groups, codes=CODES, cases=CHOSEN)
    times = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 6.0])
    yield from calls(learn.risk_sets, time=times, event=CHOSEN, entry=np.zeros(6), codes=CODES)
    yield from within(learn.ConditionalLikelihood, lambda made: made.value(np.zeros(2)), x=X, strata=strata)
    yield from calls(learn.newton, likelihood=chosen(), l2=0.1)
    causes = {"logits": np.zeros((4, 2)), "effects": np.array([1, 0, 1, 1]), "l2": 0.1, "max_iter": 3}
    yield from calls(learn.fit_noisy_or, **causes)
    yield from methods_of(lambda: learn.fit_noisy_or(**causes), model={"logits": np.zeros(2)})
    sums = {"weights": [1, 2, 4], "value": [1, 3, 4], "X": X[:3, :2], "l2": 0.1, "max_iter": 3}
    yield from calls(learn.fit_sums, **sums)
    yield from methods_of(lambda: learn.fit_sums(**sums), model={"X": X[:3, :2]})
    yield from calls(learn.fixed_counts, theta=np.zeros((2, 3)), k=np.array([1, 2]))
    yield from calls(learn.logits_from_inclusion, pi=np.array([0.2, 0.5, 0.3]), n=1)
    yield from calls(learn.parametric, factory=tt.poisson, mean=learn.Parameter("mean", 1.0))
    yield from within(
        learn.Parameter, lambda made: learn.parametric(tt.poisson, mean=made), name="mean", start=1.0
    )
    yield from calls(learn.CountFeatures, tree=tt.CountTree.flat(3))
    yield from calls(learn.Strata, rows=np.arange(6), offsets=np.array([0, 3, 6]), cases=CHOSEN)
    yield from methods_of(fit, model={"X": np.ones((2, 2))})
    yield from methods_of(chosen)
    yield from methods_of(
        lambda: learn.CountFeatures(tt.CountTree.flat(3), pairs=[(0, 1)]),
        log_weight={"logits": np.zeros(3), "packed": np.zeros(8)},
    )
    yield from methods_of(
        lambda: learn.fixed_counts(np.zeros((2, 3)), np.array([1, 2])),
        covariances={"x": np.ones((2, 3, 2))},
    )
    yield from methods_of(
        parametric, at={"values": {"mean": 2.0}}, table={"n": 3, "coordinates": {"mean": 0.0}}
    )


def of_estimators() -> Iterator[Call]:
    from tallytree import estimators as sk

    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=(12, 2)), np.repeat(np.arange(4), 3)
    cases, bags = np.tile([1, 0, 0], 4), np.repeat([0, 1, 0, 1], 3)
    binary = (rng.random((12, 4)) < 0.4).astype(int)
    inside = {"X": x, "groups": groups}
    labels = np.array([0.0, 1 / 3, 2 / 3, 1 / 3])
    pik = [0.5, 0.7, 0.8]

    def rows(kind: type, fit: dict[str, Any], options: dict[str, Any], /, **given: Any) -> Iterator[Call]:
        yield from within(kind, lambda made: made.fit(**fit), **options)
        few = {name: value for name, value in options.items() if name not in ("tol", "level")}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it stops early
            made = kind(**few).fit(**fit)
        for row in methods_of(lambda: made, **{"fit": fit} | given):
            if row.name.endswith(".fit"):
                yield row._replace(call=lambda **values: kind(**few).fit(**values))
            else:
                yield row

    asked = ("decision_function", "instance_probabilities", "predict", "predict_proba", "score")
    of_bags = {name: inside | {"y": bags} for name in ("instance_probabilities", "score")}
    of_bags |= {name: inside for name in asked if name not in of_bags}
    yield from rows(sk.BagClassifier, inside | {"y": bags}, {"max_iter": 3}, **of_bags)
    of_labels = {name: {"X": x} for name in asked} | {"score": {"X": x, "y": cases}}
    of_labels["instance_probabilities"] = inside | {"y": labels}
    yield from rows(
        sk.LabelProportions,
        inside | {"y": labels},
        {"max_iter": 3, "target": "proportions"},
        **of_labels,
    )
    of_sets = {name: {"X": x} for name in ("decision_function", "predict", "hazard_ratio")}
    of_sets |= {"wald_test": {"terms": "x0"}}
    of_sets |= {"predict_proba": inside, "log_likelihood": inside | {"y": cases}}
    of_sets["fit_survival"] = {"X": x, "time": np.arange(12.0), "event": cases}
    of_sets["from_formula"] = {"formula": "y ~ x", "data": {"y": cases, "x": x[:, 0]}}
    yield from rows(sk.ConditionalLogit, inside | {"y": cases}, {"max_iter": 5}, **of_sets)
    with_times = sk.ConditionalLogit().fit_survival(x, np.arange(12.0), cases)
    yield from calls(with_times.hazard_ratio, "hazard_ratio", X=x, reference=x[:1])
    yield from methods_of(lambda: sk.HorvitzThompson(4.0, 1.0))
    options = {"method": "l-bfgs", "max_iter": 3, "em_iter": 2, "em_steps": 2}
    of_rows = {name: {"X": binary, "y": None} for name in ("fit", "score")}
    of_rows |= {"score_samples": {"X": binary}, "marginals": {"X": binary}, "sample": {"n_samples": 2}}
    yield from rows(sk.CountDensity, {"X": binary}, options, **of_rows)
    of_units = {"horvitz_thompson": {"sample": [0, 1], "values": [1.0, 2.0]}, "fit": {"pik": pik, "y": None}}
    of_units["inclusion_probabilities"] = {"sizes": [1.0, 2.0, 3.0], "n": 1}
    yield from rows(sk.MaxEntropySampler, {"pik": pik}, {"max_iter": 50}, **of_units)


def of_plots() -> Iterator[Call]:
    from tallytree import plot

    yield from calls(plot.marginals, model=nested())
    yield from calls(plot.count_distribution, model=nested())
    yield from calls(plot.count_tree, model=nested())
    yield from calls(plot.group_tree, tree=TREE)
    yield from calls(plot.potential)
    yield from calls(plot.loopy_trace, result=tt.loopy_bp(graph(), max_iter=3))
    yield from calls(plot.assignment_heatmap, values=pairs().loopy_bp(max_iter=3).marginals)
    yield from calls(plot.density_comparison, data=DATA, samples={"model": DATA}, tree=tt.CountTree.flat(3))


def of_torch() -> Iterator[Call]:
    import torch

    import tallytree.torch as ttt

    x, one = torch.tensor(THREE, dtype=torch.float64), ttt.exactly(1)
    bags = {"logits": x, "bags": torch.tensor([0, 0, 1])}
    for function in (ttt.log_partition, ttt.marginals, ttt.count_log_probs, ttt.sample):
        yield from calls(function, logits=x, groups=one)
    for name, given in POTENTIALS.items():
        if hasattr(ttt, name):
            yield from within(getattr(ttt, name), lambda made: ttt.marginals(x, made), **given)
    yield from within(
        ttt.Forest,
        lambda edges: ttt.marginals(x, edges=edges),
        pairs=[(0, 1), (1, 2)],
        log_tables=torch.zeros(2, 2, 2, dtype=torch.float64),
    )
    yield from within(ttt.CountDistribution, lambda made: made.mean, logits=x, groups=one)
    yield from within(ttt.ConditionalBernoulli, lambda made: made.mean, logits=x, total_count=1)
    yield from within(ttt.PoissonBinomial, lambda made: made.mean, logits=x, probs=None)
    yield from within(ttt.KSubset, lambda made: made(x), n_samples=2)
    on = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    for make, value in (
        (lambda: ttt.CountDistribution(x, one), on),
        (lambda: ttt.PoissonBinomial(logits=x), torch.tensor(1)),
    ):
        given = {name: {"value": value} for name in ("log_prob", "cdf", "log_sf")}
        yield from methods_of(make, expand={"batch_shape": (2,)}, **given)
    of_scores = {name: {"scores": x} for name in ("forward", "marginals", "entropy")}
    yield from methods_of(lambda: ttt.KSubset(1), **of_scores)
    losses = ttt.losses
    yield from calls(losses.bag_nll, **bags, counts=torch.tensor([1, 0]))
    yield from calls(losses.proportion_nll, **bags, proportions=torch.tensor([0.5, 0.0]))
    yield from calls(losses.mil_nll, **bags, labels=torch.tensor([1, 0]))
    yield from calls(losses.positive_unlabelled_nll, logits=x, labelled=torch.tensor([1, 0, 0]), prior=0.5)


def public_calls() -> dict[str, list[Call]]:
    """Rows by their home; without PyTorch those of it are left out."""
    homes = {
        "structures": of_structures_and_potentials,
        "models": of_models,
        "sums": of_sums,
        "chunks": of_chunks,
        "procedures": of_procedures,
        "estimators": of_estimators,
        "plots": of_plots,
        "torch": of_torch,
    }
    if importlib.util.find_spec("torch") is None:
        del homes["torch"]
    return {home: list(make()) for home, make in homes.items()}
