-- Channel statistics: the same of each channel and day, and the last minute of the day with a bid.
select channel, date_time // 86400000 as day, max(date_time // 60000 % 1440) as minute,
    count(*) as total_bids,
    count(*) filter (price < 10000) as rank1_bids,
    count(*) filter (price >= 10000 and price < 1000000) as rank2_bids,
    count(*) filter (price >= 1000000) as rank3_bids,
    count(distinct bidder) as total_bidders,
    count(distinct bidder) filter (price < 10000) as rank1_bidders,
    count(distinct bidder) filter (price >= 10000 and price < 1000000) as rank2_bidders,
    count(distinct bidder) filter (price >= 1000000) as rank3_bidders,
    count(distinct auction) as total_auctions,
    count(distinct auction) filter (price < 10000) as rank1_auctions,
    count(distinct auction) filter (price >= 10000 and price < 1000000) as rank2_auctions,
    count(distinct auction) filter (price >= 1000000) as rank3_auctions
from bid
group by channel, day
