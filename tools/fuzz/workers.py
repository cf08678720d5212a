"""Many cases in processes of their own: a crash or a hang costs one case and is reported with its name."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from .kinds import KINDS
from .run import Violation, checked, drawn, first_of_case, violations
from .tally import Part, Tally

AT_ONCE = 2.0  # seconds of processor time that a job should take
GUESS = 1.0  # seconds of processor time for the first case of a kind
PATIENCE = 120  # seconds of processor time for one case
ASLEEP = 3600  # seconds, however little it works: a machine may be busy with other things


def one(kind: str, engines: Iterable[str], seed: int, index: int) -> Tally:
    """The case that begins with a model, on one engine after the other; its truth is computed once."""
    start, lot = time.process_time(), KINDS[kind].lot
    case, total, part = drawn(kind, seed, index), Tally(), Part(models=lot, cases=[(index, index + lot)])
    for engine in asked_of(kind, tuple(engines), index):
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


def asked_of(kind: str, engines: tuple[str, ...], index: int) -> tuple[str, ...]:
    """Without the array engine where it takes far longer than the other and it is not its turn."""
    if len(engines) > 1 and index // KINDS[kind].lot % KINDS[kind].array_every:
        return tuple(engine for engine in engines if engine != "array")
    return engines


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


class Queue:
    """The cases that are left of every kind, and the processor time that each kind took.

    The next job is of the kind that took the least, so that a run that is stopped has spent as long on every kind,
    however dear its models are; time that a cheap kind leaves is shared among the others.
    """

    def __init__(self, kinds: list[str], engines: list[str], seed: int, first: int, models: int) -> None:
        self.engines, self.seed = tuple(engines), seed
        self.left = {k: range(first_of_case(k, first), first + models, KINDS[k].lot) for k in kinds}
        self.done, self.seconds = dict.fromkeys(kinds, 0), dict.fromkeys(kinds, 0.0)
        self.busy = dict.fromkeys(kinds, 0)  # cases in hand
        self.back: list[Job] = []  # what a process left that was lost

    def price(self, kind: str) -> float:
        """Processor time of a case, as far as is known."""
        return self.seconds[kind] / self.done[kind] if self.done[kind] else GUESS

    def take(self) -> Job | None:
        if self.back:
            job = self.back.pop()
        elif waiting := [kind for kind, cases in self.left.items() if cases]:
            kind = min(waiting, key=lambda k: self.seconds[k] + self.busy[k] * self.price(k))
            number = max(1, int(AT_ONCE / max(self.price(kind), 1e-3))) if self.done[kind] else 1
            mine, self.left[kind] = self.left[kind][:number], self.left[kind][number:]
            job = Job(kind, self.engines, self.seed, mine.start, mine.stop)
        else:
            return None
        self.busy[job.kind] += len(job.cases)
        return job

    def give_back(self, job: Job) -> None:
        self.busy[job.kind] -= len(job.cases)
        self.back.append(job)

    def add(self, tally: Tally) -> None:
        """What was done."""
        for kind, part in tally.parts.items():
            self.done[kind] += len(part.cases)
            self.busy[kind] -= len(part.cases)
            self.seconds[kind] += part.seconds


def in_process(queue: Queue, stop: float) -> Iterator[Tally]:
    while (job := queue.take()) is not None:
        for index in job.cases:
            if time.monotonic() > stop:
                return
            tally = one(job.kind, job.engines, job.seed, index)
            queue.add(tally)
            yield tally


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
        part = Part(models=lot, violations=1, seconds=PATIENCE, cases=[(self.at, self.at + lot)])
        left = replace(job, first=self.at + lot)
        return Tally({job.kind: part}, found=[ended]), left if left.first < left.last else None

    def end(self) -> None:
        self.process.terminate()
        self.process.join()


def side_by_side(queue: Queue, number: int, stop: float) -> Iterator[Tally]:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes are enough
    working, idle = dict[Connection, _Worker](), list[_Worker]()
    try:
        while time.monotonic() < stop:
            while len(working) < number and (job := queue.take()) is not None:
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
                    if left:
                        queue.give_back(left)
                    del working[worker.pipe]
                else:
                    if done:
                        idle.append(working.pop(worker.pipe))
                queue.add(tally)
                yield tally
    finally:
        for worker in [*working.values(), *idle]:
            worker.end()
