"""Threads: as many as asked for or fewer, never an abort, and the same answers."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tallytree as tt
from helpers import few
from tallytree import config, memo

native = pytest.importorskip("tallytree._native", reason="the compiled engine is not installed")
hooks = getattr(native, "hooks", None)
needs_hooks = pytest.mark.skipif(hooks is None, reason="built without TALLYTREE_TEST_HOOKS")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
needs_limits = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")

MODELS = """
import os, sys
import numpy as np
import tallytree as tt

rng = np.random.default_rng(0)
logits = rng.normal(size=6000)
chain = tt.Forest([(i, i + 1) for i in range(5999)], coupling=0.5)
wards = [tt.Group(range(i, i + 100), tt.at_most(60)) for i in range(0, 6000, 100)]

def sample(): return tt.CountModel(logits, tt.exactly(2000)).sample(300, rng=1).astype(float)
def edges(): return tt.CountModel(logits, tt.exactly(2000), edges=chain).edge_marginals
def tree(): return tt.CountModel(logits, [tt.Group(None, tt.exactly(2000)), *wards]).marginals
def batch(): return tt.CountModel(logits.reshape(60, 100), tt.exactly(30)).marginals
def flat(): return tt.CountModel(np.tile(logits, 40), tt.exactly(90000)).marginals
TASKS = {"sample": sample, "edges": edges, "tree": tree, "batch": batch, "flat": flat}
"""

LIMITED_MEMORY = (
    MODELS
    + """
import resource
task = TASKS[sys.argv[1]]
with tt.limit_threads(1):
    expected = task()
tt.limit_threads(4)
pages = int(open("/proc/self/statm").read().split()[0])

def limited(extra):
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra, -1))
    try:
        answer = task()
    except (MemoryError, RuntimeError):
        return 3
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))  # the comparison is not on trial
    np.testing.assert_array_equal(answer, expected)
    return 4

for extra in map(int, sys.argv[2:]):
    child = os.fork()  # without threads
    if child == 0:
        os._exit(limited(extra))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print({3: "refused", 4: "answered"}.get(status, status))
"""
)

NO_NEW_PROCESSES = (
    MODELS
    + """
import resource
with tt.limit_threads(1):
    expected = {name: task() for name, task in TASKS.items()}
if os.getuid() == 0:
    os.setuid(65534)  # the limit does not bind the superuser
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
tt.limit_threads(4)
for name, task in TASKS.items():
    np.testing.assert_array_equal(task(), expected[name])
print("answered")
"""
)

FORKED = (
    MODELS
    + """
import threading
from tallytree import _native as native
tt.limit_threads(3)
expected = {name: task() for name, task in TASKS.items()}
stop = threading.Event()
plan = native.TreePlan(np.arange(0, 1022, 2, dtype=np.int32), np.arange(1, 1022, 2, dtype=np.int32),
                       np.r_[np.full(510, -1), 0], 512, 513)
nu, table = logits[:5120].reshape(10, 512), np.zeros((1, 513))

def work():  # in the engine, where it holds its locks: those of the interpreter are not its business
    while not stop.is_set():
        native.flat_solve(nu, table, threads=3).marginals()
        plan.tree_pass(nu, table, method="fft", threads=3)

busy = [threading.Thread(target=work) for _ in range(2)]
for thread in busy: thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        for name, task in TASKS.items():
            np.testing.assert_array_equal(task(), expected[name])
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stop.set()
for thread in busy: thread.join()
print("answered")
"""
)

FORKED_INSIDE_A_CACHE = """
import os, signal, sys, threading
import tallytree as tt
from tallytree.memo import answer, cached, once, lru

started, go_on = threading.Event(), threading.Event()
main = threading.get_ident()

def slow(self, *_):
    if threading.get_ident() != main:
        started.set()
        go_on.wait()
    return 7

class Thing:
    attribute, shown = cached(slow), answer(slow)
    def keyed(self): return once(self, ("a", 1), lambda: slow(self))

function = lru(4)(slow)
ASKED = {"cached": lambda x: x.attribute, "answer": lambda x: x.shown, "once": lambda x: x.keyed(), "lru": function}
ask, thing = ASKED[sys.argv[1]], Thing()
thread = threading.Thread(target=ask, args=(thing,))
thread.start()
started.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)  # a child that waits for a thread it does not have is killed
    assert ask(thing) == ask(Thing()) == 7
    os._exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
assert ask(Thing()) == 7  # another object does not wait for the thread either
go_on.set()
thread.join()
print("answered")
"""

FORKED_INSIDE_AN_IMPORT = """
import logging, os, signal, sys, threading, time  # logging has a lock at forks that it releases, if imported in time
import tallytree as tt

started = threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "tallytree.models.poisson_binomial":
            started.set()
            time.sleep(0.5)

sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=lambda: tt.PoissonBinomial)
thread.start()
started.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    assert tt.PoissonBinomial([0.5]).mean() == 0.5
    os._exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
thread.join()
print("answered")
"""

LEFT_RUNNING = (
    MODELS
    + """
import threading
tt.limit_threads(4)
TASKS["flat"]()
for name in ("flat", "sample"):
    threading.Thread(target=lambda: [TASKS[name]() for _ in range(1000)], daemon=True).start()
print("leaving")
"""
)


def run(script, *arguments):
    """Words that a script prints in a process of its own, which must end by itself and without a complaint."""
    done = subprocess.run(
        # Where packages are found by PYTHONPATH alone, as in checks of other builds, they are here too.
        [sys.executable, *["-S"] * sys.flags.no_site, "-W", "ignore", "-c", script, *arguments],
        capture_output=True, text=True, timeout=300, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr}"
    assert not done.stderr
    return done.stdout.split()


# From too little for one answer to enough for all threads; 8 MB is the stack of one. In between memory ends
# in the midst of the work of one, two or three helpers.
EXTRA_BYTES = [0, 1 << 20, 9 << 20, *range(16 << 20, 32 << 20, 2_500_000), 1 << 29]


@needs_limits
@pytest.mark.parametrize("task", few(["flat", "sample", "edges", "tree", "batch"]))
def test_a_memory_limit_costs_threads_or_raises(task):
    seen = run(LIMITED_MEMORY, task, *map(str, EXTRA_BYTES))
    assert set(seen) <= {"answered", "refused"}
    assert seen[-1] == "answered"


@needs_limits
def test_without_new_threads_the_calling_one_does_everything():
    assert run(NO_NEW_PROCESSES) == ["answered"]


@needs_fork
@needs_limits
def test_a_forked_child_has_threads_of_its_own():
    assert run(FORKED) == ["answered"]


@needs_fork
@pytest.mark.parametrize("cache", ["cached", "answer", "once", "lru"])
def test_a_child_forked_inside_a_cached_computation_computes_for_itself(cache):
    assert run(FORKED_INSIDE_A_CACHE, cache) == ["answered"]


@needs_fork
def test_a_child_forked_while_a_thread_imports_a_part_of_the_package_has_it():
    assert run(FORKED_INSIDE_AN_IMPORT) == ["answered"]


def test_threads_that_ask_for_the_same_answer_wait_for_one_that_computes_it():
    calls = []

    class Thing(memo.Caching):
        @memo.answer
        def value(self):
            calls.append(threading.get_ident())
            time.sleep(0.05)
            return np.zeros(3)

        def keyed(self):
            return memo.once(self, "other", lambda: (self.value, calls.append(0)))

    thing, found = Thing(), []
    threads = [threading.Thread(target=lambda: found.append(thing.keyed()[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 2
    assert all(array is thing.value for array in found)
    with pytest.raises(AttributeError, match="frozen"):
        thing.value = 1
    assert thing.__getstate__() == {}


def test_an_answer_that_fails_is_asked_for_again():
    class Thing:
        tries = 0

        @memo.answer
        def value(self):
            Thing.tries += 1
            return 1 // (self.tries - 1)

    thing = Thing()
    with pytest.raises(ZeroDivisionError):
        assert thing.value
    assert thing.value == 1
    assert not memo._under_way


def _tangent():
    n = 1 << 18
    rng = np.random.default_rng(0)
    inner = [tt.Group(range(i, i + 512), rng.normal(size=513)) for i in range(0, n, 512)]
    model = tt.CountModel(rng.normal(size=n), [*inner, tt.Group(None, rng.normal(size=n + 1))])
    assert np.isfinite(model.log_partition)
    return lambda: model.hessian_vector_product(model.logits)


def _wild_tree():
    tree, rng = tt.CountTree.balanced(1 << 15), np.random.default_rng(0)
    tables = 1000 * rng.normal(size=sum(len(group) + 1 for group in tree.groups))
    model = tt.CountModel.from_tree(tree, 1000 * rng.normal(size=1 << 15), tables)
    return lambda: [model.replace(logits=model.logits).marginals for _ in range(3)]


def _tied_mode():
    n = 400_000
    path = tt.Forest(np.stack([np.arange(n - 1), np.arange(1, n)], axis=1), coupling=1.0)
    model = tt.CountModel(np.zeros(n), np.tile([0.0, -1.0], n)[: n + 1], edges=path)
    return model.mode


def _large_node(method):
    """One product or correlation of the size of a large node takes several seconds."""

    def make():
        hooks = pytest.importorskip("tallytree._native.hooks")
        x = np.random.default_rng(0).uniform(0.5, 1.0, 1 << 18)
        return lambda: [hooks.convolve(x, x, method), hooks.correlate(np.r_[x, x], x, method)]

    return make


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer")
@pytest.mark.parametrize("make", [_tangent, _wild_tree, _tied_mode, *map(_large_node, ("direct", "wide"))])
def test_an_interrupt_is_heard_in_the_midst_of_long_work(make):
    work = make()
    start = time.perf_counter()

    def until_interrupted():
        # Once is enough on a slow machine; on a quick one the work may end before the timer does.
        while time.perf_counter() - start < 10.0:
            work()

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            until_interrupted()
        heard = time.perf_counter() - start
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert heard < 1.3


def test_a_handler_of_signals_may_use_the_engine():
    answers = []

    def handler(*_):
        answers.append(tt.CountModel(np.zeros(9), tt.exactly(3)).marginals)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        deadline = time.perf_counter() + 5.0
        while len(answers) < 3 and time.perf_counter() < deadline:
            tt.CountModel(np.zeros(1 << 16), tt.at_most(9)).sample(200, rng=0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert len(answers) >= 3
    assert np.allclose(answers[-1], 1 / 3)


def test_the_interpreter_ends_while_threads_sleep_or_work():
    assert run(LEFT_RUNNING) == ["leaving"]


def test_many_python_threads_share_the_pool():
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(40, 500))
    chain = tt.Forest([(i, i + 1) for i in range(4999)], coupling=0.3)

    def answers():
        flat = tt.CountModel(logits, tt.exactly(200)).marginals
        big = tt.CountModel(logits.ravel(), tt.at_most(9000))
        forest = tt.CountModel(logits.ravel()[:5000], tt.exactly(2000), edges=chain)
        return flat, big.marginals, big.sample(70, rng=5), forest.edge_marginals

    with tt.limit_threads(1):
        expected = answers()
    found = [None] * 6

    def work(i):
        found[i] = answers()

    with tt.limit_threads(3):
        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(found))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for result in found:
        assert result is not None
        for got, want in zip(result, expected):
            np.testing.assert_array_equal(got, want)


@needs_hooks
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("tasks", [0, 1, 2, 1000])
@pytest.mark.parametrize("nested", [1, 20])
def test_every_task_runs_once(tasks, threads, nested):
    total, workers = hooks.parallel_sum(tasks, threads, nested)
    assert total == nested * tasks * (tasks - 1) // 2
    assert workers <= min(threads, tasks)


@needs_hooks
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("fail", [0, 57, 99])
def test_a_failing_task_raises_in_the_caller(threads, fail):
    for _ in range(50):
        with pytest.raises(ValueError, match=f"task {fail} failed"):
            hooks.parallel_sum(100, threads, 3, fail)
    assert hooks.parallel_sum(100, threads)[0] == 4950


def test_the_limit_is_set_in_code():
    before = config.threads()
    with tt.limit_threads(3):
        assert config.threads() == 3
        with tt.limit_threads(np.int64(2)):
            assert config.threads() == 2
        assert config.threads() == 3
    assert config.threads() == before
    tt.limit_threads(5)
    assert config.threads() == 5
    tt.limit_threads(before)


@pytest.mark.parametrize("bad", [0, -1, 2.0, "2", True, None, 2**31, 2**70])
def test_a_wrong_limit_is_refused(bad):
    before = config.threads()
    with pytest.raises(tt.ParameterError, match=r"`threads` must be an integer .*between 1 and .* arrived"):
        tt.limit_threads(bad)
    assert config.threads() == before


@needs_hooks
def test_lengths_of_transforms_fit_their_type():
    for n in (1, 128, 129, 385, 2**30 - 1, 2**30, 2**30 + 1, 3 * 2**29):
        wanted = min(length for k in range(24) for length in (128 << k, 384 << k) if length >= n)
        assert hooks.fft_length(n) == wanted
    for n in (3 * 2**29 + 1, 2**31, 2**40):
        with pytest.raises(ValueError, match="transform"):
            hooks.fft_length(n)


KEPT = """
import os
import numpy as np
import tallytree as tt

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

x = np.zeros(6_000_000)
tt.CountModel(x[:100], tt.exactly(3)).marginals
before = resident()
tt.CountModel(x, tt.exactly(10)).marginals
print(resident() - before)
"""


@needs_limits
def test_memory_kept_for_the_next_model_has_a_switch():
    def grown(**environment):
        run = subprocess.run(
            [sys.executable, "-c", KEPT], env={**os.environ, **environment}, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        return int(run.stdout)

    assert grown(TALLYTREE_KEEP_MB="0") + 30e6 < grown()


def test_a_wrong_limit_on_kept_memory_is_refused():
    code = "import tallytree as tt; tt.CountModel([0.0], tt.exactly(1)).marginals"
    environment = {**os.environ, "TALLYTREE_KEEP_MB": "lots"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "TALLYTREE_KEEP_MB" in run.stderr
