-- All sources in a stretch of time: means of the rates between one row and the next, and what was finished.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- w | bigint |  | number of the stretch since 1970
-- n | bigint |  | rows of `rates` in it
-- offered_tps | double | rows/s | offered
-- emitted_tps | double | rows/s | emitted
-- acked_tps | double | rows/s | processed whole
-- planned_tps | double | rows/s | rate that the plan is for
-- predicted_tps | double | rows/s | rate that it was predicted to carry
-- acked | bigint | rows | processed whole
with since as (
  select
    *,
    (unix_micros(time) - lag(unix_micros(time)) over (partition by run, source order by time)) / 1e6 as since_s
  from rates
),
known as ( -- of a first row, and after a minute without any, nobody knows since when it counts
  select s.*, case when s.since_s > 0 and s.since_s < 60 then s.since_s end as each_s, d.window_s as width_s
  from since s
  join widths d on d.run = s.run
)
select
  run,
  epoch,
  cast(floor(unix_micros(time) / (width_s * 1e6)) as bigint) as w,
  count(*) as n,
  avg(offered / each_s) as offered_tps,
  avg(emitted / each_s) as emitted_tps,
  avg(acked / each_s) as acked_tps,
  avg(planned_tps) as planned_tps,
  avg(predicted_tps) as predicted_tps,
  cast(sum(acked) as bigint) as acked
from known
group by run, epoch, cast(floor(unix_micros(time) / (width_s * 1e6)) as bigint)
