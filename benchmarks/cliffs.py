"""What the worst input costs beside the usual one: every verb, kind of model, home, input and size.

    python benchmarks/cliffs.py                       # everything; hours where there are cliffs
    python benchmarks/cliffs.py --quick               # five minutes on an idle machine
    python benchmarks/cliffs.py --kind flat --verb product --size 20000
    python benchmarks/cliffs.py --kind path --input cauchy --all
    python benchmarks/cliffs.py --home torch --size 1000 100000
    python benchmarks/cliffs.py --kind flat --store benchmarks/cliffs.json    # keep what was measured, part by part
    python benchmarks/cliffs.py --share 1/2 --store benchmarks/cliffs.json    # half of it; another process has 2/2
    python benchmarks/cliffs.py --store benchmarks/cliffs.json --write        # the site's table from all that is kept

A cell is one verb of one model. Its price is processor time (on a GPU the time until the answer is there) in units of
the usual price: the same verb of the same kind and size for standard normal log-odds and a usual potential, measured in
the same process. The aims: every cell at most 10, growth at most D^1.15 from one size to the next. Cells beyond are
printed, `--all` prints every cell, and the last line is the worst ratio of the run. Filters match beginnings of names.

Cells run in a child that is ended when one takes more processor time than the limit: then the ratio is a lower bound,
marked ">". One that needs more memory than `--memory` is marked so, too. A call that looks too dear is timed again, so
that a busy machine makes no cliffs. Several processes may put what they measure into one store.
A new input is a row of `LOGITS` or `POTENTIALS`, a new kind a function in `KINDS`, a new verb a row of `VERBS`, a new
home a class in `HOMES`. Verbs that the usual model does not offer, and impossible models, are left out; other errors
are printed.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import itertools
import math
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tallytree as tt
from cliff_tables import ABOVE, GROWTH, Store, write

SHORTEST = 2e-3  # seconds; quicker calls are timed in loops that take as long
SIZES, QUICK_SIZES = (100, 1000, 10_000, 100_000), (1000, 20_000)
LIMIT, QUICK_LIMIT = 60.0, 2.0  # seconds that one call may take
SLOWDOWN = (
    20.0  # wall-clock time that a child may take of the processor time that it may take, on a busy machine
)
NOTICEABLE = 5e-3  # growth is judged for calls that take longer than this
SHORT = 0.1  # seconds; a longer call that is clearly below the aim is not repeated
DOUBTFUL = 0.8 * ABOVE  # times the usual price, from which on a cell is timed again
MEMORY = 6.0  # gigabytes that a child may take

Array = Any
Draw = np.random.Generator


# -- inputs --------------------------------------------------------------------------------------------------------


def _some(often: float, special: Callable[[int, Draw], Array]) -> Callable[[int, Draw], Array]:
    """Standard normal numbers with a share of others, or a number of others, at random places."""

    def logits(n: int, rng: Draw) -> Array:
        x = rng.normal(size=n)
        count = min(n // 2, int(often * n if often <= 1.0 else often))
        x[rng.permutation(n)[:count]] = special(count, rng)
        return x

    return logits


def _mask(value: float) -> Callable[[int, Draw], Array]:
    return _some(0.5, lambda count, _: np.full(count, value))


LOGITS: dict[str, Callable[[int, Draw], Array]] = {
    "normal": lambda n, rng: rng.normal(size=n),
    "equal": lambda n, rng: np.full(n, -0.3),
    "two values": lambda n, rng: np.where(rng.random(n) < 0.5, -2.0, 3.0),
    "sorted": lambda n, rng: np.sort(3.0 * rng.normal(size=n)),
    "rare": lambda n, rng: rng.normal(size=n) - 12.0,
    "cauchy": lambda n, rng: rng.standard_cauchy(n),
    "1000 cauchy": lambda n, rng: 1000.0 * rng.standard_cauchy(n),
    "10 far": _some(10, lambda count, rng: 1000.0 * rng.standard_cauchy(count)),
    "mask -1e4": _mask(-1e4),
    "mask -1e9": _mask(-1e9),
    "mask -inf": _mask(-math.inf),
    "half forced": _mask(math.inf),
    "wide": lambda n, rng: np.linspace(-700.0, 700.0, n),
    "sd 1e6": lambda n, rng: 1e6 * rng.normal(size=n),
}


def _spike(n: int) -> Array:
    return np.where(np.arange(n + 1) == max(n - 3, 0), 0.5 * n, 0.0)


def _holes(n: int) -> Array:
    return np.where(np.arange(n + 1) % 7 < 3, 0.0, -math.inf)


POTENTIALS: dict[str, Callable[[int], Any]] = {
    "exactly n/3": lambda n: tt.exactly(n // 3),
    "exactly 0": lambda n: tt.exactly(0),
    "exactly 1": lambda n: tt.exactly(1),
    "exactly n/2": lambda n: tt.exactly(n // 2),
    "exactly n-1": lambda n: tt.exactly(n - 1),
    "exactly n": lambda n: tt.exactly(n),
    "between": lambda n: tt.between(n // 4, n // 3),
    "at least 1": lambda n: tt.at_least(1),
    "at most n/10": lambda n: tt.at_most(n // 10),
    "1 or n-2": lambda n: tt.one_of([1, max(n - 2, 0)]),
    "parity": lambda n: tt.parity("odd"),
    "modulo": lambda n: tt.modulo(7, 3),
    "noisy or": lambda n: tt.noisy_or(rate=0.2, leak=0.01),
    "noisy and": lambda n: tt.noisy_and(0.9),
    "gaussian": lambda n: tt.gaussian(n / 3, 3.0),
    "poisson": lambda n: tt.poisson(max(1.0, n / 20)),
    "geometric": lambda n: tt.geometric(0.05),
    "uniform": lambda n: tt.uniform(),
    "spike and slab": lambda n: tt.spike_and_slab(0.5, 0.02),
    "all or none": lambda n: tt.all_or_none(n / 100),
    "competition": lambda n: tt.quadratic(-1.0 / n),
    "convex": lambda n: 1e-3 * (np.arange(n + 1.0) - n / 3) ** 2,
    "random": lambda n: np.random.default_rng(n).normal(size=n + 1),
    "spike": _spike,
    "holes": _holes,
    "sd 1e4": lambda n: 1e4 * np.random.default_rng(n).normal(size=n + 1),
}

USUAL = ("normal", "exactly n/3")
# Every kind of log-odds under three potentials, every potential under three kinds of log-odds.
INPUTS = tuple(
    dict.fromkeys(
        [(x, p) for x in LOGITS for p in ("exactly n/3", "between", "random")]
        + [(x, p) for p in POTENTIALS for x in ("normal", "cauchy")]
        + [
            ("wide", "exactly n"),
            ("wide", "exactly n/2"),
            ("1000 cauchy", "exactly n/2"),
            ("rare", "exactly n/2"),
        ]
    )
)
QUICK_INPUTS = (
    *((x, "exactly n/3") for x in ("cauchy", "1000 cauchy", "mask -1e9", "sd 1e6")),
    ("wide", "exactly n"), ("cauchy", "exactly n-1"), ("cauchy", "at least 1"),
    *(("normal", p) for p in ("exactly 1", "exactly n", "between", "1 or n-2", "gaussian", "poisson", "convex")),
    ("normal", "spike"), ("normal", "random"), ("normal", "sd 1e4"),
)  # fmt: skip


# -- homes ---------------------------------------------------------------------------------------------------------


def processor_time() -> float:
    """Processor time of this process, to the microsecond.

    Linux's ``time.process_time`` moves in ticks of some milliseconds once a timer of processor time was set, as the
    limit of a cell is.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class NumPy:
    """Models on arrays; `wait` returns when the answer is there."""

    clock = staticmethod(processor_time)
    start = "fork"
    model: Callable[..., Any] = tt.CountModel

    @staticmethod
    def wait(answer: Any) -> Any:
        return answer


