"""Which method runs for which structure, and what follows when it cannot certify its answer.

A problem component by component: what each sees of the arrays of all, and where its answers go.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.special import expit

from ... import config
from ...arrays import Float64, Ints
from ...errors import ParameterError, PrecisionError
from ...memo import lru, once
from ...structure.nested.count_tree import CountTree
from ...structure.nested.schedule import Schedule, build_schedule, count_caps, full_schedule
from ...structure.nested.tree import Components, FlatBucket, TreeProgram
from .. import native, thresholds
from ..answer import Answer
from ..arithmetic import UNIT_ROUNDOFF, Direct, Fourier, LogSpace, Wide
from ..forest.certificate import log_odds
from ..forest.sum_product import ForestPass
from ..forest.values import ForestValues
from ..ladder import TOLERANCE, WIDE, announce, climb
from ..log_sums import accurate_sum, add_exactly
from ..problem import Mixture, Problem, Rows, without_edges
from . import characteristic, flat, retilt
from .flat import SHARE, core_of
from .moments import softplus_sum
from .tree_pass import sum_product


class Part(NamedTuple):
    """Standard models of one size, side by side, or all components with sets inside sets."""

    program: TreeProgram | None  # None: standard models
    variables: Ints | None  # (count, n), increasing along the rows; None: all in their order
    cells: Ints | None  # (count, T) of their tables; None: all

    @property
    def whole(self) -> bool:
        """Whether there is nothing to gather."""
        return self.variables is None and self.cells is None

    def tables(self, tables: Float64, batch: int) -> Float64:
        """The tables of every row, or one row where all have the same."""
        if len(tables) == 1 and self.cells is not None and len(self.cells) > 1:
            tables = np.broadcast_to(tables, (batch, tables.shape[1]))
        return gathered(tables, self.cells)


def parts_of(components: Components) -> list[Part]:
    """All but the free variables."""
    parts = [Part(None, *((None, None) if b.whole else (b.variables, b.cells))) for b in components.flat]
    nested = components.nested
    if nested is not None:
        variables, cells = (None if x is None else x[None] for x in (nested.variables, nested.cells))
        parts.append(Part(nested.program, variables, cells))
    return parts


def gathered(values: Float64, places: Ints | None) -> Float64:
    """From (..., B, D) to (..., B * count, n), the components of a model one after the other."""
    if places is None:
        return values
    rows = values.shape[-2] * len(places)
    return np.ascontiguousarray(values[..., places]).reshape(*values.shape[:-2], rows, places.shape[1])


def put(out: Float64, places: Ints | None, found: Float64) -> None:
    """Back to their places in (..., B, D)."""
    if places is None:
        out[...] = found
    else:
        out[..., places] = found.reshape(*out.shape[:-1], *places.shape)


METHODS = (
    "auto", "chain", "tree", "fft-tree", "characteristic", "mixture", "tiled", "log-tree",
)  # fmt: skip
_FLAT_ONLY = ("chain", "characteristic", "mixture")
Rung = Callable[[Any], Answer]
T = TypeVar("T")
_ROUNDED = 2.0**-50  # eight roundings: what a sum of numbers of a size may lose
# Exponentials of numbers up to this are split into mantissas and exponents without rounding
_SPLIT_EXACTLY = 7e5
# Log-odds and tilts by which a likely count is guessed, and nats by which all are on or off
_SEEN, _TILTS, _BEYOND = 512, 32, 40.0
_SCHEDULES = 16  # kept of a program, one for every combination of largest counts


def infer(problem: Problem, method: str = "auto", *, cavities: bool = True) -> Answer:
    """log_mean, messages and certificate of every model of the batch.

    Without ``cavities`` the messages to variables with infinite log-odds may be as infinite as these: their posterior
    is known without them, and quicker methods can serve.
    """
    parts = problem.tree.components
    if method in _FLAT_ONLY and parts.nested is not None:
        raise ParameterError(
            f"`method='{method}'` serves models whose groups are disjoint, one potential each; this model has "
            "groups inside groups. Use 'auto', 'tree' or 'fft-tree'."
        )
    if problem.nu.shape[0] == 0:
        nothing = np.zeros(0)
        return Answer(nothing, lambda: np.zeros(problem.nu.shape), None, nothing)
    if parts.whole:
        return _flat(problem, problem.mixtures.get(0), method, cavities)
    nested = parts.nested
    if nested is not None and nested.variables is None and nested.cells is None:
        return _nested(nested.program, problem, method, cavities)
    return _assemble(problem, method, cavities)


def _assemble(problem: Problem, method: str, cavities: bool) -> Answer:
    """Solve the components one bucket at a time and put their answers together."""
    nu, tables, batch = problem.nu, problem.tables, len(problem)
    log_mean, bound, doubt = np.zeros(batch), np.zeros(batch), np.zeros(batch)
    blocks: list[tuple[Ints | None, Answer]] = []
    for part in parts_of(problem.tree.components):
        rows = Rows(gathered(nu, part.variables), part.tables(tables, batch))
        if part.program is None:
            block = _flat(rows, None, method, cavities)
        else:
            block = _nested(part.program, rows, method, cavities)
        log_mean += block.log_mean.reshape(batch, -1).sum(1)
        bound += block.bound.reshape(batch, -1).sum(1)
        doubt = np.maximum(doubt, block.probability_bound.reshape(batch, -1).max(1, initial=0.0))
        blocks.append((part.variables, block))

    def messages() -> Float64:
        out = np.zeros(nu.shape)
        for places, block in blocks:
            put(out, places, block.messages)
        return out

    return Answer(log_mean, messages, None, bound, doubt=doubt)


# -- one potential over a block ------------------------------------------------------------------------------------


def _flat_rungs(rows: Rows | Problem, terms: Mixture | None, cavities: bool) -> list[Rung]:
    batch, n = rows.nu.shape
    rungs: list[Rung] = []

    def trees(left: Rows | Problem) -> Answer:
        return climb(_tree_rungs(CountTree.flat(n).program, left, cavities), left)

    if config.native() is None:
        if terms is not None and len(terms[0]) <= thresholds.MIXTURE_TERMS:
            rungs.append(lambda r: flat.by_mixture(r.nu, *terms))
        if n > thresholds.SERIES_LIMIT:
            rungs.append(lambda r: characteristic.solve_batch(r.nu, r.full_tables))
        return [*rungs, trees]
    if terms is not None and native.has_closed_form(*terms):
        rungs.append(lambda r: native.closed_form(r.nu, *terms))
    quick: Rung = partial(native.flat, cavities=cavities)
    in_stretches = partial(_one_by_one, partial(_by_stretches, cavities=cavities))
    single = batch == 1 and n > thresholds.SHORT_PASS
    spread = flat.spread(rows.nu) if single else glimpsed(rows.nu)
    if thresholds.SPARSE * n < spread < math.inf:
        usual: list[Rung] = [partial(_one_by_one, _by_core, [quick, partial(in_stretches, [trees])])]
    else:
        side_by_side = batch >= thresholds.SIDE_BY_SIDE and n <= thresholds.SMALL_IN_LANES
        alone = partial(_one_by_one, _by_core, [partial(in_stretches, [trees])])
        usual = [quick, partial(_level_rung, quick), trees if side_by_side else alone]
    if single and flat.far_apart(spread, rows.tables[0]):
        return [*rungs, partial(in_stretches, usual)]
    return [*rungs, *usual]


def glimpsed(nu: Float64) -> float:
    """How far three log-odds of the first model are from one another: less than a microsecond tells what is sparse."""
    if nu.size == 0:
        return 0.0
    few = nu.item(0, 0), nu.item(0, nu.shape[1] // 2), nu.item(0, -1)
    return max(few) - min(few)


def lowered(rows: Rows | Problem) -> tuple[Rows, Float64]:
    """Standard models with the entries (B,) of high tables at counts that look likely taken off, and these entries.

    Far from 0 a table is rounded as its height is; its differences, on which all but log Z depends, are exact. A count
    is likely where ``log f(c) + K(s) - s c`` is large, s being the tilt that gives it as a mean: some of the variables
    under some tilts tell, which costs less than an inference. Low tables stay as they are.
    """
    tables, level = rows.full_tables, np.zeros(len(rows))
    if not (np.isfinite(rows.tables) & (np.abs(rows.tables) > thresholds.HIGH)).any():
        return Rows(rows.nu, tables), level
    for b, nu in enumerate(rows.nu):
        finite, forced = nu[np.isfinite(nu)], np.count_nonzero(nu == math.inf)
        seen = np.sort(finite[:: max(1, len(finite) // _SEEN)])
        if not len(seen):
            continue
        tilts = -np.concatenate([seen[:1] - _BEYOND, seen[:: max(1, _SEEN // _TILTS)], seen[-1:] + _BEYOND])
        odds, share = seen + tilts[:, None], len(finite) / len(seen)
        on = expit(odds)
        means = np.round(forced + share * on.sum(1), 6)  # all off and all on are counts, too
        rate = share * (np.logaddexp(0.0, odds) - tilts[:, None] * on).sum(1)
        places = np.append(np.arange(0, tables.shape[1], max(1, tables.shape[1] // _SEEN)), np.rint(means))
        rates = np.interp(places, means[::-1], rate[::-1], -math.inf, -math.inf)
        own = tables[b, places.astype(np.int64)]
        level[b] = own[np.argmax(own + rates)]
    level = np.where(np.isfinite(level), level, 0.0)
    return Rows(rows.nu, tables - level[:, None]), level


def _level_rung(solve: Rung, rows: Rows | Problem) -> Answer:
    """Large tables without their height, for which log Z is made up."""
    lower, level = lowered(rows)
    if not level.any():
        return Answer.none(rows.nu.shape)
    found = solve(lower)
    total = found.log_mean + level
    lost = UNIT_ROUNDOFF * np.maximum(np.abs(level) - np.abs(total), 0.0)
    return replace(found, log_mean=total, bound=found.bound + lost)


def _one_by_one(
    own: Callable[[Float64, Float64], Answer | None], otherwise: list[Rung], rows: Rows | Problem
) -> Answer:
    """Models that a way of their own serves, from log-odds (1, D) and a table, and the others.

    What such a ladder ends in is right: where large log-odds leave it more rounding than is usually certified, that of
    the whole model has no less.
    """
    found = [own(rows.nu[b : b + 1], rows.tables[b % len(rows.tables)]) for b in range(len(rows))]
    left = np.flatnonzero([answer is None for answer in found])
    if len(left) == len(rows):
        return climb(otherwise, rows)
    log_mean, bound, messages = np.zeros(len(rows)), np.full(len(rows), np.inf), np.zeros(rows.nu.shape)
    for b, part in enumerate(found):
        if part is not None:
            log_mean[b], bound[b], messages[b] = part.log_mean[0], part.bound[0], part.messages[0]
    answer = Answer(log_mean, messages, None, bound)
    return answer.patched(climb(otherwise, rows.take(left)), left) if len(left) else answer


def _by_core(nu: Float64, table: Float64) -> Answer | None:
    """A model most of whose variables are decided."""
    core = core_of(nu[0], table)
    if core is None:
        return None
    found = flat_answer(core.rows.nu, core.rows.tables)
    return Answer(
        found.log_mean + core.log_weight, found.messages[:, core.speaker], None, found.bound + SHARE
    )


def _by_stretches(nu: Float64, table: Float64, cavities: bool) -> Answer | None:
    """A model whose possible counts are a few stretches, one after the other.

    With ``cavities`` there is no answer where infinite log-odds make a stretch impossible: a message to such a variable
    leaves its own log-odds out, so that the stretch may be possible for it.
    """
    parts = [part for _, part in stretch_answers(nu, table)]
    if not parts or (cavities and len(parts) < len(flat.stretches(table))):
        return None
    if not flat.certain(parts):
        return None
    joined = flat.joined_stretches(nu, parts)
    # Shares are differences of log Z; short passes without it have less rounding where its size is large.
    doubtful = joined.bound[0] > TOLERANCE and nu.shape[1] <= thresholds.SHORT_PASS
    return None if doubtful and len(flat.heaviest(parts)) > 1 else joined


def stretch_answers(nu: Float64, table: Float64) -> list[tuple[Float64, Answer]]:
    """Every stretch of possible counts as a table, and its answer; nothing where there is one, or there are many.

    Those that infinite log-odds make impossible are left out, for they say nothing of the variables.
    """
    ends = flat.stretches(table)
    parts = [flat.within(table, *own) for own in ends] if len(ends) > 1 else []
    answers = [(own, flat_answer(nu, own[None])) for own in parts]
    return [(own, part) for own, part in answers if part.log_mean[0] > -math.inf]


def flat_answer(nu: Float64, tables: Float64) -> Answer:
    """Standard models (B, n) with tables (1 or B, n + 1) that are not part of a problem."""
    rows = Rows(nu, tables)
    return climb(_flat_rungs(rows, None, True), rows)


def _flat(rows: Rows | Problem, terms: Mixture | None, method: str, cavities: bool) -> Answer:
    if method == "auto":
        return climb(_flat_rungs(rows, terms, cavities), rows)
    if method == "mixture":
        if terms is None:
            raise ParameterError(
                "`method='mixture'` needs a potential that is a short sum of exponentials, such as noisy_or, parity, "
                "modulo, geometric or exponential_mixture. Use 'auto'."
            )
        return _insist(flat.by_mixture(rows.nu, *terms), method)
    if method == "characteristic":
        return _insist(characteristic.solve_batch(rows.nu, rows.full_tables), method)
    program = CountTree.flat(rows.nu.shape[1]).program
    if method == "chain":
        if native.present():
            return climb([lambda r: native.chain(r.nu, r.tables), _last_rung(program)], rows)
        method = "tree"  # array code has no chain
    return _nested(program, rows, method, cavities)


def _insist(found: Answer, method: str) -> Answer:
    if np.all(found.bound <= thresholds.ACCEPTABLE):
        return found
    worst = float(np.max(found.bound))
    raise PrecisionError(
        f"`method='{method}'` cannot certify six digits for this model (its error bound is {worst:.1e}). "
        "Use method='auto', which escalates to one that can."
    )


def infer_program(program: TreeProgram, nu: Float64, tables: Float64) -> Answer:
    """Inference on a binary tree that is not part of a model; messages to fixed variables may be infinite."""
    return _nested(program, Rows(nu, tables), "auto", False)


# -- nested components ---------------------------------------------------------------------------------------------


def _nested(program: TreeProgram, rows: Rows | Problem, method: str, cavities: bool) -> Answer:
    if method == "auto":
        return climb(_tree_rungs(program, rows, cavities), rows)
    if method == "tree":
        return climb([_tree_rung(program, "direct"), _last_rung(program)], rows)
    if method == "fft-tree":
        plain, tilted = _tree_rung(program, "fft", cavities), _tilted_rung(program, "fft", cavities)
        return _insist(climb([plain, tilted], rows, tolerance=thresholds.ACCEPTABLE), method)
    if method == "tiled":
        if not native.present():
            raise ParameterError("`method='tiled'` needs the compiled engine. Use 'auto' or 'log-tree'.")
        return _tree_rung(program, "wide")(rows)
    return _array_pass(program, LogSpace(), rows)  # "log-tree"


def _tree_rungs(program: TreeProgram, rows: Rows | Problem, cavities: bool) -> list[Rung]:
    n = program.n_leaves
    if native.present():
        if thresholds.extreme(rows.nu):
            return [_last_rung(program)]
        if n <= (thresholds.SMALL_TREE if len(rows) < thresholds.SIDE_BY_SIDE else thresholds.SMALL_IN_LANES):
            return [_tree_rung(program, "direct"), _last_rung(program)]
        # Rungs that rough tables are known to defeat are left out: their certificates would only cost time.
        roughness = thresholds.roughness(rows.tables)
        smooth = roughness < thresholds.FFT_ROUGHNESS
        rungs = [_tree_rung(program, "fft", cavities)] if smooth else []
        waves = smooth and native.has_waves(program)
        if smooth and n >= thresholds.TILT_WORTH:
            # Where blocks are solved as a whole a tilted pass costs less than one over all single merges.
            rungs.insert(0 if waves else 1, _tilted_rung(program, "waves", cavities, thresholds.TILT_LEAST))
        if waves and not (n >= thresholds.TILT_WORTH and retilt.needed(program, rows.nu, rows.tables)):
            rungs.insert(0, _tree_rung(program, "waves", cavities))
        wild = roughness >= thresholds.WILD
        return [*rungs, _last_rung(program) if wild else _tree_rung(program, "wide", cavities)]
    if n <= thresholds.DIRECT_LIMIT:
        return [_tree_rung(program, "direct"), _last_rung(program)]
    return [_tree_rung(program, "fft"), _tilted_rung(program, "fft"), _last_rung(program)]


def _last_rung(program: TreeProgram) -> Rung:
    """Slow but always right: one exponent per entry; without a compiler, where logarithms do not do."""
    wide = _tree_rung(program, "wide")
    if native.present():
        return lambda rows: announced(program, len(rows), WIDE, "Inference", partial(wide, rows))
    return lambda rows: _with_digits(program, rows, _array_pass(program, LogSpace(), rows))


def _with_digits(program: TreeProgram, rows: Rows | Problem, found: Answer) -> Answer:
    """Messages anew where large logarithms have cancelled."""
    lost = np.flatnonzero(~(found.bound <= TOLERANCE) & (found.log_mean > -math.inf))
    if not len(lost) or pairs_of_counts(program) * len(lost) > thresholds.LARGEST_WALK:
        return found
    nu, tables = rows.nu[lost], rows.full_tables[lost]
    with np.errstate(all="ignore"):
        passes = ForestPass(without_edges(program, nu, tables), Wide())
        passes.upward()
        sent = log_odds(passes.downward().messages)
    messages = np.array(found.messages)
    messages[lost], found.bound[lost] = sent, _wide_bound(schedule_for(program, tables), nu, tables, sent)
    return Answer(found.log_mean, messages, found.log_beliefs, found.bound)


def _wide_bound(schedule: Schedule, nu: Float64, tables: Float64, found: Float64) -> Float64:
    """Roundings of mantissas gather along the tree; the answer and numbers too large to be split are rounded too."""
    sizes = np.concatenate([np.abs(nu), np.abs(tables)], axis=1)
    far = np.where(np.isfinite(sizes) & (sizes > _SPLIT_EXACTLY), sizes, 0.0).sum(axis=1)
    size = np.where(np.isfinite(found), np.abs(found), 0.0).max(axis=1, initial=0.0)
    gathered = schedule.rounding + 8.0 * schedule.levels + 2.0 * nu.shape[1]
    return np.asarray(UNIT_ROUNDOFF * (gathered + 4.0 * (1.0 + size) + 2.0 * far))


def _tree_rung(program: TreeProgram, kind: str, cavities: bool = True) -> Rung:
    if native.present():
        return lambda rows: native.tree_pass(program, rows.nu, rows.tables, kind, cavities=cavities)
    arithmetic = Fourier() if kind == "fft" else Direct()
    return lambda rows: _array_pass(program, arithmetic, rows)


def _tilted_rung(program: TreeProgram, kind: str, cavities: bool = True, least: float = 0.0) -> Rung:
    """Passes under the tilt that puts the mean of every component's count at its posterior mean."""
    plain = _tree_rung(program, kind, cavities)

    def compiled(nu: Float64, tables: Float64, tilt: Float64, centre: Float64) -> Answer:
        one = tilt[:, 0], centre[:, 0]
        return native.tree_pass(program, nu, tables, kind, tilt=one[0], centre=one[1], cavities=cavities)

    run = retilt.shifted_pass(program, lambda nu, tables: plain(Rows(nu, tables)))
    if native.present() and retilt.serves(program):
        run = compiled
    return lambda rows: retilt.climb_under_tilts(program, rows.nu, rows.tables, run, least=least)


