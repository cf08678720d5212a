"""Exact count models as pure functions of JAX arrays: ``pip install tallytree[jax]``.

The answers of :class:`tallytree.CountModel` under ``jit``, ``grad``, ``vmap`` and every other transformation. Structure
is static; log-odds, log-tables and the numbers of potentials may be traced. Arithmetic is 64-bit whatever the flag of
JAX says; on TPUs, and inside :func:`single_precision`, it is 32-bit and in logarithms, and :func:`error_bound` says so.

``jax.shard_map`` over a batch axis needs ``check_vma=False``. Three nested reverse passes need JAX's 64-bit flag; with
the flag off use forward mode for the third derivative.
"""

from __future__ import annotations

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise ImportError("tallytree.jax needs JAX. Install it with `pip install tallytree[jax]`.") from error

from . import losses
from .answers import count_log_probs, entropy, error_bound, log_partition, marginals, posterior_logits
from .arrays import single_precision
from .draws import mode, sample
from .potentials import (
    ArrayPotential,
    at_least,
    at_most,
    between,
    exactly,
    gaussian,
    geometric,
    noisy_or,
    poisson,
)

__all__ = [
    "ArrayPotential",
    "at_least",
    "at_most",
    "between",
    "count_log_probs",
    "entropy",
    "error_bound",
    "exactly",
    "gaussian",
    "geometric",
    "log_partition",
    "losses",
    "marginals",
    "mode",
    "noisy_or",
    "poisson",
    "posterior_logits",
    "sample",
    "single_precision",
]