class Torch:
    """Functions of tensors on the CPU, as a model with the verbs that there are."""

    clock, start, device = staticmethod(processor_time), "spawn", "cpu"

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        if self.device == "cuda" and not torch.cuda.is_available():
            raise SystemExit("no GPU here for torch")

    @staticmethod
    def wait(answer: Any) -> Any:
        if getattr(answer, "is_cuda", False):
            import torch

            torch.cuda.synchronize()
        return answer

    def model(self, logits: Array, groups: Any, edges: Any = None) -> Any:
        import torch

        import tallytree.torch as ttt

        def tensor(x: Array) -> Any:
            return torch.from_numpy(np.array(x)).to(self.device)

        if isinstance(groups, np.ndarray):
            groups = tensor(groups)
        edges = None if edges is None else ttt.Forest(edges.pairs, tensor(edges.log_tables))
        leaf = tensor(logits)

        def gradient() -> Any:
            x = leaf.detach().requires_grad_()
            return torch.autograd.grad(ttt.log_partition(x, groups, edges=edges).sum(), x)[0]

        def product(v: Array, counts: bool = False) -> Any:
            x = leaf.detach().requires_grad_()
            return torch.autograd.grad((ttt.marginals(x, groups, edges=edges) * tensor(v)).sum(), x)[0]

        return Functions(
            marginals=lambda: ttt.marginals(leaf, groups, edges=edges),
            log_partition=lambda: ttt.log_partition(leaf, groups, edges=edges),
            count_log_probs=lambda: lambda: ttt.count_log_probs(leaf, groups, edges=edges),
            expected_statistics=gradient,
            hessian_vector_product=lambda: product,
            sample=lambda: lambda rng: ttt.sample(leaf, groups, edges=edges),
        )


