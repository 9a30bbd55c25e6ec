-- One thread of a task in an epoch against its siblings: who gets more rows than the others, and who is busier.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- task | string |  | task
-- thread | bigint |  | number of the thread
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- threads | bigint | threads | of the task in this epoch
-- seconds | double | s | for which it was there
-- tuples_in | bigint | rows | rows that it took in
-- tuples_tps | double | rows/s | while it was there
-- share | double |  | of the task's rows
-- skew | double |  | its tuples_tps over the mean of all threads of the task; 1: like the others
-- busy_share | double |  | share of its time in the task's logic
with threads as (
  select
    run,
    epoch,
    task,
    thread,
    max(vm) as vm,
    max(slot) as slot,
    sum(window_s) as seconds,
    cast(sum(tuples_in) as bigint) as tuples_in,
    sum(busy_s) / nullif(sum(window_s), 0) as busy_share
  from samples
  group by run, epoch, task, thread
)
select
  run,
  epoch,
  task,
  thread,
  vm,
  slot,
  count(*) over (partition by run, epoch, task) as threads,
  seconds,
  tuples_in,
  tuples_in / nullif(seconds, 0) as tuples_tps,
  tuples_in / nullif(sum(tuples_in) over (partition by run, epoch, task), 0) as share,
  tuples_in / nullif(seconds, 0) / nullif(avg(tuples_in / nullif(seconds, 0)) over (partition by run, epoch, task), 0) as skew,
  busy_share
from threads
