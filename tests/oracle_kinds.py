"""Covariances of a flat model whose variables come in a few kinds, from sums over the counts of the kinds.

Variables of one kind are exchangeable: with c_a the count of kind a, of m_a variables, and a direction v,

    Cov(y_i, s) = Cov(c_a, s) / m_a + (v_i - mean of v in a) (P_i - E[c_a (c_a - 1)] / (m_a (m_a - 1))),

s = v . y + h(z). The law of the kinds' counts is a product of binomial coefficients, odds and the table: a closed form,
evaluated with many digits. Shares no code with the package.
"""

from __future__ import annotations

import itertools

import numpy as np
from mpmath import mp, mpf

DIGITS = 60


def kinds_tangent(nu, kind, log_f, v, h):
    """d P(y_i = 1) and d P(z = k) as floats; `nu` holds one log-odds per kind, `log_f` may forbid most counts."""
    n, sizes = len(kind), np.bincount(kind, minlength=len(nu))
    allowed = np.flatnonzero(np.asarray(log_f) > -np.inf)
    most = int(allowed.max())
    with mp.workdps(DIGITS):
        means = [mp.fsum(map(mpf, v[kind == a])) / int(m) if m else mpf(0) for a, m in enumerate(sizes)]
        law = {}
        for counts in itertools.product(*(_counts(x, int(m), most) for x, m in zip(nu[:-1], sizes))):
            for z in allowed:
                last = int(z) - sum(counts)
                if last in _counts(nu[-1], int(sizes[-1]), most):
                    law[*counts, last] = _weight(nu, sizes, (*counts, last)) * mp.exp(mpf(float(log_f[z])))
        total = mp.fsum(law.values())
        law = {c: w / total for c, w in law.items()}
        s = {c: mp.fsum(a * b for a, b in zip(c, means)) + mpf(float(h[sum(c)])) for c in law}
        mean = mp.fsum(p * s[c] for c, p in law.items())
        change = np.zeros(n)
        for a, m in enumerate(map(int, sizes)):
            shared = mp.fsum(p * c[a] * (s[c] - mean) for c, p in law.items()) / max(m, 1)
            both = mp.fsum(p * c[a] * (c[a] - 1) for c, p in law.items()) / max(m * (m - 1), 1)
            own = mp.fsum(p * c[a] for c, p in law.items()) / max(m, 1) - both
            for i in np.flatnonzero(kind == a):
                change[i] = shared + (mpf(float(v[i])) - means[a]) * own if m > 1 else shared
        counts = np.zeros(n + 1)
        for z in allowed:
            counts[z] = mp.fsum(p * (s[c] - mean) for c, p in law.items() if sum(c) == z)
    return change, counts


def _counts(log_odds, size, most):
    """The counts that a kind can have where no total above `most` matters."""
    if log_odds == -np.inf:
        return range(1)
    return range(size if log_odds == np.inf else 0, min(size, most) + 1)


def _weight(nu, sizes, counts):
    powers = mp.fsum(mpf(float(x)) * c for x, c in zip(nu, counts) if np.isfinite(x))
    return mp.exp(powers) * mp.fprod(mp.binomial(int(m), c) for m, c in zip(sizes, counts))
