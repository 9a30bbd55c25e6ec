-- What became of the rows of a run: the controller's last word, and beside it what the tables of the trace add up to.
--
-- run | string |  | topology/run
-- offered | bigint | rows | due by the schedule, or arrived
-- emitted | bigint | rows | distinct source positions that were emitted
-- acked | bigint | rows | of these processed whole
-- in_flight | bigint | rows | on their way at the end
-- lost | bigint | rows | neither processed nor on their way
-- dead_lettered | bigint | rows | that a task failed on three times
-- replayed | bigint | rows | sent once more
-- duplicates | bigint | rows | rows at sinks more than once, at least
-- counted_emitted | bigint | rows | sum of the counts in rates
-- counted_done | bigint | rows | sum of the counts in rates: acked and dead_lettered
-- finished | double | rows | rows that arrived at sinks, by the latency table
with last as (
  select c.*
  from counts c
  join (select run, max(number) as number from counts group by run) l on l.run = c.run and l.number = c.number
),
counted as (
  select run, cast(sum(emitted) as bigint) as emitted, cast(sum(acked) as bigint) as acked
  from rates
  group by run
),
arrived as (
  select run, sum(tuples) as tuples from latency group by run
)
select
  r.run,
  l.offered,
  l.emitted,
  l.acked,
  l.in_flight,
  l.lost,
  l.dead_lettered,
  l.replayed,
  l.duplicates,
  c.emitted as counted_emitted,
  c.acked as counted_done,
  a.tuples as finished
from runs r
left join last l on l.run = r.run
left join counted c on c.run = r.run
left join arrived a on a.run = r.run
