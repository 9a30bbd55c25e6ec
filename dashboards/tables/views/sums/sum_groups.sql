-- Threads of a task in a slot in an epoch, by the tasks beside them: sums over stretches (`sum_bundles`).
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- task | string |  | task
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- beside | string |  | the other tasks in the slot, with commas between; empty: alone
-- windows | bigint |  | stretches
-- n | bigint |  | samples
-- window_s | double | s | windows of the threads together
-- cpu_s | double | s | CPU time of the threads
-- tuples_in | bigint | rows | rows taken in and finished
-- tuples_out | bigint | rows | rows sent on
-- busy_s | double | s | time in the task's logic
-- memory_bytes | bigint | bytes | memory of the worker, summed over the samples
-- min_first_us | bigint | µs | time of the first sample since 1970
-- max_last_us | bigint | µs | time of the last
-- max_busy | double |  | highest share of a stretch in the task's logic
-- live_windows | bigint |  | stretches with rows
-- live_cpu_s | double | s | CPU time in these
-- live_tuples | bigint | rows | rows in these
-- costed_windows | bigint |  | stretches with 20 rows or more
-- costed_cost | double |  | logarithms of CPU time per row, summed over these
-- costed_squares | double |  | their squares
-- costed_rate | double |  | logarithms of rows per thread and second
with counted as (
  select *, greatest(tuples_in, tuples_out) as tuples from sum_bundles
),
costed as (
  select
    *,
    case when tuples >= 20 and cpu_s > 0 and window_s > 0 then ln(greatest(cpu_s, 1e-300) / greatest(tuples, 1)) end as cost,
    case when tuples >= 20 and cpu_s > 0 and window_s > 0 then ln(greatest(tuples, 1) / greatest(window_s, 1e-300)) end as rate
  from counted
)
select
  run,
  epoch,
  task,
  vm,
  slot,
  beside,
  count(*) as windows,
  cast(sum(n) as bigint) as n,
  sum(window_s) as window_s,
  sum(cpu_s) as cpu_s,
  cast(sum(tuples_in) as bigint) as tuples_in,
  cast(sum(tuples_out) as bigint) as tuples_out,
  sum(busy_s) as busy_s,
  cast(sum(memory_bytes) as bigint) as memory_bytes,
  min(first_us) as min_first_us,
  max(last_us) as max_last_us,
  max(busy_s / nullif(window_s, 0)) as max_busy,
  count(case when tuples >= 1 then 1 end) as live_windows,
  sum(case when tuples >= 1 then cpu_s end) as live_cpu_s,
  cast(sum(case when tuples >= 1 then tuples end) as bigint) as live_tuples,
  count(cost) as costed_windows,
  sum(cost) as costed_cost,
  sum(cost * cost) as costed_squares,
  sum(rate) as costed_rate
from costed
group by run, epoch, task, vm, slot, beside
