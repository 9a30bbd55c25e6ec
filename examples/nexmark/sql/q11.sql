-- User sessions: how many bids did a user make without a pause of ten seconds?
with begun as (
    select bidder, date_time,
        coalesce(date_time - lag(date_time) over by_user >= 10000, true) as begins
    from bid window by_user as (partition by bidder order by date_time)
), numbered as (
    select *, sum(begins::int) over (partition by bidder order by date_time rows unbounded preceding) as session
    from begun
)
select bidder, count(*) as bids, min(date_time) as session_start, max(date_time) + 10000 as session_end
from numbered
group by bidder, session
