-- One plan's time in force: how much of it was recorded, and what was counted in it, gaps of the record too.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan
-- from_s | double | s | its first second in which was counted, since the run began
-- to_s | double | s | its last one
-- seconds | double | s | recorded_s and the gaps in it
-- recorded_s | double | s | by the windows of held slots of its longest VM
-- gap_s | double | s | of its time not recorded (fct_gaps)
-- slot_seconds | double | slot·s | held slots (sum_presence), each as long as its windows
-- vm_seconds | double | VM·s | VMs with such slots, each as long as its windows
-- vms | bigint | VMs | with such slots
-- vms_of_run | bigint | VMs | with such slots in any epoch of the run
-- usd_recorded | double | USD | what VMs cost in vm_seconds; null: the price of one is not known
-- counted_s | double | s | of which rates were counted
-- offered | bigint | rows | due by the schedule, or arrived; of gaps by the counts before and after
-- acked | bigint | rows | done: processed whole, or a dead letter; of gaps likewise
-- offered_tps | double | rows/s | mean over counted_s
-- acked_tps | double | rows/s | mean over counted_s
-- predicted_tps | double | rows/s | rate that the plan was predicted to carry
-- explained_slot_seconds | double | slot·s | of which unexplained_cpu is the mean
-- unexplained_cpu | double | slots | mean CPU of a held slot that no task thread explains
-- predicted_slot_seconds | double | slot·s | of which cpu_error is the mean
-- cpu_error | double | slots | mean of abs(cpu_residual) over slots and windows, by their length
with explained as ( -- CPU of threads; what a process read while it ended is none
  select
    run,
    epoch,
    max_vm as vm,
    sum(cpu_s) - sum(case when max_memory_bytes > 0 then coalesce(unread_cpu_s, 0e0) else 0e0 end) as cpu_s
  from sum_members
  group by run, epoch, max_vm
),
by_vm as (
  select
    p.*,
    p.cpu - coalesce(e.cpu_s, 0e0) / coalesce(v.slot_cores, r.spare_slot_cores) as unexplained,
    coalesce(v.usd_per_hour, r.spare_usd_per_hour) as usd_per_hour,
    case when p.vm_s is not null then dense_rank() over (
      partition by p.run, p.vm_s is not null order by p.vm
    ) end as vm_number
  from sum_presence p
  join runs r on r.run = p.run
  left join vms v on v.run = p.run and v.vm = p.vm
  left join explained e on e.run = p.run and e.epoch = p.epoch and e.vm = p.vm
),
held as (
  select
    run,
    epoch,
    max(vm_s) as recorded_s,
    sum(slot_s) as slot_seconds,
    sum(vm_s) as vm_seconds,
    count(vm_s) as vms,
    max(max(vm_number)) over (partition by run) as vms_of_run,
    case when count(case when vm_s is not null then usd_per_hour end) = count(vm_s) then sum(usd_per_hour * vm_s) / 3600e0 end
      as usd_recorded,
    sum(cpu_s) as explained_slot_seconds,
    sum(unexplained) / nullif(sum(cpu_s), 0) as unexplained_cpu,
    sum(error_s) as predicted_slot_seconds,
    sum(error) / nullif(sum(error_s), 0) as cpu_error
  from by_vm
  group by run, epoch
),
counted as (
  select
    c.run,
    c.epoch,
    floor((min(c.min_us) - max(unix_micros(r.begun))) / 1e6) as from_s,
    floor((max(c.max_us) - max(unix_micros(r.begun))) / 1e6) as to_s,
    sum(c.counted_s) as counted_s,
    cast(sum(c.offered) as bigint) as offered,
    cast(sum(c.acked) as bigint) as acked,
    max(c.max_predicted_tps) as predicted_tps
  from sum_rate_windows c
  join runs r on r.run = c.run
  group by c.run, c.epoch
),
named as (
  select run, epoch from held
  union
  select run, epoch from counted
),
gaps as (
  select run, epoch, sum(seconds) as gap_s from fct_gaps group by run, epoch
),
whole as (
  select run, sum(gap_s) as gap_s from gaps group by run
),
told as (
  select run, cast(sum(offered) as bigint) as offered, cast(sum(acked) as bigint) as acked from counted group by run
),
missing as ( -- of gaps: what the controller counted in the run and no row of rates has
  select
    w.run,
    w.gap_s,
    greatest(0, max(c.offered) - max(t.offered)) as offered,
    greatest(0, max(c.acked + coalesce(c.dead_lettered, 0)) - max(t.acked)) as acked
  from whole w
  join told t on t.run = w.run
  join counts c on c.run = w.run
  group by w.run, w.gap_s
)
select
  n.run,
  n.epoch,
  c.from_s,
  c.to_s,
  h.recorded_s + coalesce(g.gap_s, 0e0) as seconds,
  h.recorded_s,
  coalesce(g.gap_s, 0e0) as gap_s,
  h.slot_seconds,
  h.vm_seconds,
  h.vms,
  h.vms_of_run,
  h.usd_recorded,
  c.counted_s,
  c.offered + cast(coalesce(floor(m.offered * (g.gap_s / m.gap_s) + 0.5), 0e0) as bigint) as offered,
  c.acked + cast(coalesce(floor(m.acked * (g.gap_s / m.gap_s) + 0.5), 0e0) as bigint) as acked,
  c.offered / nullif(c.counted_s, 0) as offered_tps,
  c.acked / nullif(c.counted_s, 0) as acked_tps,
  c.predicted_tps,
  h.explained_slot_seconds,
  h.unexplained_cpu,
  h.predicted_slot_seconds,
  h.cpu_error
from named n
left join held h on h.run = n.run and h.epoch = n.epoch
left join counted c on c.run = n.run and c.epoch = n.epoch
left join gaps g on g.run = n.run and g.epoch = n.epoch
left join missing m on m.run = n.run
