"""Distributions of sums of independent variables, with relative accuracy at every count."""
