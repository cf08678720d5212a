"""The law of a sum of events by a tree of merges, and what a function of the sum says about every event.

Nodes of about equal length lie side by side in arrays (B, R, L): B rows of a batch, R nodes, L cells from ``start`` on.
Upwards, neighbours are convolved; downwards, with ``g`` the message to a node and ``u_l, u_r`` its children's laws,

    g_l(i) = sum_j g(i + j) u_r(j),    g_r(j) = sum_i g(i + j) u_l(i),

and the message to an event is ``E[f | outcome]`` at the value of each outcome: all leave-one-out sums in one pass.

Three kinds of numbers. `PLAIN` and `LOGS` add positive terms, so every entry keeps its relative accuracy; logarithms
have unlimited range. `WINDOWS` is for long sums under a tilt: nodes up to `DIRECT` cells are plain, longer ones are
merged by FFT on a window of cells. The window comes from Chernoff's bound: the log of the moment generating function
at a few arguments is added from node to node, and outside the window lies less than ``exp(-KEPT)``, given any outcome
of any event in the node. The error of an FFT is relative to the norms of its factors; it is summed in `error` (1-norms,
independent roundings by their squares) for certificates: see `sums.py`. Where few events are expected, almost all mass
of a node is in one cell. That entry is taken out, and with ``u = a [m] + v``, [m] being the law of the cell m,

    u_l * u_r = a_l [m_l] * u_r + a_r [m_r] * v_l + v_l * v_r,

so that only ``v_l * v_r`` has an error, which is relative to the probabilities that anything else happens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from ...arrays import Float64, Ints
from ..law import log_convolve
from ..log_sums import anchor, log_sum
from ..maximize.convolve import convolve_batch, correlate_batch
from .events import Events

DIRECT = 33  # cells up to which plain sums beat a transform
KEPT = 44.0  # nats: the mass outside a window is below exp(-44) = 8e-20
# Error of a transformed product in the Euclidean norm, in units of sqrt(log2 N) u |a|_2 |b|_1: 0.1 to 0.85 was seen
# (smooth, rough, sparse and spread laws, N from 64 to 8192). One entry has that over sqrt(N); up to 5 times it.
_NOISE, _PEAK = 1.25, 8.0
_UNIT = 2.0**-53
_FEW = 32.0  # expected departures from the likeliest outcomes, below which nodes have a peak worth taking out
_CACHE = 1 << 15  # entries that stay near the processor
_GROUP = 1 << 22  # entries of one working array of a draw

PLAIN, LOGS, WINDOWS = "plain", "logs", "windows"


@dataclass(eq=False)
class Node:
    """Nodes side by side: their laws (B, R, L), first cells (B, R) and records of errors (B, R)."""

    law: Float64
    start: Ints
    error: Float64  # squares of 1-norms
    rare: Float64  # -log of the rarest outcome below
    degree: Ints  # (R,): the largest value
    peak_error: Float64  # bound on the error of one entry
    bounds: Float64 | None = None  # (B, R, J) log moment generating functions
    message: Any = None  # downwards (B, R, L), and a bound on its error (B, R)
    noise: Any = None

    @property
    def length(self) -> int:
        return int(self.law.shape[2])

    def part(self, rows: slice) -> Node:
        """Some of the nodes."""
        bounds = None if self.bounds is None else self.bounds[:, rows]
        record = self.start[:, rows], self.error[:, rows], self.rare[:, rows], self.degree[rows]
        return Node(self.law[:, rows], *record, self.peak_error[:, rows], bounds)

    def sides(self) -> tuple[Node, Node]:
        """The left and the right ones of pairs."""
        return self.part(slice(0, None, 2)), self.part(slice(1, None, 2))


@dataclass(eq=False)
class Step:
    """How a node was made of others: leaves, a part, several joined, or pairs merged."""

    out: Node
    parts: list[Node] = field(default_factory=list)
    leaves: Ints | None = None
    rows: slice | None = None
    spectra: Any = None
    size: int = 0
    peaks: Peaks | None = None


class Peaks(NamedTuple):
    """Entries (B, R) that hold most of the mass of their nodes, or 0, their cells, and the laws without them."""

    size: Float64
    cell: Ints
    rest: Float64

    def side(self, k: int) -> Peaks:
        """Those of the left or the right children."""
        return Peaks(self.size[:, k::2], self.cell[:, k::2], self.rest[:, k::2])

    def places(self, length: int, cycle: int) -> Ints:
        """Where cells from 0 on are when moved by the peaks, (B, R, length) on a cycle."""
        return np.asarray((self.cell[..., None] + np.arange(length)) % cycle)

    def add_moved(self, law: Float64, other: Float64) -> None:
        """Add the other child's laws (B, R, L), moved by the peaks and times them, to `law` (B, R, N) on a cycle."""
        length, part = other.shape[2], self.size[..., None] * other
        if not self.cell.any():
            law[..., :length] += part
            return
        at = self.places(length, law.shape[2])
        np.put_along_axis(law, at, np.take_along_axis(law, at, axis=2) + part, axis=2)

    def message(self, given: Float64, length: int) -> Float64:
        """What a message (B, R, N) on a cycle says about the first `length` cells of the other child, by the peaks."""
        return np.asarray(
            self.size[..., None] * np.take_along_axis(given, self.places(length, given.shape[2]), axis=2)
        )


