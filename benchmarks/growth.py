"""Time against the number of variables: one random potential, marginals and log Z, every method while it is quick.

``python benchmarks/growth.py RESULTS.json PLOT.png`` draws again what a run wrote.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peers
import tallytree as tt
from cases import random_model
from machine import copier, transformer
from rows import Timing, answers, measure
from tallytree import config

FIRST, LAST, LAST_QUICK = 4, 22, 14


def _ours(method: str = "auto", **settings: Any) -> Callable[[int], Any]:
    def prepare(n: int) -> Any:
        theta, log_f = random_model(n)

        def run() -> Any:
            return answers(tt.CountModel(theta, log_f, method=method))

        if not settings:
            return run

        def under() -> Any:
            with config.using(**settings):
                return run()

        return under

    return prepare


def _textbook(n: int) -> Any:
    theta, log_f = random_model(n)
    return lambda: peers.fft_tree(theta, log_f).marginals


METHODS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "tallytree": ("tallytree", _ours()),
    "tallytree, 1 thread": ("tallytree", _ours(threads=1)),
    "tallytree, array engine": ("tallytree", _ours(engine="array")),
    "method='fft-tree'": ("paper", _ours("fft-tree")),
    "method='tree'": ("paper", _ours("tree")),
    "method='chain'": ("paper", _ours("chain")),
    "NumPy FFT tree": ("peer", _textbook),
    "fast-poibin (sum only)": ("peer", lambda n: peers.fast_poibin(random_model(n)[0])),
    "fast-poibin dp (sum only)": ("peer", lambda n: peers.fast_poibin(random_model(n)[0], "dp")),
    "scipy (sum only)": ("peer", lambda n: peers.scipy_poisson_binom(random_model(n)[0])),
    "bare FFTs": ("machine", transformer),
    "stream copy": ("machine", lambda n: copier(24 * n)),
}


def kinds() -> dict[str, str]:
    return {label: kind for label, (kind, _) in METHODS.items()}


def sweep(repeats: int, cap: float, quick: bool) -> Iterator[tuple[int, dict[str, Timing]]]:
    """Sizes 2^4, 2^5, ...; a method stops where its next size would take longer than ``cap`` seconds."""
    slower = dict.fromkeys(METHODS, 2.0)  # growth from one size to the next
    last: dict[str, float] = {}
    stopped: dict[str, str] = {}
    for exponent in range(FIRST, (LAST_QUICK if quick else LAST) + 1):
        n = 2**exponent
        ready = {
            label: (lambda p=prepare, n=n: p(n))
            for label, (_, prepare) in METHODS.items()
            if label not in stopped
        }
        found = measure(ready, repeats, cap)
        for label, timing in found.items():
            timing.value = None
            if not timing.times:
                if label in last:  # some methods start at a larger size
                    stopped[label] = timing.reason
                continue
            if label in last:  # no method here grows faster than D^2
                slower[label] = min(4.5, max(2.0, timing.least / last[label]))
            last[label] = timing.least
            if timing.least * slower[label] > cap:
                stopped[label] = f"2^{exponent + 1} would take more than {cap:g} s"
        for label, reason in stopped.items():
            found.setdefault(label, Timing(reason=reason))
        yield n, {label: found[label] for label in METHODS}


# Colours that stay apart for colour-blind readers; the machine's bounds are grey.
STYLES = {
    "tallytree": ("#0072b2", "-", 2.6),
    "tallytree, 1 thread": ("#0072b2", "--", 1.5),
    "tallytree, array engine": ("#56b4e9", "-", 1.5),
    "method='fft-tree'": ("#009e73", "-", 1.5),
    "method='tree'": ("#009e73", "--", 1.5),
    "method='chain'": ("#009e73", ":", 1.8),
    "NumPy FFT tree": ("#d55e00", "-", 1.5),
    "fast-poibin (sum only)": ("#cc79a7", "-", 1.5),
    "fast-poibin dp (sum only)": ("#cc79a7", "--", 1.5),
    "scipy (sum only)": ("#e69f00", "-", 1.5),
    "bare FFTs": ("#666666", "--", 1.2),
    "stream copy": ("#666666", ":", 1.5),
}
CLOCKS = {"wall": "wall-clock time", "processor": "processor time of all threads"}
NAMES = {
    "bare FFTs": "bare FFTs of the tree (bound)",
    "stream copy": "copy of input and output (bound)",
    "method='fft-tree'": "FFT tree of the paper",
    "method='tree'": "direct tree of the paper",
    "method='chain'": "chain of the paper",
}


def draw(results: dict[str, Any], target: Path) -> None:
    """One line per method, from the fastest at its largest size to the slowest in the legend."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    figure, axes = plt.subplots(figsize=(10, 6), layout="constrained")
    lines = {label: row for label, row in results["growth"]["min"].items() if row}
    for label, row in lines.items():
        sizes = sorted(int(n) for n in row)
        values = [row.get(n, row.get(str(n))) for n in sizes]  # keys of JSON are strings
        colour, dash, width = STYLES.get(label, ("#000000", "-", 1.0))
        axes.plot(
            sizes, values, color=colour, linestyle=dash, linewidth=width, label=NAMES.get(label, label),
            marker="o" if width > 2 else None, markersize=4, zorder=3 if width > 2 else 2,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=4, numticks=20))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _time(value)))
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=20))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(True, which="major", color="#dddddd", linewidth=0.7)
    axes.set_xlabel("number of variables D")
    axes.set_ylabel("time per call")
    axes.set_title("All marginals and log Z under one random potential", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=9.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    about = results["machine"]
    figure.text(
        0.01, -0.03,
        f"{about['processor']}, {about['cores']} cores, level {about['level']}; tallytree {about['threads']} threads, "
        f"others one. Least {CLOCKS[results['options']['clock']]} of interleaved repeats.",
        fontsize=8, color="#555555",
    )  # fmt: skip
    figure.savefig(target, dpi=150, bbox_inches="tight")
    plt.close(figure)


def _time(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if value >= scale * 0.999 or unit == "ns":
            return f"{value / scale:g} {unit}"
    raise AssertionError


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
