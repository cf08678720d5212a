"""Make the stored oracle values anew: about a minute.

python tests/goldens/make.py [--check]      with --check they are only compared, to the last bits of a double
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import golden
from large_cases import goldens


def main() -> int:
    for name, inputs, compute in goldens():
        if "--check" not in sys.argv:
            golden.store(name, inputs, compute)
            print("stored", name)
            continue
        for key, value in compute().items():
            held = golden.stored(name, inputs, dict)
            np.testing.assert_allclose(
                held[key], np.asarray(value, float), rtol=1e-15, err_msg=f"{name}: {key}"
            )
        print("right", name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
