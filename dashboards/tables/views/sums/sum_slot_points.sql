-- A sample of slots in stretches of time for pictures, always the same one: at most 2,000 of each run.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- w | bigint |  | number of the stretch since 1970
-- cpu | double | slots | mean CPU, as a fraction of the slot
-- cpu_predicted | double | slots | what the plan foresaw
-- memory | double | slots | mean memory, as a fraction of the slot
-- memory_predicted | double | slots | what the plan foresaw
-- hash | string |  | by which it was drawn: the lowest
with drawn as (
  select
    *,
    md5(run || ' ' || cast(epoch as string) || ' ' || vm || ' ' || cast(slot as string) || ' ' || cast(w as string)) as hash
  from sum_slot_windows
),
ranked as (
  select *, row_number() over (partition by run order by hash) as place from drawn
)
select run, epoch, vm, slot, w, cpu, cpu_predicted, memory, memory_predicted, hash
from ranked
where place <= 2000
