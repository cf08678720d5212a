"""What ``tallytree infer`` prints: the model, the count, and the rows that matter most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..arrays import Ints
from ..chunked import ChunkedCountModel
from ..models.count import CountModel
from .batches import Batches
from .output import ADDED, Target
from .tables import InputTable
from .terminal import Column, Terminal, printable, probability, quantity, seconds

_LABELS_SHOWN = 3
_LONGEST_LABEL = 24


@dataclass(frozen=True, eq=False)
class Summary:
    """All that is spoken of; subclasses know where the rows and their answers are."""

    source: InputTable | Batches
    model: CountModel | ChunkedCountModel
    column: str
    scale: str
    said: list[str]  # the potentials, in words
    times: dict[str, float]
    goal: Target | None
    how: ClassVar[str] = ""

    def print(self, terminal: Terminal, top: int, by: str) -> None:
        """Print everything, most general first."""
        n = self.model.n_variables
        terminal.say(*self._overview(terminal, n))
        for title, lines in self.details(terminal):
            terminal.say("", terminal.heading(title), *lines)
        shown = min(top, n)
        if shown:
            title = self.title(shown, "most probable" if by == "posterior" else "most changed")
            terminal.say("", terminal.heading(title), *self._rows(terminal, shown, by))
        if self.goal is not None:
            terminal.say("", f"  all {n:,} rows written to {printable(self.goal.path)}")

    def _overview(self, terminal: Terminal, n: int) -> list[str]:
        scale = "log-odds" if self.scale == "logit" else "probabilities"
        before, after = self.expected()
        bound = float(self.model.error_bound)
        facts = {
            "rows": f"{n:,} variables, {scale} from column `{printable(self.column)}`{self.how}",
            "model": "; ".join(map(printable, self.said)) or "independent: no potentials were given",
            "log Z": f"{float(self.model.log_partition):.6f}",
            "expected count": f"{quantity(before)} before, {quantity(after)} after",
            "count": self.count(),
            "certified error": f"below {bound:.1e} in every posterior log-odds"
            if bound
            else "none but rounding",
            "time": ", ".join(f"{name} {seconds(t)}" for name, t in self.times.items()),
        }
        lines = [terminal.heading(printable(self.source.path))]
        for name, text in facts.items():
            lines += terminal.paragraph(text, " " * 19, f"  {name:17}")
        return lines

    def _rows(self, terminal: Terminal, shown: int, by: str) -> list[str]:
        order = self.ranked(shown, by)
        labels = [name for name in self.source.names if name not in (self.column, *ADDED)][:_LABELS_SHOWN]
        columns = [
            Column(self.source.unit, [str(self.source.number_of(i)) for i in order.tolist()], right=True)
        ]
        for name, cells in zip(labels, self.cells(order, labels)):
            short = [printable(cell)[:_LONGEST_LABEL] for cell in cells]
            columns.append(Column(printable(name)[:_LONGEST_LABEL], short, shrinks=True))
        prior, after = self.chances(order)
        columns += [
            Column("prior", [probability(p) for p in prior], right=True),
            Column("posterior", [probability(p) for p in after], right=True),
            Column("", [terminal.bar(p, terminal.width // 4) for p in after]),
        ]
        return terminal.table(columns)

    def title(self, shown: int, order: str) -> str:
        """Above the rows."""
        return f"The {shown:,} {order} rows"

    def details(self, terminal: Terminal) -> Iterator[tuple[str, list[str]]]:
        """Titles and lines of what stands between the overview and the rows."""
        return iter(())

    def expected(self) -> tuple[float, float]:
        """Expected number of rows that are on, before and after."""
        raise NotImplementedError

    def count(self) -> str:
        """The distribution of the count in a few words."""
        raise NotImplementedError

    def ranked(self, shown: int, by: str) -> Ints:
        """The first rows by rank, ties in the order of the file."""
        raise NotImplementedError

    def cells(self, rows: Ints, names: list[str]) -> list[list[str]]:
        """Text of some rows, for every column that is named."""
        raise NotImplementedError

    def chances(self, rows: Ints) -> tuple[Any, Any]:
        """Probabilities of some rows, before and after, as lists."""
        raise NotImplementedError
