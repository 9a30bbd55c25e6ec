-- One VM of a run: by the trace's head, by its plans, or by samples of it alone (then what it is follows from `spare_…`).
--
-- run | string |  | topology/run
-- vm | string |  | VM
-- slots | bigint | slots | how many it has
-- slot_cores | double | cores | cores of each
-- slot_memory_bytes | bigint | bytes | memory of each
-- usd_per_hour | double | USD/h | what it costs; null: no price is known
with named as (
  select run, vm from vms
  union
  select run, vm from slots
)
select
  n.run,
  n.vm,
  coalesce(v.slots, r.spare_slots) as slots,
  coalesce(v.slot_cores, r.spare_slot_cores) as slot_cores,
  coalesce(v.slot_memory_bytes, r.spare_slot_memory_bytes) as slot_memory_bytes,
  coalesce(v.usd_per_hour, r.spare_usd_per_hour) as usd_per_hour
from named n
join runs r on r.run = n.run
left join vms v on v.run = n.run and v.vm = n.vm
