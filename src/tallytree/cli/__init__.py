"""The command line: ``tallytree demo``, ``infer FILE``, ``reproduce``, ``config``."""

from .command import main

__all__ = ["main"]
