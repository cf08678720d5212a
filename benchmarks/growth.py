"""Time against the number of variables: one random potential, marginals and log Z, every method while it is quick."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import peers
import tallytree as tt
from cases import random_model
from machine import copier, transformer
from rows import answers
from tallytree import config
from textbook import fft_tree
from timing import Timing, measure

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
    return lambda: fft_tree(theta, log_f).marginals


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
