-- A slot in an epoch: sums over its stretches (`sum_slot_windows`), of which R² is made.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- cpu_windows | bigint |  | stretches with a mean of CPU
-- cpu_means | double | slots | these means together
-- cpu_n | bigint |  | samples with CPU and a prediction of it
-- cpu_sum | double | slots | CPU of these
-- cpu_squares | double |  | squares of it
-- cpu_residual | double | slots | what was used less what was predicted
-- cpu_absolute | double | slots | without its sign
-- cpu_ss | double |  | squares of it
-- min_cpu_predicted | double | slots | lowest mean of what was predicted
-- max_cpu_predicted | double | slots | highest
-- max_cpu_error | double | slots | worst error of a stretch
-- memory_n | bigint |  | samples with memory and a prediction of it
-- memory_sum | double | slots | memory of these
-- memory_squares | double |  | squares of it
-- memory_residual | double | slots | what was used less what was predicted
-- memory_absolute | double | slots | without its sign
-- memory_ss | double |  | squares of it
-- min_memory_predicted | double | slots | lowest mean of what was predicted
-- max_memory_predicted | double | slots | highest
-- max_memory_error | double | slots | worst error of a stretch
select
  run,
  epoch,
  vm,
  slot,
  count(cpu) as cpu_windows,
  sum(cpu) as cpu_means,
  cast(sum(cpu_n) as bigint) as cpu_n,
  sum(cpu_sum) as cpu_sum,
  sum(cpu_squares) as cpu_squares,
  sum(cpu_residual) as cpu_residual,
  sum(cpu_absolute) as cpu_absolute,
  sum(cpu_ss) as cpu_ss,
  min(cpu_predicted) as min_cpu_predicted,
  max(cpu_predicted) as max_cpu_predicted,
  max(abs(cpu - cpu_predicted)) as max_cpu_error,
  cast(sum(memory_n) as bigint) as memory_n,
  sum(memory_sum) as memory_sum,
  sum(memory_squares) as memory_squares,
  sum(memory_residual) as memory_residual,
  sum(memory_absolute) as memory_absolute,
  sum(memory_ss) as memory_ss,
  min(memory_predicted) as min_memory_predicted,
  max(memory_predicted) as max_memory_predicted,
  max(abs(memory - memory_predicted)) as max_memory_error
from sum_slot_windows
group by run, epoch, vm, slot
