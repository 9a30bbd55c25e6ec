-- Hot items: the auctions with the most bids in each ten seconds, every two seconds.
with counted as (
    select auction, (date_time // 2000 - back) * 2000 as window_start, count(*) as bids
    from bid, range(5) as panes(back)
    group by all
)
select window_start, auction, bids
from counted
qualify bids = max(bids) over (partition by window_start)
