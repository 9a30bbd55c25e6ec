-- Slot-hours and money of each epoch and of the whole run. A slot counts while threads were sampled in it, a VM while
-- one of its slots was.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan; null: the whole run
-- seconds | double | s | for which it was in force, by the windows of its longest VM
-- slots_held | double | slots | mean
-- slot_hours | double | slot·h | slots over time
-- vms | bigint | VMs | with held slots
-- vm_hours | double | VM·h | VMs over time
-- usd | double | USD | what the VMs cost; null: the price of one is not known
-- acked | bigint | tuples | done: processed whole, or a dead letter; by the counts in rates
-- usd_per_million | double | USD | for a million of these
with blocks as (
  select run, epoch, vm, time, max(window_s) as window_s, count(*) as slots
  from fct_slot_seconds
  where threads > 0
  group by run, epoch, vm, time
),
by_vm as (
  select run, epoch, vm, sum(window_s) as vm_s, sum(window_s * slots) as slot_s
  from blocks
  group by run, epoch, vm
),
counted as (
  select run, epoch, cast(sum(acked) as bigint) as acked from rates group by run, epoch
),
epochs as (
  select
    b.run,
    b.epoch,
    max(b.vm_s) as seconds,
    sum(b.slot_s) as slot_s,
    count(*) as vms,
    sum(b.vm_s) as vm_s,
    case when count(v.usd_per_hour) = count(*) then sum(v.usd_per_hour * b.vm_s) / 3600e0 end as usd,
    max(c.acked) as acked
  from by_vm b
  join dim_vm v on v.run = b.run and v.vm = b.vm
  left join counted c on c.run = b.run and c.epoch = b.epoch
  group by b.run, b.epoch
),
whole as (
  select
    e.run,
    cast(null as bigint) as epoch,
    sum(e.seconds) as seconds,
    sum(e.slot_s) as slot_s,
    max(w.vms) as vms,
    sum(e.vm_s) as vm_s,
    case when count(e.usd) = count(*) then sum(e.usd) end as usd,
    cast(sum(e.acked) as bigint) as acked
  from epochs e
  join (select run, count(distinct vm) as vms from by_vm group by run) w on w.run = e.run
  group by e.run
)
select
  run,
  epoch,
  seconds,
  slot_s / nullif(seconds, 0) as slots_held,
  slot_s / 3600e0 as slot_hours,
  vms,
  vm_s / 3600e0 as vm_hours,
  usd,
  acked,
  usd / nullif(acked, 0) * 1e6 as usd_per_million
from (select * from epochs union all select * from whole) each_one
