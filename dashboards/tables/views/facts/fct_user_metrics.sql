-- A metric of a task's own (`context.metrics`) in one second, all threads of the task together.
--
-- run | string |  | topology/run
-- task | string |  | task
-- name | string |  | name of the metric
-- kind | string |  | counter, gauge or histogram
-- second | timestamp |  | begin of the second, counted from the run's begin, in which its windows ended (UTC)
-- at_s | double | s | since the run began
-- value | double |  | counter: added; gauge: sum of the threads' values; histogram: sum of what was observed
-- count | bigint |  | histogram: how many were observed
-- mean | double |  | histogram: their mean
-- p99 | double |  | histogram: highest 99th percentile of a thread
select
  m.run,
  m.task,
  m.name,
  m.kind,
  timestamp_micros(max(m.begun_us) + m.n * 1000000) as second,
  cast(m.n as double) as at_s,
  sum(m.value) as value,
  cast(sum(m.count) as bigint) as count,
  sum(m.value) / nullif(sum(m.count), 0) as mean,
  max(m.p99) as p99
from (
  select u.*, unix_micros(r.begun) as begun_us, cast(floor((unix_micros(u.time) - unix_micros(r.begun)) / 1e6) as bigint) as n
  from user_metrics u
  join runs r on r.run = u.run
) m
group by m.run, m.task, m.name, m.kind, m.n
