"""Wrong arguments of the functions, distributions and losses for PyTorch: an answer, or a typed error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tallytree as tt
from test_wrong_calls import THREE, WRONG, outcome

torch = pytest.importorskip("torch")

import tallytree.torch as tth  # noqa: E402
from tallytree.torch import losses  # noqa: E402

X = torch.tensor(THREE, dtype=torch.float64)
BAGS = torch.tensor([0, 0, 1])
ON = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
MODEL = {"logits": X, "groups": tth.exactly(1), "edges": None}

# name -> (callable, arguments that are right)
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "log_partition": (tth.log_partition, MODEL),
    "marginals": (tth.marginals, MODEL),
    "count_log_probs": (tth.count_log_probs, MODEL | {"group": 0}),
    "sample": (tth.sample, MODEL | {"sample_shape": (2,), "generator": None}),
    **{
        name: ((lambda make: lambda **given: tth.marginals(X, make(**given)))(getattr(tth, name)), given)
        for name, given in {
            "exactly": {"k": 1},
            "at_least": {"k": 1},
            "at_most": {"k": 1},
            "between": {"lo": 1, "hi": 2},
            "gaussian": {"mean": 1.0, "sd": 0.5},
            "geometric": {"ratio": 0.5},
            "poisson": {"mean": 1.0},
            "quadratic": {"curvature": -1.0, "center": 1.0},
        }.items()
    },
    "Forest": (
        lambda **given: tth.marginals(X, edges=tth.Forest(**given)),
        {"pairs": [(0, 1), (1, 2)], "log_tables": torch.zeros(2, 2, 2, dtype=torch.float64)},
    ),
    "Forest(coupling)": (
        lambda coupling: tth.marginals(X, edges=tth.Forest([(0, 1), (1, 2)], coupling=coupling)),
        {"coupling": 0.5},
    ),
    "CountDistribution": (
        lambda **given: tth.CountDistribution(**given).mean,
        {"logits": X, "groups": tth.exactly(1), "edges": None},
    ),
    "ConditionalBernoulli": (
        lambda **given: tth.ConditionalBernoulli(**given).mean,
        {"total_count": 1, "logits": X},
    ),
    "PoissonBinomial": (lambda **given: tth.PoissonBinomial(**given).mean, {"logits": X, "probs": None}),
    "PoissonBinomial(probs)": (
        lambda probs: tth.PoissonBinomial(probs=probs).mean,
        {"probs": torch.tensor([0.1, 0.5, 0.7])},
    ),
    "KSubset": (lambda **given: tth.KSubset(**given)(X), {"k": 1, "n_samples": 2, "temperature": 1.0}),
    "KSubset.forward": (
        lambda **given: tth.KSubset(1)(**given),
        {"scores": X, "mask": None, "generator": None},
    ),
    "KSubset.marginals": (lambda **given: tth.KSubset(1).marginals(**given), {"scores": X, "mask": None}),
    "CountDistribution.log_prob": (
        lambda value: tth.CountDistribution(X, tth.exactly(1)).log_prob(value),
        {"value": ON},
    ),
    "CountDistribution.sample": (
        lambda sample_shape: tth.CountDistribution(X, tth.exactly(1)).sample(sample_shape),
        {"sample_shape": (2,)},
    ),
    "CountDistribution.count_log_probs": (
        lambda group: tth.CountDistribution(X, tth.exactly(1)).count_log_probs(group),
        {"group": 0},
    ),
    "CountDistribution.expand": (
        lambda batch_shape: tth.CountDistribution(X, tth.exactly(1)).expand(batch_shape),
        {"batch_shape": (2,)},
    ),
    "PoissonBinomial.log_prob": (
        lambda value: tth.PoissonBinomial(logits=X).log_prob(value),
        {"value": torch.tensor(1)},
    ),
    "PoissonBinomial.cdf": (lambda value: tth.PoissonBinomial(logits=X).cdf(value), {"value": torch.tensor(1)}),
    "bag_nll": (
        losses.bag_nll,
        {"logits": X, "bags": BAGS, "counts": torch.tensor([1, 0]), "offsets": False, "reduction": "mean"},
    ),
    "proportion_nll": (
        losses.proportion_nll,
        {
            "logits": X, "bags": BAGS, "proportions": torch.tensor([0.5, 0.0]), "tolerance": None, "offsets": False,
            "reduction": "mean",
        },
    ),
    "mil_nll": (
        losses.mil_nll,
        {
            "logits": X, "bags": BAGS, "labels": torch.tensor([1, 0]), "at_least": 1, "offsets": False,
            "reduction": "mean",
        },
    ),
    "positive_unlabelled_nll": (
        losses.positive_unlabelled_nll,
        {"logits": X, "labelled": torch.tensor([1, 0, 0]), "prior": 0.5, "bags": None, "reduction": "mean"},
    ),
}  # fmt: skip
CASES = [(name, call, given, argument) for name, (call, given) in CALLS.items() for argument in given]


@pytest.mark.parametrize(
    ("call", "given", "argument"),
    [case[1:] for case in CASES],
    ids=[f"{name}({argument})" for name, _, _, argument in CASES],
)
def test_wrong_arguments_are_refused_by_name_or_answered(call, given, argument):
    assert outcome(call, given) is None, "the right call fails"
    raw = {}
    for name, value in WRONG.items():
        error = outcome(call, {**given, argument: value})
        if error is not None:
            raw[name] = f"{type(error).__name__}: {error}"[:150]
    assert not raw, f"{argument}: " + "; ".join(f"{k} -> {v}" for k, v in raw.items())


NUMBERS = {
    "exactly": (2,),
    "at_least": (2,),
    "at_most": (1,),
    "between": (1, 2),
    "gaussian": (0.1, 0.7),
    "geometric": (0.3,),
    "poisson": (0.1,),
    "quadratic": (-0.3, 0.7),
}


@pytest.mark.parametrize(("name", "numbers"), NUMBERS.items(), ids=NUMBERS)
def test_potentials_mean_what_those_of_arrays_mean(name, numbers):
    """Python's numbers are not rounded to single precision on their way, and signs are the same."""
    found = tth.log_partition(X, getattr(tth, name)(*numbers))
    want = tt.CountModel(THREE, getattr(tt, name)(*numbers)).log_partition
    assert float(found) == pytest.approx(float(want), abs=1e-13)


def test_a_parabola_has_its_top_in_the_middle_by_default():
    found = tth.log_partition(X, tth.quadratic(-0.3))
    assert float(found) == pytest.approx(
        float(tt.CountModel(THREE, tt.quadratic(-0.3)).log_partition), abs=1e-13
    )


def test_couplings_are_read_in_double_precision():
    edges = {"pairs": [(0, 1), (1, 2)], "coupling": [0.1, 0.7]}
    found = tth.log_partition(X, edges=tth.Forest(**edges))
    want = tt.CountModel(THREE, edges=tt.Forest(**edges)).log_partition
    assert float(found) == pytest.approx(float(want), abs=1e-13)
