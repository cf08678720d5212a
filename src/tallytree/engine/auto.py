"""Choice of method: what runs for which structure, and what follows when it cannot certify its answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import array_api_compat.numpy as xp
import numpy as np
from numpy.typing import NDArray

from .. import config
from ..arrays import Float64
from ..errors import ParameterError, PrecisionError
from ..structure.nested.components import FlatBucket, NestedPart
from ..structure.nested.count_tree import CountTree
from ..structure.nested.schedule import Schedule, build_schedule, count_caps
from ..structure.nested.tree import TreeProgram
from . import native
from .count import (
    chain,
    characteristic,
    mixture,
    potetz_lee,
    retilt,
    wide_sum,
)
from .count.arithmetic import Direct, Fourier, LogSpace
from .count.tree_pass import sum_product
from .ladder import TOLERANCE, Rung, climb
from .solution import Solution, solved

Mixture = tuple[NDArray[Any], NDArray[Any]]

METHODS = (
    "auto", "chain", "tree", "fft-tree", "characteristic", "mixture", "tiled", "log-tree", "potetz-lee",
)  # fmt: skip
_FLAT_ONLY = ("chain", "characteristic", "mixture", "potetz-lee")
_ACCEPTABLE = 1e-6  # an explicitly chosen method that certifies less than this raises
_MIXTURE_TERMS = 8
_SMALL_TREE = 64  # native: below this many variables direct passes are the quickest, and so is the last rung
_SIDE_BY_SIDE, _SMALL_IN_LANES = 4, 320  # so many models, of at most this size, share the lanes of registers
_TILT_WORTH = 1 << 15  # native: from here on a few tilted FFT passes cost less than one tiled pass
_TILT_LEAST = 0.5  # standard deviations by which a tilt has to move a mean
_FFT_ROUGHNESS, _TILED_ROUGHNESS = (
    5.0,
    300.0,
)  # measured: an FFT pass fails from sd 3 on, a tiled one from sd 150
_ROUGHNESS_SAMPLE = 1 << 12
_EXTREME = 300.0
EXACT_TAILS = 4096  # up to here count distributions come from the rung whose tails are always right
_SERIES_LIMIT = 160  # array executor: above this many variables a characteristic function beats a tree
_DIRECT_LIMIT = 256  # up to this many variables a direct tree beats everything


LARGEST_WALK = float(
    1 << 27
)  # pairs of counts that array code may look at for a number that needs all digits
_ROUNDED = (
    1e-5  # error of log_mean, in units of the 1e-10 that log Z may have, per nat; ten times what was seen
)


class Problem(NamedTuple):
    """A batch of models on one structure: independent log-odds and packed tables.

    ``mixtures`` maps a set to the exponential mixture that its table is, where that is known.
    """

    tree: CountTree
    nu: Float64  # (B, D)
    tables: Float64  # (1 or B, T)
    mixtures: Mapping[int, Mixture]


def uses_mixtures(method: str, n: int) -> bool:
    """Whether exponential mixtures are worth looking up."""
    return n > _DIRECT_LIMIT if method == "auto" else method == "mixture"


def infer(problem: Problem, method: str = "auto", *, cavities: bool = True) -> Solution:
    """log_mean, messages and certificate of every model of the batch.

    Without ``cavities`` the messages to variables with infinite log-odds may be as infinite as these: their posterior
    is known without them, and quicker methods can serve.
    """
    parts = problem.tree.components
    if method in _FLAT_ONLY:
        _refuse_nested(parts.nested, method)
    if problem.nu.shape[0] == 0:
        nothing = np.zeros(0)
        return Solution(nothing, nothing, lambda: np.zeros(problem.nu.shape))
    if len(parts.flat) == 1 and parts.flat[0].whole:
        engine = config.native() if method == "auto" else None
        if engine is not None and len(problem.nu) == 1 and not problem.mixtures:  # the usual case, kept short
            found = native.flat(engine, problem.nu, problem.tables, cavities)
            if found.bound[0] <= TOLERANCE:
                return found
            further = _flat_rungs(problem.nu.shape[1], None, cavities)
            next(further)  # the one that has just failed
            return climb(further, problem.nu, problem.tables)
        return _flat(problem.nu, problem.tables, problem.mixtures.get(0), method, cavities)
    return _assemble(problem, method, cavities)


def _refuse_nested(nested: NestedPart | None, method: str) -> None:
    if nested is not None:
        raise ParameterError(
            f"`method='{method}'` serves models whose groups are disjoint, one potential each; this model has groups "
            "inside groups. Use 'auto', 'tree' or 'fft-tree'."
        )


def _assemble(problem: Problem, method: str, cavities: bool) -> Solution:
    """Solve the components one bucket at a time and put their answers together."""
    parts, nu, tables = problem.tree.components, problem.nu, problem.tables
    batch, n = nu.shape
    log_mean, bound = np.zeros(batch), np.zeros(batch)
    pieces: list[tuple[NDArray[np.int64] | slice, tuple[int, ...], Solution]] = []
    for bucket in parts.flat:
        count = len(bucket.variables)
        rows = np.ascontiguousarray(nu[:, bucket.variables]).reshape(batch * count, bucket.size)
        shared = tables.shape[0] == 1 and count == 1
        picked = np.broadcast_to(tables, (1 if shared else batch, tables.shape[1]))[:, bucket.cells]
        block = _flat(rows, np.ascontiguousarray(picked).reshape(-1, bucket.size + 1), None, method, cavities)
        log_mean += block.log_mean.reshape(batch, count).sum(1)
        bound += block.bound.reshape(batch, count).sum(1) if count else 0.0
        pieces.append((bucket.variables.reshape(-1), (batch, count * bucket.size), block))
    if parts.nested is not None:
        part = parts.nested
        rows = nu if part.variables is None else np.ascontiguousarray(nu[:, part.variables])
        picked = tables if part.cells is None else np.ascontiguousarray(tables[:, part.cells])
        block = _nested(part.program, rows, picked, method, cavities)
        log_mean += block.log_mean
        bound += block.bound
        where = slice(None) if part.variables is None else part.variables
        pieces.append((where, (batch, rows.shape[1]), block))

    def messages() -> Float64:
        out = np.zeros((batch, n))
        for where, shape, block in pieces:
            out[:, where] = block.messages().reshape(shape)
        return out

    return Solution(log_mean, bound, messages)


# -- one potential over a block ------------------------------------------------------------------------------------


def _flat_rungs(n: int, terms: Mixture | None, cavities: bool) -> Iterator[Rung]:
    engine = config.native()
    if engine is not None:
        if terms is not None and native.has_closed_form(*terms):
            coefficients, rates = terms
            yield lambda x, t: native.closed_form(engine, x, coefficients, rates)
        yield lambda x, t: native.flat(engine, x, t, cavities)
    else:
        if terms is not None and len(terms[0]) <= _MIXTURE_TERMS:
            coefficients, rates = terms
            yield lambda x, t: _quiet(mixture.solve_batch, x, coefficients, rates)
        if n > _SERIES_LIMIT:
            yield lambda x, t: _quiet(characteristic.solve_batch, x, _rows(t, x))
    yield lambda x, t: climb(_tree_rungs(CountTree.flat(n).program, x, t, cavities), x, t)


def _flat(nu: Float64, tables: Float64, terms: Mixture | None, method: str, cavities: bool) -> Solution:
    if method == "auto":
        return climb(_flat_rungs(nu.shape[1], terms, cavities), nu, tables)
    if method == "mixture":
        if terms is None:
            raise ParameterError(
                "`method='mixture'` needs a potential that is a short sum of exponentials, such as noisy_or, parity, "
                "modulo, geometric or exponential_mixture. Use 'auto'."
            )
        return _insist(_quiet(mixture.solve_batch, nu, terms[0], terms[1]), method)
    if method == "chain":
        return _insist(_quiet(chain.solve_batch, nu, _rows(tables, nu)), method)
    if method == "characteristic":
        return _insist(_quiet(characteristic.solve_batch, nu, _rows(tables, nu)), method)
    if method == "potetz-lee":
        if nu.shape[1] > potetz_lee.LARGEST:
            raise ParameterError(
                f"`method='potetz-lee'` takes O(D^3 log D) time and is kept for up to {potetz_lee.LARGEST} variables; "
                f"this model has {nu.shape[1]}. Use 'auto'."
            )
        return _insist(_quiet(potetz_lee.solve_batch, nu, _rows(tables, nu)), method)
    return _nested(CountTree.flat(nu.shape[1]).program, nu, tables, method, cavities)


def _rows(tables: Float64, nu: Float64) -> Float64:
    return np.broadcast_to(tables, (nu.shape[0], tables.shape[1]))


def _quiet(solve: Any, nu: Float64, *arguments: Any) -> Solution:
    """Array code meets log 0 and inf - inf on purpose; its certificate catches what matters."""
    with np.errstate(all="ignore"):
        return solved(solve(xp, nu, *arguments))


def _insist(found: Solution, method: str) -> Solution:
    if np.all(found.bound <= _ACCEPTABLE):
        return found
    worst = float(np.max(found.bound))
    raise PrecisionError(
        f"`method='{method}'` cannot certify six digits for this model (its error bound is {worst:.1e}). "
        "Use method='auto', which escalates to one that can."
    )


def infer_program(program: TreeProgram, nu: Float64, tables: Float64) -> Solution:
    """Inference on a binary forest that is not part of a model; messages to fixed variables may be infinite."""
    return _nested(program, nu, tables, "auto", False)


# -- nested components ---------------------------------------------------------------------------------------------


def _nested(program: TreeProgram, nu: Float64, tables: Float64, method: str, cavities: bool) -> Solution:
    engine = config.native()
    if method == "auto":
        return climb(_tree_rungs(program, nu, tables, cavities), nu, tables)
    if method == "tree":
        return climb([_tree_rung(program, "direct"), _last_rung(program)], nu, tables)
    if method == "fft-tree":
        plain, tilted = _tree_rung(program, "fft", cavities), _tilted_rung(program, "fft", cavities)
        return _insist(climb([plain, tilted], nu, tables, tolerance=_ACCEPTABLE), method)
    if method == "tiled":
        if engine is None:
            raise ParameterError("`method='tiled'` needs the compiled engine. Use 'auto' or 'log-tree'.")
        return climb([_tree_rung(program, "tiled"), _last_rung(program)], nu, tables)
    return _array_pass(program, LogSpace(xp), nu, tables)  # "log-tree"


def _roughness(tables: Float64) -> float:
    """Mean size of the second differences of the first model's log-tables: 0 for a straight line, 2 sd for noise.

    Long tables are judged by samples: this only chooses where to start on the ladder.
    """
    if not len(tables):
        return 0.0
    entries = tables[0]
    if len(entries) > 2 * _ROUGHNESS_SAMPLE:
        stretch = len(entries) // 64
        entries = entries[: 64 * stretch].reshape(64, stretch)[:, : _ROUGHNESS_SAMPLE // 64]
    with np.errstate(invalid="ignore"):
        bends = np.abs(np.diff(entries, 2))
    bends = bends[np.isfinite(bends)]
    return float(bends.mean()) if len(bends) else 0.0


def extreme(nu: Float64) -> bool:
    """Whether some finite log-odds leave plain numbers little room: e^300 is half of their range."""
    if nu.size == 0:
        return False
    if nu.min() > -_EXTREME and nu.max() < _EXTREME:
        return False
    return bool(np.any((np.abs(nu) > _EXTREME) & np.isfinite(nu)))


def _tree_rungs(program: TreeProgram, nu: Float64, tables: Float64, cavities: bool) -> list[Rung]:
    engine = config.native()
    if engine is not None:
        if extreme(nu):
            return [_last_rung(program)]
        if program.n_leaves <= (_SMALL_TREE if len(nu) < _SIDE_BY_SIDE else _SMALL_IN_LANES):
            return [_tree_rung(program, "direct"), _last_rung(program)]
        # Rungs that rough tables are known to defeat are left out: their certificates would only cost time.
        roughness = _roughness(tables)
        smooth = roughness < _FFT_ROUGHNESS
        rungs = [_tree_rung(program, "fft", cavities)] if smooth else []
        if smooth and native.has_waves(engine, program):
            rungs.insert(0, _tree_rung(program, "waves", cavities))
        if smooth and program.n_leaves >= _TILT_WORTH:
            rungs.append(_tilted_rung(program, "waves", cavities, _TILT_LEAST))
        if roughness < _TILED_ROUGHNESS:
            rungs.append(_tree_rung(program, "tiled", cavities))
        return [*rungs, _last_rung(program)]
    if program.n_leaves <= _DIRECT_LIMIT:
        return [_tree_rung(program, "direct"), _last_rung(program)]
    return [_tree_rung(program, "fft"), _tilted_rung(program, "fft"), _last_rung(program)]


def _last_rung(program: TreeProgram) -> Rung:
    """Slow but always right: one exponent per entry, or logarithms."""
    if config.native() is not None:
        return _tree_rung(program, "wide")
    return lambda nu, tables: _array_pass(program, LogSpace(xp), nu, tables)


def _tree_rung(program: TreeProgram, kind: str, cavities: bool = True) -> Rung:
    engine = config.native()
    if engine is not None:
        return lambda nu, tables: solved(
            native.tree_pass(engine, program, nu, tables, kind, cavities=cavities)
        )
    arithmetic = Fourier(xp) if kind == "fft" else Direct(xp)
    return lambda nu, tables: _array_pass(program, arithmetic, nu, tables)


def _tilted_rung(program: TreeProgram, kind: str, cavities: bool = True, least: float = 0.0) -> Rung:
    """Passes under the tilt that puts the mean of every component's count at its posterior mean."""
    plain = _tree_rung(program, kind, cavities)
    return lambda nu, tables: retilt.climb_to_posterior_mean(program, nu, tables, plain, least=least)


