#!/usr/bin/env bash
# Hypothesis: "derandomize" and what else the process has imported
#
# Guess     With derandomize=True (the default of its profile "ci") a property test tries the same examples in every
#           run: they follow from the test alone.
# Fact      They follow also from which local modules the process has imported by then. Hypothesis reads numbers, texts
#           and bytes out of the source of all of them and mixes these into its examples. So the same test tries other
#           examples alone than behind other tests, in another order of files, or on another worker of pytest-xdist; one
#           that fails in a whole run passes when it is repeated alone.
# Versions  hypothesis 6.170.17, Python 3.11
# Date      2026-11-28
# Source    this script; hypothesis/internal/conjecture/providers.py (_get_local_constants)
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check hypothesis==6.170.17
tools/bin/python --version
tools/bin/pip list --disable-pip-version-check 2>/dev/null | grep -E '^hypothesis '

cat >shop.py <<'PY'
PRICES = {"apple": 4711, "pear": 815, "plum": 20_171}
PY
cat >property.py <<'PY'
import sys

from hypothesis import given, settings, strategies as st

if "with" in sys.argv:
    import shop  # nothing of it is used

tried = []

@settings(derandomize=True, database=None, max_examples=500)
@given(st.integers(), st.text())
def check(number, text):
    tried.append((number, text))

check()
print(tried)
PY

failed=0
check() { # what, wanted, seen
    printf '%-66s %s\n' "$1" "$3"
    if [ "$2" != "$3" ]; then
        printf '    changed: it was %s\n' "$2"
        failed=1
    fi
}
tools/bin/python property.py >first
tools/bin/python property.py >again
tools/bin/python property.py with >beside
same() { cmp -s "$1" "$2" && echo yes || echo no; }
holds() { grep -qE '4711|20171' "$1" && echo yes || echo no; }
check "the same examples twice, alone" yes "$(same first again)"
check "the same examples beside another module that is imported" no "$(same first beside)"
check "a number of that module among them" yes "$(holds beside)"
check "such a number where the module is not imported" no "$(holds first)"
exit $failed