class Cuda(Torch):
    clock, device = staticmethod(time.perf_counter), "cuda"


class Jax:
    """Functions of JAX arrays, compiled before they are timed; log-odds change, potentials do not."""

    clock, start = staticmethod(processor_time), "spawn"

    def __init__(self) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        if jax.default_backend() != "cpu":
            self.clock = time.perf_counter
        self._compiled: dict[Any, Any] = {}

    @staticmethod
    def wait(answer: Any) -> Any:
        import jax

        return jax.block_until_ready(answer)

    def model(self, logits: Array, groups: Any, edges: Any = None) -> Any:
        import jax

        import tallytree.jax as ttj

        if edges is not None:
            raise tt.ParameterError("no edges in JAX")
        x = jax.numpy.asarray(logits)
        functions = {
            "marginals": lambda x: ttj.marginals(x, groups),
            "log_partition": lambda x: ttj.log_partition(x, groups),
            "count_log_probs": lambda x: ttj.count_log_probs(x, groups),
            "expected_statistics": lambda x: jax.grad(lambda y: ttj.log_partition(y, groups).sum())(x),
            "hessian_vector_product": lambda x, v: jax.grad(lambda y: (ttj.marginals(y, groups) * v).sum())(
                x
            ),
            "sample": lambda x, key: ttj.sample(key, x, groups),
            "entropy": lambda x: ttj.entropy(x, groups),
            "mode": lambda x: ttj.mode(x, groups),
        }

        def call(name: str, *more: Any) -> Any:
            key = (name, id(groups))
            if key not in self._compiled:
                self._compiled[key] = jax.jit(functions[name]), groups  # kept, so that its id stays its own
            return self._compiled[key][0](x, *more)

        properties = ("marginals", "log_partition", "expected_statistics", "entropy")
        return Functions(
            **{name: functools.partial(call, name) for name in properties},
            count_log_probs=lambda: functools.partial(call, "count_log_probs"),
            mode=lambda: functools.partial(call, "mode"),
            hessian_vector_product=lambda: lambda v, counts=False: call("hessian_vector_product", v),
            sample=lambda: lambda rng: call("sample", jax.random.key(int(rng.integers(1 << 30)))),
        )  # fmt: skip


class Functions:
    """Attributes that are computed when they are asked for."""

    def __init__(self, **answers: Callable[[], Any]) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        if name not in self._answers:
            raise AttributeError(name)
        return self._answers[name]()


HOMES: dict[str, Any] = {"numpy": NumPy, "torch": Torch, "cuda": Cuda, "jax": Jax}


# -- kinds ---------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """What a kind makes models of: log-odds (n,), a potential for any number of variables, and where they live."""

    logits: Array
    potential: Callable[[int], Any]
    home: Any

    @property
    def n(self) -> int:
        return len(self.logits)


class Subject(NamedTuple):
    """A function from log-odds to a new model, and log-odds for it."""

    make: Callable[[Array], Any]
    logits: Array


def flat(case: Case) -> Subject:
    potential = case.potential(case.n)
    return Subject(lambda x: case.home.model(x, potential), case.logits)


