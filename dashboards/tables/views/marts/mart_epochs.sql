-- One plan's time in force: what was offered, what came through, how late, and who was nearest to a limit.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan
-- reason | string |  | why it was made
-- from_s | double | s | its first second, since the run began
-- to_s | double | s | its last second
-- seconds | double | s | for which it was in force
-- recorded_s | double | s | of these: recorded
-- coverage | double |  | recorded_s / seconds
-- offered | bigint | rows | due by the schedule, or arrived
-- acked | bigint | rows | done: processed whole, or a dead letter
-- fell_behind | bigint | rows | offered − acked: what waits longer at its end than at its begin
-- offered_tps | double | rows/s | mean of the time of which was counted
-- acked_tps | double | rows/s | mean of it
-- predicted_tps | double | rows/s | rate that the plan was predicted to carry
-- p50_s | double | s | median latency
-- p95_s | double | s | 95th percentile of it
-- max_s | double | s | longest
-- bottleneck | string |  | task nearest to its limit
-- bottleneck_slot | string |  | where
-- load | double |  | how near: its rate as a part of the one at which it saturates
with ranked as (
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
  e.run,
  e.epoch,
  p.reason,
  e.from_s,
  e.to_s,
  e.seconds,
  e.recorded_s,
  e.recorded_s / nullif(e.seconds, 0) as coverage,
  e.offered,
  e.acked,
  e.offered - e.acked as fell_behind,
  e.offered_tps,
  e.acked_tps,
  e.predicted_tps,
  l.p50_s,
  l.p95_s,
  l.max_s,
  b.task as bottleneck,
  b.vm || '/' || cast(b.slot as string) as bottleneck_slot,
  b.load
from fct_epochs e
left join late l on l.run = e.run and l.epoch = e.epoch
left join (select run, plan_epoch as epoch, max(trigger) as reason from decisions group by run, plan_epoch) p
  on p.run = e.run and p.epoch = e.epoch
left join mart_bottlenecks b on b.run = e.run and b.epoch = e.epoch and b.rank = 1
where e.from_s is not null
