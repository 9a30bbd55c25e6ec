-- A slot while threads of the plan were in it: sums over its windows, by their length.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- cpu | double | slot·s | CPU used
-- cpu_s | double | s | of which that is
-- predicted_cpu | double | slot·s | what the plan foresaw
-- predicted_s | double | s | of which that is
with places as (
  select
    run,
    epoch,
    vm,
    slot,
    min(greatest(settled_us, first_us)) as from_us,
    max(least(last_us, until_us - 1)) as until_us,
    max(memory_bytes) as memory_bytes,
    max(unix_micros(begun)) as begun_us
  from fct_members
  where planned
  group by run, epoch, vm, slot
)
select
  s.run,
  s.epoch,
  s.vm,
  s.slot,
  sum(s.cpu * s.window_s) as cpu,
  sum(case when s.cpu is not null then s.window_s end) as cpu_s,
  sum(s.predicted_cpu * s.window_s) as predicted_cpu,
  sum(case when s.predicted_cpu is not null then s.window_s end) as predicted_s
from slots s
join places p on p.run = s.run and p.epoch = s.epoch and p.vm = s.vm and p.slot = s.slot
where s.window_s >= 0.1
  and unix_micros(s.time) - p.begun_us - cast(floor(s.window_s * 1e6) as bigint) >= p.from_us
  and unix_micros(s.time) - p.begun_us <= p.until_us
  and not coalesce(s.memory = 0 and p.memory_bytes > 0, false)
group by s.run, s.epoch, s.vm, s.slot
