"""The 38 empirical statements of the paper, each once. What is quoted is literal, the rest our paraphrase."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Statement:
    """What the paper says: the part of the experiments that tests it, the section, and the words."""

    key: str
    part: str
    section: str
    text: str


_ALL = (
    (
        "rc-balanced",
        "runtime",
        "4, 5.2.3",
        'Marginals of balanced RC models: "the algorithm runs in O(D log^2 D) time".',
    ),
    (
        "rc-unbalanced",
        "runtime",
        "5.2.3",
        '"If binary trees are not balanced, the worst case runtime can be O(D^2)."',
    ),
    (
        "sampling",
        "runtime",
        "1, 5.3",
        'The algorithm can "draw an exact sample with the same runtime".',
    ),
    (
        "tree-and-count",
        "runtime",
        "5.4",
        "Exact inference with a balanced tree of edges and a count (Eq. 8) in O(D log^2 D) time.",
    ),
    (
        "potetz-lee",
        "runtime",
        "2.3, 6.1",
        "Potetz and Lee's algorithm is O(D^3 log D); Chain, Tree and FFT Tree improve on it.",
    ),
    (
        "chain-time",
        "runtime",
        "6.1",
        'The Chain is "a O(D^2) algorithm".',
    ),
    (
        "chain-limited",
        "runtime",
        "3, 6.1",
        'If counts above k are disallowed, the Chain "can be made to run in O(Dk) time".',
    ),
    (
        "chain-memory",
        "runtime",
        "6.1",
        'The Chain "also requires O(D^2) space" and "fails after D = 16000 due to memory limits".',
    ),
    (
        "tree-memory",
        "runtime",
        "6.1",
        'Tree: "The space usage is O(D log D)."',
    ),
    (
        "fft-memory",
        "runtime",
        "5.2.3",
        'The FFT Tree "uses O(D log D) space".',
    ),
    (
        "chain-small",
        "runtime",
        "Fig. 3",
        '"For very small D, the Chain algorithm is slightly faster".',
    ),
    (
        "tree-chain",
        "runtime",
        "6.1",
        '"The Tree algorithm is faster than the chain algorithm for larger D".',
    ),
    (
        "tree-slow",
        "runtime",
        "6.1",
        'The Tree\'s "quadratic time usage causes it to become quite slow once D nears 100k".',
    ),
    (
        "fft-linear",
        "runtime",
        "6.1",
        'The FFT Tree\'s runtime "grows near linearly up through all experiments" (to 2^19).',
    ),
    (
        "half-million",
        "runtime",
        "6.1",
        'The FFT Tree handles "half a million variables in less than 100 seconds".',
    ),
    (
        "numerical-care",
        "runtime",
        "6.1",
        'In practice, "for large values of D, care must be taken to avoid numerical issues for certain settings".',
    ),
    (
        "lbp-bias",
        "matching",
        "6.2",
        '"LBP achieves a low bias in a relatively short amount of time."',
    ),
    (
        "naive-small",
        "matching",
        "6.2",
        'On small problems the naive approach has a low bias "in some runs"; constraints "clearly influence '
        'the larger problems".',
    ),
    (
        "lp-slower",
        "matching",
        "6.2",
        'Of the baselines, "the LP method tends to be slower than LBP".',
    ),
    (
        "lp-scaling",
        "matching",
        "6.2",
        'LP "becomes relatively slower on larger problems".',
    ),
    (
        "lp-bias",
        "matching",
        "6.2",
        'LP "exhibits significant bias".',
    ),
    (
        "lbp-larger",
        "matching",
        "6.2",
        'LBP "converges quickly even on e.g., 100x100 problems".',
    ),
    (
        "gibbs-stuck",
        "matching",
        "6.2",
        'The 2x2 Gibbs sampler "will not be ergodic for disjoint cardinality constraints".',
    ),
    (
        "lbp-variety",
        "matching",
        "6.2",
        'LBP is "relatively fast, accurate, and applies to a wide variety of constraints".',
    ),
    (
        "normal-ahead",
        "bags",
        "6.3",
        'A trend: "a Normal cardinality potential out-performs the standard Noisy-OR".',
    ),
    (
        "folds-spread",
        "bags",
        "6.3",
        'On Musk1, "the standard deviation of errors across validation folds was high".',
    ),
    (
        "not-significant",
        "bags",
        "6.3",
        'Hence "these results are not statistically significant".',
    ),
    (
        "f-matters",
        "bags",
        "6.3",
        'There is "a trend where varying the f functions can affect performance".',
    ),
    (
        "large-mu",
        "bags",
        "6.3",
        'For this problem "setting the mu parameter to be large is beneficial for learning".',
    ),
    (
        "active",
        "bags",
        "6.3, Fig. 5b",
        'Varying f "does indeed affect how many instances within a positive bag" are labelled positive.',
    ),
    (
        "printed",
        "images",
        "6.4",
        "Log-likelihoods (negative ones, per image): 145.22 for the pairwise tree, 146.78 for RC.",
    ),
    (
        "tree-likelihood",
        "images",
        "6.4",
        "The pairwise tree has a slightly better likelihood than RC.",
    ),
    (
        "tree-pairs",
        "images",
        "6.4",
        'Hypothesis: "the pairwise tree model is able to do a better job at directly capturing pairwise '
        'statistics".',
    ),
    (
        "long-range",
        "images",
        "6.4",
        'Visually, "the RC model does a better job of capturing long range correlations".',
    ),
    (
        "counts-adaptive",
        "images",
        "6.4",
        'In particular, "for the adaptive tree, the pairwise model does significantly worse than the RC model".',
    ),
    (
        "counts-anti",
        "images",
        "6.4",
        'RC captures higher-order counts better "even if it does not encode them directly" (anti-clustering).',
    ),
    (
        "random-anti",
        "images",
        "6.4",
        "Random clusterings are not qualitatively different from anti-clustering.",
    ),
    (
        "all-or-none",
        "images",
        "6.4",
        'The tree "is unable to model this \'all-or-none\' effect" and tends to a "mode near the 50% full '
        'point".',
    ),
)
STATEMENTS = {key: Statement(key, part, section, text) for key, part, section, text in _ALL}
# What the paper is remembered for: the algorithm's time, its accuracy inside LBP, and what RC captures that a
# tree does not.
FOREMOST = ("fft-linear", "lbp-bias", "counts-adaptive")
