"""The machine: pinned threads, what it is, what it can do at best, and the peak memory of one call.

``python benchmarks/machine.py METHOD D`` prints the memory as JSON, from a fresh process. The peak counter of the
process is set back after the inputs are made and a small model has warmed everything up, so that the difference is
what the call itself needed. Peak extra memory leaves out the input and the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def pin() -> None:
    """One thread for every numerical library; has to run before NumPy is imported."""
    for name in POOLS:
        os.environ[name] = "1"


def describe() -> dict[str, Any]:
    """What the figures of a run were measured on."""
    import numpy as np
    import scipy

    import tallytree as tt
    from tallytree import config

    now = config.settings()
    native = now.native
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "tallytree": tt.__version__,
        "engine": "array" if native is None else "C++",
        "level": None if native is None else now.level or native.levels()[0],
        "threads": now.threads,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def in_words(machine: dict[str, Any]) -> str:
    engine = machine["engine"] + (f" at level {machine['level']}" if machine["level"] else "")
    line = (
        f"{machine['processor']}, {machine['cores']} cores; tallytree {machine['tallytree']} ({engine}, "
        f"{machine['threads']} threads); python {machine['python']}, numpy {machine['numpy']}, "
        f"scipy {machine['scipy']}; other libraries on one thread"
    )
    busy = machine["load"] is not None and machine["load"] > 0.5
    return line + (f"\nThe machine is not quiet: load {machine['load']} at the start." if busy else "")


def copier(n_bytes: int) -> Any:
    """A stream copy that reads and writes ``n_bytes`` in all, one thread."""
    import numpy as np

    source = np.ones(max(1, n_bytes // 16))
    target = np.zeros_like(source)
    return lambda: np.copyto(target, source)


def transformer(n: int, batch: int = 1) -> Any:
    """The bare FFTs of a textbook tree over n variables, both passes: four batches of real transforms per level."""
    import numpy as np
    import scipy.fft

    from peers import DIRECT, Skip, fft_length

    total = 1 << max(1, (n - 1).bit_length())
    blocks = []
    size = DIRECT
    while size < total:
        length = fft_length(size)
        blocks.append((np.ones((batch * total // size, length)), length))
        size *= 2
    if not blocks:
        raise Skip("the tree is multiplied out")

    def run() -> None:
        for block, length in blocks:
            spectrum = scipy.fft.rfft(block)  # both children going up
            scipy.fft.irfft(spectrum[::2], length)  # their product
            scipy.fft.rfft(block[::2])  # the message from above
            scipy.fft.irfft(spectrum, length)  # both children going down

    return run


_CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
_clock = [time.perf_counter]


def choose_clock(name: str) -> None:
    """Measure wall-clock time, or the processor time of all threads."""
    _clock[0] = _CLOCKS[name]


def stopwatch(call: Any, number: int) -> float:
    """Seconds per call over ``number`` calls."""
    clock = _clock[0]
    start = clock()
    for _ in range(number):
        call()
    return (clock() - start) / number


METHODS = ("tallytree", "NumPy FFT tree", "fast-poibin (sum only)")


def resident(field: str) -> int:
    """VmRSS or VmHWM in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise OSError(f"no {field}")


def forget_peak() -> None:
    """Set the peak back to what is in use now."""
    with contextlib.suppress(OSError):  # then the peak so far counts, which is that of making the input
        Path("/proc/self/clear_refs").write_text("5")


def inside(method: str, n: int) -> dict[str, Any]:
    """Measure in this process."""
    pin()
    import numpy as np

    def call(theta: Any, log_f: Any) -> Any:
        if method == "tallytree":
            import tallytree as tt

            model = tt.CountModel(theta, log_f)
            return model.log_partition, model.marginals
        if method == "NumPy FFT tree":
            from peers import fft_tree

            return fft_tree(theta, log_f).marginals
        from fast_poibin import PoiBin

        return PoiBin(1 / (1 + np.exp(-theta))).pmf

    rng = np.random.default_rng(0)
    theta, log_f = rng.standard_normal(n), rng.standard_normal(n + 1)
    call(theta[:1000].copy(), log_f[:1001].copy())
    forget_peak()
    before = resident("VmRSS")
    answer = call(theta, log_f)
    peak = max(0, resident("VmHWM") - before)
    del answer
    return {
        "method": method,
        "D": n,
        "peak_bytes_per_variable": peak / n,
        "extra_bytes_per_variable": (peak - 8 * n) / n,
    }


def peak(method: str, n: int) -> dict[str, Any]:
    """Measure in a fresh process; ``reason`` says why there is no figure."""
    done = subprocess.run(
        [sys.executable, __file__, method, str(n)], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return dict(json.loads(done.stdout))
    lines = done.stderr.strip().splitlines()
    return {"method": method, "D": n, "reason": lines[-1] if lines else f"exit status {done.returncode}"}


if __name__ == "__main__":
    print(json.dumps(inside(sys.argv[1], int(sys.argv[2]))))
