-- All threads of a task in a slot in a stretch of time (`widths.window_s`): what the other sums of samples are made of.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- task | string |  | task
-- w | bigint |  | number of the stretch since 1970
-- n | bigint |  | samples in it
-- first_us | bigint | µs | time of the first since 1970
-- last_us | bigint | µs | time of the last
-- window_s | double | s | windows of the threads together
-- cpu_s | double | s | CPU time of the threads
-- tuples_in | bigint | rows | rows taken in and finished
-- tuples_out | bigint | rows | rows sent on
-- queue | bigint | rows | rows that waited, summed over the samples
-- busy_s | double | s | time in the task's logic
-- memory_bytes | bigint | bytes | memory of the worker, summed over the samples
-- seconds | double | s | that the samples cover
-- threads | double | threads | how many they were, at least one
-- beside | string |  | the other tasks in the slot in that stretch, with commas between; empty: alone
with sums as (
  select
    s.run,
    s.epoch,
    s.vm,
    s.slot,
    s.task,
    cast(floor(unix_micros(s.time) / (d.window_s * 1e6)) as bigint) as w,
    count(*) as n,
    min(unix_micros(s.time)) as first_us,
    max(unix_micros(s.time)) as last_us,
    sum(s.window_s) as window_s,
    sum(s.cpu_s) as cpu_s,
    cast(sum(s.tuples_in) as bigint) as tuples_in,
    cast(sum(s.tuples_out) as bigint) as tuples_out,
    cast(sum(s.queue) as bigint) as queue,
    sum(s.busy_s) as busy_s,
    cast(sum(s.memory_bytes) as bigint) as memory_bytes
  from samples s
  join widths d on d.run = s.run
  group by s.run, s.epoch, s.vm, s.slot, s.task, cast(floor(unix_micros(s.time) / (d.window_s * 1e6)) as bigint)
),
covered as (
  select *, coalesce((last_us - first_us) / 1e6, 0e0) + window_s / n as seconds from sums
),
tasks as (
  select distinct run, vm, slot, w, task from sums
),
together as (
  select run, vm, slot, w, array_join(sort_array(array_agg(task)), ',') as tasks
  from tasks
  group by run, vm, slot, w
)
select
  c.run,
  c.epoch,
  c.vm,
  c.slot,
  c.task,
  c.w,
  c.n,
  c.first_us,
  c.last_us,
  c.window_s,
  c.cpu_s,
  c.tuples_in,
  c.tuples_out,
  c.queue,
  c.busy_s,
  c.memory_bytes,
  c.seconds,
  greatest(1e0, floor(c.window_s / nullif(c.seconds, 0) + 0.5e0)) as threads,
  trim(both ',' from replace(',' || t.tasks || ',', ',' || c.task || ',', ',')) as beside
from covered c
join together t on t.run = c.run and t.vm = c.vm and t.slot = c.slot and t.w = c.w
