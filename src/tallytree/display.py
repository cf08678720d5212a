"""What notebooks show: small inline SVG in colours that are readable on light and dark pages, and never an error.

Notebooks show an object without being asked to, so no display starts work that can be felt: every kind of model has a
size, in the unit that its cost grows with, up to which it is solved for a picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Float64, Ints
from .errors import TallyTreeError

MOST_VARIABLES = 4096  # of count models: milliseconds
MOST_WITH_EDGES = 1024  # strong couplings take 1.4 s of processor time at 4096
MOST_CHAIN_STEPS = 1 << 19  # largest count times labels cubed; 2^21 take 0.2 s
MOST_GRID_STEPS = 1 << 20  # variables times points of the grid of a linear model
MOST_CELLS = 1 << 20  # of a matrix, read for a picture
MOST_BARS = 64  # beyond it variables are not shown one by one, and values of a sum are put together
_MOST_LINES = 1024  # between variables and groups
_MOST_TABLES = 4  # distributions of groups that are shown side by side
_MOST_POTENTIALS = 1024  # of a batch
_MOST_POINTS = 256  # of a line
_SIZES = (8, 16, 32, 64)  # of the group that a potential is shown for, if it does not say one

BLUE, ORANGE = "#5b8fd6", "#d9822b"  # both show on white and on black
_WIDTH, _HEIGHT = 320, 64


# -- the frame


def page(text: str, pictures: Iterable[str] = ()) -> str:
    """The text of an object, and pictures below it."""
    return f'<div><code>{escape(text)}</code><div style="margin-top:0.5em">{"".join(pictures)}</div></div>'


def _page_of(pictures: Callable[..., Iterable[str]]) -> Callable[..., str]:
    """Turn a function that yields pictures of an object into its page; an object without answers says why."""

    @wraps(pictures)
    def shown(thing: object, *arguments: Any) -> str:
        try:
            return page(repr(thing), pictures(thing, *arguments))
        except TallyTreeError as error:
            return page(f"{thing!r}: {error}")

    return shown


def figure(inside: str, width: int, height: int, title: str, more: str = "") -> str:
    """A picture with its title above; a narrow page makes it smaller."""
    return (
        '<figure style="display:inline-block;margin:0 1.5em 0 0;max-width:100%;vertical-align:top">'
        '<figcaption style="font-size:smaller;font-weight:normal;text-align:start;color:inherit;margin:0 0 3px">'
        f"{escape(title + more)}</figcaption>"
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" style="max-width:100%" role="img" '
        f'aria-label="{escape(title)}">{inside}</svg></figure>'
    )


def _on_a_line(inside: str, ends: Iterable[tuple[float, str, object]], title: str, more: str) -> str:
    """A picture above a line, below which there is text: its place, its side and what it says."""
    foot = f'<line x1="0" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}" stroke="currentColor" stroke-opacity="0.5"/>'
    below = "".join(
        f'<text x="{x:.1f}" y="{_HEIGHT + 14}" text-anchor="{side}" font-size="11" fill="currentColor">'
        f"{escape(str(label))}</text>"
        for x, side, label in ends
    )
    return figure(inside + foot + below, _WIDTH, _HEIGHT + 18, title, more)


# -- bars


def bars(heights: Float64, labels: Sequence[object], title: str) -> str:
    """Bars with the first and the last label below them; text takes the colour of the page."""
    n = len(heights)
    top = max(float(np.max(heights, initial=0.0)), 1e-300)
    step = _WIDTH / max(n, 1)
    parts = []
    for i, (height, label) in enumerate(zip(heights.tolist(), labels)):
        tall = _HEIGHT * height / top
        parts.append(
            f'<rect x="{i * step + 0.1 * step:.1f}" y="{_HEIGHT - tall:.1f}" width="{0.8 * step:.1f}" '
            f'height="{tall:.1f}" fill="{BLUE}"><title>{escape(str(label))}: {height:.4g}</title></rect>'
        )
    ends: list[tuple[float, str, object]] = [(0.5 * step, "middle", label) for label in labels[:1]]
    if n > 1 and step >= 11 * max(len(str(labels[0])), len(str(labels[-1]))):
        ends.append((_WIDTH - 0.5 * step, "middle", labels[-1]))
    elif n > 1:  # long labels stand inside the picture
        ends = [(0.0, "start", labels[0]), (_WIDTH, "end", labels[-1])]
    return _on_a_line("".join(parts), ends, title, f" (highest {top:.3g})" if n else "")


def bars_of_variables(probabilities: Any, title: str) -> str:
    """Bars of the probabilities (D,) of a few variables; nothing of none and of many."""
    values = np.asarray(probabilities, np.float64)
    return bars(values, range(len(values)), title) if 0 < len(values) <= MOST_BARS else ""


def _added_bars(heights: Float64, labels: Sequence[object], title: str, what: str) -> str:
    """Bars that add: those beyond the most that can be shown are put together, as many to every bar."""
    width = -(-len(heights) // MOST_BARS)
    if width <= 1:
        return bars(heights, labels, title)
    starts = np.arange(0, len(heights), width)
    ends = np.minimum(starts + width, len(heights)) - 1
    together = [f"{labels[i]}..{labels[j]}" for i, j in zip(starts.tolist(), ends.tolist())]
    return bars(np.add.reduceat(heights, starts), together, f"{title}, {width} {what} to a bar")


def _distribution(mass: Any, values: Sequence[object] | None, title: str) -> str:
    """Bars of a distribution where it can be seen, at its values, or 0, 1, 2, ..."""
    mass = np.asarray(mass, np.float64)
    seen = np.flatnonzero(mass > 1e-3 * np.max(mass, initial=0.0))
    if not len(seen):
        return ""
    shown = slice(int(seen[0]), int(seen[-1]) + 1)
    return _added_bars(mass[shown], (range(len(mass)) if values is None else values)[shown], title, "values")


def _law(log_probs: Any, title: str = "P(count)", values: Sequence[object] | None = None) -> str:
    return _distribution(np.exp(np.asarray(log_probs, np.float64)), values, title)


# -- heat maps: the stronger the colour, the larger the number

_MOST_ROWS, _MOST_COLUMNS = 32, 64  # of the picture; larger matrices are averaged over blocks
_TALLEST, _WIDEST = 160.0, 20.0
_LEVELS = 16  # of the colour: cells of one level are one path, which keeps the text short


def heat(matrix: Any, title: str) -> str:
    """Rows (..., n) of numbers, or a sparse matrix; nothing of an empty one and of one too large for a picture."""
    if hasattr(matrix, "tocoo"):
        found = matrix.tocoo()
        return heat_of_cells(found.row, found.col, np.asarray(found.data, np.float64), found.shape, title)
    dense = np.asarray(matrix, np.float64)
    if not 0 < dense.size <= MOST_CELLS:
        return ""
    dense = dense.reshape(-1, dense.shape[-1])
    row, column = (index.ravel() for index in np.indices(dense.shape))
    return heat_of_cells(row, column, dense.ravel(), dense.shape, title)


def heat_of_cells(
    row: NDArray[Any], column: NDArray[Any], values: Float64, shape: tuple[int, ...], title: str
) -> str:
    """The same of listed cells; the others stay blank."""
    if not 0 < values.size <= MOST_CELLS:
        return ""
    rows, columns = min(shape[0], _MOST_ROWS), min(shape[1], _MOST_COLUMNS)
    block = (row * rows // shape[0]) * columns + column * columns // shape[1]
    total = np.bincount(block, values, minlength=rows * columns)
    number = np.bincount(block, minlength=rows * columns)
    means = (total / np.maximum(number, 1)).reshape(rows, columns)
    if (rows, columns) != tuple(shape):
        title += ", averaged over blocks"
    wide = min(_WIDTH / columns, _WIDEST)
    tall = min(_TALLEST / rows, wide)
    width, height = wide * columns, tall * rows
    top = float(means.max())
    level = np.ceil(_LEVELS * means / top).astype(int) if top > 0.0 else np.zeros(means.shape, int)
    paths = "".join(_cells(level == strength, strength / _LEVELS) for strength in range(1, _LEVELS + 1))
    cells = f'<g transform="scale({wide:g} {tall:g})" fill="{BLUE}">{paths}</g>'
    frame = (
        f'<rect x="0.5" y="0.5" width="{width:.1f}" height="{height:.1f}" fill="none" '
        'stroke="currentColor" stroke-opacity="0.5"/>'
    )
    size = int(np.ceil(width)) + 1, int(np.ceil(height)) + 1
    return figure(cells + frame, *size, title, f" (strongest {top:.3g})")


def _cells(chosen: NDArray[np.bool_], opacity: float) -> str:
    """Cells of one level as one path, a run of neighbours in a row as one rectangle."""
    if not chosen.any():
        return ""
    ends = np.diff(chosen.astype(np.int8), axis=1, prepend=0, append=0)
    (row, start), (_, stop) = np.nonzero(ends == 1), np.nonzero(ends == -1)
    runs = zip(row.tolist(), start.tolist(), (stop - start).tolist())
    path = "".join(f"M{j} {i}h{n}v1h-{n}z" for i, j, n in runs)
    return f'<path d="{path}" fill-opacity="{opacity:.2f}"/>'


def _variables(marginals: Any, title: str = "P(variable is on)", one: str = "model") -> str:
    """Bars of one model, a heat map of a batch."""
    if np.ndim(marginals) == 1:
        return bars_of_variables(marginals, title)
    return heat(marginals, f"{title}, one {one} to a row")


# -- lines: numbers of a run, and groups above and edges below the variables


def _trace(values: Any, title: str, *, logarithmic: bool = False) -> str:
    """A line through at least two finite numbers; on a logarithmic axis through those above zero."""
    numbers = np.asarray([] if values is None else values, np.float64)
    at = np.flatnonzero(np.isfinite(numbers) & ((numbers > 0.0) if logarithmic else True))
    if len(at) < 2:
        return ""
    at = at[np.unique(np.linspace(0, len(at) - 1, min(len(at), _MOST_POINTS)).astype(int))]
    heights = np.log10(numbers[at]) if logarithmic else numbers[at]
    low, high = float(heights.min()), float(heights.max())
    # Halves, because the difference of two large numbers of opposite sign may be out of range.
    share = (heights / 2 - low / 2) / (high / 2 - low / 2) if high > low else np.full(len(at), 0.5)
    x = 3.0 + (_WIDTH - 6.0) * at / max(len(numbers) - 1, 1)
    y = _HEIGHT - 3.0 - (_HEIGHT - 6.0) * share
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist()))
    line = f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>'
    span = f" ({numbers[at[0]]:.5g} to {numbers[at[-1]]:.5g}{', logarithmic' * logarithmic})"
    return _on_a_line(line, [(0.0, "start", 1), (_WIDTH, "end", len(numbers))], title, span)


LINKS_WIDTH, LINKS_EDGE = 480, 8.0
_ABOVE, _BELOW = 70.0, 46.0


def places(n: int) -> Float64:
    """Where n things stand in a row of a picture."""
    return np.asarray(LINKS_EDGE + (np.arange(n) + 0.5) * (LINKS_WIDTH - 2 * LINKS_EDGE) / n)


def dot(x: float, y: float, title: str) -> str:
    """A group."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{BLUE}"><title>{escape(title)}</title></circle>'


