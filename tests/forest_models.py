"""Random models with edges, of every shape and family of groups."""

from __future__ import annotations

import numpy as np

import tallytree as tt
from forest_cases import FAMILIES, SHAPES, forest_case


def model_of(case):
    groups = [tt.Group(members, table) for members, table in case.sets]
    return tt.CountModel(case.theta, groups, edges=tt.Forest(case.pairs, case.tables))


def fits(shape, family):
    return family != "intervals" or shape in ("path", "empty")


def cases(count, seed, shapes=SHAPES, families=FAMILIES, sizes=(1, 11), **options):
    rng = np.random.default_rng(seed)
    found = []
    while len(found) < count:
        shape, family = rng.choice(shapes), rng.choice(families)
        if fits(shape, family):
            found.append(forest_case(str(shape), str(family), int(rng.integers(*sizes)), rng, **options))
    return found
