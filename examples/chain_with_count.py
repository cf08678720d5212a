"""A hidden signal with a known number of events.

A sensor reads 0 most of the time and a little more during an event. Events are rare and last a few steps, so the
hidden states form a chain: a hidden Markov model. Somebody also counted how many *steps* the events lasted in all, and
how many of them fell into each tenth of the record. Conditioning on these counts is exact, and it helps.

Run it with ``python examples/chain_with_count.py``.
"""

from __future__ import annotations

import numpy as np

import tallytree as tt

STEPS = 1000
LEVEL, NOISE = 1.0, 1.0  # what an event adds to the reading, and the noise
START, STOP = 0.02, 0.2  # chances that an event starts or ends at a step


def simulate(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Hidden states and readings."""
    states = np.zeros(STEPS, int)
    for t in range(1, STEPS):
        states[t] = rng.random() >= STOP if states[t - 1] else rng.random() < START
    return states, LEVEL * states + NOISE * rng.normal(size=STEPS)


def expected_errors(marginals: np.ndarray, truth: np.ndarray) -> float:
    """How many steps a state drawn from the posterior gets wrong."""
    return float(np.abs(marginals[:, 1] - truth).sum())


def main() -> None:
    truth, readings = simulate(np.random.default_rng(7))
    log_unary = -0.5 * ((readings[:, None] - LEVEL * np.arange(2)) / NOISE) ** 2
    log_transitions = np.log([[1 - START, START], [STOP, 1 - STOP]])

    plain = tt.ChainModel(log_unary, log_transitions)
    total = tt.ChainModel(log_unary, log_transitions, tt.exactly(int(truth.sum())))
    tenths = [range(i, i + STEPS // 10) for i in range(0, STEPS, STEPS // 10)]
    groups = [tt.Group(part, tt.exactly(int(truth[part].sum()))) for part in tenths]
    parts = tt.ChainModel(log_unary, log_transitions, groups)

    print(f"{STEPS} steps, {truth.sum()} of them in an event")
    expected = float(np.exp(plain.count_log_probs()) @ np.arange(STEPS + 1))
    print(f"the signal alone expects {expected:.1f}")
    for name, model in (("signal alone", plain), ("+ total", total), ("+ count per tenth", parts)):
        right = float(model.log_prob(truth))
        wrong = expected_errors(model.marginals, truth)
        print(f"{name:<18} {wrong:5.1f} steps wrong, log-probability of the truth {right:7.2f}")
    drawn = total.sample(1000, rng=0)
    print(
        f"1000 samples given the total: every one has {np.unique(drawn.sum(-1)).tolist()} steps in an event"
    )


if __name__ == "__main__":
    main()