def squares(place: Float64, y: float, size: int) -> str:
    """The variables, in a row."""
    return "".join(
        f'<rect x="{x - size / 2:.1f}" y="{y - size / 2:.1f}" width="{size}" height="{size}" fill="{ORANGE}">'
        f"<title>variable {v}</title></rect>"
        for v, x in enumerate(place.tolist())
    )


def _links(n: int, groups: Sequence[tuple[Ints, str]], pairs: Ints, log_tables: Any, title: str) -> str:
    """Variables in a row, groups above and edges below them; nothing where it would be too dense to be read."""
    lines = sum(len(members) for members, _ in groups) + len(pairs)
    if not 0 < n <= MOST_BARS or len(groups) > MOST_BARS or not 0 < lines <= _MOST_LINES:
        return ""
    place, foot = places(n), _ABOVE if groups else LINKS_EDGE
    middle = [float(place[members].mean()) if len(members) else 0.0 for members, _ in groups]
    path, dots, arcs = "", "", ""
    for x, g in zip(places(max(len(groups), 1)).tolist(), np.argsort(middle, kind="stable").tolist()):
        members, note = groups[g]
        path += "".join(f"M{x:.1f} {LINKS_EDGE:g}L{end:.1f} {foot:g}" for end in place[members].tolist())
        plural = "s" * (len(members) != 1)
        dots += dot(x, LINKS_EDGE, f"group {g}: {len(members)} variable{plural}, {note}")
    for (i, j), note in zip(pairs.tolist(), _log_odds_ratios(log_tables)):
        a, b = sorted((float(place[i]), float(place[j])))
        deep = foot + 10.0 + 2.0 * (_BELOW - 14.0) * (b - a) / LINKS_WIDTH
        arcs += (
            f'<path d="M{a:.1f} {foot:g}Q{(a + b) / 2:.1f} {deep:.1f} {b:.1f} {foot:g}" fill="none" '
            f'stroke="currentColor" stroke-opacity="0.6"><title>edge {i} - {j}{note}</title></path>'
        )
    if path:
        path = f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="0.35"/>'
    height = int(foot + (_BELOW if len(pairs) else LINKS_EDGE))
    return figure(path + dots + arcs + squares(place, foot, 6), LINKS_WIDTH, height, title)


