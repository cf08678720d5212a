"""Compile every CUDA kernel for a GPU that is not here.

    python tools/compile_kernels.py [CAPABILITY ...]

The tests of the kernels run in Triton's interpreter, which checks what they compute, but not that they compile. This
runs those tests once more, notes how each kernel is launched, and compiles every such variant for the named compute
capabilities (default 80 and 90), down to machine code. Needs PyTorch and Triton, no GPU.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD = "TALLYTREE_LAUNCHES"
TYPES = {
    "float64": "*fp64",
    "float32": "*fp32",
    "int64": "*i64",
    "int32": "*i32",
    "bool": "*i1",
    "uint8": "*u8",
}


def _of(argument: Any) -> str:
    """The type of an argument as Triton writes it."""
    if hasattr(argument, "dtype"):
        return TYPES[str(argument.dtype).removeprefix("torch.")]
    if isinstance(argument, bool):
        return "i1"
    if isinstance(argument, int):
        return "i64" if argument.bit_length() > 31 else "i32"
    return "fp32"


def pytest_configure(config: Any) -> None:
    """As a plugin of pytest: note every launch."""
    from tallytree.torch.cuda import launch

    seen: set[Any] = set()
    run = launch.Launched._launch

    def noted(self: Any, grid: Any, device: int, arguments: Any, options: dict[str, Any]) -> None:
        function = self._kernel.fn
        key = (
            function.__module__,
            function.__name__,
            tuple(map(_of, arguments)),
            tuple(sorted(options.items())),
        )
        if key not in seen:
            seen.add(key)
            Path(os.environ[RECORD]).write_bytes(pickle.dumps(seen))
        run(self, grid, device, arguments, options)

    launch.Launched._launch = noted  # type: ignore[method-assign]


def compiled(launches: set[Any], capabilities: list[int]) -> int:
    """Compile all variants; the number of kernels that do not."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    failed = 0
    for module, name, types, options in sorted(launches, key=str):
        kernel = getattr(importlib.import_module(module), name)._kernel
        settings = {key: value for key, value in options if key in ("num_warps", "num_stages")}
        constants = {key: value for key, value in options if key not in settings}
        signature = dict(zip(kernel.arg_names, types)) | dict.fromkeys(constants, "constexpr")
        source = ASTSource(
            kernel, signature, {(kernel.arg_names.index(key),): value for key, value in constants.items()}
        )
        for capability in capabilities:
            try:
                triton.compile(source, target=GPUTarget("cuda", capability, 32), options=settings)
            except Exception as error:
                failed += 1
                print(
                    f"FAILED {module}.{name} {types} {constants} for {capability}: {str(error)[:400]}",
                    flush=True,
                )
    return failed


def main() -> int:
    capabilities = [int(argument) for argument in sys.argv[1:]] or [80, 90]
    record = ROOT / "build" / "launches.pickle"
    record.parent.mkdir(exist_ok=True)
    environment = {**os.environ, "TRITON_INTERPRET": "1", RECORD: str(record), "PYTHONPATH": str(ROOT)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-q",
        "-x",
        "-p",
        "tools.compile_kernels",
        "tests/test_torch_cuda.py",
    ]
    status = subprocess.run(command, env=environment, cwd=ROOT).returncode
    launches = pickle.loads(record.read_bytes())
    failed = compiled(launches, capabilities)
    names = {(module, name) for module, name, _, _ in launches}
    print(
        f"{len(names)} kernels, {len(launches)} variants, capabilities {capabilities}: {failed} do not compile"
    )
    return int(status != 0 or failed > 0)


if __name__ == "__main__":
    sys.exit(main())
