-- A VM under a plan: for how long threads were sampled in its slots, and what of their CPU is not explained or predicted.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- vm | string |  | VM
-- vm_s | double | s | in which one of its slots had threads, by their windows; null: none ever had
-- slot_s | double | s | of all its slots with threads
-- unexplained | double | slot·s | CPU of these that no thread of a task explains
-- explained_s | double | s | of which that is known
-- error | double | slot·s | abs(cpu_residual), by the length of windows
-- error_s | double | s | of which that is known
with blocks as (
  select
    run,
    epoch,
    vm,
    time,
    max(case when threads > 0 then window_s end) as vm_s,
    sum(case when threads > 0 then window_s end) as slot_s,
    sum(case when threads > 0 then unexplained_cpu * window_s end) as unexplained,
    sum(case when threads > 0 and unexplained_cpu is not null then window_s end) as explained_s,
    sum(abs(cpu_residual) * window_s) as error,
    sum(case when cpu_residual is not null then window_s end) as error_s
  from fct_slot_seconds
  group by run, epoch, vm, time
)
select
  run,
  epoch,
  vm,
  sum(vm_s) as vm_s,
  sum(slot_s) as slot_s,
  sum(unexplained) as unexplained,
  sum(explained_s) as explained_s,
  sum(error) as error,
  sum(error_s) as error_s
from blocks
group by run, epoch, vm
