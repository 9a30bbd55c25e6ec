#!/usr/bin/env bash
# Redis: where the default user is off, a restart loses what transactions and scripts wrote
#
# Guess     With `appendonly yes` and `appendfsync always` all that was confirmed is there after a restart, whichever user
#           wrote it.
# Fact      The append-only file is read as the default user. What stands in it alone (SET) comes back; what one
#           transaction or script wrote is left out when that user may not write it, and the server starts
#           and answers. `user default off`, the usual way to have logins only, is such a user.
# Versions  Redis 7.0.15 (Debian 12); mended in redis/redis#14545
# Date      2026-11-29
# Source    this script; redis/redis#14541 and valkey-io/valkey#3983 tell the same.
#
# Needs Debian's redis-server and redis-tools. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'ada shutdown nosave >/dev/null 2>&1 || true; rm -rf "$place"' EXIT
redis-server --version
cat >"$place/redis.conf" <<CONF
port 0
unixsocket $place/socket
dir $place
daemonize yes
logfile $place/log
appendonly yes
appendfsync always
save ""
user default off
user ada on nopass ~* &* +@all
CONF

ada() {
    redis-cli -s "$place/socket" --user ada --pass none --no-auth-warning "$@"
}

start() {
    redis-server "$place/redis.conf"
    until [ "$(ada ping 2>/dev/null)" = PONG ]; do sleep 0.05; done
}

start
ada set alone 1
ada eval "redis.call('SET', 'one', 1) redis.call('SET', 'two', 2)" 0
printf 'MULTI\nSET three 3\nSET four 4\nEXEC\n' | ada
echo "before: $(ada keys '*' | sort | xargs)"
ada shutdown
while [ -S "$place/socket" ]; do sleep 0.05; done
start
echo "after: $(ada keys '*' | sort | xargs)"
[ "$(ada keys '*' | sort | xargs)" = alone ]
echo "as said above"
