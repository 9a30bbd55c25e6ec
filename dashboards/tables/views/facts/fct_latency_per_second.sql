-- Latency from a source to a sink in one second, weighted by the rows that each sampled row stands for.
--
-- run | string |  | topology/run
-- source | string |  | where the rows came from
-- sink | string |  | where they arrived
-- second | timestamp |  | begin of the second, counted from the run's begin, in which they arrived (UTC)
-- at_s | double | s | since the run began
-- epoch | bigint |  | number of the plan that was in force
-- tuples | double | rows | rows that arrived
-- mean_s | double | s | mean latency
-- p50_s | double | s | median
-- p95_s | double | s | 95th percentile
-- p99_s | double | s | 99th percentile
-- max_s | double | s | longest
with rows_of as (
  select l.*, r.begun, cast(floor((unix_micros(l.time) - unix_micros(r.begun)) / 1e6) as bigint) as n
  from latency l
  join runs r on r.run = l.run
),
ranked as (
  select
    *,
    sum(tuples) over (
      partition by run, source, sink, n order by latency_s rows between unbounded preceding and current row
    ) as upto,
    sum(tuples) over (partition by run, source, sink, n) as total
  from rows_of
)
select
  l.run,
  l.source,
  l.sink,
  timestamp_micros(max(unix_micros(l.begun)) + l.n * 1000000) as second,
  cast(l.n as double) as at_s,
  max(l.epoch) as epoch,
  sum(l.tuples) as tuples,
  sum(l.latency_s * l.tuples) / nullif(sum(l.tuples), 0) as mean_s,
  min(case when l.upto >= 0.50 * l.total - 1e-6 then l.latency_s end) as p50_s,
  min(case when l.upto >= 0.95 * l.total - 1e-6 then l.latency_s end) as p95_s,
  min(case when l.upto >= 0.99 * l.total - 1e-6 then l.latency_s end) as p99_s,
  max(l.latency_s) as max_s
from ranked l
group by l.run, l.source, l.sink, l.n
