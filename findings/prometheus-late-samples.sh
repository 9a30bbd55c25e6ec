#!/usr/bin/env bash
# Prometheus: samples that are late or early, by remote write
#
# Guess     A sample that can never be taken is answered with 400, so that who sends it drops it; two values at one time
#           are refused also in one request; a sample of next year is refused, as one that is days old is.
# Fact      With out_of_order_time_window what is older than that is answered with 500 ("too old sample"), which by the
#           protocol is sent again for ever. Two values at one time in one request are confirmed, and the first is kept;
#           in two requests the second is refused (400). A sample of next year is confirmed, and from then on every
#           sample of today is too old, of all series, until next year.
# Versions  prometheus 2.42.0+ds-5+deb12u1 (Debian 12), pyarrow 26.0.1, Python 3.11
# Date      2026-11-29
# Source    this script; prometheus.io/docs/specs/prw/remote_write_spec
#
# Needs Debian's package prometheus and a network that reaches PyPI. Ends with 1 when anything behaves otherwise.
set -euo pipefail

place=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" || true; wait || true; rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check pyarrow==26.0.1
prometheus --version 2>&1 | head -1
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
echo '{storage: {tsdb: {out_of_order_time_window: 1d}}}' >prometheus.yml
prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address="127.0.0.1:$port" \
    --web.enable-remote-write-receiver 2>log &
server=$!

cat >ask.py <<'PY'
import json, struct, sys, time, urllib.error, urllib.request
import pyarrow

base, NOW = f"http://127.0.0.1:{sys.argv[1]}", int(time.time()) - 100


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def part(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def write(*samples):
    """The status of one request; samples: (seconds from now, value)."""
    label = part(1, part(1, b"__name__") + part(2, b"x"))
    some = b"".join(part(2, b"\x09" + struct.pack("<d", v) + b"\x10" + varint((NOW + t) * 1000)) for t, v in samples)
    body = pyarrow.compress(part(1, label + some), codec="snappy", asbytes=True)
    try:
        return urllib.request.urlopen(urllib.request.Request(base + "/api/v1/write", body)).status
    except urllib.error.HTTPError as error:
        return error.code


for _ in range(600):
    try:
        urllib.request.urlopen(base + "/-/ready")
        break
    except OSError:
        time.sleep(0.1)
DAY = 86400
found = [write((0, 1)), write((-3 * DAY, 1)), write((1, 1), (1, 2)), write((2, 1)), write((2, 2))]
with urllib.request.urlopen(f"{base}/api/v1/query?query=x@{NOW + 1}") as reply:
    found.append(json.load(reply)["data"]["result"][0]["value"][1])
print(*found, write((400 * DAY, 1)), write((3, 1)))
PY
read -r first old two newest other kept year now < <(tools/bin/python ask.py "$port")
failed=0
check() { # what, wanted, seen
    printf '%-66s %s\n' "$1" "$3"
    if [ "$2" != "$3" ]; then
        printf '    changed: it was %s\n' "$2"
        failed=1
    fi
}
check "a sample of now" 204 "$first"
check "one that is three days old" 500 "$old"
check "two values at one time in one request" 204 "$two"
check "which of them is kept" 1 "$kept"
check "a sample of now again" 204 "$newest"
check "another value at its time" 400 "$other"
check "a sample of next year" 204 "$year"
check "a sample of now after that" 500 "$now"
exit $failed
