#!/usr/bin/env bash
# fastavro: an int field takes 2⁴⁰ and 1.5, and who reads it gets 0 and 1
#
# Guess     A writer refuses what its schema has not: 1.5, true or a number of more than 32 bits for Avro's `int`, as
#           it refuses them where the field may also be null. A time without a zone is UTC, or refused.
# Fact      2⁴⁰ is written as it is, which the format does not allow: fastavro itself reads it back, polars reads 0,
#           and makes -2147483648 of 2³¹. 1.5 is written as 1, true as 1. In `["null", "int"]` 1.5 and 2⁴⁰ are
#           refused. `timestamp-millis` takes a datetime without a zone for one of the machine's zone, so two machines
#           write two instants of one row. `writer(…, validator=True)`, false by default, refuses the numbers, and not
#           the time.
# Versions  fastavro 1.13.1, polars 2.1.0, Python 3.11
# Date      2026-11-30
# Source    this script; Avro's specification says of `int`: 32-bit signed
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check fastavro==1.13.1 polars==2.1.0
timeout 120 tools/bin/python - <<'PYTHON'
import io
import os
import sys
import time
from datetime import datetime

import fastavro
import polars
from fastavro.validation import ValidationError

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def file_of(kind, value, **how):
    schema = fastavro.parse_schema({"type": "record", "name": "Row", "fields": [{"name": "v", "type": kind}]})
    file = io.BytesIO()
    fastavro.writer(file, schema, [{"v": value}], **how)
    file.seek(0)
    return file


def back(kind, value, **how):
    try:
        return next(fastavro.reader(file_of(kind, value, **how)))["v"]
    except (ValueError, ValidationError):
        return "refused"


def in_zone(zone):
    os.environ["TZ"] = zone
    time.tzset()
    return back(MILLIS, datetime(2026, 1, 1), validator=True).strftime("%m-%d %H:%M UTC")


found = {
    "int": [back("int", value) for value in (2**40, 2**31, 1.5, True)],
    "int, read by polars": [polars.read_avro(file_of("int", value))["v"][0] for value in (2**40, 2**31, 1.5, True)],
    "int or null": [back(["null", "int"], value) for value in (2**40, 1.5)],
    "int, validator": [back("int", value, validator=True) for value in (2**40, 2**31, 1.5, True)],
    "a time without a zone": [in_zone(zone) for zone in ("UTC", "America/New_York", "Asia/Tokyo")],
}
for name, what in found.items():
    print(f"{name}: {what}")
wanted = {
    "int": [2**40, 2**31, 1, 1],
    "int, read by polars": [0, -(2**31), 1, 1],
    "int or null": ["refused"] * 2,
    "int, validator": ["refused"] * 4,
    "a time without a zone": ["01-01 00:00 UTC", "01-01 05:00 UTC", "12-31 15:00 UTC"],
}
sys.exit(found != wanted)
PYTHON
