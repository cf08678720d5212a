"""A batch of no models has answers of no models, with the shapes that any batch has."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt
from tallytree import config

ENGINES = ["array"] if config._extension is None else ["native", "array"]
N = 3
EDGES = tt.Forest([(0, 1), (1, 2)], 1.0)
GROUPS = {"none": None, "all": [0.0, 1.0, 2.0, 0.0], "part": [tt.Group([0, 1], [0.0, 1.0, 2.0])]}

ANSWERS = {
    "log_partition": lambda m: m.log_partition,
    "marginals": lambda m: m.marginals,
    "posterior_logits": lambda m: m.posterior_logits,
    "cavity_logits": lambda m: m.cavity_logits,
    "error_bound": lambda m: m.error_bound,
    "entropy": lambda m: m.entropy,
    "count_log_probs": lambda m: m.count_log_probs(),
    "mode": lambda m: m.mode(),
    "max_marginals": lambda m: m.max_marginals,
    "max_log_weight": lambda m: m.max_log_weight,
    "max_count_values": lambda m: m.max_count_values(),
    "sample": lambda m: np.moveaxis(m.sample(4, rng=0), 0, -1),
    "log_prob": lambda m: m.log_prob(np.zeros((*m.batch_shape, N), int)),
    "covariance": lambda m: m.covariance(),
    "pairwise": lambda m: m.pairwise(),
    "kl_divergence": lambda m: m.kl_divergence(m),
    "count_covariance": lambda m: m.count_covariance(),
    "expected_statistics": lambda m: m.expected_statistics.tables[0] if m.n_groups else m.marginals,
    "condition": lambda m: m.condition({0: 1}).marginals,
    "replace": lambda m: m.replace(logits=m.logits).log_partition,
    "edge_marginals": lambda m: m.edge_marginals if m.edges is not None else m.marginals,
    "hessian_vector_product": lambda m: (
        m.hessian_vector_product(np.zeros(m.logits.shape)).logits if m.edges is None else m.marginals
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("edges", [None, EDGES], ids=["plain", "edges"])
def test_every_answer_of_a_batch_of_no_count_models_has_its_shape(edges, groups, engine):
    with config.using(engine=engine):
        nothing = tt.CountModel(np.empty((0, N)), GROUPS[groups], edges=edges)
        two = tt.CountModel(np.zeros((2, N)), GROUPS[groups], edges=edges)
        for name, ask in ANSWERS.items():
            assert np.shape(ask(nothing)) == (0, *np.shape(ask(two))[1:]), name


CHAIN_ANSWERS = {
    "log_partition": lambda m: m.log_partition,
    "marginals": lambda m: m.marginals,
    "log_marginals": lambda m: m.log_marginals,
    "edge_marginals": lambda m: m.edge_marginals,
    "error_bound": lambda m: m.error_bound,
    "entropy": lambda m: m.entropy,
    "count_log_probs": lambda m: m.count_log_probs(),
    "mode": lambda m: m.mode(),
    "sample": lambda m: np.moveaxis(m.sample(4, rng=0), 0, -1),
    "log_prob": lambda m: m.log_prob(np.zeros((*m.batch_shape, N), int)),
    "expected_statistics": lambda m: m.expected_statistics.unary,
    "condition": lambda m: m.condition({0: 1}).marginals,
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("counts", [None, [0.0, 1.0, 2.0, 0.0]], ids=["bare", "counted"])
@pytest.mark.parametrize("labels", [2, 3])
def test_every_answer_of_a_batch_of_no_chains_has_its_shape(labels, counts, engine):
    with config.using(engine=engine):
        nothing, two = (
            tt.ChainModel(np.zeros((batch, N, labels)), np.zeros((labels, labels)), counts, counted=1)
            for batch in (0, 2)
        )
        for name, ask in CHAIN_ANSWERS.items():
            assert np.shape(ask(nothing)) == (0, *np.shape(ask(two))[1:]), name
