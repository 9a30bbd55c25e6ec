-- Latency of a path in an epoch in a stretch: in short ones (`widths.bin_s`), in which a rise of it shows, and in those
-- that a verdict on its growth is of (`widths.judged_s`).
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- source | string |  | where the rows came from
-- sink | string |  | where they arrived
-- width_s | bigint | s | length of the stretch
-- w | bigint |  | number of the stretch of that length since 1970
-- n | bigint |  | rows of `latency`
-- tuples | double | rows | rows that these stand for
-- p50_s | double | s | half of the rows of `latency` are not above it
-- p90_s | double | s | 90 % are not above it
-- max_s | double | s | longest
-- slope | double | s/s | by which it grows (least squares)
with lengths as (
  select run, bin_s as width_s from widths
  union
  select run, judged_s as width_s from widths
),
placed as (
  select l.*, cast(floor(unix_micros(l.time) / (d.width_s * 1e6)) as bigint) as w, unix_micros(l.time) / 1e6 as at_s, d.width_s
  from latency l
  join lengths d on d.run = l.run
  where l.latency_s is not null and l.tuples is not null
)
select
  run,
  epoch,
  source,
  sink,
  width_s,
  w,
  count(*) as n,
  sum(tuples) as tuples,
  percentile_disc(0.5) within group (order by latency_s) as p50_s,
  percentile_disc(0.9) within group (order by latency_s) as p90_s,
  max(latency_s) as max_s,
  case when max(at_s) > min(at_s) then regr_slope(latency_s, at_s - w * width_s) end as slope
from placed
group by run, epoch, source, sink, width_s, w
