"""``tallytree demo``: a small model of our own, from readings to answers, and one large model against the clock."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.count import CountModel
from ..models.group import Group
from ..potentials import at_least, exactly, gaussian
from .terminal import Column, Terminal, count_table, probability_columns, seconds

STORY = (
    "Twelve valves in three halls. A microphone at each valve gives the odds that it leaks. "
    "The drain of every hall is wet, so at least one valve leaks there. "
    "The flow meter says that about 4 leak in all, give or take one."
)
HALLS = ("north", "east", "south")
# Log-odds of a leak, as a microphone reports them, four valves to a hall.
LOG_ODDS = (-2.2, -1.1, -2.6, -1.9, 0.4, -0.7, 2.1, -0.2, -1.6, 0.9, -3.0, 0.1)
_PER_HALL = len(LOG_ODDS) // len(HALLS)

_LARGE, _LARGE_ON = 100_000, 10_000


def demo_model() -> CountModel:
    """At least one leak per hall, and about four in all."""
    halls = [Group(range(h * _PER_HALL, (h + 1) * _PER_HALL), at_least(1)) for h in range(len(HALLS))]
    return CountModel(LOG_ODDS, [*halls, Group(None, gaussian(4, 1))])


def run(_: argparse.Namespace) -> None:
    """Print the demonstration."""
    terminal = Terminal.of(sys.stdout)
    start = time.perf_counter()
    model = demo_model()
    posterior, counts = model.marginals, np.exp(model.count_log_probs())
    log_partition, entropy = float(model.log_partition), float(model.entropy)
    elapsed = time.perf_counter() - start
    independent = CountModel(LOG_ODDS)
    best = model.mode() == 1
    names = [f"{hall}-{i + 1}" for hall in HALLS for i in range(_PER_HALL)]

    terminal.say("", *terminal.paragraph(STORY), "")
    terminal.say(terminal.heading("Which valves leak?"))
    terminal.say(*_valves(terminal, names, independent.marginals, posterior, best))
    terminal.say("", terminal.heading("How many leak?"))
    prior_counts = np.exp(independent.count_log_probs())
    terminal.say(*count_table(terminal, {"prior": prior_counts, "posterior": counts}))
    chosen = " ".join(name for name, on in zip(names, best) if on)
    chance = float(np.exp(model.log_prob(best)))
    terminal.say(
        "",
        *terminal.paragraph(f"most probable configuration: {chosen}", "    ", f"  {terminal.dot} "),
        *terminal.paragraph(
            f"its probability {chance:.4f}; log Z {log_partition:.6f}; entropy {entropy:.4f} nats", "    "
        ),
        *terminal.paragraph(
            f"exact answers over all {2 ** len(LOG_ODDS):,} configurations in {seconds(elapsed)}", "    "
        ),
    )
    terminal.say("", terminal.heading("And a larger one"))
    for line in _large_run():
        terminal.say(*terminal.paragraph(line, "    ", "  "))
    terminal.say("")


def _valves(
    terminal: Terminal, names: list[str], prior: Any, posterior: Any, best: NDArray[np.bool_]
) -> list[str]:
    cells = max((terminal.width - 44) // 2, 5)
    columns = [
        Column("", [terminal.dot if on else "" for on in best]),
        Column("valve", names),
        Column("hall", [hall for hall in HALLS for _ in range(_PER_HALL)]),
    ]
    columns += probability_columns(terminal, "prior", prior, cells)
    return terminal.table(columns + probability_columns(terminal, "posterior", posterior, cells))


def _large_run() -> list[str]:
    rng = np.random.default_rng(0)
    logits = rng.normal(-2.6, 1.0, _LARGE)
    start = time.perf_counter()
    model = CountModel(logits, exactly(_LARGE_ON))
    marginals = model.marginals
    log_partition = float(model.log_partition)
    elapsed = time.perf_counter() - start
    return [
        f"{_LARGE:,} variables, exactly {_LARGE_ON:,} on: log Z and every posterior in {seconds(elapsed)}",
        f"log Z {log_partition:.6f}; the posteriors sum to {marginals.sum():,.6f}",
        f"certified error of every posterior log-odds below {float(model.error_bound):.1e}",
    ]
