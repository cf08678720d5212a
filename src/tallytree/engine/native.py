"""The compiled engine: the only callers of the extension, with the threads and the instruction set in force."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .. import config
from ..arrays import Float64, Ints
from ..memo import once
from ..structure.nested.tree import TreeProgram
from .answer import Answer, posterior
from .problem import ForestProblem, Problem, Rows
from .thresholds import MIXTURE_TERMS


def present() -> bool:
    """Whether the compiled engine is in use."""
    return config.native() is not None


def _extension() -> Any:
    return config.settings().native


def _call(verb: str, *arguments: Any) -> Any:
    """Call a function of the extension with the threads and the instruction set in force."""
    now = config.settings()
    return getattr(now.native, verb)(*arguments, now.threads, now.level)


# -- arrays --------------------------------------------------------------------------------------------------------


def copies(arrays: Sequence[Float64]) -> tuple[list[Float64], list[tuple[float, float]]]:
    """Copies, and the smallest and largest number of each; NaN if there is one."""
    contiguous = [np.ascontiguousarray(a) for a in arrays]
    made, extremes = _call("copies", contiguous)
    return made, extremes


def softplus_sums(nu: Float64) -> Float64:
    """``sum_d log(1 + e^nu_d)`` of every row."""
    return np.asarray(_call("softplus_sums", np.ascontiguousarray(nu)))


def posterior_marginals(nu: Float64, messages: Float64) -> Float64:
    """P(y = 1) from log-odds and messages, also without the compiled engine."""
    if not present():
        return np.asarray(expit(posterior(nu, messages)))
    return np.asarray(_call("posterior_marginals", nu, messages))


# -- one potential over all variables ------------------------------------------------------------------------------


def flat(rows: Rows | Problem, cavities: bool = True) -> Answer:
    """Standard models, of one table each."""
    found = _call("flat_solve", rows.nu, rows.tables, cavities)
    return _flat_answer(found, found.counts)


def open_logits(nu: Float64, tables: Float64) -> Float64:
    """Log-odds (B, 2) between which variables are not decided; see :mod:`~tallytree.engine.count.flat`."""
    return np.asarray(_call("flat_open_logits", np.ascontiguousarray(nu), np.ascontiguousarray(tables)))


def closed_form(nu: Float64, coefficients: Float64, rates: Float64) -> Answer:
    """Standard models (B, n) with the potential ``sum_j coefficients[j] rates[j]^c``."""
    return _flat_answer(_call("flat_solve_powers", nu, coefficients, rates))


def has_closed_form(coefficients: NDArray[Any], rates: NDArray[Any]) -> bool:
    """Whether the compiled closed form serves this mixture; the solver serves the others as well."""
    if len(rates) > MIXTURE_TERMS or coefficients.dtype != np.float64 or rates.dtype != np.float64:
        return False
    return bool(np.all(np.isfinite(coefficients) & np.isfinite(rates) & (rates >= -1.0)))


def _flat_answer(found: Any, counts: Any = None) -> Answer:
    t = found.totals()
    return Answer(t[0], found.messages, None, t[2], marginals=found.marginals, counts=counts, softplus=t[1])


def chain(nu: Float64, tables: Float64) -> Answer:
    """Standard models (B, n) with tables (1 or B, n + 1), along the chain of partial sums."""
    messages, totals = _call("chain", np.ascontiguousarray(nu), np.ascontiguousarray(tables))
    return Answer(totals[0], messages, None, totals[1])


def max_plus(a: Float64, b: Float64, start: int, width: int) -> Float64:
    """``max_i a[i] + b[start + t - i]`` for t < width, row by row of (R, m) and (R, n)."""
    made = [np.ascontiguousarray(x, np.float64) for x in (a, b)]
    return np.asarray(_call("max_plus", *made, start, width))


def frontier_forward(
    before: Float64, exponent: int, steps: Any, weight: Float64, *, maxima: bool = False
) -> tuple[Float64, float, float]:
    """The states of a frontier times 2^exponent after some steps, the largest and the smallest that is positive.

    With `maxima` numbers are logarithms.
    """
    found = _call("frontier_forward", before, exponent, maxima, steps.new_size, *steps.layout, weight)
    return found[0], found[1], found[2]


def frontier_backward(
    up: Float64, up_exponent: int, after: Float64, down_exponent: int, steps: Any, weight: Float64
) -> tuple[Float64, Float64, float, float]:
    """Derivatives in the states before some steps and in the weights of their moves, and extremes as above."""
    found = _call("frontier_backward", up, up_exponent, after, down_exponent, *steps.layout, weight)
    return found[0], found[1], found[2], found[3]


def flat_log_pmf(nu: Float64) -> Float64:
    """Log P(z = k) of every row and every k."""
    return np.asarray(_call("flat_log_pmf", np.ascontiguousarray(nu)))


# -- the same in chunks: see :mod:`~tallytree.engine.count.chunks` ---------------------------------------------------

Known = Sequence[tuple[Any, Any]]  # requests and what they came to


def flat_reduce(nu: NDArray[Any], requests: Sequence[Any]) -> tuple[int, int, int, list[Any]]:
    """Numbers of log-odds that are -inf, +inf and NaN, and what every request comes to for the others."""
    found: tuple[int, int, int, list[Any]] = _call("flat_reduce", nu, requests)
    return found


def flat_solve_sums(n: int, known: Known, table: Any) -> tuple[list[Any], Float64 | None]:
    """The requests that are missing, or the solution in numbers."""
    found: tuple[list[Any], Float64 | None] = _extension().flat_solve_sums(n, known, table, config.level())
    return found


def flat_solve_power_sums(
    n: int, known: Known, coefficients: Float64, rates: Float64
) -> tuple[list[Any], Float64 | None]:
    """The requests that are missing, or the solution in numbers, for a potential that is a sum of powers."""
    found: tuple[list[Any], Float64 | None] = _extension().flat_solve_power_sums(
        n, known, coefficients, rates, config.level()
    )
    return found


def flat_count_law(n: int, known: Known, tilt: float, normed: bool) -> tuple[list[Any], Any]:
    """The requests that are missing, or the law of the count under a tilt; see cpp/bind/flat.cpp."""
    found: tuple[list[Any], Any] = _extension().flat_count_law(n, known, tilt, normed, config.level())
    return found


def flat_map(solution: Float64, nu: NDArray[Any], out: NDArray[Any], marginals: bool) -> None:
    """Posterior log-odds or marginals of a chunk."""
    _call("flat_map", solution, nu, out, marginals)


# -- binary trees --------------------------------------------------------------------------------------------------


def _plan(program: TreeProgram) -> Any:
    """Analysis of the tree, FFT plans and memory outlive a call: they belong to the tree they serve."""
    return once(
        program,
        "native plan",
        lambda: _extension().TreePlan(
            program.left, program.right, program.table_offset, program.n_leaves, program.table_total
        ),
    )


def has_waves(program: TreeProgram) -> bool:
    """Whether parts of the tree can be solved by characteristic functions."""
    return bool(_plan(program).has_waves())


def tree_pass(
    program: TreeProgram,
    nu: Float64,
    tables: Float64,
    kind: str,
    *,
    tilt: Float64 | None = None,
    centre: Float64 | None = None,
    beliefs: bool = False,
    messages: bool = True,
    cavities: bool = True,
) -> Answer:
    """Both passes over a tree: `kind` is "direct", "fft", "waves" or "wide".

    A tilt (B,) is added to the log-odds and, times ``count - centre``, taken from the tables of the roots; the answer
    is that of the model without it.
    """
    doubt = np.empty(len(nu))
    found = _plan(program).tree_pass(
        nu, tables, tilt, kind, beliefs, messages, cavities, config.threads(), config.level(), doubt, centre
    )
    log_mean, sent, log_beliefs, bound = found
    if kind != "wide":
        # Zero may be an impossible model or an underflow; only per-entry exponents can tell.
        bound[log_mean == -math.inf] = math.inf
    return Answer(log_mean, sent, log_beliefs, bound, doubt=doubt)


def draw_small(
    program: TreeProgram, nu: Float64, tables: Float64, key: NDArray[np.uint32], out: NDArray[np.uint8] | None
) -> Float64:
    """Samples of small models into `out` (count, B, n), if given, and what underflow took of their weight, (B,).

    A share of infinity means that there are no samples.
    """
    plan, nu, tables = _plan(program), np.ascontiguousarray(nu), np.ascontiguousarray(tables)
    return np.asarray(plan.draw(nu, tables, key, out, config.threads(), config.level()))


def draw_given_count(nu: Float64, count: int, key: NDArray[np.uint32], out: NDArray[np.uint8]) -> bool:
    """One configuration of variables of finite log-odds, given how many are on; False if that is not to be had."""
    return bool(_call("draw_given_count", np.ascontiguousarray(nu), count, key, out))


def small_beliefs(program: TreeProgram, nu: Float64, tables: Float64) -> tuple[Float64, Float64]:
    """P(count) of every set of small models, packed (B, T), and a bound (B,), inf for models without an answer."""
    found = _plan(program).beliefs(nu, tables, config.threads(), config.level())
    return np.asarray(found[0]), np.asarray(found[1])


def root_counts(
    program: TreeProgram, nu: Float64, tables: Float64, node: int
) -> tuple[Float64, NDArray[np.bool_]]:
    """Log-probabilities of the counts of a root of small models, (B, counts), and which rows are right."""
    plan, nu, tables = _plan(program), np.ascontiguousarray(nu), np.ascontiguousarray(tables)
    log_probs, certain = plan.root_counts(nu, tables, node, config.threads(), config.level())
    return np.asarray(log_probs), np.asarray(certain)


# -- forests -------------------------------------------------------------------------------------------------------


def cluster_pass(
    problem: ForestProblem, edge_top: Float64, table_top: Float64, keep: float, fourier: bool
) -> Any:
    """Both passes over a program of clusters; see :mod:`~tallytree.engine.forest.ladder`."""
    return _plain_pass(problem, edge_top, table_top, keep, fourier, None, None)[:-1]


def cluster_tangent(
    problem: ForestProblem, edge_top: Float64, table_top: Float64, keep: float, fourier: bool, *along: Float64
) -> Any:
    """Derivatives of messages (B, D, K), up to constants, of P(pair of states) (B, E, K, K) and of P(count) (B, T).

    Directions have the shapes of the first and the last. Then errors of the first, what may be missing from the
    derivative of any share of Z, and the noise of transforms in the values.
    """
    found = _plain_pass(problem, edge_top, table_top, keep, fourier, *map(np.ascontiguousarray, along))
    return found[1:7]


def _plain_pass(
    problem: ForestProblem, edge_top: Float64, table_top: Float64, keep: float, fourier: bool, *direction: Any
) -> Any:
    edges, tops = np.exp(problem.log_edge - edge_top), np.ascontiguousarray(edge_top[:, :, 0, 0])
    nothing = np.zeros((0, 0)), np.zeros(0, np.int32), np.zeros((0, 0, 0))
    return _over_clusters(
        "cluster_pass", problem, edges, tops, table_top, keep, int(fourier), *nothing, *direction
    )


def row_pass(problem: ForestProblem, tilts: Float64, uniform: Float64 | None = None) -> Any:
    """The same with an exponent for every count, under the powers of two next to `tilts` (B, n_sets).

    In the place of the noise is the power of two that belongs to Z. With `uniform` (B, S, clusters) samples (S, B, D).
    """
    edge_top = np.zeros(problem.log_edge.shape[:2])
    table_top = np.zeros((len(problem.tables), tilts.shape[1]))
    powers, top_set = np.rint(tilts / np.log(2.0)), np.ascontiguousarray(problem.top_set, np.int32)
    more = (0.0, 2, powers, top_set, np.zeros((0, 0, 0)) if uniform is None else uniform)
    *found, drawn = _over_clusters(
        "cluster_pass", problem, problem.log_edge, edge_top, table_top, *more, None, None
    )
    return (
        found if uniform is None else _as_int64(drawn).reshape(uniform.shape[1], *problem.log_leaf.shape[:2])
    )


def cluster_maxima(
    problem: ForestProblem, expected: Float64, bounded: bool, states: bool, counts: bool
) -> Any:
    """Best weights over a program of clusters; see :mod:`~tallytree.engine.forest.maxima`."""
    values, known, found, messages, by_count = _over_clusters(
        "cluster_maxima", problem, problem.log_edge, np.ascontiguousarray(expected), bounded, states, counts
    )
    return values, known, _as_int64(found), messages, by_count


def _over_clusters(verb: str, problem: ForestProblem, edges: Float64, *arguments: Any) -> Any:
    score = np.ascontiguousarray(problem.score, np.int32)
    numbers = map(np.ascontiguousarray, (problem.log_leaf, edges, problem.tables, problem.offset))
    return _call(verb, (*problem.program.compiled, score, *numbers), *arguments)


def forest_best(rooted: tuple[NDArray[Any], ...], log_leaf: Float64, log_edge: Float64) -> Any:
    """A best configuration of one rooted forest without counts, and its weight."""
    value, states = _extension().forest_best(rooted, log_leaf, log_edge)
    return value, _as_int64(states)


def _as_int64(states: NDArray[Any]) -> NDArray[np.int64]:
    """Integers of the extension as NumPy's own, which it takes for another type of the same size."""
    return states.view(np.int64)


