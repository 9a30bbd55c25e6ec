-- Slot-hours and money of each epoch and of the whole run. A slot counts from its first window with a thread to its last
-- one, a VM while one of its slots does; over gaps as in the rest of the epoch.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan; null: the whole run
-- seconds | double | s | of an epoch, for which it was in force; of the run, how long it ran
-- recorded_s | double | s | of these: recorded, by the windows of its longest VM
-- coverage | double |  | recorded_s / seconds
-- slots_held | double | slots | mean
-- slot_hours | double | slot·h | slots over time
-- vms | bigint | VMs | with held slots
-- vm_hours | double | VM·h | VMs over time
-- usd | double | USD | what the VMs cost; null: the price of one is not known
-- acked | bigint | rows | done: processed whole, or a dead letter
-- offered_tps | double | rows/s | mean of the time of which was counted
-- acked_tps | double | rows/s | mean of it
-- unexplained_cpu | double | slots | mean CPU of a held slot that no task thread explains
-- cpu_error | double | slots | mean of abs(cpu_residual) over slots and windows, by their length
-- usd_per_million | double | USD | for a million of these
with epochs as ( -- as much over the gaps of an epoch as in the rest of it
  select
    e.*,
    slot_seconds * seconds / nullif(recorded_s, 0) as slot_s,
    vm_seconds * seconds / nullif(recorded_s, 0) as vm_s,
    usd_recorded * seconds / nullif(recorded_s, 0) as usd
  from fct_epochs e
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
    sum(recorded_s) as recorded_s,
    sum(slot_s) as slot_s,
    case when of_epoch is null then max(vms_of_run) else max(vms) end as vms,
    sum(vm_s) as vm_s,
    case when count(usd) = count(recorded_s) then sum(usd) end as usd,
    cast(sum(acked) as bigint) as acked,
    sum(offered_tps * counted_s) / nullif(sum(counted_s), 0) as offered_tps,
    sum(acked_tps * counted_s) / nullif(sum(counted_s), 0) as acked_tps,
    sum(unexplained_cpu * explained_slot_seconds) / nullif(sum(explained_slot_seconds), 0) as unexplained_cpu,
    sum(cpu_error * predicted_slot_seconds) / nullif(sum(predicted_slot_seconds), 0) as cpu_error
  from twice
  group by run, of_epoch
),
lengths as (
  select s.*, case when s.epoch is null then greatest(r.seconds, s.recorded_s) else s.seconds end as length_s
  from sums s
  join dim_run r on r.run = s.run
)
select
  run,
  epoch,
  length_s as seconds,
  recorded_s,
  recorded_s / nullif(length_s, 0) as coverage,
  slot_s / nullif(seconds, 0) as slots_held,
  slot_s / 3600e0 as slot_hours,
  vms,
  vm_s / 3600e0 as vm_hours,
  usd,
  acked,
  offered_tps,
  acked_tps,
  unexplained_cpu,
  cpu_error,
  usd / nullif(acked, 0) * 1e6 as usd_per_million
from lengths
where recorded_s is not null or epoch is null
