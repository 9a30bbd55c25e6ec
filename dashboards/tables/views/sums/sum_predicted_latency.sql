-- Rows that came while a latency was predicted for their plan and rate, by their latency: a histogram of bins 1.1 % wide.
-- Of seconds after the plan has settled (20 s) and before the next prediction or plan, in which the rate of the ten
-- seconds before was within a tenth of the one predicted for.
--
-- run | string |  | topology/run
-- epoch | bigint |  | number of the plan in force
-- number | bigint |  | of the prediction (predicted_latency)
-- sink | string |  | where the rows arrived
-- bucket | bigint |  | latency from 2^(bucket / 64) s on; the lowest holds all below 1e-6 s too
-- tuples | double | rows | rows
-- max_s | double | s | the longest of them
-- min_second | bigint | s | the first second in which any came, since the run began
-- max_second | bigint | s | the last one
with told as (
  select run, number, epoch, unix_micros(time) as us, max(settled_in_s) as settled_in_s, max(rate_tps) as rate_tps
  from predicted_latency
  group by run, number, epoch, time
  union all
  select run, 0 as number, plan_epoch as epoch, unix_micros(time) as us, null as settled_in_s, null as rate_tps
  from decisions
  where plan_epoch is not null
),
spans as (
  select
    *,
    us + cast(settled_in_s * 1e6 as bigint) as from_us,
    lead(us) over (partition by run order by us, number) as until_us,
    row_number() over (partition by run order by us, number) as place
  from told
),
counted as (
  select run, cast(at_s as bigint) as n, max(unix_micros(second)) + 1000000 as next_us, sum(offered) as offered, max(counted_s) as counted_s
  from fct_rates_per_second
  group by run, cast(at_s as bigint)
),
before as ( -- each second: the rate of the ten before it
  select
    run,
    n + 1 as n,
    next_us as us,
    sum(offered) over (partition by run order by n range between 9 preceding and current row)
      / nullif(sum(counted_s) over (partition by run order by n range between 9 preceding and current row), 0) as offered_tps,
    cast(null as bigint) as place,
    1 as later
  from counted
  union all
  select run, null as n, us, null as offered_tps, place, 0 as later
  from spans
),
placed as (
  select
    run,
    n,
    us,
    offered_tps,
    max(place) over (partition by run order by us, later rows between unbounded preceding and current row) as place
  from before
),
held as (
  select p.run, p.n, s.number, s.epoch
  from placed p
  join spans s on s.run = p.run and s.place = p.place
  where p.n is not null
    and s.rate_tps is not null
    and p.us >= s.from_us
    and (s.until_us is null or p.us + 1000000 <= s.until_us)
    and abs(p.offered_tps - s.rate_tps) <= 0.1 * s.rate_tps
),
rows_of as (
  select
    l.*,
    cast(floor((unix_micros(l.time) - unix_micros(r.begun)) / 1e6) as bigint) as n,
    cast(floor(ln(greatest(l.latency_s, 1e-6)) / ln(2e0) * 64) as bigint) as bucket
  from latency l
  join runs r on r.run = l.run
  where l.latency_s is not null and l.tuples is not null
)
select
  l.run,
  l.epoch,
  h.number,
  l.sink,
  l.bucket,
  sum(l.tuples) as tuples,
  max(l.latency_s) as max_s,
  min(l.n) as min_second,
  max(l.n) as max_second
from rows_of l
join held h on h.run = l.run and h.n = l.n and h.epoch = l.epoch
group by l.run, l.epoch, h.number, l.sink, l.bucket
