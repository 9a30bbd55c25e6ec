#!/usr/bin/env bash
# libzmq: a DEALER that connects again to its server, by a new key of the server's
#
# Guess     A client that learns of a new key of its server sets ZMQ_CURVE_SERVERKEY and connects again: there are two
#           connections then, one by each key, and whichever the server takes carries the messages. So a key is changed
#           without a gap.
# Fact      1. `connect` succeeds and does nothing: an endpoint to which a DEALER is connected already is not connected
#              to again (nor by SUB, PUB and REQ), whatever its options are by now. No event and no error says so. The
#              old key is tried for ever.
#           2. The endpoint is compared as text: tcp://0.0.0.0:0;HOST:PORT is the same server and another endpoint, and
#              is connected to by the new key.
#           3. A message that was sent meanwhile waits in the pipe of the connection by the old key, and arrives by
#              neither; with ZMQ_IMMEDIATE it waits for a connection that is up.
# Versions  libzmq 4.3.5, pyzmq 27.3.0, Python 3.11
# Date      2026-11-29
# Source    this script; the man page of zmq_connect names the kinds of sockets, not that options do not count
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check pyzmq==27.3.0
tools/bin/python --version

cat >connect_again.py <<'PY'
import zmq
from zmq.auth.thread import ThreadAuthenticator

context = zmq.Context()
keeper = ThreadAuthenticator(context)
keeper.start()
keeper.configure_curve(domain="*", location=zmq.auth.CURVE_ALLOW_ANY)
old, new, own = (zmq.curve_keypair() for _ in range(3))
print("libzmq", zmq.zmq_version(), "pyzmq", zmq.__version__)

server = context.socket(zmq.ROUTER)
server.curve_server, (server.curve_publickey, server.curve_secretkey) = True, new
port = server.bind_to_random_port("tcp://127.0.0.1")
plain, other = f"tcp://127.0.0.1:{port}", f"tcp://0.0.0.0:0;127.0.0.1:{port}"


def arrives(second, immediate):
    """Connected by the old key, then to `second` by the new one: what comes of three messages."""
    client = context.socket(zmq.DEALER)
    client.linger, client.immediate, client.sndtimeo = 0, immediate, 3000
    client.curve_publickey, client.curve_secretkey = own
    client.curve_serverkey = old[0]
    client.connect(plain)
    client.curve_serverkey = new[0]
    client.connect(second)
    sent = got = 0
    for number in range(3):
        try:
            client.send(b"%d" % number)
            sent += 1
        except zmq.Again:
            break
    while server.poll(2000):
        server.recv_multipart()
        got += 1
    client.close()
    return sent, got


found = {
    "same endpoint": arrives(plain, False),
    "same endpoint, immediate": arrives(plain, True),
    "another spelling": arrives(other, False),
    "another spelling, immediate": arrives(other, True),
}
for how, (sent, got) in found.items():
    print(f"{how}: {sent} of 3 taken by the client, {got} at the server")
keeper.stop()
PY
timeout 120 tools/bin/python connect_again.py | tee seen.txt

grep -q "^same endpoint: 3 of 3 taken by the client, 0 at the server" seen.txt
grep -q "^same endpoint, immediate: 0 of 3 taken by the client, 0 at the server" seen.txt
grep -q "^another spelling, immediate: 3 of 3 taken by the client, 3 at the server" seen.txt
grep -Eq "^another spelling: 3 of 3 taken by the client, [12] at the server" seen.txt
echo "as said above"
