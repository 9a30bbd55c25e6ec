-- CPU of the slot of a task's threads while they were there, by the seconds that they were there in each stretch.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- task | string |  | task
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- cpu_share | double | slots | CPU used, as a fraction of the slot
-- predicted_share | double | slots | what the plan foresaw
select
  b.run,
  b.epoch,
  b.task,
  b.vm,
  b.slot,
  sum(s.cpu * b.seconds) / nullif(sum(case when s.cpu is not null then b.seconds end), 0) as cpu_share,
  sum(s.cpu_predicted * b.seconds)
    / nullif(sum(case when s.cpu_predicted is not null then b.seconds end), 0) as predicted_share
from sum_bundles b
join sum_slot_windows s on s.run = b.run and s.epoch = b.epoch and s.vm = b.vm and s.slot = b.slot and s.w = b.w
group by b.run, b.epoch, b.task, b.vm, b.slot
