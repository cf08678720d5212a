"""The obvious wrong call of every name in `tallytree.torch`: a typed error that says what was required."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tallytree as tt

torch = pytest.importorskip("torch", reason="tallytree.torch needs PyTorch: pip install 'tallytree[torch]'")

import tallytree.torch as ttt  # noqa: E402

X = torch.tensor([[0.3, -1.0, 2.0, 0.1, -0.4], [1.0, 0.0, -0.2, 0.5, -2.0]])
INDEX = torch.tensor([0, 0, 1, 1])
FOUR = torch.zeros(4)
NAN = torch.full((3,), math.nan)
LAW, COUNT = ttt.CountDistribution(X, tt.exactly(2)), ttt.PoissonBinomial(X)
L = ttt.losses

WRONG = {
    "words for logits": (lambda: ttt.log_partition("abc", tt.exactly(1)), "`logits` must be a tensor"),
    "no logits": (lambda: ttt.marginals(None, tt.exactly(1)), "`logits` must be a tensor"),
    "ragged logits": (lambda: ttt.marginals([[0.0], [1.0, 2.0]]), "equal lengths"),
    "NaN": (lambda: ttt.marginals(NAN, tt.exactly(1)), "NaN"),
    "a number for a potential": (lambda: ttt.marginals(X, 2), "exactly"),
    "too many": (lambda: ttt.marginals(X, ttt.exactly(torch.tensor([9, 1]))), "k <= n = 5"),
    "a batch that does not fit": (
        lambda: ttt.marginals(X, ttt.exactly(torch.tensor([1, 1, 1]))),
        "broadcast",
    ),
    "words for k": (lambda: ttt.exactly("a"), "`k` must be a tensor"),
    "ragged k": (lambda: ttt.exactly([1, [2]]), "equal lengths"),
    "ends exchanged": (lambda: ttt.marginals(X, ttt.between(3, 1)), "exceed"),
    "ends of two batches": (
        lambda: ttt.marginals(X, ttt.between(torch.tensor([1, 2, 3]), torch.tensor([4, 4]))),
        "broadcast",
    ),
    "words for a mean": (lambda: ttt.gaussian("a", 1.0), "`mean` must be a tensor"),
    "one draw too simple": (lambda: ttt.sample(X, tt.exactly(2), 5), r"such as \(5,\)"),
    "a seed for a generator": (lambda: ttt.sample(X, tt.exactly(2), (2,), 0), "manual_seed"),
    "a generator of NumPy": (lambda: ttt.sample(X, None, (2,), np.random.default_rng(0)), "manual_seed"),
    "no such group": (lambda: ttt.count_log_probs(X, tt.exactly(2), 7), "number of a group"),
    "edges of another kind": (lambda: ttt.marginals(X, edges=[(0, 1)]), "Forest"),
    "values of another batch": (lambda: LAW.log_prob(torch.zeros(3, 5)), "broadcast"),
    "values between": (lambda: LAW.log_prob([0.5] * 5), "only 0 and 1"),
    "a number of draws": (lambda: LAW.sample(3), r"such as \(5,\)"),
    "a smaller batch": (lambda: LAW.expand((1,)), "must keep the batch axes"),
    "another batch": (lambda: LAW.expand((3,)), "broadcast"),
    "arguments exchanged": (lambda: ttt.ConditionalBernoulli(X, 2), "single number"),
    "more than there are": (lambda: ttt.ConditionalBernoulli(9, X), "number of variables"),
    "counts of another batch": (lambda: COUNT.log_prob(torch.zeros(3)), "broadcast"),
    "words for a count": (lambda: COUNT.log_prob("a"), "`value` must be a tensor"),
    "a count that is NaN": (lambda: COUNT.cdf(torch.tensor(math.nan)), "NaN"),
    "a number of counts": (lambda: COUNT.sample(3), r"such as \(5,\)"),
    "both parameters": (lambda: ttt.PoissonBinomial(X, X), "[Gg]ive exactly one"),
    "k is a word": (lambda: ttt.KSubset("a"), "`k`"),
    "k is negative": (lambda: ttt.KSubset(-1), "`k`"),
    "k is half": (lambda: ttt.KSubset(torch.tensor([0.5])), "integer"),
    "no temperature": (lambda: ttt.KSubset(2, temperature="a"), "`temperature`"),
    "too many samples": (lambda: ttt.KSubset(2, n_samples=-1), "`n_samples`"),
    "a mask of another shape": (lambda: ttt.KSubset(2)(X, mask=torch.ones(3, dtype=torch.bool)), "broadcast"),
    "a mask of nothing": (
        lambda: ttt.KSubset(2).eval()(X, mask=[True, False, False, False, False]),
        "row 0 has 1 unmasked entries, k = 2",
    ),
    "a mask in the place of k": (lambda: ttt.KSubset(2)(X, torch.ones(5, dtype=torch.bool)), "by its name"),
    "k and a fraction": (lambda: ttt.KSubset(2, fraction=0.1), "both arrived"),
    "neither k nor a fraction": (lambda: ttt.KSubset()(X), "how many"),
    "a fraction above one": (lambda: ttt.KSubset(fraction=1.5), "`fraction`"),
    "rows of another batch": (lambda: ttt.KSubset(torch.tensor([1, 2, 3])).eval()(X), "broadcast"),
    "scores that are NaN": (lambda: ttt.KSubset(2).eval()(NAN), "NaN"),
    "counts in words": (lambda: L.bag_nll(FOUR, INDEX, "a"), "`counts` must be a tensor"),
    "half counts": (lambda: L.bag_nll(FOUR, INDEX, torch.tensor([0.5, 1.0])), "integers"),
    "bags of truth values": (lambda: L.bag_nll(FOUR, INDEX == 0, torch.tensor([1, 1])), "integers"),
    "offsets in words": (lambda: L.bag_nll(FOUR, INDEX, [1, 1], offsets="yes"), "`offsets`"),
    "a share above one": (lambda: L.proportion_nll(FOUR, INDEX, [0.5, 1.2]), "between 0 and 1"),
    "a negative tolerance": (lambda: L.proportion_nll(FOUR, INDEX, [0.5, 1.0], tolerance=-1), "tolerance"),
    "a third label": (lambda: L.mil_nll(FOUR, INDEX, [0, 2]), "0 or 1"),
    "labels beyond 1": (lambda: L.positive_unlabelled_nll(FOUR, [2, 0, 0, 0], 0.5), "truth values"),
    "bags of some": (lambda: L.positive_unlabelled_nll(FOUR, [1, 0, 0, 0], 0.5, bags=[0, 0]), "every item"),
    "labelled NaN": (lambda: L.positive_unlabelled_nll(NAN, [1, 0, 0], 0.5), "NaN"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_explained(name):
    call, message = WRONG[name]
    with pytest.raises(tt.ParameterError, match=message):
        call()


def test_lists_and_arrays_serve_as_tensors():
    assert float(L.bag_nll([0.0, 1.0], [0, 0], [1])) == pytest.approx(
        float(L.bag_nll(torch.tensor([0.0, 1.0]), torch.tensor([0, 0]), torch.tensor([1])))
    )
    assert ttt.KSubset(2).eval()([0.0, 2.0, 1.0], mask=[True, True, False]).tolist() == [1.0, 1.0, 0.0]
    assert torch.equal(LAW.log_prob([1, 1, 0, 0, 0]), LAW.log_prob(torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0])))
    assert float(ttt.PoissonBinomial(probs=[0.5, 0.5]).log_prob(1)) == pytest.approx(math.log(0.5))


def test_counts_beyond_the_ends_and_without_trials():
    law = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.25]).double())
    found = law.cdf(torch.tensor([-math.inf, -0.5, 0.0, 1.5, 2.0, 1e30, math.inf]))
    torch.testing.assert_close(found, torch.tensor([0.0, 0.0, 0.375, 0.875, 1.0, 1.0, 1.0]).double())
    assert law.mode.tolist() == 1.0
    none = ttt.PoissonBinomial(torch.zeros(2, 0))
    assert none.log_prob(torch.tensor([0.0, 1.0])).tolist() == [0.0, -math.inf]
    assert L.bag_nll(torch.zeros(0), torch.zeros(0).long(), torch.zeros(0).long()).tolist() == 0.0


def test_distributions_show_their_shapes():
    assert repr(LAW) == "CountDistribution(n_variables=5, n_groups=1, batch_shape=(2,))"
    assert repr(ttt.ConditionalBernoulli(1, torch.zeros(4))) == (
        "ConditionalBernoulli(n_variables=4, n_groups=1, batch_shape=())"
    )
