"""Launches of kernels: on the device of their arguments, and without the search for what was launched before.

Triton looks at every argument of every launch to find the variant that it compiled, which takes the host longer than
most of our kernels take the device. What it looks at is little: types, whether an address or a number is a multiple of
16, and whether a number is 1. The variants are kept here by just that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor
from triton.compiler import CompiledKernel

# Before, compiled kernels took their arguments in another way.
_KEEPS = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 3)


def kernel(varying: str) -> Callable[[Any], Launched]:
    """Decorate a kernel; `varying` names the numbers to whose values no variant is fitted."""
    return lambda function: Launched(triton.jit(function, do_not_specialize=varying.split()))


class Launched:
    """A kernel whose constants follow its other arguments; ``kernel[grid](*arguments, num_warps=..., **constants)``."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._compiled: dict[Any, CompiledKernel] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **options: Any) -> None:
            device = arguments[0].get_device()
            if device < 0 or device == torch.cuda.current_device():
                self._launch(grid, device, arguments, options)
            else:
                with torch.cuda.device(device):
                    self._launch(grid, device, arguments, options)

        return launch

    def _launch(
        self, grid: tuple[int, ...], device: int, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        key = (device, *map(_variant, arguments), *options.values())
        compiled = self._compiled.get(key)
        if compiled is None:
            found = self._kernel[grid](*arguments, **options)
            if _KEEPS and isinstance(found, CompiledKernel):  # the interpreter compiles nothing
                self._compiled[key] = found
            return
        constants = [options[name] for name in self._kernel.arg_names[len(arguments) :]]
        compiled[*grid, *(1,) * (3 - len(grid))](*arguments, *constants)


def _variant(argument: Any) -> Any:
    """What a compiled kernel depends on, as far as an argument that is not a constant is concerned."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    if isinstance(argument, int):
        return argument % 16 == 0, argument == 1, argument.bit_length() > 31
    return None
