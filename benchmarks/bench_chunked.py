"""A memory-mapped file of log-odds against reading it twice and writing one of the same size with NumPy.

    python benchmarks/bench_chunked.py --variables 1e9 --folder /scratch       # 8 GB in, 8 GB out
    python benchmarks/bench_chunked.py --variables 1e8 --dtype float32 --more  # also the draw and the mode
    python benchmarks/bench_chunked.py --variables 1e7 --check                 # answers against those in memory
    python benchmarks/bench_chunked.py --growth --write                        # 10^6 to 10^8, for docs/scaling.md
    python benchmarks/bench_chunked.py --variables 2e7 --groups                # a Parquet file with 1,000 groups

With `--groups`, every group has a known count and there is none on the total: reading, sorting and `RaggedBatch` in
memory beside the model in chunks and the command line, which also writes log-odds and all columns.

The file is made, used and removed. Everything is measured in one run, each contender in a process of its own; its
peak resident memory is given. Wall time on a busy machine is that of the disk and of the neighbours too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import machine
import pages

STEP = 1 << 20


def make(path: Path, n: int, dtype: str) -> None:
    """Standard normal log-odds, the same for every run."""
    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (n,)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, n, STEP):
            rng.standard_normal(min(STEP, n - start)).astype(dtype).tofile(file)


def by_numpy(path: Path, out: Path) -> dict[str, float]:
    """Read the file twice and write one of the same size."""
    mapped = np.load(path, mmap_mode="r")
    n, dtype, offset = len(mapped), mapped.dtype, mapped.offset
    del mapped
    for _ in range(2):
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            for start in range(0, n, STEP):
                np.fromfile(file, dtype, min(STEP, n - start))
    values = np.zeros(STEP, dtype)
    with open(out, "wb", buffering=0) as file:
        for start in range(0, n, STEP):
            values[: min(STEP, n - start)].tofile(file)
        os.fsync(file.fileno())
    return {}


def by_chunks(path: Path, out: Path, what: str = "marginals") -> dict[str, float]:
    """Exactly a tenth of the variables are on: marginals, a draw or the mode."""
    import tallytree as tt

    n = len(np.load(path, mmap_mode="r"))
    model = tt.ChunkedCountModel(path, tt.exactly(n // 10))
    if what == "mode":
        model.mode(out=out)
        return {}
    log_z = model.log_partition
    if what == "sample":
        model.sample(rng=0, out=out)
        on = sum(int(np.count_nonzero(part)) for part in np.array_split(np.load(out, mmap_mode="r"), 64))
        return {"ones": on}
    model.marginals(out=out)
    return {"log_z": float(log_z), "bound": float(model.error_bound)}


GROUPS = 1000


def make_groups(path: Path, n: int) -> None:
    """Log-odds and scattered groups of about n / 1,000 rows; the counts go beside them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    rows = {"logit": rng.standard_normal(n), "store": rng.integers(0, GROUPS, n)}
    pq.write_table(pa.table(rows), path, row_group_size=STEP)
    lines = [f"{store},{n // GROUPS // 10}" for store in range(GROUPS)]
    path.with_suffix(".csv").write_text("\n".join(["store,count", *lines]) + "\n")


