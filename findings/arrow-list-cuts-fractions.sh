#!/usr/bin/env bash
# pyarrow: a list with 1.5 for a column of whole numbers becomes 1
#
# Guess     `pa.array([1.5], pa.int64())` raises: `safe`, True by default, checks "for overflows or other unsafe
#           conversions".
# Fact      From Python's own values it makes 1, with `safe=True` too, and so does `Table.from_pylist` with a schema. The
#           same number out of numpy, or cast from a column of doubles, is refused, and so are NaN, 1e300, "7" and True.
# Versions  pyarrow 26.0.1, numpy 2.4.6, Python 3.11
# Date      2026-11-29
# Source    this script; the reference of `pyarrow.array` says what `safe` is.
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check pyarrow==26.0.1 numpy==2.4.6
tools/bin/python - <<'PYTHON'
import sys

import numpy as np
import pyarrow as pa

WHOLE = pa.int64()


def outcome(make):
    try:
        return make().to_pylist()
    except (pa.ArrowException, ValueError, TypeError) as error:
        return f"refused: {str(error).splitlines()[0]}"


made = {
    "list": outcome(lambda: pa.array([1.5], WHOLE)),
    "list, safe=True": outcome(lambda: pa.array([1.5], WHOLE, safe=True)),
    "rows": outcome(lambda: pa.Table.from_pylist([{"n": 1.5}], schema=pa.schema([("n", WHOLE)]))["n"]),
}
refused = {
    "numpy": outcome(lambda: pa.array(np.array([1.5]), WHOLE)),
    "cast": outcome(lambda: pa.array([1.5]).cast(WHOLE)),
    **{repr(value): outcome(lambda value=value: pa.array([value], WHOLE)) for value in (float("nan"), 1e300, "7", True)},
}
for name, what in (made | refused).items():
    print(f"{name:16} {what}")
right = all(what == [1] for what in made.values()) and all(str(what).startswith("refused") for what in refused.values())
sys.exit(0 if right else 1)
PYTHON