def _log_odds_ratios(tables: Any) -> list[str]:
    """What tables (E, 2, 2) say in one number each, as text; nothing where an entry is infinite."""
    values = np.asarray(tables, np.float64)
    if values.ndim != 3:
        return [""] * int(values.shape[-3])
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = (values[:, 1, 1] - values[:, 0, 1]) + (values[:, 0, 0] - values[:, 1, 0])
    return [f": log-odds ratio {r:.4g}" if math.isfinite(r) else "" for r in ratio.tolist()]


# -- pages of models: answers of those that are solved at once, the structure of the others


@_page_of
def model_page(model: Any) -> Iterator[str]:
    """A count model: marginals and counts, of a batch the marginals of all its models."""
    most = MOST_VARIABLES if model.edges is None else MOST_WITH_EDGES
    if 0 < math.prod(model.batch_shape) * model.n_variables <= most:
        yield _variables(model.marginals)
        if not model.batch_shape:
            yield _law(model.count_log_probs())
        if model.edges is not None:
            yield _edges(model.edges, model.n_variables)


@_page_of
def chain_page(model: Any, largest: int) -> Iterator[str]:
    """A chain of labels: its counts, up to `largest`, and the probabilities of its labels at every position."""
    steps = math.prod(model.batch_shape) * max(largest, model.n_positions) * model.n_labels**3
    if 0 < steps <= MOST_CHAIN_STEPS:
        if model.n_labels == 2:
            yield _variables(model.marginals[..., 1], "P(label 1)", "chain")
        elif not model.batch_shape:
            yield heat(model.marginals.T, "P(label), one label to a row")
        if not model.batch_shape:
            yield _law(model.count_log_probs())


