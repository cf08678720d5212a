"""Every threshold at which another method takes over, with the measurement behind it.

Measured on two cores with AVX-512; a factor of two either way changes little, because neighbours on the ladder cost
about the same where one takes over from the other.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Float64

MIXTURE_TERMS = 8  # closed forms with more terms lose to the solver; also kMaxPowers of the compiled engine
SMALL_TREE = 64  # compiled: below this many variables direct passes are the quickest, and so is the last rung
SIDE_BY_SIDE = 4  # compiled: so many models share the lanes of registers ...
SMALL_IN_LANES = 320  # ... if they have at most this many variables
# Compiled: count distributions of models up to this size come from plain numbers in lanes
COUNTED_IN_LANES = 512
DRAWN_IN_LANES = 512  # compiled: models up to this size are drawn side by side ...
FEW_DRAWS = 8  # ... if so few samples of each are wanted; more pay for tables of their own
FEW_LARGE_DRAWS = 4  # compiled: so many samples of a large component are drawn given their totals, one by one
LONG_DRAWS = 1 << 14  # more samples of components above this size come from windows of their total
LAW_KNOWN = 1e-12  # error that the probabilities of a total may have when it is drawn
HIGH = 1e4  # nats: entries of a flat table from which its height is worth taking off
NEVER_DRAWN = 2.0**-60  # share of the weight that samples need not reach
TILT_WORTH = 1 << 15  # compiled: from here on a few tilted FFT passes cost less than one wide pass
# Compiled: from here on the counts that matter to derivatives are looked for before the last rung is tried
CUT_WORTH = 256
TILT_LEAST = 0.5  # standard deviations by which a tilt has to move a mean to be worth a pass
FFT_ROUGHNESS = 5.0  # an FFT pass fails for noise in the tables of standard deviation 3 and more
WILD = 300.0  # compiled: noise of standard deviation 150 and more leaves few tiles of counts to plain numbers
EXTREME = 300.0  # log-odds beyond this leave plain numbers little room: e^300 is half of their range
# Nats per variable between the log-odds: then the undecided ones, within 128 nats, are some eight
SPARSE = 16.0
SHORT_PASS = 4096  # up to here no pass over all pairs of counts takes long
SERIES_LIMIT = 160  # array code: above this many variables a characteristic function beats a tree
DIRECT_LIMIT = 256  # array code: up to this many variables a direct tree beats everything
ACCEPTABLE = 1e-6  # a method chosen by name that certifies less than this raises
# Pairs of counts that array code may look at for a number that needs all digits
LARGEST_WALK = float(1 << 27)
# Pairs of counts up to which a walk is as quick as a few inferences
SHORT_WALK = float(1 << 15)
# Share of 1 + |log Z| that may be lost where large numbers cancel: a tenth of what is promised
LOG_NORM = 1e-11
CONDITIONED = 1 << 22  # entries of log-odds that go into one batched inference of conditional models

_ROUGHNESS_SAMPLE = 1 << 12


def uses_mixtures(method: str, n: int) -> bool:
    """Whether exponential mixtures are worth looking up."""
    return n > DIRECT_LIMIT if method == "auto" else method == "mixture"


def roughness(tables: Float64) -> float:
    """Mean size of the second differences of the first model's log-tables: 0 for a straight line, 2 sd for noise.

    Long tables are judged by samples: this only chooses where to start on the ladder.
    """
    if not len(tables):
        return 0.0
    entries = tables[0]
    if len(entries) > 2 * _ROUGHNESS_SAMPLE:
        stretch = len(entries) // 64
        entries = entries[: 64 * stretch].reshape(64, stretch)[:, : _ROUGHNESS_SAMPLE // 64]
    with np.errstate(invalid="ignore"):
        second = np.abs(np.diff(entries, 2))
    second = second[np.isfinite(second)]
    return float(second.mean()) if len(second) else 0.0


def extreme(nu: Float64) -> bool:
    """Whether some finite log-odds leave plain numbers little room."""
    if nu.size == 0:
        return False
    if nu.min() > -EXTREME and nu.max() < EXTREME:
        return False
    return bool(np.any((np.abs(nu) > EXTREME) & np.isfinite(nu)))
