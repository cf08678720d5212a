"""Variables whose values are known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .. import checks
from ..errors import ParameterError


def more_evidence(known: Mapping[int, int], evidence: Mapping[int, int], n: int) -> dict[int, int]:
    """What is known of n variables together with what a user adds to it, ``{index: 0 or 1}``."""
    if not isinstance(evidence, Mapping):
        raise ParameterError(
            "`evidence` must be a mapping {variable: 0 or 1}, such as {3: 1}; "
            f"{checks.describe(evidence)} arrived."
        )
    found = dict(known)
    for key, value in evidence.items():
        index = checks.integer("evidence", key)
        if not -n <= index < n:
            raise ParameterError(f"`evidence` must name variables 0 to {n - 1}; {index} arrived.")
        if not isinstance(value, (int, np.integer, np.bool_)) or value not in (0, 1):
            raise ParameterError(
                f"`evidence` must give 0 or 1 to every variable; {checks.describe(value)} arrived for {index}."
            )
        index %= n
        if found.setdefault(index, int(value)) != value:
            raise ParameterError(
                f"`evidence` contradicts what is known: variable {index} is {found[index]} already, and {int(value)} "
                "arrived."
            )
    return found
