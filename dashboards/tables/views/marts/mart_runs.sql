-- One run in one row: to compare runs.
--
-- run | string |  | topology/run
-- topology | string |  | topology
-- started | timestamp |  | when it began (UTC)
-- seconds | double | s | how long it ran
-- recorded_s | double | s | of these: recorded
-- coverage | double |  | recorded_s / seconds
-- offered_tps | double | rows/s | mean of the time of which was counted
-- acked_tps | double | rows/s | mean of it
-- acked | bigint | rows | done: processed whole, or a dead letter
-- lost | bigint | rows | neither processed nor on their way at its end
-- dead_lettered | bigint | rows | that a task failed on three times
-- replayed | bigint | rows | sent once more
-- duplicates | bigint | rows | rows at sinks more than once, at least
-- p50_s | double | s | median latency
-- p95_s | double | s | 95th percentile of it
-- p99_s | double | s | 99th percentile of it
-- max_s | double | s | longest
-- plans | bigint | plans | that came into force, or were to
-- slots_held | double | slots | mean
-- slot_hours | double | slot·h | slots over time
-- usd | double | USD | what its VMs cost
-- cpu_error | double | slots | mean of abs(cpu_residual) over slots and windows
-- unexplained_cpu | double | slots | mean CPU of a held slot that no task thread explains
with buckets as ( -- so that only those rows are put in order among which a percentile lies
  select run, floor(64 * ln(greatest(latency_s, 1e-9))) as bucket, sum(tuples) as tuples, max(latency_s) as max_s
  from latency
  group by run, floor(64 * ln(greatest(latency_s, 1e-9)))
),
reached as (
  select
    run,
    bucket,
    max_s,
    tuples,
    sum(tuples) over (partition by run order by bucket rows between unbounded preceding and current row) as upto,
    sum(tuples) over (partition by run) as total
  from buckets
),
near as (
  select run, bucket, upto - tuples as before, total
  from reached
  where (upto >= 0.50 * total - 1e-6 and upto - tuples < 0.50 * total - 1e-6)
    or (upto >= 0.95 * total - 1e-6 and upto - tuples < 0.95 * total - 1e-6)
    or (upto >= 0.99 * total - 1e-6 and upto - tuples < 0.99 * total - 1e-6)
),
ranked as (
  select
    n.run,
    l.latency_s,
    n.total,
    n.before + sum(l.tuples) over (
      partition by n.run, n.bucket order by l.latency_s rows between unbounded preceding and current row
    ) as upto
  from near n
  join latency l on l.run = n.run and floor(64 * ln(greatest(l.latency_s, 1e-9))) = n.bucket
),
late as (
  select
    run,
    min(case when upto >= 0.50 * total - 2e-6 then latency_s end) as p50_s,
    min(case when upto >= 0.95 * total - 2e-6 then latency_s end) as p95_s,
    min(case when upto >= 0.99 * total - 2e-6 then latency_s end) as p99_s
  from ranked
  group by run
),
latest as (
  select run, max(max_s) as max_s from buckets group by run
),
planned as (
  select run, count(distinct plan_epoch) as plans from decisions group by run
)
select
  d.run,
  d.topology,
  d.started,
  coalesce(m.seconds, d.seconds) as seconds,
  m.recorded_s,
  m.coverage,
  m.offered_tps,
  m.acked_tps,
  m.acked,
  t.lost,
  t.dead_lettered,
  t.replayed,
  t.duplicates,
  l.p50_s,
  l.p95_s,
  l.p99_s,
  x.max_s,
  p.plans,
  m.slots_held,
  m.slot_hours,
  m.usd,
  m.cpu_error,
  m.unexplained_cpu
from dim_run d
left join mart_tuples t on t.run = d.run
left join late l on l.run = d.run
left join latest x on x.run = d.run
left join planned p on p.run = d.run
left join mart_cost m on m.run = d.run and m.epoch is null
