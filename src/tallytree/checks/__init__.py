"""The only reader of what users pass in: every message says what was required, what arrived and what to do next.

What everybody needs is here; configurations, numbers of potentials and sums have modules of their own.
"""

from .values import (
    all_members,
    broadcast,
    count,
    describe,
    flag,
    generator,
    group_list,
    has_nan,
    integer,
    log_table,
    logits,
    members,
    one_of,
    real_array,
    rectangular,
    unmasked,
)

__all__ = [
    "all_members",
    "broadcast",
    "count",
    "describe",
    "flag",
    "generator",
    "group_list",
    "has_nan",
    "integer",
    "log_table",
    "logits",
    "members",
    "one_of",
    "real_array",
    "rectangular",
    "unmasked",
]
