#!/usr/bin/env bash
# Hatchling: a mapping of sources that adds a prefix, and links in the tree
#
# Guess     [tool.hatch.build.targets.wheel.sources] with a prefix ("part" = "whole/part") serves wheels and editable
#           installs; an sdist takes the folders and leaves links to them alone.
# Fact      1. Such a mapping builds a wheel, and refuses an editable install.
#           2. With a link to a folder in the tree, the sdist visits the folder once, by whichever name comes first. The
#              archive then holds the modules under the link's path only, and the wheel that is built from it has none of
#              them. `python -m build` ends with 0 and warns of nothing.
#           3. `only-include` for the sdist walks each folder by itself, and the wheel is whole again.
# Versions  hatchling 1.27.0, build 1.2.2, editables 0.5, Python 3.11
# Date      2026-11-28
# Source    this script; hatchling/builders/utils.py (safe_walk) leaves out a folder whose inode was seen before;
#           hatchling/builders/wheel.py builds the editable wheel.
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check hatchling==1.27.0 build==1.2.2 editables==0.5
tools/bin/python --version
tools/bin/pip list --disable-pip-version-check 2>/dev/null | grep -E '^(build|editables|hatchling) '

failed=0
check() { # what, wanted, seen
    printf '%-62s %s\n' "$1" "$3"
    if [ "$2" != "$3" ]; then
        printf '    changed: it was %s\n' "$2"
        failed=1
    fi
}
project() { # folder, lines for the sdist
    mkdir -p "$1/part" "$1/.links/whole"
    echo 'answer = 42' >"$1/part/__init__.py"
    ln -s ../../part "$1/.links/whole/part"
    cat >"$1/pyproject.toml" <<TOML
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "whole"
version = "1"
[tool.hatch.build.targets.wheel]
only-include = ["part"]
[tool.hatch.build.targets.wheel.sources]
"part" = "whole/part"
[tool.hatch.build.targets.sdist]
$2
TOML
}
build() { ../tools/bin/python -m build --no-isolation "$@" >../log 2>&1 && echo ends with 0 || echo ends with an error; }
modules() { ../tools/bin/python -m zipfile -l "$1" | grep -c '\.py ' || true; }

project straight ''
cd straight
check "wheel from the tree" "ends with 0" "$(build --wheel)"
check "modules in it" 1 "$(modules dist/*.whl)"
editable='import hatchling.build as b; b.build_editable(".")'
../tools/bin/python -c "$editable" >../log 2>&1 || true
check "editable wheel" "ValueError" "$(grep -oE '^[A-Za-z]+Error' ../log || true)"
tail -1 ../log
cd ..

project linked ''
cd linked
check "sdist, and the wheel from it, with a link in the tree" "ends with 0" "$(build)"
tar -tf dist/*.tar.gz
check "modules in the wheel built from the archive" 0 "$(modules dist/*.whl)"
check "warnings in what the build said" 0 "$(grep -ciE 'warn|missing|skip' ../log || true)"
cd ..

project listed 'only-include = ["part"]'
cd listed
check "the same with only-include for the sdist" "ends with 0" "$(build)"
check "modules in the wheel built from the archive" 1 "$(modules dist/*.whl)"
exit "$failed"
