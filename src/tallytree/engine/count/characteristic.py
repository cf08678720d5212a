"""One potential over a block of variables, without a tree: the characteristic function from Chebyshev sums.

With x_i = tanh((nu_i + s) / 2), p_i = (1 + x_i) / 2, C_j = sum_i T_j(x_i) and t = tan(w / 4),

    log E e^(iwz) = n (i w / 2 + 2 log cos(w / 4)) - 2 sum_{j >= 1} (-i t)^j C_j / j .

Its size is at most exp(-var (1 - cos w)), so a few dozen frequencies carry everything once the variance is large, and
a few dozen sums C_j give them all. The answer needs the variables only twice, in two streaming passes: once for the
sums, once to evaluate the odds ratio r(x), a smooth function interpolated at a few Chebyshev nodes. Where the variance
is small, all frequencies matter: they come from a product over the variables, each of which sums over them itself.

``amp = sum |G_m| / Z`` is the cancellation in the final sum; the observed error of the odds stays below 4e-14 amp.
When amp is large the block is tilted to the posterior mean; if that does not help (several modes), the counts are
split into segments, whose joint masses add without cancellation.

Derivative of a standard model's posterior along a direction, from the characteristic function.

Along a direction v the log of the characteristic function moves by

    D(w) = sum_i v_i p_i q_i (e^(iw) - 1) / (q_i + p_i e^(iw)),

one sum over the variables per frequency. What a leaf hears moves by the same sum without its own term, so the
derivative of its log-odds is ``v_i + alpha(x_i) - v_i beta(x_i)`` with two smooth functions of x, interpolated like the
odds ratio itself. Cost O(n M), M the few dozen frequencies that matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from ...arrays import Float64
from ..answer import Answer
from ..arithmetic import UNIT_ROUNDOFF
from ..log_sums import log_sum, softplus
from ..tilt import Block, cumulant_change, posterior_rate, summarise


@np.errstate(all="ignore")
def flat_tangent(nu: Float64, log_f: Float64, direction: Any, table_direction: Float64) -> Any | None:
    """D posterior log-odds (n,) along a direction, or None where one window of counts does not do."""
    pieces = solve(nu, log_f)
    if pieces is None or len(pieces) != 1 or pieces[0].amp > MAX_AMP or pieces[0].ratio is not None:
        return None
    piece = pieces[0]
    x = np.tanh(0.5 * (nu + piece.tilt))
    moving = np.where(np.isfinite(nu), direction, 0.0)
    moved = _moved_product(piece, x, moving, table_direction)
    largest = max(np.abs(moving).max(), np.abs(table_direction[piece.band.first : piece.band.last + 1]).max())
    cancelled = float(np.abs(moved).sum() / (piece.band.law * piece.band.spectrum).real.sum())
    if ERROR_PER_AMP * cancelled > _TANGENT_ERROR * largest:
        return None
    alpha, beta = _functions(piece, moved)
    return direction + _series(x, alpha) - moving * _series(x, beta)


def _moved_product(piece: Piece, x: Float64, moving: Any, table_direction: Float64) -> NDArray[np.complex128]:
    """Derivative of law times spectrum, frequency by frequency."""
    band = piece.band
    weight = moving * (0.25 * (1.0 - x) * (1.0 + x))
    drift = np.zeros(len(band.omega), np.complex128)
    for m in range(1, len(band.omega)):
        cosine, sine = math.cos(band.omega[m]), math.sin(band.omega[m])
        # (e - 1) / (q + p e) = (e - 1) conj(q + p e) / |q + p e|^2
        real = 0.5 * ((1.0 - x) + (1.0 + x) * cosine)
        imaginary = 0.5 * (1.0 + x) * sine
        share = weight / (real * real + imaginary * imaginary)
        a, b = float((share * real).sum()), float((share * imaginary).sum())
        drift[m] = complex(cosine - 1.0, sine) * complex(a, -b)
    moved = band.law * band.spectrum * drift
    if np.any(table_direction):
        counts = np.arange(band.first, band.last + 1) - band.centre
        pushed = band.potential * table_direction[band.first : band.last + 1]
        moved = moved + band.law * potential_spectrum(pushed, counts, band.length, len(band.omega))
    return moved


def _functions(piece: Piece, moved: NDArray[np.complex128]) -> tuple[Float64, Float64]:
    """Chebyshev coefficients of alpha(x) (the others move) and beta(x) (the own term taken out)."""
    band = piece.band
    angles = node_angles(math.tan(float(band.omega[-1]) / 4.0)) if len(band.omega) > 1 else node_angles(0.01)
    p = 0.5 + 0.5 * np.cos(angles)
    turn = np.exp(1j * band.omega)
    reach = (1.0 - p)[:, None] + p[:, None] * turn
    product = band.law * band.spectrum

    def leave_one_out(values: NDArray[np.complex128]) -> tuple[Float64, Float64]:
        share = values / reach
        return (share * turn).real.sum(1), share.real.sum(1)

    on, off = leave_one_out(product)
    on_moved, off_moved = leave_one_out(moved)
    own = (p * (1.0 - p))[:, None] * (turn - 1.0) / reach
    on_own, off_own = ((product * own / reach) * turn).real.sum(1), (product * own / reach).real.sum(1)
    alpha = on_moved / on - off_moved / off
    beta = on_own / on - off_own / off
    return chebyshev_fit(alpha, angles), chebyshev_fit(beta, angles)


ERROR_PER_AMP = 1e-13
MAX_AMP = 1e3
# Of log-odds, relative to the direction: a quarter of it is what a deviation of 1/2 is promised
_TANGENT_ERROR = 2e-10
_OF_ITS_SIZE = 64.0 * UNIT_ROUNDOFF  # the rounding of log Z that is no part of its bound
_BUDGET = 56.0  # nats: mass outside the window and frequencies beyond the band are below e^-56
_NEGLIGIBLE = 32.0  # nats below the answer at which what the window leaves out does not count
_MAX_SUMS = 300
_LONGEST_BAND = 0.95 * math.pi  # beyond it the series in tan(w / 4) converges slowly
_MOST_FACTORS = 1 << 22  # variables times frequencies without a series
_MAX_SEGMENTS = 64
_DROPPED = (
    56.0  # nats below the best count at which a count is left out, by an estimate that is checked afterwards
)


@dataclass(frozen=True, eq=False)
class Band:
    """Frequencies of one window of counts ``first..last``; the sum of ``law * spectrum`` is the (scaled) mass."""

    omega: Float64
    law: NDArray[np.complex128]
    spectrum: NDArray[np.complex128]
    first: int
    last: int
    centre: int
    length: int
    potential: Float64  # f on the window, scaled


@dataclass(frozen=True, eq=False)
class Piece:
    """The solution for one segment of counts: log mass, tilt, and Chebyshev coefficients of the odds ratio.

    ``ratio`` (n,) has the odds ratio of every variable itself, where there is no series.
    """

    log_mean: float
    tilt: float
    coefficients: Float64
    ratio: Any
    amp: float
    rounding: float  # of log_mean
    band: Band


@np.errstate(all="ignore")  # log 0 and inf - inf are meant; the certificate catches what matters
def solve_batch(nu: Float64, log_f: Float64) -> Answer:
    """Standard models (B, n) with tables (B, n + 1), one after the other; bound inf where nothing is certified."""
    log_means, messages, bounds = [], [], []
    for b in range(nu.shape[0]):
        log_mean, message, bound = combine(nu[b], solve(nu[b], log_f[b]))
        log_means.append(log_mean)
        messages.append(message)
        bounds.append(bound)
    return Answer(np.array(log_means), np.reshape(messages, nu.shape), None, np.array(bounds))


def solve(nu: Float64, log_f: Float64) -> list[Piece] | None:
    """Pieces whose sum is the answer, none for an impossible model, or None where the method does not apply."""
    plain = _solve_at(nu, log_f, 0.0, 0, len(log_f) - 1)
    if plain is not None and plain.amp <= MAX_AMP:
        return [plain]
    block = summarise(nu)
    if not np.any(log_f[block.forced : block.forced + block.n + 1] > -math.inf):
        return []
    if block.n == 0:
        return None
    log_mass, log_most = posterior_rate(block, log_f)
    best = log_mass.max()
    if best == -math.inf:
        return None
    alive = np.flatnonzero(log_mass > best - _DROPPED)
    waiting = [(int(alive[0]), int(alive[-1]))]
    pieces: list[Piece] = []
    while waiting:
        if len(waiting) + len(pieces) > _MAX_SEGMENTS:
            return None
        first, last = waiting.pop()
        inside = alive[(alive >= first) & (alive <= last)]
        if len(inside) == 0:
            continue
        first, last = int(inside[0]), int(inside[-1])
        piece = _tilted(nu, log_f, block, log_mass, first, last)
        if piece is not None and piece.amp <= MAX_AMP:
            pieces.append(piece)
        elif first == last:
            return None
        else:
            middle = _gap(inside)
            waiting += [(first, middle), (middle + 1, last)]
    dropped = log_most[log_mass <= best - _DROPPED]
    if len(dropped) and pieces:
        mass = logsumexp([piece.log_mean for piece in pieces]) + block.cumulants(0.0)[0]
        if logsumexp(dropped) > mass - _NEGLIGIBLE:
            return None
    return pieces


def _gap(counts: NDArray[np.int64]) -> int:
    """Where to cut: in the widest gap between live counts if there is one, else in the middle."""
    jumps = np.diff(counts)
    widest = int(np.argmax(jumps))
    return int(counts[widest]) if jumps[widest] > 1 else int(counts[0] + counts[-1]) // 2


def _tilted(
    nu: Float64, log_f: Float64, block: Block, log_mass: Float64, first: int, last: int
) -> Piece | None:
    """The segment under the tilt that puts the mean count at the segment's posterior mean."""
    weight = np.exp(log_mass[first : last + 1] - log_mass[first : last + 1].max())
    mean = float(weight @ np.arange(first, last + 1.0) / weight.sum())
    tilt = block.solve(min(max(mean, 0.05), block.n - 0.05))
    return _solve_at(nu, log_f, tilt, block.forced + first, block.forced + last)