def _array_pass(program: TreeProgram, arithmetic: Any, rows: Rows | Problem) -> Answer:
    schedule = schedule_for(program, rows.tables)
    with np.errstate(all="ignore"):
        return sum_product(schedule, arithmetic, rows.nu, rows.full_tables)


def pairs_of_counts(tree: CountTree | TreeProgram) -> float:
    """Pairs of child counts over all merges: the cost of a direct pass. A single set needs no program to tell."""
    if isinstance(tree, CountTree) and tree.components.whole:
        return 0.5 * tree.n_variables * (tree.n_variables + 1.0)
    program = tree.program if isinstance(tree, CountTree) else tree
    size = program.size.astype(np.float64) + 1.0
    return float((size[program.left] * size[program.right]).sum())


def announced(program: TreeProgram, times: int, price: float, what: str, work: Callable[[], T]) -> T:
    """The answer of work over all pairs of counts; if it takes long, a warning says so before."""
    if program.n_leaves > thresholds.SHORT_PASS:
        announce(times * pairs_of_counts(program), price, what)
    return work()


def without_cancellation(
    problem: Problem, found: Answer, leaves: Float64, constant: Any
) -> tuple[Float64, Float64]:
    """``log_mean + leaves``, or where this loses digits that the contract wants the same under a tilt, or from weights.

    ``leaves`` is `constant` plus the sum of ``log(1 + e^nu)``. The second answer bounds what has been lost.
    """
    log_mean = found.log_mean
    total = log_mean + leaves
    if len(total) == 1 and type(constant) is float:  # the usual case, kept short
        small = abs(float(log_mean[0])) + abs(float(leaves[0]) - constant) + abs(constant) + problem.folded
        if small <= thresholds.LOG_NORM / _ROUNDED:
            return np.asarray(total), np.array([_ROUNDED * max(small - abs(float(total[0])), 0.0)])
    with np.errstate(invalid="ignore"):
        size = np.abs(log_mean) + np.abs(leaves - constant) + np.abs(constant) + problem.folded
        cancelled = np.maximum(size - np.abs(total), 0.0)
    doubt = np.where(np.isfinite(total), _ROUNDED * cancelled, 0.0)
    lost = doubt > thresholds.LOG_NORM * (1.0 + np.abs(total))
    if not (lost[0] if len(lost) == 1 else lost.any()):
        return np.asarray(total), doubt
    rows, pairs = np.flatnonzero(lost), pairs_of_counts(problem.tree)
    if pairs * len(rows) > thresholds.SHORT_WALK and problem.log_leaves is None:
        better, left = _log_norm_anew(problem.take(rows), found.take(rows))
        better, left = better + np.broadcast_to(constant, total.shape)[rows], left + _ROUNDED * problem.folded
        gained = left < doubt[rows]
        total[rows], doubt[rows] = np.where(gained, better, total[rows]), np.where(gained, left, doubt[rows])
        rows = rows[doubt[rows] > thresholds.LOG_NORM * (1.0 + np.abs(total[rows]))]
    if not len(rows) or pairs * len(rows) > thresholds.LARGEST_WALK:
        return np.asarray(total), doubt
    program = problem.tree.program
    with np.errstate(all="ignore"):
        values = ForestValues(without_edges(program, problem.nu[rows], problem.full_tables[rows]), Wide())
        values.upward()
        total[rows] = values.log_z(np.broadcast_to(constant, total.shape)[rows, None])
    # Every mantissa is rounded when it is multiplied, and tables were when they were added to others.
    doubt[rows] = _ROUNDED * (program.n_leaves + problem.folded)
    return np.asarray(total), doubt


