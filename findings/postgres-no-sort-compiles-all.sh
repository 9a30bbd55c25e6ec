#!/usr/bin/env bash
# PostgreSQL up to 17: with enable_sort = off, each statement that has to sort all the same is compiled first
#
# Guess     enable_sort = off only makes the planner look for another way; where there is none, a look at a few rows
#           of the catalog stays below a millisecond.
# Fact      A sort that cannot be avoided counts 10,000,000,000 on top. That is beyond every bound of the JIT compiler, so
#           it inlines, optimizes and compiles the whole statement: 0.1 to 1 s for a row that is found in less than a
#           millisecond. `jit = off` in the same session ends it.
# Versions  PostgreSQL 15 with its LLVM module, of Debian 12 (postgresql-15)
# Date      2026-11-30
# Source    this script; jit_above_cost is 100,000, and the planner's disable_cost 1e10. From 18 on disabled nodes are
#           counted apart from costs.
#
# Needs root and Debian 12's package mirror, or a PostgreSQL 15 that is there. Ends with 1 when anything behaves
# otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
chmod 755 "$place"
bin=/usr/lib/postgresql/15/bin
if [ ! -x "$bin/postgres" ]; then
    apt-get update -qq && apt-get install -y -qq postgresql-15 >/dev/null
fi
as=(setpriv --reuid=nobody --regid=nogroup --clear-groups) # it refuses root
trap '"${as[@]}" "$bin/pg_ctl" -D "$place/data" -m immediate stop >/dev/null 2>&1 || true; rm -rf "$place"' EXIT
mkdir "$place/data" "$place/socket"
chown nobody "$place/data" "$place/socket"
cd "$place/socket"
"${as[@]}" "$bin/initdb" -D "$place/data" -U reader -A trust --no-sync >/dev/null
"${as[@]}" "$bin/pg_ctl" -D "$place/data" -w -l "$place/data/log" -o "-h '' -k $place/socket" start >/dev/null

compiled() { # how many statements of two settings and a small sort were compiled
    psql -X -q -A -t -h "$place/socket" -U reader postgres -c "set enable_sort = off" -c "$1" \
        -c "explain (analyze) select relname from pg_class order by reltuples, relpages limit 1" |
        tee /dev/stderr | grep -c '^JIT' || true
}
by_default=$(compiled "set jit = on")
without=$(compiled "set jit = off")
"$bin/postgres" --version
echo "compiled: $by_default by default, $without with jit = off"
[ "$by_default $without" = "1 0" ]
echo "as said above"
