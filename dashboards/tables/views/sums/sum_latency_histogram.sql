-- Rows of a path in an epoch by their latency: a histogram of bins 4.4 % wide.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan that was in force
-- source | string |  | where the rows came from
-- sink | string |  | where they arrived
-- bucket | bigint |  | latency from 2^(bucket / 16) s on; the lowest holds all below 1e-6 s too
-- tuples | double | rows | rows
-- weighted_s | double | s | their latencies together
-- max_s | double | s | the longest
with binned as (
  select *, cast(floor(ln(greatest(latency_s, 1e-6)) / ln(2e0) * 16) as bigint) as bucket
  from latency
  where latency_s is not null and tuples is not null
)
select
  run,
  epoch,
  source,
  sink,
  bucket,
  sum(tuples) as tuples,
  sum(tuples * latency_s) as weighted_s,
  max(latency_s) as max_s
from binned
group by run, epoch, source, sink, bucket
