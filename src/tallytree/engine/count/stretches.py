"""One potential whose possible counts are a few stretches far apart, such as "1 or n - 2": one model for each.

No tilt sees both places. Each stretch alone is an easy model, and the whole is their mixture: weights add up, and so do
the probabilities that a variable is on and off.
"""

from __future__ import annotations

import numpy as np

from ...arrays import Float64
from ..answer import Answer
from ..arithmetic import UNIT_ROUNDOFF
from ..log_sums import log_sum, softplus

_MOST = 4  # stretches that are solved one by one


def split(table: Float64) -> list[Float64]:
    """The table (D + 1,) of every stretch of possible counts; nothing where there is one, or there are many."""
    possible = np.concatenate([[False], table > -np.inf, [False]])
    ends = np.flatnonzero(possible[1:] != possible[:-1]).reshape(-1, 2).tolist()
    if not 1 < len(ends) <= _MOST:
        return []
    own = [np.full(table.shape, -np.inf) for _ in ends]
    for part, (start, stop) in zip(own, ends):
        part[start:stop] = table[start:stop]
    return own


def joined(nu: Float64, answers: list[Answer]) -> Answer:
    """The mixture of the models of one row of log-odds (1, D), one for every stretch.

    A model of weight Z that sends m to a variable with P(y = 1) = p by itself has ``Z / (1 - p + p e^m)`` of it where
    the variable, apart from p, is off, and that times e^m where it is on.
    """
    log_mean = np.stack([a.log_mean for a in answers])  # (stretch, 1)
    sent = np.stack([a.messages for a in answers])  # (stretch, 1, D)
    on, off = -softplus(-nu), -softplus(nu)
    with np.errstate(invalid="ignore"):  # what is not a number has no certificate
        when_off = log_mean[..., None] - np.logaddexp(off, on + sent)
        when_on = log_mean[..., None] - np.logaddexp(off - sent, on)
        messages = log_sum(when_on, 0) - log_sum(when_off, 0)
    finite = np.isfinite(nu)
    size = np.abs(np.where(finite, nu, 0.0)).sum(1) + np.abs(
        np.where(np.isfinite(log_mean), log_mean, 0.0)
    ).max(0)
    bound = 2.0 * np.max([a.bound for a in answers], axis=0) + 8.0 * UNIT_ROUNDOFF * size
    sound = ~np.isnan(messages).any(1)
    return Answer(log_sum(log_mean, 0), messages, None, np.where(sound, bound, np.inf))
