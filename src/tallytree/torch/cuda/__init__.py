"""Kernels for tensors on CUDA devices, written in Triton, which comes with PyTorch where there is such a device."""

from __future__ import annotations

import importlib.util
import os

from torch import Tensor


def serves(tensor: Tensor) -> bool:
    """Whether the kernels can run where the tensor is; on the CPU only in Triton's interpreter, for tests."""
    if importlib.util.find_spec("triton") is None:
        return False
    return tensor.is_cuda or (tensor.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1")
