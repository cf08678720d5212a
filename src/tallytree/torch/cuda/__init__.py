"""Kernels for tensors on CUDA devices, written in Triton, which comes with PyTorch where there is such a device."""

from __future__ import annotations

import importlib.util
import os

from torch import Tensor

from ...memo import recent


def serves(tensor: Tensor) -> bool:
    """Whether the kernels can run where the tensor is; on the CPU only in Triton's interpreter, for tests."""
    if not _has_triton():
        return False
    return tensor.is_cuda or (tensor.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1")


@recent(1)
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
