import numpy as np
import pytest
import tree_oracle as oracle

native = pytest.importorskip("tallytree._native")

LEVELS = native.levels()
METHODS = ["direct", "fft", "tiled", "wide"]
EXACT = ["direct", "tiled", "wide"]  # methods whose beliefs are relatively accurate, entry by entry


def solve(m, method, **options):
    tilt = options.pop("tilt", None)
    tilt = None if tilt is None else np.array([tilt], float)
    options.setdefault("beliefs", True)
    z, r, b, bound = native.tree_pass(
        m.left, m.right, m.offset, m.nu[None], m.tables[None], tilt, method, messages=True, **options
    )
    return z[0], r[0], None if b is None else b[0], bound[0]


def distance(got, want):
    """Largest difference; equal infinities count as 0."""
    got, want = np.atleast_1d(got), np.atleast_1d(want)
    with np.errstate(invalid="ignore"):
        d = np.where(got == want, 0.0, np.abs(got - want))
    assert not np.isnan(got).any()
    return d.max(initial=0.0)


def small_model(rng, sd=2.0):
    D = int(rng.integers(1, 11))
    shape = rng.choice(["random", "balanced", "caterpillar"])
    left, right = oracle.random_tree(rng, D, shape, roots=int(rng.integers(1, min(D, 3) + 1)))
    nu = rng.normal(0, 3, D)
    infinite = rng.random(D) < rng.choice([0, 0.2])
    nu[infinite] = rng.choice([-np.inf, np.inf], infinite.sum())
    return oracle.with_tables(rng, D, left, right, nu, sd, rng.random(), rng.choice([0, 0.3]))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("method", METHODS)
def test_small_forests_agree_with_enumeration(method, level):
    rng = np.random.default_rng(1)
    certified = 0
    for _ in range(150):
        m = small_model(rng)
        z, r, b = oracle.enumerate_model(m)
        tilt = rng.choice([None, 0.7, -3.0])
        got_z, got_r, got_b, bound = solve(m, method, level=level, tilt=tilt)
        assert distance(got_z, z) < 1e-11 + 1e-13 * abs(z) if z > -np.inf else got_z == z
        if z == -np.inf:
            assert bound == 0
            assert (got_r == 0).all()
            assert not np.isnan(got_b).any()
            continue
        assert distance(got_r, r) < 1e-10
        assert distance(np.exp(got_b), np.exp(b)) < 1e-11
        if method in EXACT:
            assert distance(got_b, b) < 1e-10
        if bound < np.inf:
            certified += 1
            assert max(distance(got_z, z), distance(got_r, r)) <= bound
    assert certified > 100
