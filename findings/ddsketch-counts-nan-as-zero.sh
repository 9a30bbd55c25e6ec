#!/usr/bin/env bash
# ddsketch: a value that is no number counts as zero, and the sum is none from then on
#
# Guess     A NaN (a latency of a row without a beginning, 0/0) is refused by `DDSketch.add`, or left out, as by numpy's
#           nanquantile.
# Fact      It is counted beside the zeros: the count rises, low quantiles become 0, and sum and average are NaN for
#           good, also after a merge into another sketch. Nothing is raised.
# Versions  ddsketch 3.0.1, Python 3.11
# Date      2026-11-30
# Source    this script
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check ddsketch==3.0.1
timeout 60 tools/bin/python - <<'PYTHON'
import math
import sys

from ddsketch import DDSketch


def sketch(*values):
    made = DDSketch(0.01)
    for value in values:
        made.add(value)
    return made


odd, sound = sketch(math.nan, 5.0, 5.0, 5.0), sketch(5.0, 5.0, 5.0)
merged = sketch(5.0)
merged.merge(odd)
found = {
    "values counted": (sound.count, odd.count),
    "10th percentile": (round(sound.get_quantile_value(0.1), 1), odd.get_quantile_value(0.1)),
    "sum is a number": (not math.isnan(sound.sum), not math.isnan(odd.sum)),
    "sum after a merge is a number": not math.isnan(merged.sum),
}
for name, what in found.items():
    print(f"{name}: {what}")
wanted = {
    "values counted": (3.0, 4.0),
    "10th percentile": (5.0, 0),
    "sum is a number": (True, False),
    "sum after a merge is a number": False,
}
sys.exit(found != wanted)
PYTHON
