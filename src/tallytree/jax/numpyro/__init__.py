"""Distributions for NumPyro: count models, k-subsets and the Poisson-binomial law; ``pip install tallytree[numpyro]``.

They are pytrees whose leaves are log-odds and log-tables, so that NUTS, SVI, ``Predictive``, masks, plates and ``vmap``
treat them like NumPyro's own.
"""

from __future__ import annotations

try:
    import numpyro as _numpyro  # noqa: F401
except ImportError as error:
    raise ImportError(
        "tallytree.jax.numpyro needs NumPyro. Install it with `pip install tallytree[numpyro]`."
    ) from error

from .conditional_bernoulli import ConditionalBernoulli
from .count_distribution import CountDistribution
from .poisson_binomial import PoissonBinomial

__all__ = ["ConditionalBernoulli", "CountDistribution", "PoissonBinomial"]