@_page_of
def linear_page(model: Any) -> Iterator[str]:
    """A linear model: marginals, and the distribution of the linear combination."""
    if 0 < math.prod(model.batch_shape) * model.n_variables * len(model.values) <= MOST_GRID_STEPS:
        yield _variables(model.marginals)
        if not model.batch_shape:
            yield _law(model.sum_log_probs, "P(sum)", [f"{v:g}" for v in model.values.tolist()])


@_page_of
def thinned_page(model: Any) -> Iterator[str]:
    """A thinned model: who is on, and who acts, with the leak in the last place."""
    if 0 < math.prod(model.batch_shape) * model.n_variables <= MOST_VARIABLES:
        yield _variables(model.marginals)
        yield _variables(model.acting.marginals, "P(variable acts)")


@_page_of
def ragged_page(models: Any) -> Iterator[str]:
    """Models of different sizes: one to a row, and how large they are."""
    sizes = models.sizes
    if 0 < int(sizes.sum()) <= MOST_VARIABLES:
        matrix = np.zeros((len(sizes), int(sizes.max())))
        for row, found in zip(matrix, models.marginals):
            row[: len(found)] = found
        yield _variables(matrix)
        yield _distribution(np.bincount(sizes), None, "models by size")


@_page_of
def sum_page(law: Any, n_values: int) -> Iterator[str]:
    """The distribution of a sum, of a batch one to a row; `n_values` says how many values there are without a table."""
    if 0 < math.prod((*law.batch_shape, n_values)) <= MOST_VARIABLES:
        if law.batch_shape:
            yield heat(np.exp(law.count_log_probs), "P(X = k), one distribution to a row")
        else:
            yield _law(law.count_log_probs, "P(X = k)", law.values.tolist())


def chunks_page(text: str, sizes: Sequence[int]) -> str:
    """Something in chunks: how long they are."""
    lengths = np.asarray(sizes, np.float64)
    chunks = _added_bars(lengths, range(len(lengths)), "numbers by chunk", "chunks") if len(lengths) else ""
    return page(text, [chunks])


