-- One thread of a task in an epoch: whether it is of the plan in force, and in which time it says something of it.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- task | string |  | task
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- thread | bigint |  | number of the thread, its own in the whole run
-- begun | timestamp |  | when the run began (UTC)
-- first_us | bigint | µs | end of its first window since the run began
-- last_us | bigint | µs | likewise: end of its last one
-- memory_bytes | bigint | bytes | most that its worker had
-- settled_us | bigint | µs | likewise: a second after the plan came into force
-- until_us | bigint | µs | likewise: first sample of the next plan; of the last one, the end
-- planned | boolean |  | the plan has as many threads of the task in this slot; of more, it is one of those that stay for longest
-- planned_threads | bigint | threads | of the task in this slot, by the plan; null: the plan is not in the trace
-- planned_share | double |  | of the task's rows that the plan gives to this thread; null: the plan does not say
with members as (
  select
    m.run,
    m.epoch,
    m.thread,
    m.max_task as task,
    m.max_vm as vm,
    m.max_slot as slot,
    r.begun,
    m.min_first_us - unix_micros(r.begun) as first_us,
    m.max_last_us - unix_micros(r.begun) as last_us,
    m.max_memory_bytes as memory_bytes
  from sum_members m
  join runs r on r.run = m.run
),
decided as (
  select d.run, d.plan_epoch as epoch, max(d.plan) as plan, min(unix_micros(d.time) - unix_micros(r.begun)) as decided_us
  from decisions d
  join runs r on r.run = d.run
  where d.plan_epoch is not null
  group by d.run, d.plan_epoch
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
)
select
  m.run,
  m.epoch,
  m.task,
  m.vm,
  m.slot,
  m.thread,
  m.begun,
  m.first_us,
  m.last_us,
  m.memory_bytes,
  e.settled_us,
  coalesce(e.next_us, m.last_us + 1) as until_us,
  k.run is null or coalesce(m.place <= p.threads, false) as planned,
  p.threads as planned_threads,
  p.share / p.threads as planned_share
from ranked m
join epochs e on e.run = m.run and e.epoch = m.epoch
left join kept k on k.run = m.run and k.epoch = m.epoch
left join planned p on p.run = m.run and p.epoch = m.epoch and p.task = m.task and p.vm = m.vm and p.slot = m.slot
