-- Threads of the plan in force (`in_plan` of fct_thread_windows), by task and slot, nearest to saturation first: those
-- whose queue grows, then by load.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- rank | bigint |  | 1: the bottleneck
-- task | string |  | task
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- threads | bigint | threads | that were sampled at once
-- tuples_in | bigint | rows | rows taken in; of a source, rows sent on
-- busy_share | double |  | share of the threads' time in the task's logic (not of a source)
-- cpu_share | double | slots | CPU of the whole slot while they were there, as a fraction of it
-- own_cpu | double | slots | CPU of these threads alone, as a fraction of the slot
-- load | double |  | present rate as a part of the one at which they saturate, by models; without one, the higher share
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
    sum(s.cpu_s) as cpu_s,
    count(distinct s.thread) as threads,
    max(s.planned_threads) as planned_threads
  from fct_thread_windows s
  left join tasks t on t.run = s.run and t.task = s.task
  where s.in_plan
  group by s.run, s.epoch, s.task, s.vm, s.slot, s.time
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
    sum(f.predicted_cpu * f.window_s) / nullif(sum(case when f.predicted_cpu is not null then f.window_s end), 0)
      as predicted_cpu,
    sum(b.queue * b.window_s) / nullif(sum(b.window_s), 0) as queue_mean,
    regr_slope(cast(b.queue as double), (unix_micros(b.time) - unix_micros(r.begun)) / 1e6) as queue_growth_tps,
    sum(b.window_s) as seconds,
    max(b.threads) as threads,
    max(b.planned_threads) as planned_threads
  from blocks b
  join runs r on r.run = b.run
  join dim_vm v on v.run = b.run and v.vm = b.vm
  left join slots f on f.run = b.run and f.vm = b.vm and f.slot = b.slot and f.time = b.time
  group by b.run, b.epoch, b.task, b.vm, b.slot
),
those as (
  select *, coalesce(planned_threads, threads) as many from groups where tuples_in > 0
),
around as (
  select
    g.run,
    g.task,
    g.many,
    max(case when m.threads <= g.many then m.threads end) as below,
    min(case when m.threads >= g.many then m.threads end) as above
  from (select distinct run, task, many from those) g
  join models m on m.run = g.run and m.task = g.task
  group by g.run, g.task, g.many
),
peaks as (
  select
    a.run,
    a.task,
    a.many,
    case
      when h.rate_tps is null then l.rate_tps
      when l.rate_tps is null then h.rate_tps * a.many / a.above
      when a.above = a.below then l.rate_tps
      else l.rate_tps + (h.rate_tps - l.rate_tps) * (a.many - a.below) / (a.above - a.below)
    end as peak_tps
  from around a
  left join models l on l.run = a.run and l.task = a.task and l.threads = a.below
  left join models h on h.run = a.run and h.task = a.task and h.threads = a.above
),
fixed as (
  select g.run, g.epoch, g.vm, g.slot, sum(g.many * t.static_cpu) as reserved
  from those g
  join tasks t on t.run = g.run and t.task = g.task
  group by g.run, g.epoch, g.vm, g.slot
),
judged as (
  select
    g.*,
    case
      when t.static_cpu is not null then 0e0
      when p.peak_tps > 0 then greatest(
        g.tuples_in / g.seconds / p.peak_tps,
        coalesce((g.predicted_cpu - coalesce(x.reserved, 0e0)) / nullif(1e0 - coalesce(x.reserved, 0e0), 0e0), 0e0)
      )
      else greatest(g.busy_share, g.cpu_share)
    end as load,
    coalesce(
      g.queue_growth_tps * g.seconds > 0.02 * g.tuples_in
      and g.queue_growth_tps * g.seconds * g.seconds > 0.5 * g.tuples_in,
      false
    ) as grows
  from those g
  left join peaks p on p.run = g.run and p.task = g.task and p.many = g.many
  left join fixed x on x.run = g.run and x.epoch = g.epoch and x.vm = g.vm and x.slot = g.slot
  left join tasks t on t.run = g.run and t.task = g.task
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
  j.threads,
  j.tuples_in,
  j.busy_share,
  j.cpu_share,
  j.own_cpu,
  j.load,
  j.queue_mean,
  j.queue_growth_tps,
  j.grows
from judged j