def _log_norm_anew(problem: Problem, found: Answer) -> tuple[Float64, Float64]:
    """Log Z without its constant, and what it has lost, (B,) each.

    That of a single set is the sum over its stretches of possible counts, for no tilt serves two of them. A stretch
    that leaves one configuration, all off or all on, needs none.
    """
    if not problem.tree.components.whole:
        return _log_norm_under_tilt(problem, found)
    nu, tables, cut = problem.nu, problem.full_tables, list(map(flat.stretches, problem.full_tables))
    owner = np.repeat(np.arange(len(cut)), [len(ends) for ends in cut])
    total, lost, rest = np.zeros(len(owner)), np.zeros(len(owner)), []
    for i, (b, (start, stop)) in enumerate(zip(owner.tolist(), itertools.chain(*cut))):
        if stop - start > 1 or 0 < start < nu.shape[1]:
            rest.append((i, flat.within(tables[b], start, stop)))
        elif (nu[b].min() if start else -nu[b].max()) == -math.inf:
            total[i] = -math.inf
        else:
            free = nu[b] if abs(nu[b].sum()) < math.inf else nu[b][np.isfinite(nu[b])]
            total[i] = tables[b, start] + (accurate_sum(free) if start else 0.0)
    if rest:
        left = [i for i, _ in rest]
        several = Problem(problem.tree, nu[owner[left]], np.stack([table for _, table in rest]))
        known = found if len(owner) == len(cut) == len(left) else infer(several, cavities=False)
        total[left], lost[left] = _log_norm_under_tilt(several, known)
    first = np.searchsorted(owner, np.arange(len(cut)))
    return np.logaddexp.reduceat(total, first), np.maximum.reduceat(lost, first)


