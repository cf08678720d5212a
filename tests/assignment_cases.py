"""Grids with counts in rows and columns, enumerated."""

from __future__ import annotations

from oracle_grids import enumerate_grid


def tables(potential, count, size):
    return [potential.log_table(size)] * count


def exact(theta, rows, columns):
    return enumerate_grid(
        theta, tables(rows, theta.shape[0], theta.shape[1]), tables(columns, *theta.shape[::-1])
    )
