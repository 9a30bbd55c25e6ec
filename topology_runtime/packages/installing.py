"""pip, that ends with its owner however that ends:

python -P -m headgate.topology_runtime.packages.installing OWNER WORD…
"""

from __future__ import annotations

import os
import sys

from headgate.topology_runtime.owner import die_with

if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    os.execv(sys.executable, [sys.executable, "-P", "-m", "pip", *sys.argv[2:]])
