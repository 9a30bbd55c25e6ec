-- Latency of rows at a sink as it was predicted for a plan in force and a rate, beside what was measured while both held:
-- once the plan had settled (20 s), until the next prediction or plan, at that rate within a tenth.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan in force
-- number | bigint |  | of the prediction, from 1 in their order
-- plan | string |  | id of the plan
-- sink | string |  | where the rows arrived
-- rate_tps | double | rows/s | rate that the prediction is for
-- from_s | double | s | first second that was compared, since the run began
-- to_s | double | s | last one
-- tuples | double | rows | rows that arrived in those seconds
-- p50_s | double | s | median, to 2 %
-- predicted_p50_s | double | s | as predicted
-- p50_error | double |  | by what part of the measured one the predicted one is higher
-- p95_s | double | s | 95th percentile, to 2 %
-- predicted_p95_s | double | s | as predicted
-- p95_error | double |  | likewise; null of fewer than 20 rows
-- p99_s | double | s | 99th percentile, to 2 %
-- predicted_p99_s | double | s | as predicted
-- p99_error | double |  | likewise; null of fewer than 100 rows
with ranked as (
  select
    *,
    sum(tuples) over (partition by run, number, sink order by bucket rows between unbounded preceding and current row) as upto,
    sum(tuples) over (partition by run, number, sink) as total
  from sum_predicted_latency
),
measured as (
  select
    run,
    number,
    sink,
    min(min_second) as from_s,
    max(max_second) as to_s,
    sum(tuples) as tuples,
    min(case when upto >= 0.50 * total - 1e-6 then max_s end) as p50_s,
    min(case when upto >= 0.95 * total - 1e-6 then max_s end) as p95_s,
    min(case when upto >= 0.99 * total - 1e-6 then max_s end) as p99_s
  from ranked
  group by run, number, sink
)
select
  p.run,
  p.epoch,
  p.number,
  p.plan,
  p.sink,
  p.rate_tps,
  cast(m.from_s as double) as from_s,
  cast(m.to_s as double) as to_s,
  m.tuples,
  m.p50_s,
  p.p50_s as predicted_p50_s,
  p.p50_s / nullif(m.p50_s, 0) - 1 as p50_error,
  m.p95_s,
  p.p95_s as predicted_p95_s,
  case when m.tuples >= 20 then p.p95_s / nullif(m.p95_s, 0) - 1 end as p95_error,
  m.p99_s,
  p.p99_s as predicted_p99_s,
  case when m.tuples >= 100 then p.p99_s / nullif(m.p99_s, 0) - 1 end as p99_error
from predicted_latency p
join measured m on m.run = p.run and m.number = p.number and m.sink = p.sink
