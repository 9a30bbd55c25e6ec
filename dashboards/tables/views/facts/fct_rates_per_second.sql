-- One source in one second: counts, and what its plan was for.
--
-- run | string |  | topology/run
-- source | string |  | source
-- second | timestamp |  | begin of the second in which the controller counted (UTC)
-- at_s | double | s | since the run's first window
-- epoch | bigint |  | number of the plan that was in force
-- offered | bigint | rows | due by the schedule, or arrived
-- emitted | bigint | rows | emitted
-- acked | bigint | rows | done: processed whole, or a dead letter
-- behind | bigint | rows | offered and not yet done at the end of the second
-- planned_tps | double | rows/s | rate that the plan is for
-- predicted_tps | double | rows/s | rate that it was predicted to carry
-- lag_s | double | s | for how long the oldest row waits to be read (arriving sources)
with seconds as (
  select
    run,
    source,
    date_trunc('second', time) as second,
    max(epoch) as epoch,
    cast(sum(offered) as bigint) as offered,
    cast(sum(emitted) as bigint) as emitted,
    cast(sum(acked) as bigint) as acked,
    max(planned_tps) as planned_tps,
    max(predicted_tps) as predicted_tps,
    max(lag_s) as lag_s
  from rates
  group by run, source, date_trunc('second', time)
)
select
  s.run,
  s.source,
  s.second,
  (unix_micros(s.second) - unix_micros(r.begun)) / 1e6 as at_s,
  s.epoch,
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
join runs r on r.run = s.run
