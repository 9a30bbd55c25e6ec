-- What a task would have needed in an epoch at the highest rate that was offered in it (mean of five seconds or more), by what
-- its rows cost there, to threads of the plan in force (fct_threads).
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- task | string |  | task
-- peak_tps | double | rows/s | rows that it would take in at that rate; of a source, send on
-- cpu_s_per_tuple | double | s | CPU time of a row, as measured
-- busy_s_per_tuple | double | s | time in the task's logic of a row, as measured (not of a source)
-- slots_used | double | slots | CPU that it used, in slots
-- slots_needed | double | slots | CPU that it would have used at peak_tps, in slots
-- threads_held | double | threads | mean
-- threads_needed | double | threads | busy all the time at peak_tps
-- threads_short | bigint | threads | missing, if a thread shall be busy for 90 % of the time
with offered as (
  select run, second, max(epoch) as epoch, sum(offered) as tuples, max(counted_s) as counted_s
  from fct_rates_per_second
  group by run, second
),
smooth as (
  select
    run,
    epoch,
    tuples,
    counted_s,
    sum(tuples) over (partition by run, epoch order by second rows between 4 preceding and current row)
      / nullif(sum(counted_s) over (partition by run, epoch order by second rows between 4 preceding and current row), 0)
      as tps,
    row_number() over (partition by run, epoch order by second) as n
  from offered
),
peaks as (
  select
    run,
    epoch,
    coalesce(max(case when n >= 5 then tps end), sum(tuples) / nullif(sum(counted_s), 0)) as peak_tps
  from smooth
  group by run, epoch
),
cores as (
  select run, avg(slot_cores) as slot_cores from dim_vm group by run
),
threads as (
  select
    s.run,
    s.epoch,
    s.task,
    cast(case when t.is_source then s.tuples_out else s.tuples_in end as double) as tuples,
    case when o.source is not null then s.tuples_out end as emitted,
    s.cpu_s,
    case when t.is_source then null else s.busy_s end as busy_s,
    s.seconds as thread_s
  from fct_threads s
  left join tasks t on t.run = s.run and t.task = s.task
  left join (select distinct run, source from rates) o on o.run = s.run and o.source = s.task
),
done as ( -- emitted: by all sources in the same windows; seconds: of the thread that was there for longest
  select
    run,
    epoch,
    task,
    sum(tuples) as tuples,
    sum(cpu_s) as cpu_s,
    sum(busy_s) as busy_s,
    sum(thread_s) as thread_s,
    sum(sum(emitted)) over (partition by run, epoch) as emitted,
    max(max(thread_s)) over (partition by run, epoch) as seconds
  from threads
  group by run, epoch, task
),
costs as (
  select
    d.run,
    d.epoch,
    d.task,
    d.tuples / nullif(d.emitted, 0) * p.peak_tps as peak_tps,
    d.cpu_s / nullif(d.tuples, 0) as cpu_s_per_tuple,
    d.busy_s / nullif(d.tuples, 0) as busy_s_per_tuple,
    d.cpu_s / nullif(d.seconds, 0) / c.slot_cores as slots_used,
    d.thread_s / nullif(d.seconds, 0) as threads_held,
    c.slot_cores
  from done d
  join peaks p on p.run = d.run and p.epoch = d.epoch
  join cores c on c.run = d.run
)
select
  run,
  epoch,
  task,
  peak_tps,
  cpu_s_per_tuple,
  busy_s_per_tuple,
  slots_used,
  peak_tps * cpu_s_per_tuple / slot_cores as slots_needed,
  threads_held,
  peak_tps * busy_s_per_tuple as threads_needed,
  cast(greatest(0e0, ceil(peak_tps * busy_s_per_tuple / 0.9e0 - threads_held - 1e-6)) as bigint) as threads_short
from costs
