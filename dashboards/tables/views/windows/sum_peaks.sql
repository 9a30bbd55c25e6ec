-- Stretches in which a task was alone in its slot, busy for nearly all of it, with rows waiting: what it can do at most.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- w | bigint |  | number of the stretch since 1970
-- task | string |  | task
-- threads | double | threads | of it in the slot
-- rate | double | rows/s | rows taken in
-- memory | double | bytes | memory of its workers
select
  b.run,
  b.epoch,
  b.vm,
  b.slot,
  b.w,
  b.task,
  b.threads,
  b.tuples_in / nullif(b.seconds, 0) as rate,
  b.memory_bytes / cast(b.n as double) * b.threads as memory
from sum_bundles b
join widths d on d.run = b.run
where b.beside = ''
  and b.busy_s / nullif(b.window_s, 0) >= 0.9e0
  and b.tuples_in > 0
  and b.queue / cast(b.n as double) * b.threads >= 1
  and b.seconds >= 0.5e0 * d.window_s
