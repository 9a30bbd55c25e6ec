-- A VM in an epoch: for how long threads were sampled in its slots, and in any of them.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- vm | string |  | VM
-- slot_s | double | s | of its slots together
-- vm_s | double | s | of its own
with slots as (
  select b.run, b.epoch, b.vm, b.w, b.slot, least(max(b.seconds), cast(max(d.window_s) as double)) as seconds
  from sum_bundles b
  join widths d on d.run = b.run
  group by b.run, b.epoch, b.vm, b.w, b.slot
),
windows as (
  select run, epoch, vm, w, sum(seconds) as slot_s, max(seconds) as vm_s
  from slots
  group by run, epoch, vm, w
)
select run, epoch, vm, coalesce(sum(slot_s), 0e0) as slot_s, coalesce(sum(vm_s), 0e0) as vm_s
from windows
group by run, epoch, vm