def rows(width: int) -> Callable[[Case], Subject]:
    """One potential on every row; a width of 0 means 16 rows."""

    def batch(case: Case) -> Subject:
        length = min(case.n, width or max(1, case.n // 16))
        logits = case.logits[: case.n // length * length].reshape(-1, length)
        potential = case.potential(logits.shape[1])
        return Subject(lambda x: case.home.model(x, potential), logits)

    return batch


def grouped(parts: Callable[[int], list[tuple[Any, Any]]]) -> Callable[[Case], Subject]:
    """Groups with potentials of their own (None: that of the case), and the potential of the case on all."""

    def groups(case: Case) -> Subject:
        inner = [tt.Group(m, case.potential(len(m)) if p is None else p) for m, p in parts(case.n)]
        all_groups = [*inner, tt.Group(None, case.potential(case.n))]
        if case.home is not None and not isinstance(case.home, NumPy):
            return Subject(lambda x: case.home.model(x, all_groups), case.logits)
        known = tt.CountModel(case.logits, all_groups)
        return Subject(lambda x: known.replace(logits=x + 0.0), case.logits)

    return groups


def _halves(n: int) -> list[tuple[Any, Any]]:
    return [(range(n // 2), None)]


def _blocks(n: int) -> list[tuple[Any, Any]]:
    width = min(100, max(1, n // 4))
    return [(range(i, i + width), tt.between(width // 5, width)) for i in range(0, n - width + 1, width)]


def _all_or_none(n: int) -> list[tuple[Any, Any]]:
    width = min(200, max(1, n // 4))
    return [(range(i, i + width), tt.all_or_none(2.0)) for i in range(0, n - width + 1, width)]


def forest(pairs: Callable[[int, Draw], Array], coupling: float = 0.0) -> Callable[[Case], Subject]:
    """Random tables on edges, or the same attraction on all of them: then hubs move the count."""

    def edges(case: Case) -> Subject:
        rng = np.random.default_rng(case.n)
        potential, found = case.potential(case.n), np.asarray(pairs(case.n, rng))
        noise = 0.5 * rng.normal(size=(len(found), 2, 2))
        tables = tt.Forest(found, noise + coupling * np.eye(2))
        return Subject(lambda x: case.home.model(x, potential, edges=tables), case.logits)

    return edges


def _path(n: int, rng: Draw) -> Array:
    return np.stack([np.arange(n - 1), np.arange(1, n)], 1)


def _star(n: int, rng: Draw) -> Array:
    return np.stack([np.zeros(n - 1, int), np.arange(1, n)], 1)


def _broom(n: int, rng: Draw) -> Array:
    return np.stack([np.minimum(np.arange(n - 1), n // 2), np.arange(1, n)], 1)


def _random_tree(n: int, rng: Draw) -> Array:
    return np.stack([(rng.random(n - 1) * np.arange(1, n)).astype(int), np.arange(1, n)], 1)


def chain(steps: Any, sequences: int = 1) -> Callable[[Case], Subject]:
    """Chains of labels, the first with the log-odds; several sequences have different lengths."""

    def labels(case: Case) -> Subject:
        _in_numpy(case)
        weights, length = np.asarray(steps), case.n // sequences
        lengths = None if sequences == 1 else length - np.arange(sequences) % (length // 4)
        potential, rest = case.potential(length), [np.zeros(length)] * (len(steps) - 2)
        if lengths is not None and isinstance(potential, tt.Potential):  # one that the shortest can have, too
            potential = case.potential(length - length // 4)

        def make(x: Array) -> Any:
            each = [np.stack([np.zeros(length), row, *rest], -1) for row in x.reshape(sequences, length)]
            unary = each[0] if sequences == 1 else np.stack(each)
            return tt.ChainModel(unary, weights, potential, lengths=lengths)

        return Subject(make, case.logits[: length * sequences])

    return labels


def ragged(case: Case) -> Subject:
    _in_numpy(case)
    sizes, left, i = [], case.n, 0
    while left:
        sizes.append(min(left, 1 + (37 * i) % 400))
        left, i = left - sizes[-1], i + 1
    potentials = [case.potential(size) for size in sizes]
    return Subject(lambda x: tt.RaggedBatch(x, potentials, sizes=sizes), case.logits)


def thinned(case: Case) -> Subject:
    _in_numpy(case)
    rates, potential = np.full(case.n, 0.7), case.potential(case.n)
    return Subject(lambda x: tt.ThinnedModel(x, rates, potential), case.logits)


def weighted(case: Case) -> Subject:
    """Weights 1 to 5; the potential sees the sum."""
    _in_numpy(case)
    weights = 1 + np.arange(case.n) % 5
    potential = case.potential(int(weights.sum()))
    log_f = potential if isinstance(potential, np.ndarray) else potential.log_table(int(weights.sum()))
    return Subject(lambda x: tt.LinearModel(x, weights.astype(float), log_f, step=1.0), case.logits)


def sums(case: Case) -> Subject:
    """The law of a sum of weighted events, and the events given the mean of the sum; the potential is not used."""
    _in_numpy(case)
    weights = 1 + np.arange(case.n) % 5

    def make(x: Array) -> Any:
        law = tt.PoissonBinomial(logits=x, weights=weights)
        value = round(float(law.mean()))
        return Functions(
            marginals=lambda: law.given(value).marginals, count_log_probs=lambda: law.count_log_probs,
            entropy=law.entropy, sample=lambda: law.sample,
        )  # fmt: skip

    return Subject(make, case.logits)


def loopy(case: Case) -> Subject:
    """One sequential sweep over windows of 20 variables that overlap by half, and a count of all."""
    return _one_sweep(case, [range(i, i + 20) for i in range(0, case.n - 19, 10)])


def loopy_hub(case: Case) -> Subject:
    """One sequential sweep over groups of ten that all share the first variable, and a count of all."""
    return _one_sweep(case, [[0, *range(i, i + 9)] for i in range(1, case.n - 9, 9)])


def _one_sweep(case: Case, sets: list[Any]) -> Subject:
    _in_numpy(case)
    inner = [tt.Group(own, tt.at_most(len(own) - 2)) for own in sets]
    graph = tt.FactorGraph(case.logits, [*inner, tt.Group(None, case.potential(case.n))])

    def make(x: Array) -> Any:
        return Functions(marginals=lambda: tt.loopy_bp(graph.replace(logits=x), max_iter=1).marginals)

    return Subject(make, case.logits)


def chunked(case: Case) -> Subject:
    _in_numpy(case)
    potential, size = case.potential(case.n), max(1, case.n // 8)
    return Subject(lambda x: tt.ChunkedCountModel(x, potential, chunk_size=size), case.logits)


def chunked_groups(case: Case) -> Subject:
    """Scattered groups without a total, each with its own potential."""
    _in_numpy(case)
    ids = np.arange(case.n) % max(1, case.n // 50)
    own = {i: case.potential(size) for i, size in enumerate(np.bincount(ids).tolist())}
    size = max(1, case.n // 8)
    made = functools.partial(tt.ChunkedCountModel, groups=ids, group_potential=own, chunk_size=size)
    return Subject(made, case.logits)


def untied_times(case: Case) -> Subject:
    """The partial likelihood of as many untied times, whose linear predictors are the log-odds."""
    _in_numpy(case)
    sets = tt.learn.risk_sets(np.arange(case.n, dtype=float), np.ones(case.n, bool))

    def make(x: Array) -> Any:
        likelihood, one = tt.learn.ConditionalLikelihood(x[:, None], sets), np.ones(1)
        return Functions(marginals=lambda: (likelihood.derivatives(one), likelihood.excess(one)))

    return Subject(make, case.logits)


def _in_numpy(case: Case) -> None:
    if not isinstance(case.home, NumPy):
        raise tt.ParameterError("this kind lives in NumPy only")


KINDS: dict[str, Callable[[Case], Subject]] = {
    "flat": flat,
    "batch": rows(0),
    "rows of 300": rows(300),
    "nested": grouped(_halves),
    "blocks": grouped(_blocks),
    "all-or-none blocks": grouped(_all_or_none),
    "ragged": ragged,
    "thinned": thinned,
    "path": forest(_path),
    "star": forest(_star),
    "broom": forest(_broom),
    "random tree": forest(_random_tree),
    "coupled star": forest(_star, 1.0),
    "coupled tree": forest(_random_tree, 1.0),
    "chain": chain([[-0.2, -1.6], [-1.2, -0.4]]),
    "left to right": chain([[0.0, -1.0, -2.0], [-math.inf, 0.0, -1.0], [-math.inf, -math.inf, 0.0]]),
    "sequences": chain([[0.0, -1.0, 0.5], [0.3, 0.0, -1.0], [-0.4, 0.2, 0.0]], sequences=10),
    "weighted": weighted,
    "sums": sums,
    "loopy": loopy,
    "loopy hub": loopy_hub,
    "chunked": chunked,
    "chunked groups": chunked_groups,
    "untied times": untied_times,
}


# -- verbs ---------------------------------------------------------------------------------------------------------


class Verb(NamedTuple):
    """A function of a maker and log-odds that gives the call to be timed; the verb whose usual price is its own."""

    call: Callable[[Subject], Callable[[], Any]]
    usual: str = ""
    usual_potential: str = USUAL[1]


def answer(name: str, usual_potential: str = USUAL[1], **arguments: Any) -> Verb:
    """A property or a method of the model."""

    def ask(model: Any) -> Any:
        found = getattr(model, name)
        return found(**arguments) if callable(found) else found

    return Verb(lambda s: lambda: ask(s.make(s.logits)), "", usual_potential)


def product(direction: Callable[[Array, Draw], Array]) -> Verb:
    def call(s: Subject) -> Callable[[], Any]:
        v = direction(s.logits, np.random.default_rng(5))
        return lambda: s.make(s.logits).hessian_vector_product(v, counts=False)

    return Verb(call, "product random")


def divergence(other: Callable[[Array, Draw], Array]) -> Verb:
    def call(s: Subject) -> Callable[[], Any]:
        moved = other(s.logits, np.random.default_rng(6))
        return lambda: s.make(s.logits).kl_divergence(s.make(moved))

    return Verb(call, "kl far")


def _sparse(x: Array, rng: Draw) -> Array:
    v = np.zeros_like(x)
    v[..., rng.integers(x.shape[-1], size=3)] = rng.normal(size=3)
    return v


VERBS: dict[str, Verb] = {
    "marginals": answer("marginals"),
    "log_partition": answer("log_partition"),
    "gradient": answer("expected_statistics"),
    "counts": answer("count_log_probs", "between"),
    "sample": Verb(lambda s: lambda: s.make(s.logits).sample(rng=np.random.default_rng(7))),
    "mode": answer("mode"),
    "entropy": answer("entropy"),
    "product random": product(lambda x, rng: rng.normal(size=x.shape)),
    "product ones": product(lambda x, rng: np.ones_like(x)),
    "product sparse": product(_sparse),
    "product log-odds": product(lambda x, rng: np.where(np.isfinite(x), x, 0.0)),
    "product zero": product(lambda x, rng: np.zeros_like(x)),
    "covariance row": answer("covariance", rows=[0]),
    "kl far": divergence(lambda x, rng: x + rng.normal(size=x.shape)),
    "kl near": divergence(lambda x, rng: x + 1e-5 * rng.normal(size=x.shape)),
    "kl itself": divergence(lambda x, rng: x),
}
QUICK_VERBS = (
    "marginals", "log_partition", "counts", "sample", "mode", "entropy", "product random", "product ones",
    "covariance row", "kl far", "kl near",
)  # fmt: skip
QUICK_KINDS = (
    "flat",
    "batch",
    "nested",
    "blocks",
    "ragged",
    "path",
    "coupled star",
    "chain",
    "weighted",
    "loopy",
    "chunked",
)


# -- one cell ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    home: str
    kind: str
    verb: str
    size: int
    logits: str
    potential: str

    def usual(self) -> Cell:
        verb = VERBS[self.verb]
        return Cell(self.home, self.kind, verb.usual or self.verb, self.size, USUAL[0], verb.usual_potential)

    def call(self) -> Callable[[], Any]:
        home = _home(self.home)
        logits = LOGITS[self.logits](self.size, np.random.default_rng(self.size))
        subject = KINDS[self.kind](Case(logits, POTENTIALS[self.potential], home))
        run = VERBS[self.verb].call(subject)
        return lambda: home.wait(run())

    def seconds(self, budget: float, limit: float = 0.0, enough: float = 0.0, attempts: int = 3) -> float:
        """Least time of a call after the first one, which may fill caches and compile.

        A call that takes more processor time than the limit, if there is one, ends the process. One that takes long,
        but less than what is `enough`, is not repeated.
        """
        signal.setitimer(signal.ITIMER_PROF, limit)
        run, clock = self.call(), _home(self.home).clock
        start = clock()
        run()
        found = clock() - start
        begun = time.perf_counter()
        if SHORT < found < enough:
            attempts = 0
        for attempt in range(attempts):
            number = max(1, int(SHORTEST / max(found, 1e-7)))
            signal.setitimer(signal.ITIMER_PROF, limit)
            start = clock()
            for _ in range(number):
                run()
            now = (clock() - start) / number
            found = now if attempt == 0 else min(found, now)
            if time.perf_counter() - begun > budget:
                break
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        return found


@functools.lru_cache
def _home(name: str) -> Any:
    return HOMES[name]()


def _work(pipe: Any, cells: list[Cell], limit: float, memory: float) -> None:
    """A child: the usual price of an inference and of the verb, then every cell as it is done."""
    import warnings

    warnings.simplefilter("ignore")
    if memory and cells[0].home == "numpy":  # frameworks reserve more than they need
        resource.setrlimit(resource.RLIMIT_AS, (int(memory * 2**30), resource.RLIM_INFINITY))
    usual = cells[0].usual()
    try:
        usual_price = usual.seconds(0.3, attempts=6)
    except (AttributeError, NotImplementedError, TypeError, tt.ParameterError):
        pipe.send(None)
        return
    pipe.send((Cell(usual.home, usual.kind, "marginals", usual.size, *USUAL).seconds(0.1), usual_price))
    for cell in cells:
        patience = _patience(limit, usual_price)
        try:
            found = cell.seconds(0.1, patience, enough=0.5 * ABOVE * usual_price)
            if DOUBTFUL * usual_price < found < patience:  # noise comes and goes, cliffs stay
                found = min(found, cell.seconds(0.3, patience, attempts=6))
            pipe.send(found)
        except tt.InfeasibleError:
            pipe.send(math.nan)
        except MemoryError:
            pipe.send(math.inf)
        except Exception as error:  # a cell that fails must not take the others with it
            print(f"{cell}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            pipe.send(math.nan)


def _patience(limit: float, usual: float) -> float:
    """Processor time that a call may take: long enough to see whether it is above the aim."""
    return limit + 1.2 * ABOVE * usual


class Price(NamedTuple):
    seconds: float
    ratio: float
    exact: bool


def priced(
    cells: list[Cell], limit: float, memory: float = MEMORY
) -> Iterator[tuple[Cell, Price, float, float]]:
    """Cells of one home, kind, verb and size: price, usual seconds and usual seconds of an inference."""
    context = multiprocessing.get_context(HOMES[cells[0].home].start)
    left = list(cells)
    while left:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_work, args=(theirs, left, limit, memory), daemon=True)
        child.start()
        theirs.close()
        try:
            if not ours.poll(SLOWDOWN * (60.0 + limit)):
                print(f"{cells[0].usual()}: the usual price was not found in time", flush=True)
                return
            prices = ours.recv()
            if prices is None:
                return
            inference, usual = prices
            while left:
                patience = _patience(limit, usual)
                if not ours.poll(SLOWDOWN * patience):  # on a GPU, or asleep
                    yield left.pop(0), Price(patience, patience / usual, exact=False), usual, inference
                    break
                found = ours.recv()
                cell = left.pop(0)
                if math.isinf(found):
                    yield cell, Price(patience, patience / usual, exact=False), usual, inference
                elif not math.isnan(found):
                    yield cell, Price(found, found / usual, exact=True), usual, inference
        except EOFError:  # the call took too long; or the child died: out of memory, or a fault
            child.join()
            if not left:
                return
            if child.exitcode != -signal.SIGPROF:
                yield left.pop(0), Price(math.inf, math.inf, exact=False), math.nan, math.nan
            else:
                patience = _patience(limit, usual)
                yield left.pop(0), Price(patience, patience / usual, exact=False), usual, inference
        finally:
            child.kill()
            child.join()


# -- the sweep -----------------------------------------------------------------------------------------------------


def chosen(names: Any, wanted: list[str] | None) -> list[str]:
    return [name for name in names if wanted is None or any(name.startswith(w) for w in wanted)]


def sweep(options: argparse.Namespace) -> float:
    """Print what is above the aims, and return the worst ratio."""
    inputs = QUICK_INPUTS if options.quick and not options.input else INPUTS
    inputs = [i for i in inputs if not options.input or any(w in ", ".join(i) for w in options.input)]
    if not inputs:
        raise SystemExit(f"no input's name, such as {', '.join(USUAL)!r}, contains any of {options.input}")
    verbs = chosen(QUICK_VERBS if options.quick and not options.verb else VERBS, options.verb)
    kinds = chosen(QUICK_KINDS if options.quick and not options.kind else KINDS, options.kind)
    sizes = options.size or (QUICK_SIZES if options.quick else SIZES)
    limit = options.limit or (QUICK_LIMIT if options.quick else LIMIT)
    store = None if options.store is None else Store(options.store)
    few = [i for i in inputs if options.few is None or i in QUICK_INPUTS or i == USUAL]
    worst, count, deadline = 0.0, 0, time.perf_counter() + (options.seconds or math.inf)
    mine, of = options.share
    asked = list(itertools.product(chosen(HOMES, options.home or ["numpy"]), kinds, verbs))
    for home, kind, verb in asked[mine - 1 :: of]:
        before: dict[tuple[str, str], tuple[int, float]] = {}
        for size in sizes:
            part = {"home": home, "kind": kind, "verb": verb, "size": size}
            if options.missing and store is not None and store.has(part):
                continue
            which = few if options.few is not None and size >= options.few else inputs
            found = []
            for cell, price, usual, inference in priced(
                [Cell(home, kind, verb, size, *i) for i in which], limit, options.memory
            ):
                count += 1
                worst = max(worst, price.ratio)
                growth = _growth(before, cell, price)
                if options.all or price.ratio > ABOVE or growth > GROWTH:
                    _show(cell, price, usual, inference, growth)
                found.append((f"{cell.logits}, {cell.potential}", price, growth))
                if time.perf_counter() > deadline:
                    print(f"stopped after {options.seconds:.0f} s in {home} {kind} {verb} {size}")
                    return worst
            if store is not None and found:
                date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
                store.put({**part, "inputs": len(which), "date": date, "usual": usual}, found)
    print(f"{count} cells")
    return worst


def _growth(before: dict[tuple[str, str], tuple[int, float]], cell: Cell, price: Price) -> float:
    """Exponent of D since the size before."""
    key, found = (cell.logits, cell.potential), -math.inf
    if key in before and price.seconds > NOTICEABLE:
        size, seconds = before[key]
        found = math.log(price.seconds / seconds) / math.log(cell.size / size)
    before[key] = (cell.size, price.seconds)
    return found


def _show(cell: Cell, price: Price, usual: float, inference: float, growth: float) -> None:
    where = f"{cell.home} {cell.kind} {cell.size}"
    what = f"{cell.verb}: {cell.logits}, {cell.potential}"
    ratio = f"{'' if price.exact else '> '}{price.ratio:.1f}"
    grown = f", D^{growth:.2f}" if growth > GROWTH else ""
    print(
        f"{where:24s} {what:52s} {ratio:>9s} x {1e3 * usual:.3g} ms ({usual / inference:.1f} inferences){grown}",
        flush=True,
    )


def _share(text: str) -> tuple[int, int]:
    mine, of = map(int, text.split("/"))
    if not 1 <= mine <= of:
        raise argparse.ArgumentTypeError(f"{text} is no share, such as 1/2 and 2/2")
    return mine, of


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer inputs, verbs, kinds and sizes, and a limit of 2 s"
    )
    for name, what in (("home", HOMES), ("kind", KINDS), ("verb", VERBS)):
        parser.add_argument(f"--{name}", nargs="+", metavar="NAME", help=f"of {', '.join(what)}")
    parser.add_argument("--input", nargs="+", metavar="TEXT", help="inputs whose names contain one of these")
    parser.add_argument("--size", nargs="+", type=int)
    parser.add_argument("--limit", type=float, help="seconds that one call may take")
    parser.add_argument(
        "--few",
        type=int,
        metavar="SIZE",
        help="from this size on only the inputs of --quick, and the usual one",
    )
    parser.add_argument("--memory", type=float, default=MEMORY, help="gigabytes that a child may take")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument(
        "--share",
        type=_share,
        default=(1, 1),
        metavar="K/N",
        help="the K-th of N shares of the kinds and verbs",
    )
    parser.add_argument("--missing", action="store_true", help="leave out the parts that --store has")
    parser.add_argument("--all", action="store_true", help="print every cell")
    parser.add_argument(
        "--store", type=Path, metavar="FILE", help="put what was measured there, part by part"
    )
    parser.add_argument("--write", action="store_true", help="measure nothing: the site's table from --store")
    parser.add_argument("--most", type=float, help="fail if the worst ratio is above this")
    options = parser.parse_args()
    if options.write:
        if options.store is None:
            parser.error("--write needs --store FILE, which has what was measured")
        return write(Store(options.store).parts)
    start = time.perf_counter()
    worst = sweep(options)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = processor_time() + children.ru_utime + children.ru_stime
    print(
        f"{time.perf_counter() - start:.0f} s, {used:.0f} s of processor time; the worst ratio is {worst:.1f}"
    )
    if options.most is not None and worst > options.most:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