def forest_means(
    rooted: tuple[NDArray[Any], ...], leaf: Float64, edges: Float64, everything: bool = False
) -> Any:
    """Belief propagation on a rooted forest: marginals, and with `everything` all other answers."""
    return _extension().forest_means(rooted, leaf, edges, everything)


def forest_gauge(rooted: tuple[NDArray[Any], ...], log_leaf: Float64, log_edge: Float64) -> Any:
    """Weights and edge tables with what children say moved into the weights, and what was moved."""
    return _extension().forest_gauge(rooted, log_leaf, log_edge)


# -- derivatives ---------------------------------------------------------------------------------------------------

Tangent = tuple[Float64, Float64, Float64, Float64]


def flat_tangent(nu: Float64, tables: Float64, v: Float64, h: Float64 | None, counts: bool) -> Tangent:
    """Derivatives of standard models along v (R, B, n) and h (R, B, n + 1).

    Those of the marginals, the counts themselves if R is 0, those of the counts, and a bound.
    """
    found: Tangent = _call("flat_tangent", nu, tables, v, h, counts)
    return found


def tree_tangent(
    program: TreeProgram,
    nu: Float64,
    tables: Float64,
    v: Float64,
    h: Float64 | None,
    counts: bool,
    direct: bool = False,
    size: float = 0.0,
) -> Tangent:
    """Derivatives on a tree along v (R, B, n) and h (R, B, T), packed like the tables; `direct` merges at any cost.

    `size` is the largest entry of a direction before a part that cancels was taken out.
    """
    found: Tangent = _call("tree_tangent", _plan(program), nu, tables, v, h, counts, direct, size)
    return found


def expectation_sums(nu: Float64, on: Float64, probs: Float64, tables: Float64, offset: Ints) -> Float64:
    """What an entropy is made of, (B, 8); see :func:`~tallytree.engine.count.moments.expectation_sums`."""
    return np.asarray(_extension().expectation_sums(nu, on, probs, tables, offset))
