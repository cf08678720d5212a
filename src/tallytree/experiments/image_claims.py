"""The claims of section 6.4 about images, judged from the fits and draws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from . import images, ising
from .claims import (
    DIFFERS,
    NOT_REPRODUCED,
    REPRODUCED,
    UNDECIDED,
    Claim,
    verdict,
)

_HIGHER_ORDER = 8  # pixels from which a subset counts as higher-order
_NOISE = 1.25  # errors below this many times those of fresh images decide nothing


def image_claims(found: Mapping[str, Any]) -> list[Claim]:
    """Section 6.4."""
    out: list[Claim] = []
    titles = {
        "critical": "Ising, critical coupling",
        "matched": f"Ising, coupling {found['matched']:.3f}",
        "silhouettes": "silhouettes",
    }
    matched = found["sets"]["matched"]
    out.append(
        Claim(
            "images",
            f'Negative log-likelihoods {images.PAPER_TREE} (pairwise tree) and {images.PAPER_RC} (RC), "near the '
            'critical temperature" (printed as log-likelihoods).',
            "Tree and RC: "
            + "; ".join(f"{_nll(found['sets'][s])} at {titles[s]}" for s in ("critical", "matched"))
            + ".",
            verdict(
                max(
                    abs(float(matched["tree_nll"][0]) - images.PAPER_TREE),
                    abs(float(matched["rc_nll"][0]) - images.PAPER_RC),
                )
                < 2.0,
                DIFFERS,
            ),
            f"The paper does not state its temperature. The tree has its printed value at coupling "
            f"{found['matched']:.3f} ({ising.CRITICAL / found['matched']:.2f} times the critical temperature); "
            "both values within 2 nats there count as reproduced.",
        )
    )
    others = ", ".join(f"{v:.2f} with {k} linkage" for k, v in found["linkages"].items())
    for name, one in found["sets"].items():
        reason = (
            f" The paper does not name its linkage or when it stopped: here RC has {others}."
            if name == "matched"
            else ""
        )
        if int(one["rc_steps"]) >= found["limits"][name]:
            reason += " RC stopped at its limit of steps: more would lower its value."
        out += _one_set(titles[name], one, reason)
    return out


def _one_set(title: str, one: Mapping[str, Any], reason: str) -> list[Claim]:
    tree, rc = (float(one[f"{m}_nll"][0]) for m in images.MODELS)
    held = [float(one[f"{m}_nll"][1]) for m in images.MODELS]
    wins = tree < rc
    out = [
        Claim(
            "images",
            f"The pairwise tree wins slightly on likelihood ({title}).",
            f"Negative log-likelihood of the training images: tree {tree:.2f}, RC {rc:.2f} after "
            f"{int(one['rc_steps'])} steps of CG; of other images: {held[0]:.2f} and {held[1]:.2f}.",
            verdict(wins and (rc - tree) / tree < 0.1, DIFFERS),
            f"RC minus tree: {100 * (rc - tree) / tree:+.1f}%; the paper has "
            f"{100 * (images.PAPER_RC / images.PAPER_TREE - 1):+.1f}%. Slightly: below 10%.{reason}",
        )
    ]
    side = int(one["side"])
    far = side / 3
    errors = {m: images.correlation_error(one, m, far, math.inf) for m in ("tree", "rc", "fresh")}
    noise = max(errors["tree"], errors["rc"]) < _NOISE * errors["fresh"]
    out.append(
        Claim(
            "images",
            f"RC captures long-range correlations better ({title}).",
            f"RMSE of correlations of pixels at least {far:.1f} apart: tree {errors['tree']:.4f}, RC "
            f"{errors['rc']:.4f}; fresh images {errors['fresh']:.4f}.",
            UNDECIDED if noise else verdict(errors["rc"] < errors["tree"]),
            "Both models are within the noise of fresh images." if noise else "",
        )
    )
    for clustering in images.CLUSTERINGS:
        tree_all, rc_all = (images.mean_error(one, clustering, m) for m in images.MODELS)
        tree_error, rc_error, floor = (
            images.mean_error(one, clustering, m, _HIGHER_ORDER) for m in (*images.MODELS, "fresh")
        )
        noise = max(tree_error, rc_error) < _NOISE * floor
        extra = (
            " RC encodes these subsets directly."
            if clustering == "adaptive"
            else " RC does not encode these subsets."
        )
        out.append(
            Claim(
                "images",
                f"RC captures higher-order counts better than the tree, {clustering} clustering ({title}).",
                f"Mean RMSE of the counts of subsets of at least {_HIGHER_ORDER} pixels: tree {tree_error:.4f}, RC "
                f"{rc_error:.4f}, fresh images {floor:.4f}. All subsets, pairs included: tree {tree_all:.4f}, RC "
                f"{rc_all:.4f}.",
                UNDECIDED if noise else _judged(rc_error < tree_error, rc_all < tree_all),
                ("Both models are within the noise of fresh images." if noise else "")
                + (
                    "The larger subsets agree with the paper; over all subsets the pairs decide, and there the tree is "
                    "as good or better."
                    if not noise and rc_error < tree_error and rc_all >= tree_all
                    else ""
                )
                + extra,
            )
        )
    return out


def _judged(larger: bool, all_sizes: bool) -> str:
    """Reproduced if RC is ahead on higher-order and on all subsets, differs if only on one of them."""
    return REPRODUCED if larger and all_sizes else DIFFERS if larger or all_sizes else NOT_REPRODUCED


def _nll(one: Mapping[str, Any]) -> str:
    return f"{float(one['tree_nll'][0]):.2f} and {float(one['rc_nll'][0]):.2f}"
