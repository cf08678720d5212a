"""The command line: ``tallytree demo``, ``tallytree infer FILE``, ``tallytree config``."""

from .command import main

__all__ = ["main"]
