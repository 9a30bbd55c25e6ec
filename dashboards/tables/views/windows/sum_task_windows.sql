-- A task in a stretch of time, wherever its threads are.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- task | string |  | task
-- w | bigint |  | number of the stretch since 1970
-- tuples_in | bigint | rows | rows taken in and finished
-- seconds | double | s | that it covers
-- queued | double | rows | rows that waited, in the mean
select
  run,
  epoch,
  task,
  w,
  cast(sum(tuples_in) as bigint) as tuples_in,
  (max(last_us) - min(first_us)) / 1e6 + 1 as seconds,
  sum(queue / cast(n as double) * threads) as queued
from sum_bundles
group by run, epoch, task, w