class SumTree:
    """The upward pass over events (their probabilities under a tilt), and from it messages and draws."""

    def __init__(self, events: Events, numbers: str, *, keep: bool = True, cap: int | None = None) -> None:
        self.events, self.numbers = events, numbers
        self._keep, self._cap = keep, cap
        self._zero = -math.inf if numbers == LOGS else 0.0
        self._leaf_law = events.log_p if numbers == LOGS else np.exp(events.log_p)
        self._steps: list[Step] = []
        self._kept, self._rare = KEPT, False
        if numbers == WINDOWS:
            number = events.departures()
            least = float(number.min(initial=math.inf, where=number > 0.0))
            self._kept, self._rare = KEPT - 2.0 * math.log(min(least, 1.0)), least < _FEW
            deviation = math.sqrt(max(float(events.moments()[1].max(initial=0.0)), 1.0))
            slowest = min(2.0 / deviation, 3.0 / max(float(events.values.max(initial=1)), 1.0))
            count = max(3, math.ceil(math.log(3.0 / slowest) / math.log(3.0)) + 2)
            up = 3.0 ** np.arange(count) * slowest
            self._arguments = np.concatenate([up[up < 4.0], -up[up < 4.0]])
        self.lost = 2.0 * math.exp(-self._kept)  # mass outside windows
        self.root = self._grow()

    # -- upwards -----------------------------------------------------------------------------------------------

    def _grow(self) -> Node:
        degrees = self.events.values.max(axis=1, initial=0)
        order = np.argsort(degrees, kind="stable")
        kinds = np.ceil(np.log2(np.maximum(degrees[order], 1))).astype(np.int64)  # as in `_bucket`
        waiting: dict[int, list[Node]] = {}
        for kind in np.unique(kinds).tolist():
            waiting[kind] = [self._leaves(order[kinds == kind])]
        while True:
            kind = min(waiting)
            node = self._joined(waiting.pop(kind))
            count = node.law.shape[1]
            if count == 1:
                if not waiting:
                    return node
                waiting[min(waiting)].append(node)
                continue
            if count % 2:
                last = self._part(node, slice(count - 1, count))
                waiting.setdefault(kind + 1, []).append(last)
                node = self._part(node, slice(0, count - 1))
            merged = self._merged(node)
            waiting.setdefault(max(_bucket(merged.length - 1), kind), []).append(merged)

    def _record(self, step: Step) -> Node:
        if self._keep:
            self._steps.append(step)
        return step.out

    def _leaves(self, which: Ints) -> Node:
        values, laws = self.events.values[which], self._leaf_law[:, which]
        batch, count, outcomes = laws.shape
        length = int(values.max(initial=0)) + 1
        if self._cap is not None:
            length = min(length, self._cap + 1)
        law = np.full((batch, count, length), self._zero)
        rows = np.arange(count)
        for o in range(outcomes):
            inside = values[:, o] < length
            at = (slice(None), rows[inside], values[inside, o])
            law[at] = (
                np.logaddexp(law[at], laws[:, inside, o])
                if self.numbers == LOGS
                else law[at] + laws[:, inside, o]
            )
        log_p = self.events.log_p[:, which]
        rare = np.where(log_p > -math.inf, -log_p, 0.0).max(axis=2)
        flat = np.zeros((batch, count))
        node = Node(law, np.zeros((batch, count), np.int64), flat, rare, values.max(axis=1), flat)
        if self.numbers == WINDOWS and length > DIRECT:
            raised = log_p[..., None] + self._arguments * values[..., None]
            node.bounds = log_sum(raised, axis=2)
        return self._record(Step(node, leaves=which))

    def _part(self, node: Node, rows: slice) -> Node:
        return self._record(Step(node.part(rows), [node], rows=rows))

    def _joined(self, nodes: list[Node]) -> Node:
        if len(nodes) == 1:
            return nodes[0]
        length = max(node.length for node in nodes)
        if any(node.bounds is not None for node in nodes):
            for node in nodes:
                self._bound(node)
        parts = [
            (_padded(n.law, length, self._zero), n.start, n.error, n.rare, n.degree[None], n.peak_error)
            for n in nodes
        ]
        law, start, error, rare, degree, peak = (np.concatenate(each, axis=1) for each in zip(*parts))
        bounds = np.concatenate([n.bounds for n in nodes], axis=1) if nodes[0].bounds is not None else None
        return self._record(Step(Node(law, start, error, rare, degree[0], peak, bounds), nodes))

    def _bound(self, node: Node) -> Float64:
        """Log moment generating functions (B, R, J) of short nodes, from their laws."""
        if node.bounds is None:
            cells = np.exp(np.arange(node.length)[:, None] * self._arguments)
            with np.errstate(divide="ignore"):
                node.bounds = np.log(node.law @ cells) + node.start[..., None] * self._arguments
        return node.bounds

    def _merged(self, node: Node) -> Node:
        if self.numbers == WINDOWS and node.length > DIRECT:
            return self._transformed(node)
        a, b = node.sides()
        degree = a.degree + b.degree
        law = _log_convolved(a.law, b.law) if self.numbers == LOGS else _convolved(a.law, b.law)
        length = int(degree.max(initial=0)) + 1
        if self._cap is not None:
            length = min(length, self._cap + 1)
        record = a.start + b.start, a.error + b.error, np.maximum(a.rare, b.rare), degree
        bounds = None if a.bounds is None or b.bounds is None else a.bounds + b.bounds
        out = Node(law[..., :length], *record, a.peak_error + b.peak_error, bounds)
        return self._record(Step(out, [node]))

    def _transformed(self, node: Node) -> Node:
        """Merge by FFT, cyclically: what wraps around comes from outside of the window."""
        bounds = self._bound(node)
        bounds = bounds[:, 0::2] + bounds[:, 1::2]
        a, b = node.sides()
        start, rare, full = a.start + b.start, np.maximum(a.rare, b.rare), 2 * node.length - 1
        first, last = self._window(bounds, start, full, rare)
        length = int((last - first).max(initial=0)) + 1
        size = next_fast_len(max(length, node.length), True)
        if size >= full:
            size = next_fast_len(full, True)
        length = min(length, full)
        first = np.minimum(first, start + full - length)
        top = node.law.max(axis=2)
        peaks = self._peaks(node, top)
        rest = node.law if peaks is None else peaks.rest
        spectra = rfft(rest, size, axis=2)
        law = np.maximum(irfft(spectra[:, 0::2] * spectra[:, 1::2], size, axis=2), 0.0)
        if peaks is not None:
            peaks.side(0).add_moved(law, b.law)
            peaks.side(1).add_moved(law, rest[:, 0::2])
        offset = first - start
        if offset.any():
            law = np.take_along_axis(law, (offset[..., None] + np.arange(length)) % size, axis=2)
        law = law[..., :length]
        norms, mass = np.sqrt(np.einsum("brl,brl->br", rest, rest)), rest.sum(axis=2)
        noise = np.minimum(norms[:, 0::2] * mass[:, 1::2], norms[:, 1::2] * mass[:, 0::2])
        noise = _noise_of(size) * noise
        # an error spreads over the other law, or keeps its own largest entry
        spread = np.minimum(np.sqrt(a.error) * top[:, 1::2], a.peak_error)
        spread = spread + np.minimum(np.sqrt(b.error) * top[:, 0::2], b.peak_error)
        error = a.error + b.error + (noise * math.sqrt(size) + self.lost) ** 2
        peak_error = spread + noise * _at_peak(size) + self.lost
        out = Node(law, first, error, rare, a.degree + b.degree, peak_error, bounds)
        kept = spectra if self._keep else None
        return self._record(Step(out, [node], spectra=kept, size=size, peaks=peaks))

    def _peaks(self, node: Node, top: Float64) -> Peaks | None:
        size = np.where(top > 0.5, top, 0.0)
        if not (self._rare and size.any()):
            return None
        cell, rest = node.law.argmax(axis=2), np.array(node.law)
        np.put_along_axis(rest, cell[..., None], np.where(size > 0.0, 0.0, top)[..., None], axis=2)
        return Peaks(size, cell, rest)

    def _window(self, bounds: Float64, start: Ints, full: int, rare: Float64) -> tuple[Ints, Ints]:
        x = self._arguments
        reach = (bounds + (self._kept + rare)[..., None]) / x
        far = float(2**60)
        high = np.where(x > 0, reach, far).min(axis=2, initial=far)
        low = np.where(x < 0, reach, -far).max(axis=2, initial=-far)
        last = np.minimum(np.floor(high), start + full - 1).astype(np.int64)
        first = np.maximum(np.ceil(low), start).astype(np.int64)
        return np.minimum(first, last), np.maximum(first, last)

    # -- downwards ---------------------------------------------------------------------------------------------

    def outcome_messages(self, weight: Float64) -> tuple[Float64, Float64]:
        """``E[f | outcome]`` (B, n, O) for f (B, L) at the cells of the root, and bounds (B, n) on its error.

        In logarithms both f and the messages are logarithms, and there is no error.
        """
        batch, n, outcomes = self.events.log_p.shape
        found, noise = np.full((batch, n, outcomes), self._zero), np.zeros((batch, n))
        self.root.message, self.root.noise = weight[:, None, :], np.zeros((batch, 1))
        for step in reversed(self._steps):
            out = step.out
            if step.leaves is not None:
                values = np.broadcast_to(self.events.values[step.leaves], (batch, len(step.leaves), outcomes))
                found[:, step.leaves] = np.take_along_axis(out.message, values, axis=2)
                noise[:, step.leaves] = out.noise
            elif step.rows is not None:
                self._to_part(step)
            elif len(step.parts) > 1:
                at = 0
                for part in step.parts:
                    stop = at + part.law.shape[1]
                    part.message = out.message[:, at:stop, : part.length]
                    part.noise = out.noise[:, at:stop]
                    at = stop
            else:
                self._to_pairs(step)
            out.message = None
        return found, noise

    def _to_part(self, step: Step) -> None:
        whole, out = step.parts[0], step.out
        if whole.message is None:
            whole.message = np.full(whole.law.shape, self._zero)
            whole.noise = np.zeros(whole.start.shape)
        whole.message[:, step.rows] = out.message
        whole.noise[:, step.rows] = out.noise

    def _to_pairs(self, step: Step) -> None:
        node, out = step.parts[0], step.out
        left, right = node.sides()
        message, noise = np.empty(node.law.shape), np.repeat(out.noise, 2, axis=1)
        if step.spectra is None:
            whole = _padded(out.message, 2 * node.length - 1, self._zero)
            correlated = _log_correlated if self.numbers == LOGS else _correlated
            message[:, 0::2], message[:, 1::2] = correlated(whole, right.law), correlated(whole, left.law)
        else:
            offset = out.start - left.start - right.start
            given = out.message
            if offset.any():
                given = np.zeros((*out.start.shape, step.size))
                np.put_along_axis(
                    given, (offset[..., None] + np.arange(out.length)) % step.size, out.message, axis=2
                )
            spectrum = rfft(given, step.size, axis=2)
            mass = np.ones(node.start.shape) if step.peaks is None else step.peaks.rest.sum(axis=2)
            norm = np.sqrt(np.einsum("brl,brl->br", out.message, out.message))
            rounding = _noise_of(step.size) * norm * _at_peak(step.size)
            top, total = out.message.max(axis=2), out.message.sum(axis=2)
            for k, other in ((0, right), (1, left)):
                back = irfft(spectrum * step.spectra[:, 1 - k :: 2].conj(), step.size, axis=2)
                message[:, k::2] = np.maximum(back[..., : node.length], 0.0)
                if step.peaks is not None:
                    cycle = _padded(given, step.size, 0.0)
                    message[:, k::2] += step.peaks.side(1 - k).message(cycle, node.length)
                theirs = np.minimum(top * (np.sqrt(other.error) + self.lost), total * other.peak_error)
                noise[:, k::2] += rounding * mass[:, 1 - k :: 2] + theirs
        node.message, node.noise = message, noise

    # -- draws -------------------------------------------------------------------------------------------------

    def draw(self, totals: Ints, rng: np.random.Generator) -> Ints:
        """Outcomes (S, B, n) of all events given their sums (S, B); -1 where rounding has left no outcome."""
        count, (batch, n) = len(totals), self.events.log_p.shape[:2]
        found = np.full((count, batch, n), -1, np.int64)
        at: dict[int, Ints] = {id(self.root): totals[:, :, None]}
        for step in reversed(self._steps):
            if step.rows is not None:
                whole = step.parts[0]
                if id(whole) not in at:
                    at[id(whole)] = np.zeros((count, *whole.start.shape), np.int64)
                at[id(whole)][:, :, step.rows] = at.pop(id(step.out))
                continue
            given = at.pop(id(step.out))
            if step.leaves is not None:
                found[:, :, step.leaves] = self._draw_outcomes(step.leaves, given, rng)
            elif len(step.parts) > 1:
                stops = np.cumsum([part.law.shape[1] for part in step.parts])[:-1]
                for part, piece in zip(step.parts, np.split(given, stops, axis=2)):
                    at[id(part)] = piece
            else:
                at[id(step.parts[0])] = self._draw_pairs(step.parts[0], given, rng)
        return found

    def _draw_pairs(self, node: Node, total: Ints, rng: np.random.Generator) -> Ints:
        """Values of all nodes (S, B, R) from the sums of pairs: ``P(i) ~ u_l(i) u_r(total - i)``."""
        count, batch, pairs = total.shape
        out = np.zeros((count, batch, 2 * pairs), np.int64)
        chunk = max(1, _GROUP // max(1, batch * pairs * node.length))
        left, right = node.sides()
        for k in range(0, count, chunk):
            some = total[k : k + chunk]
            place = (some - left.start - right.start)[..., None] - np.arange(node.length)
            inside = (place >= 0) & (place < node.length)
            other = np.take_along_axis(right.law[None], np.where(inside, place, 0), axis=3)
            weight = left.law + other if self.numbers == LOGS else left.law * other
            chosen = self._draw_index(np.where(inside, weight, self._zero), rng)
            out[k : k + chunk, :, 0::2] = left.start + chosen
            out[k : k + chunk, :, 1::2] = some - left.start - chosen
        return out

    def _draw_outcomes(self, leaves: Ints, total: Ints, rng: np.random.Generator) -> Ints:
        same = self.events.values[leaves] == total[..., None]
        weight = np.where(same, self._leaf_law[:, leaves], self._zero)
        chosen = self._draw_index(weight, rng)
        return np.where((weight > self._zero).any(axis=-1), chosen, -1)

    def _draw_index(self, weight: Float64, rng: np.random.Generator) -> Ints:
        """Indices along the last axis with probability proportional to the weights; never one of weight zero."""
        if self.numbers == LOGS:
            weight = np.exp(weight - anchor(weight))
        upto = np.cumsum(weight, axis=-1)
        threshold = rng.random(upto.shape[:-1]) * upto[..., -1]
        last = (upto < upto[..., -1:]).sum(axis=-1)
        return np.asarray(np.minimum((upto <= threshold[..., None]).sum(axis=-1), last))


def _noise_of(size: int) -> float:
    """Error of a transformed product in the Euclidean norm, in units of ``|a|_2 |b|_1``."""
    return _NOISE * _UNIT * math.sqrt(math.log2(size))


def _at_peak(size: int) -> float:
    """The share of that which one entry can have."""
    return min(1.0, _PEAK / math.sqrt(size))


def _bucket(degree: int) -> int:
    """Degrees up to 2^b share bucket b."""
    return max(degree - 1, 0).bit_length()


def _padded(law: Float64, length: int, zero: float) -> Float64:
    if law.shape[2] == length:
        return law
    out = np.full((*law.shape[:2], length), zero)
    out[..., : law.shape[2]] = law
    return out


def _convolved(a: Float64, b: Float64) -> Float64:
    """Convolutions along the last axis, of equal lengths."""
    length = a.shape[2]
    out = np.zeros((*a.shape[:2], 2 * length - 1))
    if a.shape[0] * a.shape[1] * 4 <= length:
        for at in np.ndindex(*a.shape[:2]):
            out[at] = np.convolve(a[at], b[at])
        return out
    for rows in _in_cache(a):
        x, y, z = a[:, rows], b[:, rows], out[:, rows]
        for j in range(length):
            z[..., j : j + length] += x[..., j : j + 1] * y
    return out


def _correlated(g: Float64, u: Float64) -> Float64:
    """``sum_j g(i + j) u(j)``."""
    length = u.shape[2]
    out = np.zeros(u.shape)
    if u.shape[0] * u.shape[1] * 4 <= length:
        for at in np.ndindex(*u.shape[:2]):
            out[at] = np.correlate(g[at], u[at], "valid")
        return out
    for rows in _in_cache(u):
        x, y, z = g[:, rows], u[:, rows], out[:, rows]
        for j in range(length):
            z += x[..., j : j + length] * y[..., j : j + 1]
    return out


def _in_cache(laws: Float64) -> list[slice]:
    """Nodes that a processor's cache holds."""
    batch, count, length = laws.shape
    room = max(1, _CACHE // max(1, batch * length))
    return [slice(k, k + room) for k in range(0, count, room)]


def _log_convolved(a: Float64, b: Float64) -> Float64:
    length = a.shape[2]
    if length <= DIRECT:
        return convolve_batch(a, b, np.logaddexp)
    rows = [log_convolve(x, y, 0, 2 * length - 2) for x, y in zip(*(x.reshape(-1, length) for x in (a, b)))]
    return np.reshape(rows, (*a.shape[:2], 2 * length - 1))


def _log_correlated(g: Float64, u: Float64) -> Float64:
    length = u.shape[2]
    if length <= DIRECT:
        return correlate_batch(g, u, np.logaddexp)
    both = zip(g.reshape(-1, g.shape[2]), u.reshape(-1, length))
    return np.reshape([log_convolve(x, y[::-1], length - 1, 2 * length - 2) for x, y in both], u.shape)
