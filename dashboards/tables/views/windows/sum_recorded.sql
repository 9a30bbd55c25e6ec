-- What was recorded in a stretch of time: pieces without a pause of over 2 s, by the windows of slots that end in it.
--
-- run | string |  | topology/run
-- w | bigint |  | number of the stretch since 1970
-- piece | bigint |  | number of the piece in it
-- from_us | bigint | µs | begin of its first window, since 1970
-- to_us | bigint | µs | end of its last one
-- epoch | bigint |  | number of the plan that was in force at its end
with windows as (
  select
    run,
    unix_micros(time) as to_us,
    min(unix_micros(time) - cast(floor(window_s * 1e6) as bigint)) as from_us,
    max(epoch) as epoch
  from slots
  group by run, time
),
placed as (
  select s.*, cast(floor(s.to_us / (d.window_s * 1e6)) as bigint) as w
  from windows s
  join widths d on d.run = s.run
),
ordered as (
  select
    *,
    case when from_us - max(to_us) over (
      partition by run, w order by from_us, to_us rows between unbounded preceding and 1 preceding
    ) > 2000000 then 1 else 0 end as apart
  from placed
),
pieces as (
  select
    *,
    sum(apart) over (partition by run, w order by from_us, to_us rows between unbounded preceding and current row) as piece
  from ordered
)
select run, w, cast(piece as bigint) as piece, min(from_us) as from_us, max(to_us) as to_us, max(epoch) as epoch
from pieces
group by run, w, piece