def by_sorting(path: Path, out: Path) -> dict[str, float]:
    """Read the columns, sort them by group and solve a `RaggedBatch`, all in memory."""
    import pyarrow.parquet as pq

    import tallytree as tt

    columns = pq.read_table(path)
    logits, stores = columns["logit"].to_numpy(), columns["store"].to_numpy()
    order = np.argsort(stores, kind="stable")
    sizes = np.unique(stores, return_counts=True)[1]
    potentials = [tt.exactly(len(logits) // GROUPS // 10)] * len(sizes)
    found = np.empty(len(logits))
    found[order] = np.concatenate(tt.RaggedBatch(logits[order], potentials, sizes=sizes).marginals)
    np.save(out, found)
    return {}


def by_groups(path: Path, out: Path) -> dict[str, float]:
    """The same from a model in chunks."""
    import pyarrow.parquet as pq

    import tallytree as tt

    counts = {
        store: tt.exactly(pq.ParquetFile(path).metadata.num_rows // GROUPS // 10) for store in range(GROUPS)
    }
    tt.ChunkedCountModel(path, column="logit", groups="store", group_potential=counts).marginals(out=out)
    return {}


def by_command(path: Path, out: Path) -> dict[str, float]:
    """Marginals and log-odds beside all columns, by the command line."""
    from tallytree.cli import main as command

    counts, goal = str(path.with_suffix(".csv")), str(out.with_suffix(".out.parquet"))
    try:
        command(["infer", str(path), "--group-counts", "store", counts, "--output", goal, "--quiet"])
    finally:
        Path(goal).unlink(missing_ok=True)
    return {}


CONTENDERS = {
    "sorting": by_sorting,
    "groups": by_groups,
    "command": by_command,
    "numpy": by_numpy,
    "marginals": by_chunks,
    "sample": lambda path, out: by_chunks(path, out, "sample"),
    "mode": lambda path, out: by_chunks(path, out, "mode"),
}


def inside(name: str, path: Path, out: Path) -> None:
    """Measure in this process, imports left out, and print the figures as JSON."""
    if name != "numpy":
        import tallytree as tt

        small = tt.ChunkedCountModel([0.0, 1.0], tt.exactly(1))
        small.marginals(), small.mode(), small.sample(rng=0)
    wall, processor = time.perf_counter(), time.process_time()
    found = CONTENDERS[name](path, out)
    found["wall"] = time.perf_counter() - wall
    found["processor"] = time.process_time() - processor
    found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(found))


def outside(name: str, path: Path, out: Path) -> dict[str, float]:
    words = [sys.executable, __file__, "--inside", name, "--path", str(path), "--out", str(out)]
    try:
        run = subprocess.run(words, capture_output=True, text=True, check=True)
    finally:
        out.unlink(missing_ok=True)
    found: dict[str, float] = json.loads(run.stdout)
    return found


def compare(n: int, dtype: str, folder: Path, more: bool) -> dict[str, dict[str, float]]:
    size = n * np.dtype(dtype).itemsize
    room = shutil.disk_usage(folder).free
    if room < 2.2 * size:
        raise SystemExit(f"{folder} has {room / 1e9:.1f} GB free; {2.2 * size / 1e9:.1f} GB are needed.")
    path, out = folder / "tallytree-bench-in.npy", folder / "tallytree-bench-out.npy"
    try:
        make(path, n, dtype)
        names = ["numpy", "marginals", *(("sample", "mode") if more else ())]
        found = {name: outside(name, path, out) for name in names}
    finally:
        path.unlink(missing_ok=True)
    show(n, dtype, found)
    return found


def compare_groups(n: int, folder: Path) -> None:
    path, out = folder / "tallytree-bench-groups.parquet", folder / "tallytree-bench-out.npy"
    try:
        make_groups(path, n)
        show(n, "groups", {name: outside(name, path, out) for name in ("sorting", "groups", "command")})
    finally:
        path.unlink(missing_ok=True)
        path.with_suffix(".csv").unlink(missing_ok=True)


def show(n: int, dtype: str, found: dict[str, dict[str, float]]) -> None:
    """Print all rows, with ratios to the first."""
    base = next(iter(found.values()))
    for name, row in found.items():
        ratios = f"{row['wall'] / base['wall']:5.2f} x wall, {row['processor'] / base['processor']:5.2f} x processor"
        rest = {k: v for k, v in row.items() if k not in ("wall", "processor", "peak")}
        print(
            f"{n:.0e} {dtype:8} {name:10} {row['wall']:8.2f} s wall {row['processor']:8.2f} s processor "
            f"({1e9 * row['processor'] / n:6.1f} ns per variable) peak {row['peak']:6.0f} MB  {ratios}  {rest or ''}",
            flush=True,
        )


def growth(folder: Path) -> list[list[str]]:
    """The rows of the table of the site."""
    rows = []
    for dtype in ("float64", "float32"):
        for n in (10**6, 10**7, 10**8):
            found = compare(n, dtype, folder, n <= 10**7)
            base = found.pop("numpy")
            for name, own in found.items():
                cells = (f"10^{len(str(n)) - 1}", dtype, name, _both(base), _both(own))
                ratios = (f"{own[clock] / base[clock]:.1f}x" for clock in ("wall", "processor"))
                each = f"{1e9 * own['processor'] / n:.0f} ns"
                rows.append([*cells, *ratios, each, f"{own['peak']:.0f} MB"])
    return rows


def _both(row: dict[str, float]) -> str:
    return f"{pages.seconds(row['wall'])} ({pages.seconds(row['processor'])})"


HEAD = [
    "variables",
    "dtype",
    "answer",
    "NumPy",
    "tallytree",
    "wall",
    "processor",
    "per variable",
    "peak memory",
]


def check(n: int, dtype: str) -> None:
    """Largest differences from the model in memory."""
    import tallytree as tt

    logits = np.random.default_rng(0).standard_normal(n).astype(dtype)
    exact = tt.CountModel(logits.astype(np.float64), tt.exactly(n // 10))
    model = tt.ChunkedCountModel(logits.astype(np.float64), tt.exactly(n // 10))
    odds = np.abs(model.posterior_logits() - exact.posterior_logits).max()
    log_z = abs(model.log_partition / exact.log_partition - 1.0)
    print(f"{n:.0e} {dtype}: log-odds differ by {odds:.1e} at most, log Z by {log_z:.1e} of itself")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variables", type=float, default=1e8)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--folder", type=Path, default=Path("."))
    parser.add_argument("--more", action="store_true", help="also one joint draw and the mode")
    parser.add_argument("--growth", action="store_true", help="10^6, 10^7, 10^8 in both precisions")
    parser.add_argument(
        "--write", action="store_true", help="with --growth: write the table of docs/scaling.md"
    )
    parser.add_argument("--groups", action="store_true", help="a Parquet file with a count for each group")
    parser.add_argument("--check", action="store_true", help="compare with the model in memory instead")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inside:
        return inside(chosen.inside, chosen.path, chosen.out)
    if chosen.check:
        return check(int(chosen.variables), chosen.dtype)
    if chosen.groups:
        return compare_groups(int(chosen.variables), chosen.folder)
    if chosen.growth:
        about = machine.describe()
        rows = growth(chosen.folder)
        if chosen.write:
            text = f"{pages.measured(about)} Wall times, with processor times of all threads in brackets."
            print(pages.write("scaling_table.md", [text, pages.table(HEAD, rows)]))
        return None
    compare(int(chosen.variables), chosen.dtype, chosen.folder, chosen.more)
    return None


if __name__ == "__main__":
    main()
