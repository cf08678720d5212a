"""
Events in a signal whose number is known
========================================

*A noisy signal has on and off states, and the total time "on" is known from a counter. Where are the events?*

A hidden Markov model decodes the signal without the counter. Adding the count breaks the chain's
independence, and the usual ways out are to threshold, to rescale, or to simulate and reject.
:class:`tallytree.ChainModel` conditions exactly, also when several counts are known.
"""

# %%
# A signal and a counter
# ----------------------
# 600 steps, two states, a weak signal (1.1 standard deviations apart). A meter tells how many steps were "on"
# in each sixth of the recording.

import matplotlib.pyplot as plt
import numpy as np

import tallytree as tt

rng = np.random.default_rng(11)
T, LEVEL, START, STOP = 600, 1.1, 0.02, 0.08
state = np.zeros(T, int)
for t in range(1, T):
    state[t] = rng.random() >= STOP if state[t - 1] else rng.random() < START
signal = LEVEL * state + rng.normal(size=T)
print(f"{state.sum()} of {T} steps are on, in {np.sum(np.diff(state) == 1)} events")

log_unary = -0.5 * (signal[:, None] - LEVEL * np.arange(2)) ** 2
log_transitions = np.log([[1 - START, START], [STOP, 1 - STOP]])
parts = [range(i, i + T // 6) for i in range(0, T, T // 6)]
models = {
    "hidden Markov model": tt.ChainModel(log_unary, log_transitions),
    "given the total": tt.ChainModel(
        log_unary, log_transitions, tt.exactly(int(state.sum()))
    ),
    "given each sixth": tt.ChainModel(
        log_unary,
        log_transitions,
        [tt.Group(p, tt.exactly(int(state[p].sum()))) for p in parts],
    ),
}

# %%
# What each model says
# --------------------

errors = {}
for name, model in models.items():
    on = model.marginals[:, 1]
    errors[name] = np.abs(on - state).sum()
    decoded = model.mode()
    print(
        f"{name:<20} expected wrong steps {errors[name]:5.1f}, log-probability of the truth {float(model.log_prob(state)):7.2f}, mode has {int(decoded.sum())} on"
    )

plain = models["hidden Markov model"].marginals[:, 1]
threshold = np.sort(plain)[-int(state.sum())]
cut = (plain >= threshold).astype(int)
print(
    f"threshold that gives the right total: {np.sum(cut != state)} steps wrong, {np.sum(np.diff(cut) == 1)} events"
)
best = models["given each sixth"].mode()
print(
    f"most probable path given each sixth: {np.sum(best != state)} steps wrong, {np.sum(np.diff(best) == 1)} events"
)
assert errors["given each sixth"] < errors["hidden Markov model"]

# %%
# Rejection confirms it, where it can
# -----------------------------------
# Drawing from the plain model and keeping paths with the right total gives the same marginals; only few paths
# in a hundred survive, and none would with six counts.

drawn = models["hidden Markov model"].sample(40_000, rng=0)
kept = drawn[drawn.sum(-1) == state.sum()]
difference = np.abs(kept.mean(0) - models["given the total"].marginals[:, 1]).max()
print(
    f"{len(kept)} of 40,000 paths have the right total; largest difference of marginals {difference:.3f}"
)
assert difference < 5 * np.sqrt(0.25 / len(kept))
six = np.all([drawn[:, p].sum(1) == state[p].sum() for p in parts], axis=0).sum()
print(f"paths with all six counts right: {six}")
assert six < 10 and len(kept) > 100

figure, (top, bottom) = plt.subplots(
    2, 1, figsize=(10, 5.2), height_ratios=[1, 1.6], sharex=True
)
top.plot(signal, color="0.6", lw=0.7)
top.fill_between(
    np.arange(T),
    signal.min(),
    signal.max(),
    where=state > 0,
    color="#d9822b",
    alpha=0.35,
    step="mid",
    label="events",
)
top.set(ylabel="signal")
top.legend(loc="upper right")
for (name, model), colour in zip(models.items(), ("#b8b8b8", "#3b6fb6", "#4f9d5d")):
    bottom.plot(model.marginals[:, 1], color=colour, label=name, lw=1.3)
bottom.fill_between(
    np.arange(T), 0, 1, where=state > 0, color="#d9822b", alpha=0.2, step="mid"
)
for p in parts[1:]:
    bottom.axvline(p[0], color="0.85", lw=0.8, zorder=0)
bottom.set(xlabel="step", ylabel="P(on)", ylim=(0, 1.25))
bottom.legend(ncols=3, loc="upper center")
plt.show()

# %%
# How many there are, before the counter is read
# ----------------------------------------------

figure, axis = plt.subplots(figsize=(7, 2.8))
law = np.exp(models["hidden Markov model"].count_log_probs())
axis.fill_between(
    np.arange(T + 1),
    law,
    color="#3b6fb6",
    alpha=0.7,
    label="steps on, by the signal alone",
)
axis.axvline(state.sum(), color="#d9822b", label="truth")
axis.set(xlim=(0, 300), xlabel="steps on", ylabel="probability")
axis.legend()
plt.show()

# %%
# **Claim, computed above:** the counts lower the expected number of wrong steps, exactly and in one
# inference; rejection sampling agrees for one count and is hopeless for six.
