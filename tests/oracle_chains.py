"""Flat models by a chain of convolutions in logarithms."""

import numpy as np

WIDE = np.longdouble


def log_space_chain(nu, log_f):
    """log E f, messages and log pmf by dynamic programming in logs, extended precision, O(n^2)."""
    nu, log_f = nu.astype(WIDE), log_f.astype(WIDE)
    n = len(nu)
    with np.errstate(all="ignore"):
        log_p, log_q = -np.logaddexp(WIDE(0), -nu), -np.logaddexp(WIDE(0), nu)
        later = np.empty((n + 1, n + 1), WIDE)  # later[i, k] = log E f(k + z_{i+1} + ... + z_n)
        later[n] = log_f
        for i in range(n, 0, -1):
            later[i - 1, :i] = np.logaddexp(log_q[i - 1] + later[i, :i], log_p[i - 1] + later[i, 1 : i + 1])
        earlier = np.full(n + 1, -np.inf, WIDE)
        earlier[0] = 0
        message = np.empty(n, WIDE)
        for i in range(n):
            sides = []
            for term in (
                earlier[: i + 1] + later[i + 1, : i + 1],
                earlier[: i + 1] + later[i + 1, 1 : i + 2],
            ):
                top = term.max()
                sides.append(top + np.log(np.exp(term - top).sum()) if top > -np.inf else top)
            message[i] = sides[1] - sides[0]
            step = log_q[i] + earlier[: i + 2]
            step[1:] = np.logaddexp(step[1:], log_p[i] + earlier[: i + 1])
            earlier[: i + 2] = step
    return later[0, 0], message, earlier
