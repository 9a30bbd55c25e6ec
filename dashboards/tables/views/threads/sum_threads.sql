-- A thread in an epoch: sums over its settled windows (fct_thread_windows), and those of which the slope of its queue is
-- made.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- thread | bigint |  | number of the thread
-- window_s | double | s | these windows together
-- tuples_in | bigint | rows | rows taken in and finished
-- tuples_out | bigint | rows | rows sent on
-- cpu_s | double | s | CPU time of the thread
-- busy_s | double | s | time in the task's logic
-- queue_time | double | rows·s | rows that waited, times the windows
-- queued | bigint |  | windows with a queue
-- x | double | s | their ends since the run began
-- xx | double |  | squares of these
-- y | bigint | rows | rows that waited
-- xy | double |  | x times y
select
  run,
  epoch,
  thread,
  sum(window_s) as window_s,
  cast(sum(tuples_in) as bigint) as tuples_in,
  cast(sum(tuples_out) as bigint) as tuples_out,
  sum(cpu_s) as cpu_s,
  sum(busy_s) as busy_s,
  sum(queue * window_s) as queue_time,
  count(queue) as queued,
  sum(case when queue is not null then at_s end) as x,
  sum(case when queue is not null then at_s * at_s end) as xx,
  cast(sum(queue) as bigint) as y,
  sum(at_s * queue) as xy
from fct_thread_windows
where settled
group by run, epoch, thread
