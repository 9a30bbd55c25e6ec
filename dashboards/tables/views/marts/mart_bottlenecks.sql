-- The threads of a task in a slot, in an epoch, nearest to their limit first: those whose queue grows, then by load.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- rank | bigint |  | 1: the bottleneck
-- task | string |  | task
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- threads | bigint | threads | different ones that were sampled
-- tuples_in | bigint | rows | rows taken in; of a source, rows sent on
-- busy_share | double |  | share of the threads' time in the task's logic (not of a source)
-- cpu_share | double | slots | CPU of the whole slot while they were there, as a fraction of it
-- own_cpu | double | slots | CPU of these threads alone, as a fraction of the slot
-- load | double |  | the higher of busy_share and cpu_share; of those as near (to 0.01) the one with most own_cpu is first
-- queue_mean | double | rows | rows that waited for all of them, mean
-- queue_growth_tps | double | rows/s | least-squares slope of it
-- grows | boolean |  | by over 2 % of what they take in, and by half a second of it in the epoch
with blocks as (
  select
    s.run,
    s.epoch,
    s.task,
    s.vm,
    s.slot,
    s.time,
    max(s.window_s) as window_s,
    sum(case when t.is_source then s.tuples_out else s.tuples_in end) as tuples_in,
    sum(s.queue) as queue,
    sum(case when t.is_source then null else s.busy_s end) as busy_s,
    sum(s.window_s) as thread_s,
    sum(s.cpu_s) as cpu_s
  from samples s
  left join tasks t on t.run = s.run and t.task = s.task
  group by s.run, s.epoch, s.task, s.vm, s.slot, s.time
),
members as (
  select run, epoch, task, vm, slot, count(distinct thread) as threads
  from samples
  group by run, epoch, task, vm, slot
),
groups as (
  select
    b.run,
    b.epoch,
    b.task,
    b.vm,
    b.slot,
    cast(sum(b.tuples_in) as bigint) as tuples_in,
    sum(b.busy_s) / nullif(sum(b.thread_s), 0) as busy_share,
    sum(f.cpu * f.window_s) / nullif(sum(case when f.cpu is not null then f.window_s end), 0) as cpu_share,
    sum(b.cpu_s) / nullif(sum(b.window_s), 0) / max(v.slot_cores) as own_cpu,
    avg(cast(b.queue as double)) as queue_mean,
    regr_slope(cast(b.queue as double), (unix_micros(b.time) - unix_micros(r.begun)) / 1e6) as queue_growth_tps,
    sum(b.window_s) as seconds
  from blocks b
  join runs r on r.run = b.run
  join dim_vm v on v.run = b.run and v.vm = b.vm
  left join slots f on f.run = b.run and f.vm = b.vm and f.slot = b.slot and f.time = b.time
  group by b.run, b.epoch, b.task, b.vm, b.slot
),
judged as (
  select
    *,
    greatest(busy_share, cpu_share) as load,
    coalesce(
      queue_growth_tps * seconds > 0.02 * tuples_in and queue_growth_tps * seconds * seconds > 0.5 * tuples_in, false
    ) as grows
  from groups
  where tuples_in > 0
)
select
  j.run,
  j.epoch,
  cast(row_number() over (
    partition by j.run, j.epoch
    order by
      case when j.grows then 0 else 1 end,
      case when j.grows then -j.queue_growth_tps else -round(j.load, 2) end,
      -j.own_cpu,
      j.task,
      j.vm,
      j.slot
  ) as bigint) as rank,
  j.task,
  j.vm,
  j.slot,
  m.threads,
  j.tuples_in,
  j.busy_share,
  j.cpu_share,
  j.own_cpu,
  j.load,
  j.queue_mean,
  j.queue_growth_tps,
  j.grows
from judged j
join members m on m.run = j.run and m.epoch = j.epoch and m.task = j.task and m.vm = j.vm and m.slot = j.slot
