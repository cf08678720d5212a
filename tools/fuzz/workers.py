"""Many models in processes of their own: a crash or a hang costs one model and is reported with its name."""

from __future__ import annotations

import faulthandler
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from .run import Violation, checked, drawn, violations

CHUNK = 100
PATIENCE = 60  # seconds for one model


@dataclass
class Tally:
    """What happened to a range of models."""

    models: int = 0
    answers: int = 0
    chi_square: float = 0.0
    freedom: int = 0
    found: list[Violation] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.models += other.models
        self.answers += other.answers
        self.chi_square += other.chi_square
        self.freedom += other.freedom
        self.found += other.found

    @property
    def drift(self) -> float:
        """Standard score of the sum of all chi-square statistics: biases too small to show in one model."""
        return (self.chi_square - self.freedom) / (2 * self.freedom) ** 0.5 if self.freedom else 0.0

    def by_answer(self) -> Counter[tuple[str, str, str]]:
        return Counter((v.kind, v.engine, v.answer) for v in self.found)


def one(kind: str, engine: str, seed: int, index: int) -> Tally:
    report = checked(drawn(kind, seed, index), engine, seed, index)
    return Tally(
        1, report.asked, report.chi_square, report.freedom, violations(kind, engine, seed, index, report)
    )


@dataclass(frozen=True)
class Job:
    kind: str
    engine: str
    seed: int
    first: int
    last: int


def jobs_of(kinds: list[str], engines: list[str], seed: int, first: int, models: int) -> list[Job]:
    """Chunks, the kinds in turn, so that a run that is stopped has seen all of them."""
    starts = range(first, first + models, CHUNK)
    end = first + models
    return [Job(k, e, seed, a, min(a + CHUNK, end)) for a in starts for k in kinds for e in engines]


def in_process(jobs: list[Job], stop: float) -> Iterator[Tally]:
    for job in jobs:
        for index in range(job.first, job.last):
            if time.monotonic() > stop:
                return
            yield one(job.kind, job.engine, job.seed, index)


def _work(pipe: Connection, job: Job) -> None:
    for index in range(job.first, job.last):
        pipe.send(index)
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        pipe.send(one(job.kind, job.engine, job.seed, index))
    faulthandler.cancel_dump_traceback_later()
    pipe.send(None)


class _Worker:
    """One process on one job; it is started again behind the model that ended it."""

    def __init__(self, job: Job) -> None:
        self.job, self.at = job, job.first
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(theirs, job), daemon=True)
        self.process.start()
        theirs.close()

    def receive(self) -> tuple[Tally, bool, Job | None]:
        """What arrived, whether the worker is done, and what is left of its job if it died."""
        try:
            message: Any = self.pipe.recv()
        except EOFError:
            self.process.join()
            job = self.job
            code = self.process.exitcode
            seen = f"the process ended with code {code}: a crash, or more than {PATIENCE} s"
            lost = Violation(job.kind, job.engine, job.seed, self.at, "process", seen)
            left = Job(job.kind, job.engine, job.seed, self.at + 1, job.last)
            return Tally(1, found=[lost]), True, left if left.first < left.last else None
        if message is None:
            self.process.join()
            return Tally(), True, None
        if isinstance(message, int):
            self.at = message
            return Tally(), False, None
        return message, False, None

    def end(self) -> None:
        self.process.terminate()
        self.process.join()


def side_by_side(jobs: list[Job], number: int, stop: float) -> Iterator[Tally]:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes are enough
    waiting, working = list(reversed(jobs)), dict[Connection, _Worker]()
    while waiting or working:
        while waiting and len(working) < number and time.monotonic() < stop:
            worker = _Worker(waiting.pop())
            working[worker.pipe] = worker
        if time.monotonic() > stop:
            for worker in working.values():
                worker.end()
            return
        for pipe in wait(list(working), timeout=1.0):
            tally, done, left = working[pipe].receive()  # type: ignore[index]
            if done:
                del working[pipe]  # type: ignore[arg-type]
            if left is not None:
                waiting.append(left)
            yield tally
