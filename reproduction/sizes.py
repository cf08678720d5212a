"""How large the experiments are: tiny (tests), quick (minutes) and full (the sizes of the paper)."""

from __future__ import annotations

from dataclasses import dataclass, replace

PARTS = ("runtime", "matching", "bags", "images")


@dataclass(frozen=True)
class Sizes:
    """Sizes of all experiments.

    Attributes
    ----------
    name : str
        Shown in the report.
    seeds : int
        Random problems, image sets and divisions into folds on which every statement is judged.
    exponents, far_exponents : tuples of int
        log2 of D: for all methods of Figure 3, and further ones for the FFT Tree and the library's own choice.
    cost_exponents, own_cost_exponents, unbalanced_exponents, limited_exponents, limit_exponents : tuples of int
        log2 of D where costs that the paper states elsewhere are measured; of D for variants that are ours; of D for
        unbalanced trees; of D and of k for the Chain with counts up to k.
    care_sizes : tuple of int
        D at which numerical errors are measured, powers of two.
    time_cap, repeat_time : float
        A method is not tried at sizes where more seconds are expected; seconds of repetitions per point.
    own_process : bool
        Whether every point has a process of its own.
    chain_sizes : tuple of int
        Further D of the chain, near the limit of its memory.
    cubic_sizes : tuple of int
        D of the cubic algorithm of Potetz and Lee.
    runs : tuple of int
        Random 3 x 6 and 20 x 40 problems per seed.
    variety_runs : int
        4 x 4 problems per seed and constraint.
    truth_sweeps, truth_chains : int
        Of the Gibbs sampler that stands for the truth on 20 x 40.
    gibbs_sweeps : tuple of int
        Lengths of the short Gibbs runs whose error is shown against time.
    large_grids : tuple of int
        Sides of larger problems.
    l1, mus, sigmas, rates, leaks : tuples of float
        Grid of the bags.
    folds : int
        Folds of the cross-validation that are run, of 10.
    n_images, side, sweeps : int
        Ising images, their side, cluster sweeps per image.
    steps : int
        Limit on steps of conjugate gradients.
    scan : tuple of float
        Couplings at which the pairwise tree is fitted, to find the one that the paper may have used.
    """

    name: str
    seeds: int
    exponents: tuple[int, ...]
    far_exponents: tuple[int, ...]
    cost_exponents: tuple[int, ...]
    own_cost_exponents: tuple[int, ...]
    unbalanced_exponents: tuple[int, ...]
    limited_exponents: tuple[int, ...]
    limit_exponents: tuple[int, ...]
    care_sizes: tuple[int, ...]
    time_cap: float
    repeat_time: float
    own_process: bool
    chain_sizes: tuple[int, ...]
    cubic_sizes: tuple[int, ...]
    runs: tuple[int, int]
    variety_runs: int
    truth_sweeps: int
    truth_chains: int
    gibbs_sweeps: tuple[int, ...]
    large_grids: tuple[int, ...]
    l1: tuple[float, ...]
    mus: tuple[float, ...]
    sigmas: tuple[float, ...]
    rates: tuple[float, ...]
    leaks: tuple[float, ...]
    folds: int
    n_images: int
    side: int
    sweeps: int
    steps: int
    scan: tuple[float, ...]


FULL = Sizes(
    name="full",
    seeds=5,
    exponents=tuple(range(3, 20)),
    far_exponents=(20, 21, 22),
    cost_exponents=(10, 12, 14, 16, 18, 20, 22),
    own_cost_exponents=(12, 13, 14),
    unbalanced_exponents=tuple(range(6, 13)),
    limited_exponents=(10, 12, 14, 16, 17, 18, 19, 20),
    limit_exponents=(6, 7, 8, 9, 10, 11, 12),
    care_sizes=(16, 64, 256, 1024, 4096),
    time_cap=45.0,
    repeat_time=0.1,
    own_process=True,
    chain_sizes=(20000, 24000),
    cubic_sizes=(8, 16, 32, 64, 128, 256),
    runs=(20, 1),
    variety_runs=10,
    truth_sweeps=150,
    truth_chains=400,
    gibbs_sweeps=(5, 20, 80, 320, 1280),
    large_grids=(100, 200, 500, 1000),
    l1=(0.003, 0.01, 0.03),
    mus=(0.1, 0.3, 0.5, 0.7, 0.9),
    sigmas=(0.1, 0.2, 0.4),
    rates=(0.1, 0.3, 0.5, 0.7, 0.9),
    leaks=(1e-3, 1e-2, 1e-1, 0.3, 0.45),
    folds=10,
    n_images=1000,
    side=16,
    sweeps=100,
    steps=2000,
    scan=(0.34, 0.36, 0.38, 0.40, 0.4407),
)
QUICK = replace(
    FULL,
    name="quick",
    exponents=(3, 4, 5, 6, 8, 10, 12, 13, 14, 16, 17, 18, 19),
    far_exponents=(20, 22),
    cost_exponents=(10, 12, 13, 14, 15, 16, 17),
    unbalanced_exponents=(6, 8, 9, 10, 11),
    limited_exponents=(12, 14, 17, 18, 19, 20),
    limit_exponents=(6, 7, 9, 10, 11, 12),
    care_sizes=(16, 64, 256, 1024),
    time_cap=2.5,
    repeat_time=0.02,
    runs=(10, 1),
    truth_sweeps=300,
    truth_chains=64,
    gibbs_sweeps=(5, 20, 80, 320),
    large_grids=(100, 200),
    l1=(0.03,),
    mus=(0.1, 0.5, 0.9),
    sigmas=(0.1, 0.3),
    rates=(0.1, 0.5, 0.9),
    leaks=(1e-2, 0.45),
    sweeps=60,
    steps=300,
    scan=(0.34, 0.38, 0.4407),
)
TINY = replace(
    QUICK,
    name="tiny",
    seeds=2,
    exponents=(4, 6, 8),
    far_exponents=(10,),
    cost_exponents=(4, 6),
    own_cost_exponents=(4, 6),
    unbalanced_exponents=(4, 6),
    limited_exponents=(4, 6),
    limit_exponents=(4, 6),
    care_sizes=(16, 64),
    time_cap=0.5,
    repeat_time=0.0,
    own_process=False,
    chain_sizes=(),
    cubic_sizes=(4, 8),
    runs=(2, 1),
    variety_runs=1,
    truth_sweeps=10,
    truth_chains=4,
    gibbs_sweeps=(2, 4),
    large_grids=(12,),
    mus=(0.1, 0.9),
    sigmas=(0.3,),
    rates=(0.1, 0.9),
    leaks=(0.1,),
    folds=2,
    n_images=60,
    side=6,
    sweeps=5,
    steps=5,
    scan=(0.3, 0.4407),
)
SIZES = {"tiny": TINY, "quick": QUICK, "full": FULL}
