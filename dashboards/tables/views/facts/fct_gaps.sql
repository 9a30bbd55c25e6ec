-- A stretch of over 2 s of which no window of any slot was recorded, as after the controller was killed. What the
-- controller counted over it comes from its journal, by the table `counts`.
--
-- run | string |  | topology/run
-- from_s | double | s | its begin, since the run began
-- to_s | double | s | its end
-- seconds | double | s | how long it is
-- epoch | bigint |  | number of the plan that was in force before it
-- offered | bigint | rows | offered from the controller's last word before it to its first one after it
-- emitted | bigint | rows | emitted meanwhile
-- acked | bigint | rows | processed whole meanwhile
-- text | string |  | in a sentence
with ordered as (
  select
    run,
    from_us as next_us,
    max(to_us) over (
      partition by run order by from_us, to_us rows between unbounded preceding and 1 preceding
    ) as last_us,
    lag(epoch) over (partition by run order by from_us, to_us) as epoch
  from sum_recorded
),
gaps as (
  select o.run, o.last_us, o.next_us, o.epoch, unix_micros(r.begun) as begun_us
  from ordered o
  join runs r on r.run = o.run
  where o.next_us - o.last_us > 2000000
),
counted as (
  select
    g.run,
    g.last_us,
    min(case when unix_micros(c.time) >= g.next_us then c.offered end)
      - max(case when unix_micros(c.time) <= g.last_us then c.offered end) as offered,
    min(case when unix_micros(c.time) >= g.next_us then c.emitted end)
      - max(case when unix_micros(c.time) <= g.last_us then c.emitted end) as emitted,
    min(case when unix_micros(c.time) >= g.next_us then c.acked end)
      - max(case when unix_micros(c.time) <= g.last_us then c.acked end) as acked
  from gaps g
  join counts c on c.run = g.run
  group by g.run, g.last_us
)
select
  g.run,
  (g.last_us - g.begun_us) / 1e6 as from_s,
  (g.next_us - g.begun_us) / 1e6 as to_s,
  (g.next_us - g.last_us) / 1e6 as seconds,
  g.epoch,
  c.offered,
  c.emitted,
  c.acked,
  cast(cast(floor((g.next_us - g.last_us) / 1e6 + 0.5) as bigint) as string) || ' s were not recorded; '
    || case when c.acked is null then 'what was counted meanwhile is not known' else 'their counts come from the journal' end
    as text
from gaps g
left join counted c on c.run = g.run and c.last_us = g.last_us