def _log_norm_under_tilt(problem: Problem, found: Answer) -> tuple[Float64, Float64]:
    """The same from log-odds that agree with the posterior.

    With ``nu' = nu + s + d``, d the rounding, and ``f'(c) = f(c) - s (c - c0)`` for the outermost sets,
    ``log Z = log Z' - s c0 - E[d . y]``; the log-odds in it are summed with their rounding errors before anything else.
    """
    nu, program = problem.nu, None if problem.tree.components.whole else problem.tree.program
    shift, tables, away = retilt.at_messages(program, nu, problem.full_tables, found.messages)
    finite = np.isfinite(nu)
    free = nu if finite.all() else np.where(finite, nu, 0.0)
    tilted, rounded = add_exactly(free, shift)
    if free is not nu:
        tilted = np.where(finite, tilted, nu)
    solved = infer(Problem(problem.tree, tilted, tables), cavities=False)
    on, likely = tilted > 0.0, native.posterior_marginals(tilted, solved.messages)
    near = softplus_sum(-np.abs(tilted))
    moved = away(on) + ((likely - on) * rounded).sum(1)
    total = (solved.log_mean + near) + (moved + accurate_sum(free * on))
    scatter = np.abs(away(likely)) + np.abs(shift).max(1, initial=0.0) * np.sqrt(
        (likely * (1.0 - likely)).sum(1)
    )
    possible = solved.log_mean > -math.inf
    lost = _ROUNDED * (np.abs(solved.log_mean) + near + np.abs(moved) + scatter)
    return np.where(possible, total, -math.inf), np.where(possible, lost, 0.0)


