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
-- acked | bigint | rows | done: processed whole, or a dead letter; by the counts in rates
-- unexplained_cpu | double | slots | mean CPU of a held slot that no task thread explains
-- usd_per_million | double | USD | for a million of these
with blocks as (
  select
    run,
    epoch,
    vm,
    time,
    max(window_s) as window_s,
    count(*) as slots,
    sum(unexplained_cpu) as unexplained,
    count(unexplained_cpu) as explained
  from fct_slot_seconds
  where threads > 0
  group by run, epoch, vm, time
),
by_vm as (
  select
    run,
    epoch,
    vm,
    sum(window_s) as vm_s,
    sum(window_s * slots) as slot_s,
    sum(unexplained) as unexplained,
    sum(explained) as explained,
    dense_rank() over (partition by run order by vm) as vm_number
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
    max(b.vm_number) as vms_so_far,
    sum(b.vm_s) as vm_s,
    sum(b.unexplained) as unexplained,
    sum(b.explained) as explained,
    case when count(v.usd_per_hour) = count(*) then sum(v.usd_per_hour * b.vm_s) / 3600e0 end as usd,
    max(c.acked) as acked
  from by_vm b
  join dim_vm v on v.run = b.run and v.vm = b.vm
  left join counted c on c.run = b.run and c.epoch = b.epoch
  group by b.run, b.epoch
),
twice as ( -- each epoch by itself, and once more for the whole run; so that nothing above is worked out twice
  select e.*, case when k.whole then null else e.epoch end as of_epoch
  from epochs e
  cross join (select true as whole union all select false as whole) k
),
sums as (
  select
    run,
    of_epoch as epoch,
    sum(seconds) as seconds,
    sum(slot_s) as slot_s,
    case when of_epoch is null then max(vms_so_far) else max(vms) end as vms,
    sum(vm_s) as vm_s,
    case when count(usd) = count(*) then sum(usd) end as usd,
    cast(sum(acked) as bigint) as acked,
    sum(unexplained) / nullif(sum(explained), 0) as unexplained_cpu
  from twice
  group by run, of_epoch
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
  unexplained_cpu,
  usd / nullif(acked, 0) * 1e6 as usd_per_million
from sums
