-- A slot in a stretch of time: means, and sums over the samples that have both a use and a prediction.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- w | bigint |  | number of the stretch since 1970
-- cpu_n | bigint |  | samples with CPU and a prediction of it
-- cpu_sum | double | slots | CPU of these
-- cpu_squares | double |  | squares of it
-- cpu_residual | double | slots | what was used less what was predicted
-- cpu_absolute | double | slots | without its sign
-- cpu_ss | double |  | squares of it
-- cpu_predicted | double | slots | mean of what was predicted
-- cpu | double | slots | mean of all that is known
-- memory_n | bigint |  | samples with memory and a prediction of it
-- memory_sum | double | slots | memory of these
-- memory_squares | double |  | squares of it
-- memory_residual | double | slots | what was used less what was predicted
-- memory_absolute | double | slots | without its sign
-- memory_ss | double |  | squares of it
-- memory_predicted | double | slots | mean of what was predicted
-- memory | double | slots | mean of all that is known
with samples_of_slots as (
  select
    s.run,
    s.epoch,
    s.vm,
    s.slot,
    cast(floor(unix_micros(s.time) / (d.window_s * 1e6)) as bigint) as w,
    s.cpu,
    s.memory,
    s.cpu - s.predicted_cpu as cpu_residual,
    s.memory - s.predicted_memory as memory_residual,
    s.predicted_cpu,
    s.predicted_memory
  from slots s
  join widths d on d.run = s.run
)
select
  run,
  epoch,
  vm,
  slot,
  w,
  count(cpu_residual) as cpu_n,
  sum(case when cpu_residual is not null then cpu end) as cpu_sum,
  sum(case when cpu_residual is not null then cpu * cpu end) as cpu_squares,
  sum(cpu_residual) as cpu_residual,
  sum(abs(cpu_residual)) as cpu_absolute,
  sum(cpu_residual * cpu_residual) as cpu_ss,
  avg(case when cpu_residual is not null then predicted_cpu end) as cpu_predicted,
  avg(cpu) as cpu,
  count(memory_residual) as memory_n,
  sum(case when memory_residual is not null then memory end) as memory_sum,
  sum(case when memory_residual is not null then memory * memory end) as memory_squares,
  sum(memory_residual) as memory_residual,
  sum(abs(memory_residual)) as memory_absolute,
  sum(memory_residual * memory_residual) as memory_ss,
  avg(case when memory_residual is not null then predicted_memory end) as memory_predicted,
  avg(memory) as memory
from samples_of_slots
group by run, epoch, vm, slot, w