def schedule_for(program: TreeProgram, tables: Float64) -> Schedule:
    """Schedule with messages cut at the largest counts that the tables allow."""
    possible = np.any(tables > -math.inf, axis=0)
    position = np.arange(len(possible)) - np.repeat(program.set_offset[:-1], np.diff(program.set_offset))
    highest = np.maximum.reduceat(np.where(possible, position, 0), program.set_offset[:-1])
    if np.array_equal(highest, program.size[program.set_node]):
        return full_schedule(program)
    capped = once(program, "capped schedules", lambda: lru(_SCHEDULES)(partial(_capped_schedule, program)))
    return capped(highest.tobytes())


def _capped_schedule(program: TreeProgram, highest: bytes) -> Schedule:
    return build_schedule(program, count_caps(program, np.frombuffer(highest, np.int64)))


# -- count distributions -------------------------------------------------------------------------------------------


def root_log_beliefs(problem: Problem, set_id: int) -> Float64 | None:
    """Log-probabilities of the counts of one set that is in no other, (B, n + 1), of small models side by side.

    None where these are not the quickest.
    """
    program = problem.tree.program
    node = int(program.set_node[set_id])
    small = len(problem) >= thresholds.SIDE_BY_SIDE and program.n_leaves <= thresholds.COUNTED_IN_LANES
    if not (native.present() and small) or program.parent[node] >= 0:
        return None
    found, certain = native.root_counts(program, problem.nu, problem.tables, node)
    rest = np.flatnonzero(~certain)
    if len(rest):
        cells = slice(*program.set_offset[set_id : set_id + 2].tolist())
        part = problem.take(rest)
        found[rest] = program_log_beliefs(program, part.nu, part.tables)[:, cells]
    return found


def program_log_beliefs(program: TreeProgram, nu: Float64, tables: Float64) -> Float64:
    """Posterior log-probabilities of the counts of all sets, packed like the tables, accurate into the tails."""
    return np.asarray(program_beliefs(program, nu, tables, messages=False).log_beliefs)


def program_beliefs(program: TreeProgram, nu: Float64, tables: Float64, *, messages: bool = True) -> Answer:
    """The answer of one pass on a binary tree, with its messages if these are wanted."""
    if nu.shape[0] == 0:
        nothing = np.zeros(0)
        return Answer(nothing, np.zeros(nu.shape), np.zeros((0, program.table_total)), nothing)
    if not native.present():
        schedule = schedule_for(program, tables)
        rows = Rows(nu, tables).full_tables
        with np.errstate(all="ignore"):
            answer = sum_product(schedule, Direct(), nu, rows, beliefs=True)
            if not np.all(answer.bound <= TOLERANCE) or _tails_lost(answer.log_beliefs):
                answer = sum_product(schedule, LogSpace(), nu, rows, beliefs=True)
        return answer
    return native.tree_pass(program, nu, tables, "wide", beliefs=True, messages=messages)


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
