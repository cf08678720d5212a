"""Many models in processes of their own: a crash or a hang costs one model and is reported with its name."""

from __future__ import annotations

import faulthandler
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
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


def jobs_of(kinds: list[str], engines: list[str], seed: int, first: int, models: int) -> Iterator[Job]:
    """Chunks, the kinds in turn, so that a run that is stopped has seen all of them."""
    end = first + models
    for a in range(first, end, CHUNK):
        for kind in kinds:
            for engine in engines:
                yield Job(kind, engine, seed, a, min(a + CHUNK, end))


def in_process(jobs: Iterable[Job], stop: float) -> Iterator[Tally]:
    for job in jobs:
        for index in range(job.first, job.last):
            if time.monotonic() > stop:
                return
            yield one(job.kind, job.engine, job.seed, index)


def _work(pipe: Connection) -> None:
    """Jobs as they arrive, until None does: the number of every model before its turn, its tally afterwards."""
    while (job := pipe.recv()) is not None:
        for index in range(job.first, job.last):
            pipe.send(index)
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            pipe.send(one(job.kind, job.engine, job.seed, index))
        faulthandler.cancel_dump_traceback_later()
        pipe.send(None)


class _Worker:
    """One process that takes one job after the other."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def take(self, job: Job) -> None:
        self.job, self.at = job, job.first
        self.pipe.send(job)

    def receive(self) -> tuple[Tally, bool]:
        """What arrived, and whether the job is done."""
        message: Any = self.pipe.recv()
        if isinstance(message, int):
            self.at = message
        return message if isinstance(message, Tally) else Tally(), message is None

    def lost(self) -> tuple[Tally, Job | None]:
        """The model that ended the process, as a violation, and what is left of its job."""
        self.process.join()
        job = self.job
        seen = f"the process ended with code {self.process.exitcode}: a crash, or more than {PATIENCE} s"
        ended = Violation(job.kind, job.engine, job.seed, self.at, "process", seen)
        left = replace(job, first=self.at + 1)
        return Tally(1, found=[ended]), left if left.first < left.last else None

    def end(self) -> None:
        self.process.terminate()
        self.process.join()


def side_by_side(jobs: Iterable[Job], number: int, stop: float) -> Iterator[Tally]:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes are enough
    waiting, working, idle = iter(jobs), dict[Connection, _Worker](), list[_Worker]()
    try:
        while time.monotonic() < stop:
            while len(working) < number and (job := next(waiting, None)) is not None:
                worker = idle.pop() if idle else _Worker()
                worker.take(job)
                working[worker.pipe] = worker
            if not working:
                return
            for pipe in wait(list(working), timeout=1.0):
                worker = working[pipe]  # type: ignore[index]
                try:
                    tally, done = worker.receive()
                except EOFError:  # it is replaced behind the model that ended it
                    tally, left = worker.lost()
                    waiting = chain([left] if left else [], waiting)
                    del working[worker.pipe]
                else:
                    if done:
                        idle.append(working.pop(worker.pipe))
                yield tally
    finally:
        for worker in [*working.values(), *idle]:
            worker.end()
