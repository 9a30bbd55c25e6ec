-- A thread in an epoch: rows that it took in, and for how long it was there.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- task | string |  | task
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- thread | bigint |  | number of the thread
-- tuples_in | bigint | rows | rows taken in and finished
-- window_s | double | s | for which it was there
select
  run,
  epoch,
  task,
  vm,
  slot,
  thread,
  cast(sum(tuples_in) as bigint) as tuples_in,
  sum(window_s) as window_s
from samples
group by run, epoch, task, vm, slot, thread
