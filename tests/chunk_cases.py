"""Models cut into chunks and solved by the verbs."""

import math
import pickle

import numpy as np

import tallytree as tt
from tallytree.engine.count import chunks


class TableArray:
    """A table in memory, with the methods of a `CountTable`."""

    def __init__(self, log_f):
        self._log_f = np.ascontiguousarray(log_f, np.float64)
        self.n = len(self._log_f) - 1

    def at(self, k):
        return float(self._log_f[k])

    def window(self, first, last):
        return self._log_f[first : last + 1]

    def support_within(self, least, most):
        possible = np.flatnonzero(self._log_f[least : most + 1] > -math.inf)
        return (least + int(possible[0]), least + int(possible[-1])) if len(possible) else (least, least - 1)

    def largest(self, first, last, slope):
        inside = self._log_f[first : last + 1]
        return float(np.max(inside - slope * np.arange(len(inside)), initial=-math.inf))


def cut(logits, seed=0):
    """Uneven chunks; some are empty, some have a single variable."""
    n = len(logits)
    places = np.sort(np.random.default_rng(seed).integers(0, n + 1, 4))
    return np.split(logits, [*sorted({0, 1, *places.tolist(), n}), n])


def solve(logits, potential, parts=None, few=0, rounds=None):
    log_f = potential.log_table(len(logits)) if isinstance(potential, tt.Potential) else np.asarray(potential)
    pieces = cut(logits) if parts is None else parts

    def reduce_all(asked):
        if rounds is not None:
            rounds.append(asked)
        return chunks.merge(pickle.loads(pickle.dumps(chunks.reduce(piece, asked))) for piece in pieces)

    return chunks.solve_chunks(reduce_all, chunks.solve(TableArray(log_f), few=few))


def answers(logits, solution, what="posterior_logits", parts=None):
    mapping = pickle.loads(pickle.dumps(solution.mapping))
    return np.concatenate([chunks.map_logits(p, mapping, what) for p in (parts or cut(logits, 1))])


def apart(got, want):
    """Largest distance, absolute or relative, as the contract has it; inf where infinities differ."""
    with np.errstate(invalid="ignore"):
        far = np.abs(got - want) / np.maximum(1.0, 0.1 * np.abs(want))
    return float(np.max(np.where(got == want, 0.0, np.where(np.isnan(far), math.inf, far)), initial=0.0))
