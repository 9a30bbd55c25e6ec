-- One thread of the plan in force: sums and means over its windows `in_plan` (fct_thread_windows).
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan
-- task | string |  | task
-- thread | bigint |  | number of the thread, its own in the whole run
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- planned_threads | bigint | threads | of the task in this slot, by the plan; null: the plan is not in the trace
-- planned_share | double |  | of the task's rows that the plan gives to this thread; null: the plan does not say
-- seconds | double | s | of these windows
-- tuples_in | bigint | rows | rows taken in and finished
-- tuples_out | bigint | rows | rows sent on
-- cpu_s | double | s | CPU time of the thread
-- busy_s | double | s | time in the task's logic
-- queue_mean | double | rows | rows that waited for it, mean
-- queue_growth_tps | double | rows/s | least-squares slope of them
select
  m.run,
  m.epoch,
  m.task,
  m.thread,
  m.vm,
  m.slot,
  m.planned_threads,
  m.planned_share,
  s.window_s as seconds,
  s.tuples_in,
  s.tuples_out,
  s.cpu_s,
  s.busy_s,
  s.queue_time / s.window_s as queue_mean,
  case when s.queued > 1 then (s.xy - s.x * s.y / s.queued) / nullif(s.xx - s.x * s.x / s.queued, 0) end as queue_growth_tps
from sum_threads s
join fct_members m on m.run = s.run and m.epoch = s.epoch and m.thread = s.thread
where m.planned
