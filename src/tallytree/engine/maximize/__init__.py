"""Maximisation: most probable configurations, max-marginals and k-best lists in the (max, +) semiring.

Every function takes a tree, log-odds ``nu`` (B, D) and packed log-tables (1 or B, T), as the sum-product executors do.
Values are logs of unnormalised weights, variables forced on by infinite log-odds entering with weight one.
"""

from .solve import max_count_values, max_marginals, max_value, mode, ranked

__all__ = ["max_count_values", "max_marginals", "max_value", "mode", "ranked"]
