-- A thread in an epoch: where it is, its first and its last window.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- thread | bigint |  | number of the thread, its own in the whole run
-- max_task | string |  | task
-- max_vm | string |  | VM
-- max_slot | bigint |  | number of the slot on its VM
-- min_first_us | bigint | µs | end of its first window since 1970
-- max_last_us | bigint | µs | end of its last one
-- max_memory_bytes | bigint | bytes | most that its worker had; 0: it was never read
-- cpu_s | double | s | CPU time of its windows of 0.1 s and longer
-- unread_cpu_s | double | s | of these, of windows in which its worker had no memory
select
  run,
  epoch,
  thread,
  max(task) as max_task,
  max(vm) as max_vm,
  max(slot) as max_slot,
  min(unix_micros(time)) as min_first_us,
  max(unix_micros(time)) as max_last_us,
  max(memory_bytes) as max_memory_bytes,
  sum(case when window_s >= 0.1 then cpu_s end) as cpu_s,
  sum(case when window_s >= 0.1 and memory_bytes = 0 then cpu_s end) as unread_cpu_s
from samples
group by run, epoch, thread
