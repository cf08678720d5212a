"""Many cases in processes of their own: a crash or a hang costs one case and is reported with its name."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from .kinds import KINDS
from .run import Violation, checked, drawn, first_of_case, violations
from .tally import Part, Tally

CHUNK = 100  # models per job, or one case
PATIENCE = 120  # seconds of processor time for one case
ASLEEP = 3600  # seconds, however little it works: a machine may be busy with other things


def one(kind: str, engines: Iterable[str], seed: int, index: int) -> Tally:
    """The case that begins with a model, on one engine after the other; its truth is computed once."""
    start, lot = time.process_time(), KINDS[kind].lot
    case, total, part = drawn(kind, seed, index), Tally(), Part(models=lot, cases=[(index, index + lot)])
    for engine in engines:
        report = checked(case, engine, seed, index)
        part.checks += report.asked
        part.violations += len(report.wrong)
        part.worst = max(part.worst, report.worst)
        total.chi_square += report.chi_square
        total.freedom += report.freedom
        total.found += violations(kind, engine, seed, index, report)
    part.seconds = time.process_time() - start
    total.parts[kind] = part
    return total


@dataclass(frozen=True)
class Job:
    """Models of one kind, from the first of a case to the last of one."""

    kind: str
    engines: tuple[str, ...]
    seed: int
    first: int
    last: int

    @property
    def cases(self) -> range:
        return range(self.first, self.last, KINDS[self.kind].lot)


def jobs_of(kinds: list[str], engines: list[str], seed: int, first: int, models: int) -> Iterator[Job]:
    """Chunks of whole cases, the kinds in turn, so that a run that is stopped has seen all of them alike."""
    for a in range(first, first + models, CHUNK):
        for kind in kinds:
            lot, stop = KINDS[kind].lot, min(a + CHUNK, first + models)
            low = first_of_case(kind, a) if a == first else -(-a // lot) * lot
            high = -(-stop // lot) * lot
            if low < high:
                yield Job(kind, tuple(engines), seed, low, high)


def in_process(jobs: Iterable[Job], stop: float) -> Iterator[Tally]:
    for job in jobs:
        for index in job.cases:
            if time.monotonic() > stop:
                return
            yield one(job.kind, job.engines, job.seed, index)


def _work(pipe: Connection) -> None:
    """Jobs as they arrive, until None does: the number of every case before its turn, its tally afterwards."""
    faulthandler.register(signal.SIGPROF, chain=True)  # says where, and ends the process
    while (job := pipe.recv()) is not None:
        for index in job.cases:
            pipe.send(index)
            signal.setitimer(signal.ITIMER_PROF, PATIENCE)
            faulthandler.dump_traceback_later(ASLEEP, exit=True)
            pipe.send(one(job.kind, job.engines, job.seed, index))
        signal.setitimer(signal.ITIMER_PROF, 0)
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
        """The case that ended the process, as a violation, and what is left of its job."""
        self.process.join()
        job, lot = self.job, KINDS[self.job.kind].lot
        seen = f"the process ended with code {self.process.exitcode}: a crash, or more than {PATIENCE} s"
        engine = job.engines[0] if len(job.engines) == 1 else "both"
        ended = Violation(job.kind, engine, job.seed, self.at, "process", seen)
        part = Part(models=lot, violations=1, cases=[(self.at, self.at + lot)])
        left = replace(job, first=self.at + lot)
        return Tally({job.kind: part}, found=[ended]), left if left.first < left.last else None

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
                except EOFError:  # it is replaced behind the case that ended it
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
