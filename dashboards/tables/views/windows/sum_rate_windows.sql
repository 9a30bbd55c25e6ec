-- All sources in a stretch of time: means of the rates between one row and the next, and what was offered and finished.
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
-- max_predicted_tps | double | rows/s | the highest of these
-- offered | bigint | rows | due by the schedule, or arrived
-- acked | bigint | rows | processed whole
-- counted_s | double | s | of which these are, of the source that was counted for longest
-- min_us | bigint | µs | time of its first row, since 1970
-- max_us | bigint | µs | time of its last one
with since as (
  select
    s.*,
    r.begun,
    (unix_micros(s.time) - lag(unix_micros(s.time)) over (partition by s.run, s.source order by s.time)) / 1e6 as since_s
  from rates s
  join runs r on r.run = s.run
),
known as ( -- of a first row, and after a minute without any, nobody knows since when it counts
  select
    s.*,
    case when s.since_s > 0 and s.since_s < 60 then s.since_s end as each_s,
    coalesce(s.since_s, case when s.offered > 0 then (unix_micros(s.time) - unix_micros(s.begun)) / 1e6 end) as from_begin_s,
    cast(floor(unix_micros(s.time) / (d.window_s * 1e6)) as bigint) as w
  from since s
  join widths d on d.run = s.run
),
by_source as (
  select
    run,
    epoch,
    w,
    source,
    count(*) as n,
    sum(offered / each_s) as offered_sum,
    count(offered / each_s) as offered_n,
    sum(emitted / each_s) as emitted_sum,
    count(emitted / each_s) as emitted_n,
    sum(acked / each_s) as acked_sum,
    count(acked / each_s) as acked_n,
    sum(planned_tps) as planned_sum,
    count(planned_tps) as planned_n,
    sum(predicted_tps) as predicted_sum,
    count(predicted_tps) as predicted_n,
    max(predicted_tps) as max_predicted_tps,
    sum(offered) as offered,
    sum(acked) as acked,
    sum(case when offered is not null and from_begin_s >= 0 and from_begin_s < 60 then from_begin_s end) as counted_s,
    min(unix_micros(time)) as min_us,
    max(unix_micros(time)) as max_us
  from known
  group by run, epoch, w, source
)
select
  run,
  epoch,
  w,
  cast(sum(n) as bigint) as n,
  sum(offered_sum) / nullif(sum(offered_n), 0) as offered_tps,
  sum(emitted_sum) / nullif(sum(emitted_n), 0) as emitted_tps,
  sum(acked_sum) / nullif(sum(acked_n), 0) as acked_tps,
  sum(planned_sum) / nullif(sum(planned_n), 0) as planned_tps,
  sum(predicted_sum) / nullif(sum(predicted_n), 0) as predicted_tps,
  max(max_predicted_tps) as max_predicted_tps,
  cast(sum(offered) as bigint) as offered,
  cast(sum(acked) as bigint) as acked,
  max(counted_s) as counted_s,
  min(min_us) as min_us,
  max(max_us) as max_us
from by_source
group by run, epoch, w
