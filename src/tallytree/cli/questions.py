"""From a table and arguments to a model: which numbers, which groups, which potentials."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Float64
from ..checks.sums import log_odds
from ..chunked import ChunkedCountModel
from ..chunked.groups import GroupPotentials
from ..chunked.source import quoted, require_column
from ..errors import InfeasibleError, TallyTreeError
from ..models.count import CountModel
from ..models.group import Group
from ..potentials import Potential, exactly, parse_potential, table
from .tables import Codes, InputProblem, InputTable, header_hint, place, read_table

LOGIT, PROB = "logit", "prob"
STEP = 1 << 20  # rows that are looked at together
_CLASHING = 6  # potentials that a message lists


@dataclass(frozen=True)
class Grouping:
    """A potential on the count of every group of a column."""

    column: str
    potential: Choice | PerGroup | Template
    said: str  # the argument, for messages

    def read(self, source: InputTable, labels: Codes) -> Grouping:
        """The same with what the rows of the table say about its groups."""
        given = self.potential
        if isinstance(given, Template):
            return replace(self, potential=given.per_group(source, self, labels))
        if isinstance(given, PerGroup):
            known = set(labels.values)
            strange = next((label for label in given.of if label not in known), None)
            if strange is not None:
                raise InputProblem(
                    f"{self.said}: no row of {source.path} has `{self.column}` = {strange}. Remove that group, or "
                    "correct its name."
                )
        return self

    def of(self, label: str) -> Any:
        """The potential of a group, or None."""
        return self.potential.of.get(label) if isinstance(self.potential, PerGroup) else self.potential


@dataclass(frozen=True, eq=False)
class CountTable:
    """Log-values of the counts 0, 1, ... read from a file; a smaller group uses the first of them."""

    path: str
    log_f: Float64

    def for_size(self, n: int) -> Potential:
        if len(self.log_f) <= n:
            raise InputProblem(
                f"{self.path} must list every count from 0 to {n}, the number of variables it is for; "
                f"it ends at {len(self.log_f) - 1}."
            )
        return table(self.log_f[: n + 1])

    def __str__(self) -> str:
        return f"table {self.path}"


Choice = Potential | CountTable


@dataclass(frozen=True, eq=False)
class PerGroup:
    """A potential for every group by its label; groups without one are free."""

    said: str
    of: dict[str, Potential]

    def __str__(self) -> str:
        return self.said


_COLUMN = re.compile(r"@([^:,]+)")


@dataclass(frozen=True)
class Template:
    """A potential whose numbers stand in columns: ``exactly:@positives``, each constant within every group."""

    text: str

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(_COLUMN.findall(self.text)))

    @property
    def example(self) -> str:
        """The same with a number in the place of every column."""
        return _COLUMN.sub("1", self.text)

    def per_group(self, source: InputTable, grouping: Grouping, labels: Codes) -> PerGroup:
        """The potentials of all groups, from the rows of a table."""
        found = {name: _of_groups(source, name, grouping, labels) for name in self.columns}
        of: dict[str, Potential] = {}
        for i, label in enumerate(labels.values):
            text = _COLUMN.sub(lambda match: f"{found[match[1]][i]:.17g}", self.text)  # noqa: B023 (used at once)
            of[label] = potential(text, f"{grouping.said}, group `{label}`")
        return PerGroup(self.text, of)


def _of_groups(source: InputTable, name: str, grouping: Grouping, labels: Codes) -> Float64:
    """The number of every group in a column that is constant within groups."""
    values = source.numbers(name)
    out = np.full(len(labels.values), np.nan)
    for start in range(0, len(values), STEP):
        codes, part = labels.codes[start : start + STEP], np.asarray(values[start : start + STEP])
        inside = np.flatnonzero(codes >= 0)
        fresh = inside[np.isnan(out[codes[inside]])][::-1]  # of several rows of a group the first one stays
        out[codes[fresh]] = part[fresh]
        stray = inside[out[codes[inside]] != part[inside]]
        if len(stray):
            at = int(stray[0])
            raise InputProblem(
                f"{place(source, start + at)}: column `{name}` must be the same in every row of a group of "
                f"`{grouping.column}`; `{labels.values[codes[at]]}` has {out[codes[at]]:g} and {part[at]:g}. "
                f"{grouping.said} takes one number per group."
            )
    return out


def group_counts_file(column: str, path: str) -> PerGroup:
    """Read a file with columns ``group`` (or the column's own name) and ``count``: how many of each group are on."""
    source, counts = _counts(path)
    key = column if column in source.names else "group"
    require_column(path, key, source.names)
    labels = source.codes(key)
    for rows, rule in ((labels.codes < 0, "is empty"), (_again(labels.codes), "is listed a second time")):
        if rows.any():
            raise InputProblem(
                f"{place(source, int(np.argmax(rows)))}: the group {rule}. Keep one row per group."
            )
    own = {labels.values[c]: exactly(int(k)) for c, k in zip(labels.codes.tolist(), counts.tolist())}
    return PerGroup(f"exactly its count in {path}", own)


def _counts(path: str) -> tuple[InputTable, Float64]:
    """A file with a column ``count``, and that column."""
    source = read_table(path)
    require_column(path, "count", source.names)
    counts = source.numbers("count")
    whole = (counts >= 0) & (counts == np.floor(counts)) & np.isfinite(counts)
    _refuse_rows(source, counts, ~whole, "`count` must be 0, 1, 2, ...; {:g} arrived.")
    return source, counts


def _again(codes: Any) -> Any:
    """Which entries are there a second time."""
    again = np.ones(len(codes), bool)
    again[np.unique(codes, return_index=True)[1]] = False
    return again


def potential(text: str, argument: str) -> Potential:
    """A potential from the command line, with the argument named in errors."""
    try:
        return parse_potential(text)
    except TallyTreeError as error:
        raise InputProblem(f"{argument}: {error}") from None


def count_table_file(path: str) -> CountTable:
    """Read a file with columns ``count`` and ``log_f`` or ``f``: every count once, in any order."""
    source, counts = _counts(path)
    present = [name for name in ("log_f", "f") if name in source.names]
    if len(present) != 1:
        what = (
            "both `log_f` and `f`; keep one"
            if present
            else f"neither `log_f` nor `f`, but {quoted(source.names)}"
        )
        raise InputProblem(
            f"{path} must have a column `log_f` (logarithms) or `f` beside `count`. It has {what}."
        )
    name = present[0]
    values = source.numbers(name)
    if name == "f":
        rule, wrong = "0 (impossible) or a positive number", (values < 0) | np.isinf(values)
    else:
        rule, wrong = "a number below inf, or -inf (impossible)", values == np.inf
    _refuse_rows(source, values, wrong, f"`{name}` must be {rule}; {{:g}} arrived.")
    order = np.argsort(counts, kind="stable")
    off = np.flatnonzero(counts[order] != np.arange(len(counts)))
    if len(off):
        row, expected = int(order[off[0]]), int(off[0])
        if counts[row] < expected:
            raise InputProblem(f"{place(source, row)}: count {int(counts[row])} is listed a second time.")
        nothing = "0" if name == "f" else "-inf"
        raise InputProblem(
            f"{path} must list every count from 0 on, but {expected} is missing. "
            f"Write `{name}` = {nothing} for an impossible count."
        )
    with np.errstate(divide="ignore"):
        return CountTable(path, np.log(values[order]) if name == "f" else values[order])


def number_column(path: str, names: Sequence[str], column: str | None, scale: str | None) -> tuple[str, str]:
    """Which column holds the numbers, and whether they are log-odds or probabilities."""
    if column is not None:
        require_column(path, column, names)
        if scale is None and column not in (LOGIT, PROB):
            raise InputProblem(
                f"what are the numbers in column `{column}`? Add --scale logit (log-odds) or --scale prob."
            )
        return column, scale or column
    if scale is not None:
        raise InputProblem("--scale says what the numbers of --column are. Add --column NAME.")
    present = [name for name in (LOGIT, PROB) if name in names]
    if len(present) == 2:
        raise InputProblem(
            f"{path} has both a `logit` and a `prob` column. Choose with --column logit or --column prob."
        )
    if not present:
        hint = header_hint(names) or " Name the column to use with --column NAME --scale logit or prob."
        raise InputProblem(
            f"{path} has neither a `logit` nor a `prob` column; its columns are {quoted(names)}.{hint}"
        )
    return present[0], present[0]


def given_numbers(source: InputTable, column: str, scale: str) -> Float64:
    """The numbers of the rows: log-odds, or probabilities between 0 and 1."""
    values: Float64 = source.numbers(column)
    for start in range(0, len(values) if scale == PROB else 0, STEP):
        part = values[start : start + STEP]
        rule = (
            f"column `{column}` must hold probabilities between 0 and 1; {{:g}} arrived. "
            f"For log-odds pass --column {column} --scale logit."
        )
        _refuse_rows(source, part, (part < 0) | (part > 1), rule, start)
    return values


def _refuse_rows(source: InputTable, values: Float64, wrong: Any, rule: str, first: int = 0) -> None:
    """Refuse the first of the rows that are wrong; `rule` says what was required, with a place for what arrived."""
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputProblem(f"{place(source, first + row)}: {rule.format(values[row])}")


@dataclass(frozen=True, eq=False)
class Question:
    """Rows of a table with their numbers, and potentials on the counts of all rows and of the groups of columns."""

    table: InputTable
    column: str
    scale: str
    numbers: Any
    totals: Sequence[Choice]
    groupings: Sequence[Grouping]
    codes: dict[str, Codes]

    def model(self, method: str) -> CountModel:
        """The model in memory: potentials of all rows, then of every group of every column."""
        refuse_crossing(self.table, self.codes)
        groups = [Group(None, sized(choice, len(self.numbers))) for choice in self.totals]
        for grouping in self.groupings:
            labels = self.codes[grouping.column]
            tables: dict[Any, Any] = {}
            for value, members in zip(labels.values, _members(labels)):
                key = (grouping.of(value), len(members))
                if key not in tables:
                    tables[key] = key[0] and sized(*key, f"{grouping.said}, group `{value}`: ")
                groups.append(Group(members, tables[key]))
        logits = log_odds(self.numbers) if self.scale == PROB else self.numbers
        return CountModel(logits, groups or None, method=method)

    def model_in_chunks(self, scratch: Path, progress: bool) -> ChunkedCountModel:
        """The model over files: groups of one column at the most; rows without a label belong to none."""
        options: dict[str, Any] = {"scale": self.scale, "progress": progress, "scratch": scratch}
        if len(self.codes) > 1:
            raise InputProblem(
                f"a file that is streamed takes groups of one column; {len(self.codes)} arrived. Leave one out, or use "
                "a file that fits into memory."
            )
        for labels in self.codes.values():
            if any(isinstance(g.potential, CountTable) for g in self.groupings):
                raise InputProblem(
                    "--group-table is for files that fit into memory. Use --group-count for this one."
                )
            shared = [g.potential for g in self.groupings if isinstance(g.potential, Potential)]
            common = reduce(mul, shared) if shared else None
            own: dict[int, Any] = {-1: None}
            for i, label in enumerate(labels.values) if len(shared) < len(self.groupings) else ():
                each = [p for p in (g.of(label) for g in self.groupings) if p is not None]
                own[i] = reduce(mul, each) if each else None
            for i, (label, size) in enumerate(zip(labels.values, labels.sizes.tolist())):
                if (given := own.get(i, common)) is not None:
                    sized(given, size, f"{self.groupings[-1].said}, group `{label}`: ")
            options |= {"groups": labels.codes, "group_potential": GroupPotentials(common, own)}
        n = len(self.numbers)
        parts = [choice.for_size(n) if isinstance(choice, CountTable) else choice for choice in self.totals]
        return ChunkedCountModel(self.numbers, reduce(mul, parts) if parts else None, **options)

    def conflict(self, error: InfeasibleError) -> InputProblem:
        """An impossible model in the words of the command: groups are numbered as `model` makes them."""
        if self.table.scratch is not None:  # groups by their codes
            g = self.groupings[-1]
            value = self.codes[g.column].values[error.groups[0]]
            return InputProblem(
                f"`{g.column}` = {value}: {g.of(value)} cannot be true. Relax it, or rows that are certain."
            )
        said = [f"all rows: {choice}" for choice in self.totals]
        for g in self.groupings:
            said += [f"`{g.column}` = {value}: {g.of(value)}" for value in self.codes[g.column].values]
        listed = [said[g] for g in error.groups[:_CLASHING]]
        more = f" and {len(error.groups) - _CLASHING} more" if len(error.groups) > _CLASHING else ""
        clash = "cannot be true together" if len(error.groups) > 1 else "cannot be true"
        return InputProblem(
            f"the model gives probability zero to every configuration: {'; '.join(listed)}{more} {clash}. Relax a "
            "potential, or a row that is certain (log-odds of inf or -inf)."
        )


def _members(labels: Codes) -> list[Any]:
    order = np.argsort(labels.codes, kind="stable")
    outside = int(np.count_nonzero(labels.codes < 0))
    return np.split(order[outside:], np.cumsum(labels.sizes)[:-1])


def sized(choice: Choice, n: int, where: str = "") -> Potential:
    """A potential that fits groups of n variables; a misfit is reported with the group."""
    try:
        if isinstance(choice, CountTable):
            return choice.for_size(n)
        choice._require(n)
    except TallyTreeError as error:
        raise InputProblem(f"{where}{error}") from None
    return choice


def refuse_crossing(source: InputTable, codes: dict[str, Codes]) -> None:
    """Groups of different columns must be disjoint or nested."""
    names = list(codes)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            a, b = codes[first], codes[second]
            both = np.flatnonzero((a.codes >= 0) & (b.codes >= 0))
            pair = a.codes[both] * len(b.values) + b.codes[both]
            met, example, shared = np.unique(pair, return_index=True, return_counts=True)
            u, v = met // max(len(b.values), 1), met % max(len(b.values), 1)
            cross = np.flatnonzero((shared < a.sizes[u]) & (shared < b.sizes[v]))
            if len(cross):
                c = cross[0]
                raise InputProblem(
                    f"groups must be nested, but `{first}` = {a.values[u[c]]} and `{second}` = {b.values[v[c]]} share "
                    f"{place(source, int(both[example[c]]))} and neither contains the other. Leave one column out."
                )
