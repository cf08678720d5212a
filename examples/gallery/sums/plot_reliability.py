"""
Reliability of k-out-of-n systems
=================================

*A system works while at least k of its n unequal parts work. How unlikely is failure, and which part should
be improved first?*

Redundant systems fail with probabilities such as 1e-60. Simulation never sees the event, and ``1 - cdf``
rounds to zero or to noise. :func:`tallytree.k_out_of_n` and :class:`tallytree.PoissonBinomial` keep relative
accuracy however small the number is.
"""

# %%
# The system
# ----------
# A storage cluster of 240 disks in six generations; data survive while at least 180 disks work. The older the
# generation, the likelier a disk fails within the year.

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import tallytree as tt

rng = np.random.default_rng(3)
generation = np.repeat(np.arange(6), 40)
fails = np.array([0.004, 0.008, 0.015, 0.03, 0.06, 0.11])[generation] * rng.uniform(
    0.7, 1.4, 240
)
works = 1 - fails
k = 180

failures = tt.PoissonBinomial(fails)
log_unreliability = float(failures.logsf(len(fails) - k))  # log P(more than n - k fail)
print(f"reliability          {float(tt.k_out_of_n(works, k)):.16f}")
print(f"unreliability        1e{log_unreliability / np.log(10):.2f}")

# %%
# What people use today
# ---------------------
# ``scipy.stats.poisson_binom`` computes the upper tail from probabilities with absolute accuracy 1e-16;
# simulation needs 1 / P draws; the normal and Poisson approximations are off by many orders of magnitude out
# there. The truth below is summed with exact rational arithmetic.

from fractions import Fraction


def exact_tail(probabilities, more_than):
    """P(count > more_than) in rational arithmetic."""
    law = [Fraction(1)]
    for p in map(Fraction, probabilities.tolist()):
        law = [
            (law[c] * (1 - p) if c < len(law) else 0) + (law[c - 1] * p if c else 0)
            for c in range(len(law) + 1)
        ]
    return law, sum(law[more_than + 1 :])


few = fails[::4]  # 60 disks keep the fractions short
law, _ = exact_tail(few, 0)
counts = np.arange(len(few) + 1)


def log10_fraction(value):
    """log10 of a positive rational, whatever its size."""
    import math

    shift = value.numerator.bit_length() - value.denominator.bit_length()
    scaled = value / Fraction(2) ** shift
    return math.log10(scaled) + shift * math.log10(2)


truth = np.array([log10_fraction(sum(law[c + 1 :])) for c in counts[:-1]])
ours = tt.PoissonBinomial(few).logsf(counts[:-1]) / np.log(10)
with np.errstate(divide="ignore"):
    scipy = np.log10(stats.poisson_binom.sf(counts[:-1], few))
    normal = stats.norm.logsf(
        (counts[:-1] + 0.5 - few.sum()) / np.sqrt((few * (1 - few)).sum())
    ) / np.log(10)
    poisson = stats.poisson.logsf(counts[:-1], few.sum()) / np.log(10)
worst = np.max(np.abs(ours - truth)) * np.log(10)
print(f"largest relative error of tallytree over all {len(truth)} tails: {worst:.1e}")
print(
    f"scipy is more than 10 % off from {np.argmax(~(np.abs(scipy - truth) < 0.04))} failures on"
)
print(f"the smallest of them is 1e{truth.min():.1f}")
assert worst < 1e-9 and truth.min() < -90

# %%
# Which part to improve
# ---------------------
# The Birnbaum importance of part i is the probability that the system hangs on it: the derivative of the
# reliability. Improving the most important parts first is what an operator wants; here the sparing of one
# generation at a time is compared.

importance = tt.birnbaum_importance(works, k)
risk = [
    float(tt.PoissonBinomial(np.where(generation == g, 0.004, fails)).logsf(60))
    / np.log(10)
    for g in range(6)
]

# %%
# Pictures
# --------

left, right = (plt.figure(figsize=(6, 3.8)).add_subplot() for _ in range(2))
left.plot(counts[:-1], truth, color="0.75", lw=6, label="exact rational arithmetic")
left.plot(counts[:-1], ours, color="#3b6fb6", label="tallytree")
left.plot(
    counts[:-1],
    scipy,
    color="#b5403a",
    marker=".",
    lw=0.8,
    label="scipy.stats.poisson_binom",
)
left.plot(counts[:-1], poisson, "--", color="#4f9d5d", label="Poisson approximation")
left.plot(
    counts[:-1],
    np.where(normal > -130, normal, np.nan),
    ":",
    color="#7d5ba6",
    label="normal approximation",
)
left.set(
    xlabel="failures c (60 disks)",
    ylabel="log10 P(more than c fail)",
    ylim=(-130, 5),
    title="Tails of 60 disks",
)
left.legend()
gains = log_unreliability / np.log(10) - np.array(risk)
right.bar(range(6), gains, color="#3b6fb6")
right.set(
    xlabel="generation replaced by new disks (5: oldest)",
    ylabel="orders of magnitude gained",
    title="How much less likely a loss becomes",
)
plt.show()

# %%
mean = [importance[generation == g].mean() for g in range(6)]
print("mean importance by generation:", " ".join(f"{m:.2e}" for m in mean))
gain = gains.max()
print(f"replacing the oldest generation makes a loss 1e{gain:.0f} times less likely")
assert np.argmin(risk) == 5 and gain > 3

# %%
# **Claim, computed above:** all 60 tails agree with rational arithmetic to better than 1e-9 relative, down to
# below 1e-90, where the usual routines give noise; and replacing the oldest generation helps most, by more
# than three orders of magnitude.
#
# See also :class:`tallytree.PoissonBinomial` for the whole distribution and :doc:`/guide/accuracy` for what
# is promised.
