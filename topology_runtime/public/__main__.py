"""`python -m headgate` is the command `headgate`."""

from __future__ import annotations

import sys

from headgate.dashboards.headgate_command import main

sys.exit(main())
