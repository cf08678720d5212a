"""Independent answers for tree passes: enumeration, and log-space recursion with scaled long doubles.

Shares no code with the package.
"""

import itertools

import numpy as np


class Model:
    """A binary forest with log-tables, as `tree_pass` takes it (one model)."""

    def __init__(self, left, right, offset, nu, tables):
        self.left = np.asarray(left, np.int32)
        self.right = np.asarray(right, np.int32)
        self.offset = np.asarray(offset, np.int64)
        self.nu = np.asarray(nu, np.float64)
        self.tables = np.asarray(tables, np.float64)
        self.D = len(self.nu)
        self.size = np.ones(self.D + len(self.left), np.int64)
        for i in range(len(self.left)):
            self.size[self.D + i] = self.size[self.left[i]] + self.size[self.right[i]]

    def table(self, i):
        return self.tables[self.offset[i] : self.offset[i] + self.size[self.D + i] + 1]

    def children(self):
        return set(self.left.tolist()) | set(self.right.tolist())


def random_tree(rng, D, shape="random", roots=1):
    """Merge random nodes ("random"), the two oldest ("balanced"), or always the newest ("caterpillar")."""
    alive = list(range(D))
    left, right = [], []
    while len(alive) > roots:
        if shape == "random":
            rng.shuffle(alive)
            a, b = alive.pop(), alive.pop()
            alive.append(D + len(left))
        elif shape == "balanced":
            a, b = alive.pop(0), alive.pop(0)
            alive.append(D + len(left))
        else:
            a, b = alive.pop(0), alive.pop(0)
            alive.insert(0, D + len(left))
        left.append(a)
        right.append(b)
    return np.array(left, np.int32), np.array(right, np.int32)


def with_tables(rng, D, left, right, nu, sd, share=1.0, holes=0.0):
    """Tables N(0, sd^2) on a share of the nodes and on every root; a share of entries is -inf."""
    size = np.ones(D + len(left), np.int64)
    used = set(left.tolist()) | set(right.tolist())
    offset = np.full(len(left), -1, np.int64)
    total = 0
    for i in range(len(left)):
        size[D + i] = size[left[i]] + size[right[i]]
        if D + i not in used or rng.random() < share:
            offset[i] = total
            total += size[D + i] + 1
    tables = rng.normal(0, sd, total)
    if holes:
        tables[rng.random(total) < holes] = -np.inf
    return Model(left, right, offset, nu, tables)


def _log_sum(x):
    x = np.asarray(x, np.longdouble)
    m = x.max() if len(x) else -np.inf
    if m == -np.inf:
        return np.longdouble(-np.inf)
    return m + np.log(np.exp(x - m).sum())


def enumerate_model(m):
    """(log_mean, messages, beliefs) by summing over all 2^D states."""
    L = np.longdouble
    nu = m.nu.astype(L)
    with np.errstate(over="ignore", invalid="ignore"):
        log_on = -np.logaddexp(L(0), -nu)
        log_off = -np.logaddexp(L(0), nu)
    states = np.array(list(itertools.product((0, 1), repeat=m.D)), np.int64).reshape(-1, m.D)
    counts = [states[:, d] for d in range(m.D)]
    log_f = np.zeros(len(states), L)
    for i in range(len(m.left)):
        counts.append(counts[m.left[i]] + counts[m.right[i]])
        if m.offset[i] >= 0:
            log_f = log_f + m.table(i)[counts[-1]]
    leaf = np.where(states == 1, log_on, log_off)
    total = _log_sum(log_f + leaf.sum(1))
    messages = np.zeros(m.D)
    for d in range(m.D):
        rest = log_f + np.delete(leaf, d, axis=1).sum(1)
        on, off = _log_sum(rest[states[:, d] == 1]), _log_sum(rest[states[:, d] == 0])
        messages[d] = 0.0 if on == off else on - off
    beliefs = np.full(len(m.tables), -np.inf)
    for i in range(len(m.left)):
        if m.offset[i] >= 0 and total > -np.inf:
            for c in range(m.size[m.D + i] + 1):
                p = _log_sum((log_f + leaf.sum(1))[counts[m.D + i] == c])
                beliefs[m.offset[i] + c] = p - total
    return float(total), messages, beliefs


