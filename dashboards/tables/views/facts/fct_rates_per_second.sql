-- One source in one second: counts, and what its plan was for.
--
-- run | string |  | topology/run
-- source | string |  | source
-- second | timestamp |  | begin of the second, counted from the run's begin, in which the controller counted (UTC)
-- at_s | double | s | since the run began
-- epoch | bigint |  | number of the plan that was in force
-- counted_s | double | s | time of which the counts are: since the row of rates before; null: nobody counted
-- offered | bigint | rows | due by the schedule, or arrived
-- emitted | bigint | rows | emitted
-- acked | bigint | rows | done: processed whole, or a dead letter
-- behind | bigint | rows | offered and not yet done at the end of the second
-- planned_tps | double | rows/s | rate that the plan is for
-- predicted_tps | double | rows/s | rate that it was predicted to carry
-- lag_s | double | s | for how long the oldest row waits to be read (arriving sources)
with rows_of as (
  select
    s.*,
    cast(floor((unix_micros(s.time) - unix_micros(r.begun)) / 1e6) as bigint) as n,
    r.begun,
    (unix_micros(s.time) - coalesce(
      lag(unix_micros(s.time)) over (partition by s.run, s.source order by s.time),
      case when s.offered > 0 then unix_micros(r.begun) else unix_micros(s.time) end
    )) / 1e6 as since_s
  from rates s
  join runs r on r.run = s.run
),
seconds as (
  select
    run,
    source,
    n,
    timestamp_micros(max(unix_micros(begun)) + n * 1000000) as second,
    cast(n as double) as at_s,
    sum(case when offered is not null then since_s end) as counted_s,
    max(epoch) as epoch,
    cast(sum(offered) as bigint) as offered,
    cast(sum(emitted) as bigint) as emitted,
    cast(sum(acked) as bigint) as acked,
    max(planned_tps) as planned_tps,
    max(predicted_tps) as predicted_tps,
    max(lag_s) as lag_s
  from rows_of
  group by run, source, n
)
select
  s.run,
  s.source,
  s.second,
  s.at_s,
  s.epoch,
  s.counted_s,
  s.offered,
  s.emitted,
  s.acked,
  cast(sum(s.offered - s.acked) over (
    partition by s.run, s.source order by s.second rows between unbounded preceding and current row
  ) as bigint) as behind,
  s.planned_tps,
  s.predicted_tps,
  s.lag_s
from seconds s
