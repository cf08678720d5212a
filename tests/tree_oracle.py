"""Independent answers for tree passes over a binary forest: enumeration, and a recursion of unlimited range."""

import numpy as np

from oracle_enumeration import log_odds, log_sum_exp
from oracle_nested import convolve, correlate, wide_exp, wide_log, wide_log_relative
from oracle_states import REAL, all_states, truth_of_terms


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


def enumerate_tree(m):
    """(log_mean, messages, beliefs) by summing over all 2^D states."""
    states = all_states((2,) * m.D)
    on, off = _log_leaf(m.nu)
    counts, terms = list(states.T), []
    for i in range(len(m.left)):
        counts.append(counts[m.left[i]] + counts[m.right[i]])
        if m.offset[i] >= 0:
            terms.append(m.table(i)[counts[-1]])
    truth = truth_of_terms(states, np.stack([off, on], axis=-1), terms)
    beliefs = np.full(len(m.tables), -np.inf)
    if not truth.possible:
        return -np.inf, np.zeros(m.D), beliefs
    for i in range(len(m.left)):
        if m.offset[i] >= 0:
            size = m.size[m.D + i]
            beliefs[m.offset[i] : m.offset[i] + size + 1] = truth.score_log_probs(counts[m.D + i], size)
    return truth.log_partition, truth.cavity_logits, beliefs


def _log_leaf(nu):
    """Log-probabilities of on and off, in extended precision."""
    x = nu.astype(REAL)
    with np.errstate(over="ignore", invalid="ignore"):
        return -np.logaddexp(REAL(0), -x), -np.logaddexp(REAL(0), x)


def long_double_tree(m):
    """(log_mean, messages, beliefs) by direct sums in numbers of unlimited range."""
    on, off = _log_leaf(m.nu)
    up = [wide_exp([off[d], on[d]]) for d in range(m.D)]
    used, total = m.children(), REAL(0)
    for i in range(len(m.left)):
        c = convolve(up[m.left[i]], up[m.right[i]])
        up.append(c * wide_exp(m.table(i)) if m.offset[i] >= 0 else c)
        if m.D + i not in used:
            total += log_sum_exp(wide_log(up[-1]))
    beliefs, messages = np.full(len(m.tables), -np.inf), np.zeros(m.D)
    if total == -np.inf:
        return -np.inf, messages, beliefs
    down = [None] * len(up)
    for i in range(len(m.left) - 1, -1, -1):
        v = m.D + i
        g = wide_exp(np.zeros(m.size[v] + 1)) if v not in used else down[v]
        if m.offset[i] >= 0:
            b = wide_log_relative(up[v] * g)
            beliefs[m.offset[i] : m.offset[i] + m.size[v] + 1] = b - log_sum_exp(b)
            g = g * wide_exp(m.table(i))
        a, b = m.left[i], m.right[i]
        down[a], down[b], down[v] = correlate(g, up[b]), correlate(g, up[a]), None
    for d in range(m.D):
        if down[d] is not None:
            off_weight, on_weight = wide_log_relative(down[d])
            messages[d] = log_odds(on_weight, off_weight)
    return float(total), messages, beliefs
