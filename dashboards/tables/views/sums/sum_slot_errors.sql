-- How many stretches of a slot in an epoch have an error of that size: a histogram of bins 1.1 % wide.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- vm | string |  | VM
-- slot | bigint |  | number of the slot on its VM
-- of | string |  | cpu or memory
-- bucket | bigint |  | error from 2^(bucket / 64) on; the lowest holds all below 1e-9 too
-- n | bigint |  | stretches
with errors as (
  select run, epoch, vm, slot, 'cpu' as of, abs(cpu - cpu_predicted) as error from sum_slot_windows
  union all
  select run, epoch, vm, slot, 'memory' as of, abs(memory - memory_predicted) as error from sum_slot_windows
),
binned as (
  select run, epoch, vm, slot, of, cast(floor(ln(greatest(error, 1e-9)) / ln(2e0) * 64) as bigint) as bucket
  from errors
  where error is not null
)
select run, epoch, vm, slot, of, bucket, count(*) as n
from binned
group by run, epoch, vm, slot, of, bucket
