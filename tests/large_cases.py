"""Hard models of 4096 variables and what oracles say about them, from the goldens where these have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

import golden
from accuracy_cases import accuracy_case
from case import Case
from oracle import log_space_tree
from oracle_chains import hard_cases, tilted_chain
from oracle_nested import Answer

SIZE = 4096
LARGE = [
    "tame", "wide_logits", "low_logits_exactly_half", "signs_30_sorted_exactly_third",
    "signs_30_shuffled_exactly_third", "rough_table_50", "attractive", "attractive_critical", "two_spikes",
    "ward_1", "ward_3", "ward_6", "ward_50", "ward_1000",
]  # fmt: skip


def some_sets(case: Case) -> range:
    """The sets whose counts are looked at."""
    return range(0, len(case.sets), max(1, len(case.sets) // 25))


def _inputs(case: Case) -> list[np.ndarray]:
    return [case.theta, *(np.append(table, members) for members, table in case.sets)]


def _contract(case: Case) -> golden.Values:
    found = log_space_tree(case.theta, case.sets)
    counts = {f"counts {i}": found.count_log_probs(i) for i in some_sets(case)}
    return {"log_partition": found.log_partition, "posterior_logits": found.posterior_logits, **counts}


def contract_truth(name: str, case: Case) -> Answer:
    """As `log_space_tree`, with the counts of some sets."""
    found = golden.stored(f"contract {name}", _inputs(case), lambda: _contract(case))
    counts = {i: found[f"counts {i}"] for i in some_sets(case)}
    return Answer(float(found["log_partition"]), found["posterior_logits"], None, counts)


def _chain(nu: np.ndarray, log_f: np.ndarray, tilt: float) -> golden.Values:
    log_mean, messages = tilted_chain(nu, log_f, tilt)
    return {"log_mean": log_mean, "messages": messages}


def chain_truth(name: str, nu: np.ndarray, log_f: np.ndarray, tilt: float) -> tuple[float, np.ndarray]:
    """As `tilted_chain`."""
    found = golden.stored(f"chain {name}", [nu, log_f], lambda: _chain(nu, log_f, tilt))
    return float(found["log_mean"]), np.asarray(found["messages"])


def goldens() -> Iterator[tuple[str, list[np.ndarray], Callable[[], golden.Values]]]:
    """What is stored: name, inputs, and how to compute it."""
    for name in LARGE:
        case = accuracy_case(name, SIZE)
        yield f"contract {name}", _inputs(case), lambda case=case: _contract(case)
    for name, nu, log_f, tilt in hard_cases(SIZE):
        yield f"chain {name}", [nu, log_f], lambda nu=nu, log_f=log_f, tilt=tilt: _chain(nu, log_f, tilt)
