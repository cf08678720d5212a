"""Optional packages: imported where they are needed, and named with their extra where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import ParameterError

_EXTRA = {"dask": "dask", "distributed": "dask", "zarr": "zarr", "pyarrow": "parquet"}


def require(module: str, purpose: str) -> Any:
    """A module, or the command that installs it."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != package:
            raise
        raise ParameterError(
            f'{purpose} needs {package}, which is not installed. Run: pip install "tallytree[{_EXTRA[package]}]"'
        ) from None


def comes_from(value: Any, package: str) -> bool:
    """Whether an object is of a class of this package, without importing it."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(value).__mro__)
