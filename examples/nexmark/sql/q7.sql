-- Highest bid: the bids of the highest price in each ten seconds.
select auction, bidder, price, date_time
from bid
qualify price = max(price) over (partition by date_time // 10000)
