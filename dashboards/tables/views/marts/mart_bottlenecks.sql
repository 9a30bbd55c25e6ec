-- Threads of the plan in force (fct_threads), by task and slot, nearest to saturation first: those
-- whose queue grows, then by load.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- rank | bigint |  | 1: the bottleneck
-- task | string |  | task
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- threads | bigint | threads | that were there at once, mean
-- tuples_in | bigint | rows | rows taken in; of a source, rows sent on
-- busy_share | double |  | share of the threads' time in the task's logic (not of a source)
-- cpu_share | double | slots | CPU of the whole slot while they were there, as a fraction of it
-- own_cpu | double | slots | CPU of these threads alone, as a fraction of the slot
-- load | double |  | present rate as a part of the one at which they saturate, by models; without one, the higher share
-- queue_mean | double | rows | rows that waited for all of them, mean
-- queue_growth_tps | double | rows/s | least-squares slope of it, of each thread, together
-- grows | boolean |  | by over half a second of what they take in, in the whole time
with groups as (
  select
    s.run,
    s.epoch,
    s.task,
    s.vm,
    s.slot,
    cast(sum(case when t.is_source then s.tuples_out else s.tuples_in end) as bigint) as tuples_in,
    sum((case when t.is_source then s.tuples_out else s.tuples_in end) / s.seconds) as tuples_tps,
    sum(case when t.is_source then null else s.busy_s end) / sum(s.seconds) as busy_share,
    max(u.cpu / nullif(u.cpu_s, 0)) as cpu_share,
    sum(s.cpu_s / s.seconds) / max(v.slot_cores) as own_cpu,
    max(u.predicted_cpu / nullif(u.predicted_s, 0)) as predicted_cpu,
    sum(s.queue_mean) as queue_mean,
    sum(s.queue_growth_tps) as queue_growth_tps,
    max(s.seconds) as seconds,
    cast(floor(sum(s.seconds) / max(s.seconds) + 0.5) as bigint) as threads,
    max(s.planned_threads) as planned_threads
  from fct_threads s
  join dim_vm v on v.run = s.run and v.vm = s.vm
  left join tasks t on t.run = s.run and t.task = s.task
  left join sum_slot_uses u on u.run = s.run and u.epoch = s.epoch and u.vm = s.vm and u.slot = s.slot
  group by s.run, s.epoch, s.task, s.vm, s.slot
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
        g.tuples_tps / p.peak_tps,
        coalesce((g.predicted_cpu - coalesce(x.reserved, 0e0)) / nullif(1e0 - coalesce(x.reserved, 0e0), 0e0), 0e0)
      )
      else greatest(g.busy_share, g.cpu_share)
    end as load,
    coalesce(g.queue_growth_tps * g.seconds * g.seconds > 0.5 * g.tuples_in, false) as grows
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
