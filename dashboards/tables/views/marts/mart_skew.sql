-- One thread of a task in an epoch against its siblings: who gets more rows than planned, and who is busier. Of threads
-- of the plan in force alone (fct_threads).
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
-- share | double |  | of the task's rows in a second
-- planned_share | double |  | what the plan gives it; the same for all where the plan does not say
-- skew | double |  | share / planned_share; 1: as planned
-- busy_share | double |  | share of its time in the task's logic
-- skewed | boolean |  | it took in twice what the plan gives it, or more, and 100 rows or more
with threads as (
  select *, tuples_in / seconds as tuples_tps from fct_threads
),
shares as (
  select
    *,
    count(*) over (partition by run, epoch, task) as threads,
    tuples_tps / nullif(sum(tuples_tps) over (partition by run, epoch, task), 0) as share,
    case
      when count(planned_share) over (partition by run, epoch, task) = count(*) over (partition by run, epoch, task)
      then planned_share / nullif(sum(planned_share) over (partition by run, epoch, task), 0)
      else 1e0 / count(*) over (partition by run, epoch, task)
    end as of_plan
  from threads
)
select
  run,
  epoch,
  task,
  thread,
  vm,
  slot,
  threads,
  seconds,
  tuples_in,
  tuples_tps,
  share,
  of_plan as planned_share,
  share / nullif(of_plan, 0) as skew,
  busy_s / seconds as busy_share,
  coalesce(share / nullif(of_plan, 0) >= 2 and tuples_in >= 100, false) as skewed
from shares
