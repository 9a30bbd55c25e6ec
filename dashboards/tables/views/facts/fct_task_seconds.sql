-- All threads of a task together, in one second.
--
-- run | string |  | topology/run
-- task | string |  | task
-- second | timestamp |  | begin of the second, counted from the run's begin, in which the windows ended (UTC)
-- at_s | double | s | since the run began
-- epoch | bigint |  | number of the plan that was in force
-- threads | bigint | threads | that were sampled
-- tuples_in | bigint | rows | rows taken in and finished
-- tuples_out | bigint | rows | rows sent on
-- queue | bigint | rows | rows that waited
-- cpu_cores | double | cores | CPU time per second of all of them that were sampled for 0.1 s or longer
-- busy_share | double |  | share of the threads' time in the task's logic
-- run_delay_share | double |  | share of the threads' time in which no core was free for them
-- latency_s | double | s | mean time from a row's arrival in the queue to completion
with threads as (
  select
    run,
    task,
    n,
    thread,
    max(begun_us) as begun_us,
    max(epoch) as epoch,
    sum(window_s) as window_s,
    cast(sum(tuples_in) as bigint) as tuples_in,
    cast(sum(tuples_out) as bigint) as tuples_out,
    max(queue) as queue,
    sum(cpu_s) as cpu_s,
    sum(busy_s) as busy_s,
    sum(run_delay_s) as run_delay_s,
    sum(latency_mean_s * tuples_in) as waited_s
  from (
    select s.*, unix_micros(r.begun) as begun_us, cast(floor((unix_micros(s.time) - unix_micros(r.begun)) / 1e6) as bigint) as n
    from samples s
    join runs r on r.run = s.run
  ) windows
  group by run, task, n, thread
)
select
  t.run,
  t.task,
  timestamp_micros(max(t.begun_us) + t.n * 1000000) as second,
  cast(t.n as double) as at_s,
  max(t.epoch) as epoch,
  count(*) as threads,
  cast(sum(t.tuples_in) as bigint) as tuples_in,
  cast(sum(t.tuples_out) as bigint) as tuples_out,
  cast(sum(t.queue) as bigint) as queue,
  sum(case when t.window_s >= 0.1 then t.cpu_s / t.window_s end) as cpu_cores,
  sum(t.busy_s) / nullif(sum(t.window_s), 0) as busy_share,
  sum(t.run_delay_s) / nullif(sum(t.window_s), 0) as run_delay_share,
  sum(t.waited_s) / nullif(sum(t.tuples_in), 0) as latency_s
from threads t
group by t.run, t.task, t.n
