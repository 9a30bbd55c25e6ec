-- A VM under a plan: for how long its slots were held, what CPU they used then, and how far that was from the plan. A slot is
-- held from the first window in which one of its threads was sampled to the last one.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- vm | string |  | VM
-- vm_s | double | s | in which one of its slots was held, by their windows; null: none ever was
-- slot_s | double | s | of all its held slots
-- cpu | double | slot·s | CPU of these
-- cpu_s | double | s | of which that is known
-- error | double | slot·s | abs(cpu_residual), by the length of windows, held or not
-- error_s | double | s | of which that is known
with places as (
  select
    run,
    epoch,
    max_vm as vm,
    max_slot as slot,
    min(min_first_us) as from_us,
    max(max_last_us) as to_us
  from sum_members
  group by run, epoch, max_vm, max_slot
),
alive as ( -- slots whose memory was ever read: 0 of it is a process that ends
  select run, vm, slot, max(memory) as memory from slots group by run, vm, slot
),
windows as (
  select
    s.run,
    s.epoch,
    s.vm,
    s.time,
    s.window_s,
    coalesce(unix_micros(s.time) >= p.from_us and unix_micros(s.time) <= p.to_us, false) as held,
    case when s.window_s >= 0.1 and not coalesce(s.memory = 0 and a.memory > 0, false) then s.cpu end as cpu,
    s.predicted_cpu
  from slots s
  join alive a on a.run = s.run and a.vm = s.vm and a.slot = s.slot
  left join places p on p.run = s.run and p.epoch = s.epoch and p.vm = s.vm and p.slot = s.slot
),
blocks as (
  select
    run,
    epoch,
    vm,
    time,
    max(case when held then window_s end) as vm_s,
    sum(case when held then window_s end) as slot_s,
    sum(case when held then cpu * window_s end) as cpu,
    sum(case when held and cpu is not null then window_s end) as cpu_s,
    sum(abs(cpu - predicted_cpu) * window_s) as error,
    sum(case when cpu is not null and predicted_cpu is not null then window_s end) as error_s
  from windows
  group by run, epoch, vm, time
)
select
  run,
  epoch,
  vm,
  sum(vm_s) as vm_s,
  sum(slot_s) as slot_s,
  sum(cpu) as cpu,
  sum(cpu_s) as cpu_s,
  sum(error) as error,
  sum(error_s) as error_s
from blocks
group by run, epoch, vm
