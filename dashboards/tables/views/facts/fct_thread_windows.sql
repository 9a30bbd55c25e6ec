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
-- in_plan | boolean |  | of the plan in force: not leaving, not in its first window, a second after the plan came into force, 0.1 s or longer
-- tuples_in | bigint | rows | rows taken in and finished
-- tuples_out | bigint | rows | rows sent on
-- queue | bigint | rows | rows that waited at the end of the window
-- cpu_s | double | s | CPU time of the thread
-- busy_s | double | s | time in the task's logic
-- memory_bytes | bigint | bytes | memory of its worker
with members as (
  select
    run,
    epoch,
    task,
    vm,
    slot,
    thread,
    min(unix_micros(time)) as first_us,
    max(unix_micros(time)) as last_us,
    max(memory_bytes) as memory_bytes
  from samples
  group by run, epoch, task, vm, slot, thread
),
decided as (
  select run, plan_epoch as epoch, max(plan) as plan, min(unix_micros(time)) as decided_us
  from decisions
  where plan_epoch is not null
  group by run, plan_epoch
),
enacted as (
  select run, enacted_epoch as epoch, max(enacted_s) as enacted_s
  from decisions
  where enacted_epoch is not null
  group by run, enacted_epoch
),
began as (
  select run, epoch, min(first_us) as first_us from members group by run, epoch
),
epochs as (
  select
    b.run,
    b.epoch,
    greatest(b.first_us, coalesce(d.decided_us + cast(floor(e.enacted_s * 1e6) as bigint), b.first_us)) + 1000000 as settled_us,
    min(b.first_us) over (
      partition by b.run order by b.epoch rows between 1 following and unbounded following
    ) as next_us
  from began b
  left join decided d on d.run = b.run and d.epoch = b.epoch
  left join enacted e on e.run = b.run and e.epoch = b.epoch
),
planned as (
  select d.run, d.epoch, s.task, s.vm, s.slot, cast(sum(s.threads) as bigint) as threads, sum(s.share) as share
  from decided d
  join plan_slots s on s.run = d.run and s.plan = d.plan
  group by d.run, d.epoch, s.task, s.vm, s.slot
),
kept as ( -- epochs whose plan in the trace is the one that was kept to
  select distinct m.run, m.epoch
  from members m
  join planned p on p.run = m.run and p.epoch = m.epoch and p.task = m.task and p.vm = m.vm and p.slot = m.slot
),
ranked as ( -- where there are more threads than planned, those that go first are the ones that leave
  select *, row_number() over (partition by run, epoch, task, vm, slot order by last_us desc, thread) as place
  from members
),
those as (
  select
    m.*,
    e.settled_us,
    coalesce(e.next_us, m.last_us + 1) as until_us,
    k.run is null or coalesce(m.place <= p.threads, false) as planned,
    p.threads as planned_threads,
    p.share / p.threads as planned_share
  from ranked m
  join epochs e on e.run = m.run and e.epoch = m.epoch
  left join kept k on k.run = m.run and k.epoch = m.epoch
  left join planned p on p.run = m.run and p.epoch = m.epoch and p.task = m.task and p.vm = m.vm and p.slot = m.slot
),
windows as (
  select s.*, s.memory_bytes = 0 and m.memory_bytes > 0 as ends, m.first_us, m.settled_us, m.until_us, m.planned,
    m.planned_threads, m.planned_share
  from samples s
  join those m on m.run = s.run and m.epoch = s.epoch and m.task = s.task and m.vm = s.vm and m.slot = s.slot
    and m.thread = s.thread
)
select
  w.run,
  w.task,
  w.thread,
  w.vm,
  w.slot,
  w.time,
  (unix_micros(w.time) - unix_micros(r.begun)) / 1e6 as at_s,
  w.epoch,
  w.window_s,
  w.planned_threads,
  w.planned_share,
  coalesce(
    w.planned
    and w.window_s >= 0.1
    and unix_micros(w.time) > w.first_us
    and unix_micros(w.time) < w.until_us
    and unix_micros(w.time) - cast(floor(w.window_s * 1e6) as bigint) >= w.settled_us
    and not coalesce(w.ends, false),
    false
  ) as in_plan,
  w.tuples_in,
  w.tuples_out,
  w.queue,
  case when coalesce(w.ends, false) then null else w.cpu_s end as cpu_s,
  w.busy_s,
  case when coalesce(w.ends, false) then null else w.memory_bytes end as memory_bytes
from windows w
join runs r on r.run = w.run
