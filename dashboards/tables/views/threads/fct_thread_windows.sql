-- One thread of a task in one window, and whether it says something of the plan. Readings of a process that ends in the
-- window are null.
--
-- run | string |  | topology/run
-- task | string |  | task
-- thread | bigint |  | number of the thread, its own in the whole run
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- time | timestamp |  | end of the window (UTC)
-- at_s | double | s | since the run began
-- epoch | bigint |  | number of the plan that was in force
-- window_s | double | s | length of the window
-- planned_threads | bigint | threads | of the task in this slot, by the plan; null: the plan is not in the trace
-- planned_share | double |  | of the task's rows that the plan gives to this thread; null: the plan does not say
-- settled | boolean |  | 0.1 s or longer, not the thread's first in this plan, begun a second after that came into force, ended before the next
-- in_plan | boolean |  | settled, of a thread that the plan has (`planned` of fct_members)
-- tuples_in | bigint | rows | rows taken in and finished
-- tuples_out | bigint | rows | rows sent on
-- queue | bigint | rows | rows that waited at the end of the window
-- cpu_s | double | s | CPU time of the thread
-- busy_s | double | s | time in the task's logic
-- memory_bytes | bigint | bytes | memory of its worker
with windows as (
  select
    s.*,
    (unix_micros(s.time) - unix_micros(m.begun)) / 1e6 as at_s,
    coalesce(s.memory_bytes = 0 and m.memory_bytes > 0, false) as ends,
    m.planned,
    m.planned_threads,
    m.planned_share,
    coalesce(
      s.window_s >= 0.1
      and unix_micros(s.time) - unix_micros(m.begun) > m.first_us
      and unix_micros(s.time) - unix_micros(m.begun) < m.until_us
      and unix_micros(s.time) - unix_micros(m.begun) - cast(floor(s.window_s * 1e6) as bigint) >= m.settled_us
      and not coalesce(s.memory_bytes = 0 and m.memory_bytes > 0, false),
      false
    ) as settled
  from samples s
  join fct_members m on m.run = s.run and m.epoch = s.epoch and m.thread = s.thread
)
select
  w.run,
  w.task,
  w.thread,
  w.vm,
  w.slot,
  w.time,
  w.at_s,
  w.epoch,
  w.window_s,
  w.planned_threads,
  w.planned_share,
  w.settled,
  w.settled and w.planned as in_plan,
  w.tuples_in,
  w.tuples_out,
  w.queue,
  case when w.ends then null else w.cpu_s end as cpu_s,
  w.busy_s,
  case when w.ends then null else w.memory_bytes end as memory_bytes
from windows w
