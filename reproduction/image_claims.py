"""The statements of section 6.4 about images, under every reading of what the paper leaves open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import images, ising
from .claim import Claim, Measure, Reading

_CLOSE = 1.0  # nats within which a printed likelihood counts as found
_SLIGHT = 5.0  # nats up to which a lead is called slight; the printed one is 1.56
_CUTS = (2, 3, 5, 8)  # pixels from which on a distance is called long
_MUCH = 2.0  # factor from which one error is called significantly worse than another
_ALIKE = 2.0  # factor within which two errors count as qualitatively the same
_SETTING = {"critical": "critical", "matched": "fitted"}  # couplings, in the names of readings
_CENTRAL, _OUTER = 0.2, 0.3  # distance of a mode from half full: near it, and far from it

Set = Mapping[str, Any]


def image_claims(found: Mapping[str, Any]) -> list[Claim]:
    """Section 6.4, at both couplings and with both linkages."""
    sets = found["sets"]
    temperature = ising.CRITICAL / np.mean(found["couplings"])
    coupling = f"{np.mean(found['couplings']):.4f}"
    fitted = f"The fitted coupling is {coupling}, {temperature:.2f} times the critical temperature."

    def claim(
        key: str, measures: Callable[[list[Set]], list[Measure]], note: str = "", tuned: tuple[str, ...] = ()
    ) -> Claim:
        readings = tuple(
            Reading(f"{_SETTING[c]}/{linkage}", tuple(measures(ones)), tuned=c in tuned)
            for (c, linkage), ones in sets.items()
        )
        return Claim(key, readings, note)

    return [
        claim(
            "printed",
            _printed,
            f"{fitted} Both it and the linkage were chosen to meet the printed values.",
            ("matched",),
        ),
        claim("tree-likelihood", _likelihood),
        claim("tree-pairs", _pairs, _pairs_note(sets)),
        claim("long-range", _long_range),
        claim("counts-adaptive", lambda ones: _counts(ones, "adaptive", _MUCH)),
        claim("counts-anti", lambda ones: _counts(ones, "anti", 1.0)),
        claim("random-anti", _random),
        claim(
            "all-or-none",
            _all_or_none,
            "Adaptive groups of 16 pixels and more. Nearly all or none: the outer two of nine bins of the share that "
            "is on.",
        ),
    ]


def _nll(ones: list[Set], model: str) -> tuple[float, ...]:
    return tuple(float(one[f"{model}_nll"][0]) for one in ones)


def _ratio(ones: list[Set], value: Callable[[Set, str], float]) -> tuple[float, ...]:
    """Tree over RC."""
    return tuple(value(one, "tree") / value(one, "rc") for one in ones)


def _printed(ones: list[Set]) -> list[Measure]:
    return [
        Measure(f"{images.NAMES[m]}, nats", _nll(ones, m), printed - _CLOSE, printed + _CLOSE)
        for m, printed in (("tree", images.PAPER_TREE), ("rc", images.PAPER_RC))
    ]


def _likelihood(ones: list[Set]) -> list[Measure]:
    gap = tuple(b - a for a, b in zip(_nll(ones, "tree"), _nll(ones, "rc")))
    return [Measure("RC minus tree, nats per image", gap, 0.0, _SLIGHT, signed=True)]


def _pairs(ones: list[Set]) -> list[Measure]:
    ratio = tuple(1.0 / r for r in _ratio(ones, lambda one, m: float(one[f"{m}_pairs"][0])))
    return [Measure("error of RC over that of the tree, agreement of neighbours", ratio, 1.0)]


def _pairs_note(sets: Mapping[Any, list[Set]]) -> str:
    tree, rc = (
        np.mean([one[f"{m}_pairs"][0] for ones in sets.values() for one in ones]) for m in images.MODELS
    )
    return (
        f"Root mean square errors of how often neighbours agree: {tree:.3f} for the tree, {rc:.3f} for RC. The tree "
        f"has about half of these pairs as edges and is exact on them."
    )


def _long_range(ones: list[Set]) -> list[Measure]:
    side = int(ones[0]["side"])
    return [
        Measure(
            f"error of the tree over that of RC from {cut} pixels on",
            _ratio(ones, lambda one, m, cut=cut: images.correlation_error(one, m, cut)),  # type: ignore[misc]
            1.0,
        )
        for cut in _CUTS
        if cut < side
    ]


def _counts(ones: list[Set], clustering: str, least: float) -> list[Measure]:
    return [
        Measure(
            f"error of the tree over that of RC, {words}",
            _ratio(ones, lambda one, m, size=size: images.mean_error(one, clustering, m, size)),  # type: ignore[misc]
            least,
        )
        for size, words in (
            (images.HIGHER_ORDER, f"subsets of {images.HIGHER_ORDER} pixels and more"),
            (2, "all subsets"),
        )
    ]


def _random(ones: list[Set]) -> list[Measure]:
    def error(one: Set, clustering: str, model: str) -> float:
        return images.mean_error(one, clustering, model, images.HIGHER_ORDER)

    def lead(one: Set, clustering: str) -> float:
        return float(np.log(error(one, clustering, "tree") / error(one, clustering, "rc")))

    return [
        *(
            Measure(
                f"error of {images.NAMES[m]}, random over anti",
                tuple(error(one, "random", m) / error(one, "anti", m) for one in ones),
                1.0 / _ALIKE,
                _ALIKE,
            )
            for m in images.MODELS
        ),
        Measure(
            "whether the same model is ahead on both (1 or -1)",
            tuple(float(np.sign(lead(one, "random") * lead(one, "anti"))) for one in ones),
            1.0,
            signed=True,
        ),
    ]


def _all_or_none(ones: list[Set]) -> list[Measure]:
    def each(value: Callable[[Set, str], float], model: str) -> tuple[float, ...]:
        return tuple(value(one, model) for one in ones)

    ends = zip(each(images.at_the_ends, "data"), each(images.at_the_ends, "tree"))
    return [
        Measure("distance of the data's mode from half full", each(images.mode_from_half, "data"), _OUTER),
        Measure(
            "distance of the tree's mode from half full", each(images.mode_from_half, "tree"), high=_CENTRAL
        ),
        Measure("nearly all or none, data over tree", tuple(a / max(b, 1e-6) for a, b in ends), _MUCH),
    ]