class _Scaled:
    """Long doubles with one integer exponent per entry."""

    def __init__(self, value, exponent):
        self.m, k = np.frexp(value)
        self.e = np.where(self.m == 0, -(10**15), exponent + k)

    @classmethod
    def exp(cls, x):
        x = np.asarray(x, np.longdouble)
        zero = ~(x > -1e300)
        x = np.where(zero, 0, x)
        n = np.rint(x / np.log(np.longdouble(2)))
        return cls(np.where(zero, 0, np.exp(x - n * np.log(np.longdouble(2)))), n.astype(np.int64))

    def log(self):
        with np.errstate(divide="ignore"):
            return np.where(self.m == 0, -np.inf, np.log(self.m) + self.e * np.log(np.longdouble(2)))

    def times(self, other):
        return _Scaled(self.m * other.m, self.e + other.e)


def _sum_of_products(am, ae, bm, be):
    """Row sums of a*b with exponents, terms along the last axis."""
    e = np.where((am == 0) | (bm == 0), -(10**15), ae + be)
    top = e.max(-1)
    value = np.ldexp(am * bm, np.maximum(e - top[..., None], -16000).astype(np.int32)).sum(-1)
    return _Scaled(value, top)


def _convolve(a, b):
    if len(a.m) > len(b.m):
        a, b = b, a
    na = len(a.m)
    bm = np.concatenate([np.zeros(na - 1, np.longdouble), b.m, np.zeros(na - 1, np.longdouble)])
    be = np.concatenate([np.zeros(na - 1, np.int64), b.e, np.zeros(na - 1, np.int64)])
    wm = np.lib.stride_tricks.sliding_window_view(bm, na)
    we = np.lib.stride_tricks.sliding_window_view(be, na)
    return _sum_of_products(wm, we, a.m[::-1], a.e[::-1])


def _correlate(g, u):
    wm = np.lib.stride_tricks.sliding_window_view(g.m, len(u.m))
    we = np.lib.stride_tricks.sliding_window_view(g.e, len(u.m))
    return _sum_of_products(wm, we, u.m, u.e)


def long_double_tree(m):
    """(log_mean, messages, beliefs) by direct sums in scaled long doubles: any range."""
    L = np.longdouble
    nu = m.nu.astype(L)
    up = []
    for d in range(m.D):
        up.append(_Scaled.exp([-np.logaddexp(L(0), nu[d]), -np.logaddexp(L(0), -nu[d])]))
    used = m.children()
    total = L(0)
    for i in range(len(m.left)):
        c = _convolve(up[m.left[i]], up[m.right[i]])
        if m.offset[i] >= 0:
            c = c.times(_Scaled.exp(m.table(i)))
        up.append(c)
        if m.D + i not in used:
            total += _log_sum(c.log())
    if total == -np.inf:
        return -np.inf, np.zeros(m.D), np.full(len(m.tables), -np.inf)
    down = [None] * len(up)
    beliefs = np.full(len(m.tables), -np.inf)
    messages = np.zeros(m.D)
    for i in range(len(m.left) - 1, -1, -1):
        v = m.D + i
        if v not in used:
            down[v] = _Scaled(np.ones(m.size[v] + 1, L), np.zeros(m.size[v] + 1, np.int64))
        g = down[v]
        if m.offset[i] >= 0:
            b = up[v].times(g).log()
            beliefs[m.offset[i] : m.offset[i] + m.size[v] + 1] = b - _log_sum(b)
            g = g.times(_Scaled.exp(m.table(i)))
        a, b = m.left[i], m.right[i]
        down[a], down[b] = _correlate(g, up[b]), _correlate(g, up[a])
        down[v] = None
    for d in range(m.D):
        if down[d] is not None:
            off, on = down[d].log()
            messages[d] = on - off
    return float(total), messages, beliefs
