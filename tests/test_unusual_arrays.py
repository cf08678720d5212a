"""Arrays as other programs hand them over: of the other byte order, read-only, strided, masked, of pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import tallytree as tt
from model_kinds import KINDS

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())

FORMS = {
    "the other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "read-only": lambda x: np.broadcast_to(x, x.shape),
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "in columns": np.asfortranarray,
    "nothing masked": lambda x: np.ma.masked_array(x, mask=False),
    "lists": lambda x: x.tolist(),
    "pandas": lambda x: pd.Series(x, index=range(len(x), 0, -1)) if x.ndim == 1 else x,
}


@every_kind
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_the_same_numbers_have_the_same_answers_in_any_form(kind, form):
    plain, model = kind.model(), kind.make(form(kind.numbers()))
    assert np.array_equal(model.log_partition, plain.log_partition)
    assert np.array_equal(model.marginals, plain.marginals)
    assert model == plain


@every_kind
def test_masked_numbers_are_refused(kind):
    numbers = kind.numbers()
    with pytest.raises(tt.ParameterError, match=r"must not be masked, but 1 of \d+ entries are"):
        kind.make(np.ma.masked_array(numbers, mask=numbers == numbers.max()))


MASKED = np.ma.masked_array([0.5, 0.25, 0.125], mask=[False, True, False])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tt.CountModel(np.zeros(2), x),
        lambda x: tt.CountModel(np.zeros(2), tt.table(x)),
        lambda x: tt.CountModel(np.zeros((3, 2)), tt.poisson(x)),
        lambda x: tt.CountModel(np.zeros(3), tt.exactly(1)).log_prob(x > 0.2),
        lambda x: tt.PoissonBinomial(x),
        lambda x: tt.PoissonBinomial(logits=x),
        lambda x: tt.PoissonBinomial([0.5]).pmf(x),
        lambda x: tt.LinearModel(np.zeros(3), x, lambda s: s, step=0.5),
        lambda x: tt.ThinnedModel(np.zeros(3), x, tt.exactly(1)),
        lambda x: tt.Forest([(0, 1), (1, 2), (2, 3)], coupling=x),
        lambda x: tt.FactorGraph(x, [tt.Group([0, 1], tt.exactly(1))]),
        lambda x: tt.RaggedBatch(x, tt.exactly(1), sizes=[1, 2]),
        lambda x: tt.assignment(x[None]),
        lambda x: tt.ChunkedCountModel(x, tt.exactly(1)).log_partition,
        lambda x: tt.ChunkedCountModel([x, np.zeros(2)], tt.exactly(1)).log_partition,
        lambda x: tt.ChunkedPoissonBinomial(x).mean(),
        lambda x: tt.k_out_of_n(x, 2),
        lambda x: tt.learn.logits_from_inclusion(x, 1),
        lambda x: tt.learn.fit(tt.CountModel(np.zeros(2), np.zeros(3)), np.eye(3)[:, :2], weights=x),
    ],
)
def test_what_lies_behind_a_mask_is_no_number(call):
    with pytest.raises(tt.TallyTreeError, match="masked"):
        call(MASKED)


@pytest.mark.parametrize("groups", [tt.exactly(2), np.array([0.0, 1.0, 2.0, 0.0, -1.0])])
def test_tables_and_log_odds_of_the_other_byte_order(groups):
    logits = np.array([0.3, -1.0, 2.0, 0.1])
    other = logits.astype(logits.dtype.newbyteorder())
    swapped = groups.astype(groups.dtype.newbyteorder()) if isinstance(groups, np.ndarray) else groups
    want = tt.CountModel(logits, groups)
    for model in (
        tt.CountModel(other, groups),
        tt.CountModel(logits, swapped),
        tt.CountModel(other, swapped),
    ):
        assert np.array_equal(model.marginals, want.marginals)
        assert np.array_equal(model.sample(5, rng=0), want.sample(5, rng=0))
    chunked = tt.ChunkedCountModel(other, groups, chunk_size=3)
    assert np.isclose(chunked.log_partition, want.log_partition)


@pytest.mark.frameworks
def test_a_tensor_that_numpy_cannot_read_names_the_function_that_takes_it():
    torch = pytest.importorskip("torch")
    elsewhere = torch.ones(3, dtype=torch.int64, device="meta")  # NumPy can read it as little as one on a GPU
    followed = torch.ones(3, requires_grad=True)
    for call in (lambda: tt.exactly(elsewhere), lambda: tt.gaussian(followed, 1.0)):
        with pytest.raises(tt.ParameterError, match=r"tallytree\.torch\.(exactly|gaussian)"):
            call()
    for call in (
        lambda: tt.exactly(elsewhere[0]),
        lambda: tt.CountModel(followed, tt.exactly(1)),
        lambda: tt.CountModel(np.zeros(2), followed),
        lambda: tt.PoissonBinomial(followed),
    ):
        with pytest.raises(tt.ParameterError, match=r"tallytree\.torch.*detach"):
            call()


@pytest.mark.frameworks
def test_a_traced_array_is_sent_to_the_functions_for_jax():
    jax = pytest.importorskip("jax")
    with pytest.raises(tt.ParameterError, match=r"tallytree\.jax\.exactly"):
        jax.jit(lambda k: tt.exactly(k).log_table(3))(np.array([1, 2]))
    with pytest.raises(tt.ParameterError, match=r"tallytree\.jax"):
        jax.jit(lambda k: tt.exactly(k).log_table(3))(2)
    with pytest.raises(tt.ParameterError, match=r"tallytree\.jax"):
        jax.jit(lambda x: tt.CountModel(x, tt.exactly(1)).marginals)(np.zeros(2))


def test_models_leave_the_arrays_that_they_are_given_alone():
    unary, transitions, lengths = np.zeros((2, 4, 2)), np.zeros((2, 2)), np.array([3, 4])
    weights, log_f, rates, pairs = np.ones(3), np.zeros(4), np.full(3, 0.5), np.array([[0, 1], [1, 2]])
    chain = tt.ChainModel(unary, transitions, lengths=lengths)
    linear = tt.LinearModel(np.zeros(3), weights, log_f, step=1.0)
    thinned = tt.ThinnedModel(np.zeros(3), rates, tt.exactly(1))
    forest = tt.Forest(pairs, np.zeros((2, 2, 2)))
    before = [chain.log_partition, linear.log_partition, thinned.log_partition, forest.pairs.copy()]
    for given in (unary, transitions, lengths, weights, log_f, rates, pairs):
        given[...] = 1
    again = [chain.replace().log_partition, linear.replace().log_partition, thinned.replace().log_partition]
    assert all(np.array_equal(a, b) for a, b in zip(again, before))
    assert np.array_equal(forest.pairs, before[3])
