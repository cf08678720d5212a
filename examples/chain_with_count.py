"""A hidden signal with a known number of events.

A sensor reads 0 most of the time and a little more during an event. Events are rare and last a few steps, so the hidden
states form a chain: a hidden Markov model. Somebody also counted how many *steps* the events lasted in all, and how many
of them fell into each quarter of the record. Conditioning on these counts is exact, and it helps.

Run it with ``python examples/chain_with_count.py``.
"""

from __future__ import annotations

import numpy as np

import tallytree as tt

STEPS = 400
LEVEL, NOISE = 1.0, 1.0  # what an event adds to the reading, and the noise
START, STOP = 0.02, 0.2  # chances that an event starts or ends at a step


def simulate(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Hidden states and readings."""
    states = np.zeros(STEPS, int)
    for t in range(1, STEPS):
        states[t] = rng.random() >= STOP if states[t - 1] else rng.random() < START
    return states, LEVEL * states + NOISE * rng.normal(size=STEPS)


def errors(marginals: np.ndarray, truth: np.ndarray) -> int:
    return int(((marginals[:, 1] > 0.5) != truth).sum())


def main() -> None:
    truth, readings = simulate(np.random.default_rng(7))
    log_unary = -0.5 * ((readings[:, None] - LEVEL * np.arange(2)) / NOISE) ** 2
    log_transitions = np.log([[1 - START, START], [STOP, 1 - STOP]])

    plain = tt.ChainModel(log_unary, log_transitions)
    total = tt.ChainModel(log_unary, log_transitions, tt.exactly(int(truth.sum())))
    quarters = [range(i, i + STEPS // 4) for i in range(0, STEPS, STEPS // 4)]
    groups = [tt.Group(q, tt.exactly(int(truth[q].sum()))) for q in quarters]
    parts = tt.ChainModel(log_unary, log_transitions, groups)

    print(f"{STEPS} steps, {truth.sum()} of them in an event")
    expected = float(np.exp(plain.count_log_probs()) @ np.arange(STEPS + 1))
    print(f"the signal alone expects {expected:.1f}")
    for name, model in (("signal alone", plain), ("+ total", total), ("+ count per quarter", parts)):
        right = float(model.log_prob(truth))
        print(f"{name:<20} {errors(model.marginals, truth):3d} steps wrong, log-probability of the truth {right:7.2f}")
    drawn = total.sample(1000, rng=0)
    print(f"1000 samples given the total: every one has {np.unique(drawn.sum(-1)).tolist()} steps in an event")


if __name__ == "__main__":
    main()
