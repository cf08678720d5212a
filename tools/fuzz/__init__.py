"""Random models of every kind against the truth; ``python -m tools.fuzz --help`` says how."""

import sys
from pathlib import Path

# Structures and oracles of the tests serve here too.
_tests = str(Path(__file__).resolve().parents[2] / "tests")
if _tests not in sys.path:
    sys.path.insert(0, _tests)
