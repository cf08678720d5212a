"""Answers that compute messages and marginals only when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit

from .. import config
from ..arrays import Float64


class Solution:
    """What inference on a batch of models found: NumPy arrays, made when first asked for.

    ``log_mean`` (B,) and ``bound`` (B,) as in :class:`~tallytree.engine.answer.Answer`.
    """

    def __init__(
        self,
        log_mean: Float64,
        bound: Float64,
        messages: Callable[[], Float64],
        marginals: Callable[[], Float64] | None = None,
        softplus: Float64 | None = None,
    ) -> None:
        self.log_mean = log_mean
        self.bound = bound
        self._messages = messages
        self._marginals = marginals
        self.softplus = softplus  # sum of log(1 + e^nu), (B,), where the solver knows it

    def messages(self) -> Float64:
        """Leaf messages (B, D)."""
        return self._messages()

    def marginals(self, nu: Float64) -> Float64:
        """P(y = 1), (B, D)."""
        if self._marginals is not None:
            return self._marginals()
        engine = config.native()
        if engine is None:
            return np.asarray(expit(posterior(nu, self._messages())))
        return np.asarray(engine.posterior_marginals(nu, self._messages(), config.threads(), config.level()))


def posterior(nu: Float64, messages: Float64) -> Float64:
    """``nu + messages``; infinite log-odds decide by themselves."""
    with np.errstate(invalid="ignore"):
        total = nu + messages
    if np.isfinite(nu).all():
        return np.asarray(total)
    return np.where(np.isinf(nu), nu, total)


def solved(answer: Any) -> Solution:
    """A solution from an answer that has everything already."""
    messages = np.asarray(answer.messages)
    return Solution(np.asarray(answer.log_mean), np.asarray(answer.bound), lambda: messages)
