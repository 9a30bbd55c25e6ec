-- One slot in one window: measured against planned, and the CPU that no thread of a task explains. Readings of a process
-- that ends in the window are null, and so are ratios of windows below 0.1 s.
--
-- run | string |  | topology/run
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- time | timestamp |  | end of the window (UTC)
-- at_s | double | s | since the run began
-- epoch | bigint |  | number of the plan that was in force
-- window_s | double | s | length of the window
-- threads | bigint | threads | that were sampled in it: with one the slot is held
-- planned_threads | bigint | threads | that the plan has in it, 0: none; null: the plan is not in the trace
-- cpu | double | slots | CPU used, as a fraction of the slot
-- predicted_cpu | double | slots | what the plan foresaw for the rate of that time
-- cpu_residual | double | slots | cpu − predicted_cpu
-- thread_cpu | double | slots | CPU of its task threads
-- unexplained_cpu | double | slots | cpu − thread_cpu: the worker's own threads, its start, other processes in the slot
-- memory | double | slots | memory used, as a fraction of the slot
-- predicted_memory | double | slots | what the plan foresaw
with threads as (
  select run, vm, slot, time, count(*) as threads, sum(cpu_s) as cpu_s
  from samples
  group by run, vm, slot, time
),
known as (
  select distinct run, plan_epoch as epoch, plan from decisions where plan_epoch is not null
),
planned as (
  select k.run, k.epoch, p.vm, p.slot, cast(sum(p.threads) as bigint) as threads
  from known k
  join plan_slots p on p.run = k.run and p.plan = k.plan
  group by k.run, k.epoch, p.vm, p.slot
),
planned_epochs as (
  select distinct run, epoch from planned
),
alive as ( -- slots whose memory was ever read: 0 of it is a process that ends
  select run, vm, slot, max(memory) as memory from slots group by run, vm, slot
),
read as (
  select
    s.*,
    case when coalesce(s.memory = 0 and a.memory > 0, false) then null else s.cpu end as cpu_read,
    case when coalesce(s.memory = 0 and a.memory > 0, false) then null else s.memory end as memory_read,
    case when s.window_s >= 0.1 then s.window_s end as long_s
  from slots s
  join alive a on a.run = s.run and a.vm = s.vm and a.slot = s.slot
)
select
  s.run,
  s.vm,
  s.slot,
  s.time,
  (unix_micros(s.time) - unix_micros(r.begun)) / 1e6 as at_s,
  s.epoch,
  s.window_s,
  coalesce(t.threads, 0) as threads,
  case when e.epoch is not null then coalesce(p.threads, 0) end as planned_threads,
  s.cpu_read as cpu,
  s.predicted_cpu,
  case when s.long_s is not null then s.cpu_read - s.predicted_cpu end as cpu_residual,
  coalesce(t.cpu_s, 0e0) / s.long_s / v.slot_cores as thread_cpu,
  s.cpu_read - coalesce(t.cpu_s, 0e0) / s.long_s / v.slot_cores as unexplained_cpu,
  s.memory_read as memory,
  s.predicted_memory
from read s
join runs r on r.run = s.run
join dim_vm v on v.run = s.run and v.vm = s.vm
left join threads t on t.run = s.run and t.vm = s.vm and t.slot = s.slot and t.time = s.time
left join planned_epochs e on e.run = s.run and e.epoch = s.epoch
left join planned p on p.run = s.run and p.epoch = s.epoch and p.vm = s.vm and p.slot = s.slot