@_page_of
def graph_page(graph: Any) -> Iterator[str]:
    """A factor graph: which variables its factors hold. No answers, because it has no exact ones."""
    if graph.n_variables <= MOST_VARIABLES and graph.n_groups <= MOST_VARIABLES:
        groups = [(np.asarray(g.members), _short(g.potential)) for g in graph.groups]
        yield _links(graph.n_variables, groups, graph.pairs, graph.pair_tables, "factor graph")


def _short(value: object) -> str:
    """The text of a potential, in one line."""
    text = "a table" if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@_page_of
def forest_page(forest: Any) -> Iterator[str]:
    """Edges as arcs between variables."""
    yield _edges(forest, forest.largest + 1)


def _edges(forest: Any, n: int) -> str:
    return _links(n, [], forest.pairs, forest.log_tables, "edges") if n <= MOST_BARS else ""


# -- pages of results


def _said(caution: str) -> str:
    return f'<p style="margin:0 0 0.5em">{escape(caution)}</p>' if caution else ""


@_page_of
def marginals_page(result: Any, changes: Any = None, caution: str = "") -> Iterator[str]:
    """A result about single variables, what speaks against it, and the changes of every sweep where they are known."""
    yield _said(caution)
    exact = getattr(result, "method", "") == "exact"
    yield bars_of_variables(result.marginals, "P(variable is on)" + ("" if exact else ", approximate"))
    yield _trace(changes, "change of a sweep", logarithmic=True)


@_page_of
def mode_page(result: Any) -> Iterator[str]:
    """One configuration."""
    yield bars_of_variables(result.mode, "the configuration")


@_page_of
def matrix_page(
    result: Any, matrix: Any, title: str, changes: Any = None, caution: str = ""
) -> Iterator[str]:
    """A result about the rows of a matrix, with what a page of marginals has."""
    yield _said(caution)
    yield heat(matrix, title)
    yield _trace(changes, "change of a sweep", logarithmic=True)


def fit_page(fit: Any, **facts: object) -> str:
    """A fit: how it ended, the parameters of its potentials, and the objective of every step."""
    named = {"log_likelihood": f"{fit.log_likelihood:.6g}", **facts}
    named |= {name: f"{value:.6g}" for name, value in fit.parameters.items()}
    state = "converged" if fit.converged else "not converged"
    text = ", ".join([state, *(f"{name}={value}" for name, value in named.items())])
    return page(f"{type(fit).__name__}({text})", [_trace(fit.history, "objective")])


@_page_of
def statistics_page(result: Any) -> Iterator[str]:
    """Expected statistics: marginals, and the counts of the first groups."""
    if np.size(result.logits):
        yield _variables(result.logits)
    for g, table in enumerate(result.tables[:_MOST_TABLES]):
        if np.ndim(table) == 1:
            yield _distribution(table, None, f"P(count of group {g})")


# -- pages of potentials: the function, relative to its largest value


def potential_page(potential: Any, size: int | None = None) -> str:
    """A potential, for a group of the size that it has or of the first size at which its peak is seen."""
    return page(repr(potential), [_potential(potential, _SIZES if size is None else (size,))])


def group_page(group: Any, potential: Any) -> str:
    """A group: its potential for as many variables as it has."""
    members = group.members
    if members is None or isinstance(members, slice):  # as many as the model has
        return page(repr(group), [_potential(potential, _SIZES)])
    try:
        listed = np.asarray(members)
    except ValueError:  # rows of different lengths: the model will refuse them
        return page(repr(group))
    size = int(listed.sum()) if listed.dtype == bool else listed.size
    return page(repr(group), [_potential(potential, (size,))] if size <= MOST_BARS else [])


def _potential(potential: Any, sizes: tuple[int, ...]) -> str:
    log_f = np.zeros(0)
    if np.prod(potential.batch_shape, dtype=float) > _MOST_POTENTIALS:
        return ""
    for n in sizes:
        try:
            log_f = np.asarray(potential.log_table(n), np.float64)
        except Exception:  # it needs another size; a function of the user says so in its own words
            continue
        if bool((np.argmax(log_f, axis=-1) < n).all()):
            break
    if not log_f.size or log_f.shape[-1] > MOST_BARS + 1:
        return ""
    top = log_f.max(axis=-1, keepdims=True)
    relative = np.exp(log_f - np.where(np.isneginf(top), 0.0, top))
    n = log_f.shape[-1] - 1
    title = f"f(count) / largest, {n} variable{'s' * (n != 1)}"
    return (
        heat(relative, f"{title}, one potential to a row")
        if log_f.ndim > 1
        else bars(relative, range(n + 1), title)
    )