def _solve_at(nu: Float64, log_f: Float64, tilt: float, first: int, last: int) -> Piece | None:
    """Counts ``first..last`` under one tilt; None if the series or the window does not work out."""
    n = nu.shape[0]
    x = np.tanh(0.5 * (nu + tilt))
    sums = _chebyshev_sums(x, 2)
    mean, var = 0.5 * (n + sums[1]), max(0.125 * (n - sums[2]), 0.0)
    if math.isnan(var):
        return None
    cosine = 1.0 - _BUDGET / var if var > 0.0 else -1.0
    cutoff = math.acos(cosine) if cosine > -1.0 else math.pi
    t_max = math.tan(min(cutoff, _LONGEST_BAND) / 4.0)
    n_sums = max(4, math.ceil(math.log(n * 1e17) / -math.log(t_max)) + 1) if n else 4
    series = cutoff <= _LONGEST_BAND and n_sums <= _MAX_SUMS
    radius = _BUDGET / 3.0 + math.sqrt(_BUDGET**2 / 9.0 + 2.0 * _BUDGET * var)
    low, high = max(0, math.floor(mean - radius)), min(n, math.ceil(mean + radius))
    length = high - low + 1
    if not series:
        # Rare states may live on counts that matter to nobody else: one window holds all of them.
        # An odd length: every fair variable has a characteristic function everywhere.
        low, high, length = 0, n, (n + 1) | 1
        possible = np.flatnonzero(log_f > -math.inf)
        if n * length > _MOST_FACTORS or np.any((possible < first) | (possible > last)):
            return None
    outside = _outside(log_f, tilt, first, last, low, high)
    first, last = max(low, first), min(high, last)
    if first > last:
        return None
    centre = round(mean)
    needed = min(length // 2, math.ceil(length * cutoff / (2.0 * math.pi)))
    omega = 2.0 * math.pi / length * np.arange(needed + 1)

    counts = np.arange(first, last + 1)
    log_g = log_f[first : last + 1] - tilt * counts
    top = log_g.max()
    if top == -math.inf:
        return None
    potential = np.exp(log_g - top)
    spectrum = potential_spectrum(potential, counts - centre, length, len(omega))
    factors: Any = None
    if series:
        law = np.exp(_log_characteristic(_chebyshev_sums(x, n_sums), n, omega, centre)) / length
    else:
        turned = np.exp(1j * omega)
        factors = expit(-(nu + tilt))[:, None] + expit(nu + tilt)[:, None] * turned
        law = factors.prod(0) * np.exp(-1j * omega * centre) / length
    law[1:] *= 2.0
    if 2 * (len(omega) - 1) == length:
        law[-1] *= 0.5
    product = law * spectrum
    mass = float(product.real.sum())
    if not mass > 0 or outside - _BUDGET > math.log(mass) + top - _NEGLIGIBLE:
        return None
    amp = float(np.abs(product).sum() / mass)
    coefficients, ratio = np.zeros(0), None
    if series:
        fitted = _odds_ratio(product, omega, t_max)
        if fitted is None:
            return None
        coefficients = fitted
    else:
        heard, amps = _leave_one_out(nu, product / factors, turned, counts[log_g > -math.inf])
        if not (heard >= 0.0).all():
            return None
        amp = max(amp, amps)
        ratio = heard[1] / heard[0]
    # log_mean is relative to the untilted law: add K(s) - K(0), and undo the scale of the table.
    change, near = (float(x.sum()) for x in cumulant_change(nu, tilt)) if tilt else (0.0, 0.0)
    band = Band(omega, law, spectrum, first, last, centre, length, potential)
    size = abs(math.log(mass)) + abs(float(top)) + abs(change) + abs(tilt) * last
    rounding = UNIT_ROUNDOFF * (8.0 * size + 2.0 * near)
    return Piece(math.log(mass) + float(top) + change, tilt, coefficients, ratio, amp, rounding, band)


def _outside(log_f: Float64, tilt: float, first: int, last: int, low: int, high: int) -> float:
    """Log of the potential's weight on counts ``first..last`` that lie outside the window ``low..high``."""
    counts = np.concatenate([np.arange(first, min(last + 1, low)), np.arange(max(first, high + 1), last + 1)])
    if len(counts) == 0:
        return -math.inf
    return float((log_f[counts] - tilt * counts).max()) + math.log(len(counts))


def _chebyshev_sums(x: Float64, count: int) -> Float64:
    """C_0..C_count by the three-term recurrence."""
    sums = [float(x.shape[0]), float(np.sum(x))]
    before, current, twice = np.ones_like(x), x, 2.0 * x
    for _ in range(2, count + 1):
        before, current = current, twice * current - before
        sums.append(float(np.sum(current)))
    return np.array(sums)


def _log_characteristic(sums: Float64, n: int, omega: Float64, centre: int) -> NDArray[np.complex128]:
    """Log E exp(i w (z - centre)); the j = 1 term joins the phase, where large numbers would cancel otherwise."""
    t = np.tan(omega / 4.0)
    z = -1j * t
    series = np.zeros(len(omega), np.complex128)
    for j in range(len(sums) - 1, 1, -1):
        series = z * (series + sums[j] / j)
    series = z * series
    phase = omega * (n / 2.0 - centre + sums[1] / 2.0) + (2.0 * t - omega / 2.0) * sums[1]
    return np.asarray(2.0 * n * np.log(np.cos(omega / 4.0)) - 2.0 * series + 1j * phase)


def potential_spectrum(
    f: Float64, shifted: NDArray[np.int64], length: int, wanted: int
) -> NDArray[np.complex128]:
    """``sum_k f(k) exp(-i w_m (k - centre))`` for the first frequencies of a window of this length."""
    folded = np.bincount(shifted % length, f, length)
    return np.asarray(np.fft.rfft(folded)[:wanted])


def _odds_ratio(product: NDArray[np.complex128], omega: Float64, t_max: float) -> Float64 | None:
    """Chebyshev coefficients of r(x) = d(1)/d(0), where d(y) is what the rest of the model says to a leaf."""
    angles = node_angles(t_max)
    p = 0.5 + 0.5 * np.cos(angles)
    turn = np.exp(1j * omega)
    share = product / ((1.0 - p)[:, None] + p[:, None] * turn)
    off, on = share.real.sum(1), (share * turn).real.sum(1)
    if not (np.all(off > 0) and np.all(on > 0)):
        return None
    return chebyshev_fit(on / off, angles)


def _leave_one_out(
    nu: Float64, share: NDArray[np.complex128], turn: NDArray[np.complex128], allowed: NDArray[np.int64]
) -> tuple[Float64, float]:
    """What the rest of the model says to every leaf, d(0) and d(1) (2, n), and the largest cancellation in one.

    0 where none of the allowed counts leaves the others a choice.
    """
    sums = np.stack([share.real.sum(1), (share * turn).real.sum(1)])
    forced = np.count_nonzero(nu == math.inf) - (nu == math.inf)
    free = np.count_nonzero(np.isfinite(nu)) - np.isfinite(nu)
    lowest = forced + np.arange(2)[:, None]
    possible = np.searchsorted(allowed, lowest + free, "right") > np.searchsorted(allowed, lowest)
    size = np.abs(share).sum(1)
    amps = np.where(possible, size / np.where(sums > 0.0, sums, np.nan), 0.0)
    return np.where(possible, sums, 0.0), float(np.nan_to_num(amps, nan=math.inf).max(initial=0.0))


def node_angles(t_max: float) -> Float64:
    """Interpolation nodes: the odds ratio's series in x converges like powers of ``t_max``."""
    count = min(96, max(8, math.ceil(40.0 / -math.log(t_max))))
    return np.asarray(math.pi * (np.arange(count) + 0.5) / count)


def chebyshev_fit(values: Float64, angles: Float64) -> Float64:
    """Coefficients of the interpolant through values at ``x = cos(angles)``, negligible ones dropped."""
    count = len(angles)
    coefficients = np.cos(np.outer(np.arange(count), angles)) @ values * (2.0 / count)
    coefficients[0] *= 0.5
    significant = np.flatnonzero(np.abs(coefficients) > 1e-17 * np.abs(coefficients).max())
    return np.asarray(coefficients[: significant[-1] + 1] if len(significant) else coefficients[:1])


def combine(nu: Float64, pieces: list[Piece] | None) -> tuple[float, Any, float]:
    """log_mean, leaf messages and error bound of a sum of pieces."""
    if pieces is None:
        return math.nan, np.zeros_like(nu), math.inf
    if not pieces:
        return -math.inf, np.zeros_like(nu), 0.0
    amp = max(piece.amp for piece in pieces)
    top = max(piece.log_mean for piece in pieces)
    weights = [math.exp(piece.log_mean - top) for piece in pieces]
    log_mean = top + math.log(sum(weights))
    bound, rounding = ERROR_PER_AMP * (1.0 + amp), max(piece.rounding for piece in pieces)
    messages = [piece.tilt + np.log(_evaluate(nu, piece)) for piece in pieces]
    if len(pieces) == 1:  # messages know nothing of log_mean, nor any other method a better one
        return log_mean, messages[0], bound + max(rounding - _OF_ITS_SIZE * abs(log_mean), 0.0)
    bound += 2.0 * rounding
    # Shares of the segments in the state that a variable prefers by itself, and in the other one times e^|nu|: large
    # log-odds are in both and never cancel. Messages say the same, seen from there.
    sign = np.where(nu > 0.0, 1.0, -1.0)
    heard, own = sign * np.stack(messages), np.abs(nu)
    odds, log_share = own + heard, np.array([[piece.log_mean - top] for piece in pieces])
    with_it = log_sum(log_share - softplus(-odds), 0)
    against = log_sum(log_share + np.where(odds > 0.0, -softplus(-odds) - heard, own - softplus(odds)), 0)
    sizes = np.abs(with_it) + np.abs(against)
    rounded = np.where(np.isfinite(sizes), sizes, 0.0).max(initial=0.0)
    return log_mean, sign * (with_it - against), bound + 4.0 * UNIT_ROUNDOFF * (1.0 + rounded)


def _evaluate(nu: Float64, piece: Piece) -> Float64:
    """r(x) at the leaves."""
    if piece.ratio is not None:
        return np.asarray(piece.ratio)
    return _series(np.tanh(0.5 * (nu + piece.tilt)), piece.coefficients)


def _series(x: Float64, coefficients: Float64) -> Float64:
    """Value of a Chebyshev series."""
    return np.asarray(np.polynomial.chebyshev.chebval(x, coefficients))
