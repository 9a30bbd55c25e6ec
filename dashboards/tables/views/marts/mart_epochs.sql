-- One plan's time in force: what was offered, what came through, how late, and who was nearest to a limit.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan
-- reason | string |  | why it was made
-- from_s | double | s | its first second, since the run's first window
-- to_s | double | s | its last second
-- offered | bigint | rows | due by the schedule, or arrived
-- acked | bigint | rows | done: processed whole, or a dead letter
-- fell_behind | bigint | rows | offered − acked: what waits longer at its end than at its begin
-- offered_tps | double | rows/s | mean
-- acked_tps | double | rows/s | mean
-- predicted_tps | double | rows/s | rate that the plan was predicted to carry
-- p50_s | double | s | median latency
-- p95_s | double | s | 95th percentile of it
-- max_s | double | s | longest
-- bottleneck | string |  | task nearest to its limit
-- bottleneck_slot | string |  | where
-- load | double |  | how near: its rate as a part of the one at which it saturates
with counted as (
  select
    run,
    epoch,
    min(at_s) as from_s,
    max(at_s) as to_s,
    cast(sum(offered) as bigint) as offered,
    cast(sum(acked) as bigint) as acked,
    count(distinct second) as seconds,
    max(predicted_tps) as predicted_tps
  from fct_rates_per_second
  group by run, epoch
),
ranked as (
  select
    run,
    epoch,
    latency_s,
    sum(tuples) over (
      partition by run, epoch order by latency_s rows between unbounded preceding and current row
    ) as upto,
    sum(tuples) over (partition by run, epoch) as total
  from latency
),
late as (
  select
    run,
    epoch,
    min(case when upto >= 0.50 * total - 1e-6 then latency_s end) as p50_s,
    min(case when upto >= 0.95 * total - 1e-6 then latency_s end) as p95_s,
    max(latency_s) as max_s
  from ranked
  group by run, epoch
)
select
  c.run,
  c.epoch,
  p.reason,
  c.from_s,
  c.to_s,
  c.offered,
  c.acked,
  c.offered - c.acked as fell_behind,
  c.offered / cast(c.seconds as double) as offered_tps,
  c.acked / cast(c.seconds as double) as acked_tps,
  c.predicted_tps,
  l.p50_s,
  l.p95_s,
  l.max_s,
  b.task as bottleneck,
  b.vm || '/' || cast(b.slot as string) as bottleneck_slot,
  b.load
from counted c
left join late l on l.run = c.run and l.epoch = c.epoch
left join (select run, plan_epoch as epoch, max(trigger) as reason from decisions group by run, plan_epoch) p
  on p.run = c.run and p.epoch = c.epoch
left join mart_bottlenecks b on b.run = c.run and b.epoch = c.epoch and b.rank = 1
