-- A metric of a task's own (`context.metrics`) in one second, all threads of the task together.
--
-- run | string |  | topology/run
-- task | string |  | task
-- name | string |  | name of the metric
-- kind | string |  | counter, gauge or histogram
-- second | timestamp |  | second in which its windows ended (UTC)
-- at_s | double | s | since the run's first window
-- value | double |  | counter: added; gauge: sum of the threads' values; histogram: sum of what was observed
-- count | bigint |  | histogram: how many were observed
-- mean | double |  | histogram: their mean
-- p99 | double |  | histogram: highest 99th percentile of a thread
select
  m.run,
  m.task,
  m.name,
  m.kind,
  date_trunc('second', m.time) as second,
  (unix_micros(date_trunc('second', m.time)) - unix_micros(max(r.begun))) / 1e6 as at_s,
  sum(m.value) as value,
  cast(sum(m.count) as bigint) as count,
  sum(m.value) / nullif(sum(m.count), 0) as mean,
  max(m.p99) as p99
from user_metrics m
join runs r on r.run = m.run
group by m.run, m.task, m.name, m.kind, date_trunc('second', m.time)
