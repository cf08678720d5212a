"""Peak memory of one call, in a fresh process: ``python benchmarks/memory.py METHOD D`` prints it as JSON.

The peak counter of the process is set back after the inputs are made and a small model has warmed everything up,
so that the difference is what the call itself needed. Peak extra memory leaves out the input and the answer.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import machine

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
    machine.pin()
    import numpy as np

    def call(theta: Any, log_f: Any) -> Any:
        if method == "tallytree":
            import tallytree as tt

            model = tt.CountModel(theta, log_f)
            return model.log_partition, model.marginals
        if method == "NumPy FFT tree":
            from textbook import fft_tree

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
