"""One thread for the small vector operations of optimisers, where threads only wait for one another."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any


def one_blas_thread() -> AbstractContextManager[Any]:
    """Context in which BLAS runs on one thread, where threadpoolctl (a part of scikit-learn's needs) is there."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    found: AbstractContextManager[Any] = threadpool_limits(1, user_api="blas")
    return found