def _array_pass(program: TreeProgram, arithmetic: Any, nu: Float64, tables: Float64) -> Solution:
    schedule = schedule_for(program, tables)
    with np.errstate(all="ignore"):
        return solved(sum_product(xp, schedule, arithmetic, nu, _rows(tables, nu)))


def pairs_of_counts(program: TreeProgram) -> float:
    """Pairs of child counts over all merges: the cost of a direct pass."""
    size = program.size.astype(np.float64) + 1.0
    return float((size[program.left] * size[program.right]).sum())


def schedule_for(program: TreeProgram, tables: Float64) -> Schedule:
    """Schedule with messages cut at the largest counts that the tables allow."""
    possible = np.any(tables > -math.inf, axis=0)
    position = np.arange(len(possible)) - np.repeat(program.set_offset[:-1], np.diff(program.set_offset))
    highest = np.maximum.reduceat(np.where(possible, position, 0), program.set_offset[:-1])
    if np.array_equal(highest, program.size[program.set_node]):
        cached = program.__dict__.get("_full_schedule")
        if cached is None:
            cached = program.__dict__["_full_schedule"] = build_schedule(program)
        return cached
    return build_schedule(program, count_caps(program, highest))


def without_cancellation(problem: Problem, log_mean: Float64, leaves: Float64, constant: Any) -> Float64:
    """``log_mean + leaves``, or where this loses digits that the contract wants the same from plain weights.

    ``leaves`` is `constant` plus the sum of ``log(1 + e^nu)``.
    """
    total = log_mean + leaves
    lost = _ROUNDED * np.abs(log_mean) > 1.0 + np.abs(total)
    if not (lost[0] if len(lost) == 1 else lost.any()):
        return np.asarray(total)
    program, rows = problem.tree.program, np.flatnonzero(lost)
    if pairs_of_counts(program) * len(rows) > LARGEST_WALK:
        return np.asarray(total)
    tables = _rows(problem.tables, problem.nu)[rows]
    with np.errstate(all="ignore"):
        weights = wide_sum.log_sum(program, schedule_for(program, tables), problem.nu[rows], tables)
    total[rows] = weights + np.broadcast_to(constant, total.shape)[rows]
    return np.asarray(total)


