"""Distributions for NumPyro: count models, k-subsets and the Poisson-binomial law; ``pip install tallytree[numpyro]``.

They are pytrees whose leaves are log-odds, probabilities and log-tables, so that NUTS, SVI, ``Predictive``, masks,
plates, ``scan`` and ``vmap`` treat them like NumPyro's own. Every leaf has as many batch axes as the distribution, some
of them of size one: what maps or stacks the leaves then meets the same axes in all of them.
"""

from __future__ import annotations

try:
    import numpyro  # noqa: F401
except ImportError as error:
    raise ImportError(
        "tallytree.jax.numpyro needs NumPyro. Install it with `pip install tallytree[numpyro]`."
    ) from error

from .binary import ConditionalBernoulli, CountDistribution
from .poisson_binomial import PoissonBinomial

__all__ = ["ConditionalBernoulli", "CountDistribution", "PoissonBinomial"]