# -- count distributions -------------------------------------------------------------------------------------------


def set_log_beliefs(problem: Problem) -> Float64:
    """Posterior log-probabilities of the counts of all sets, packed like the tables, accurate into the tails."""
    return program_log_beliefs(problem.tree.program, problem.nu, problem.tables)


def program_log_beliefs(program: TreeProgram, nu: Float64, tables: Float64) -> Float64:
    """The same on a binary forest."""
    engine = config.native()
    if nu.shape[0] == 0:
        return np.zeros((0, program.table_total))
    if engine is None:
        schedule = schedule_for(program, tables)
        rows = _rows(tables, nu)
        with np.errstate(all="ignore"):
            answer = sum_product(xp, schedule, Direct(xp), nu, rows, beliefs=True)
            if not np.all(answer.bound <= TOLERANCE) or _tails_lost(answer.log_beliefs):
                answer = sum_product(xp, schedule, LogSpace(xp), nu, rows, beliefs=True)
        return np.asarray(answer.log_beliefs)
    exact = program.n_leaves <= EXACT_TAILS or extreme(problem.nu)
    for kind in ("wide",) if exact else ("tiled", "wide"):
        answer = native.tree_pass(engine, program, nu, tables, kind, beliefs=True, messages=False)
        if kind == "wide" or np.all(answer.bound <= TOLERANCE):
            break
    return np.asarray(answer.log_beliefs)


def _tails_lost(log_beliefs: Float64) -> bool:
    """Whether an entry may be wrong because it, or what it is made of, fell out of the range of plain numbers."""
    return bool(np.any(log_beliefs < -250.0))


def flat_bucket_of(tree: CountTree, set_id: int) -> tuple[FlatBucket, int] | None:
    """The bucket and row of a set that is a component by itself."""
    offset = int(tree.family.set_offset[set_id])
    for bucket in tree.components.flat:
        row = np.flatnonzero(bucket.cells[:, 0] == offset)
        if len(row):
            return bucket, int(row[0])
    return None
