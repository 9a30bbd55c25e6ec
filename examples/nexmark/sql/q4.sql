-- Average price for a category: of the highest bids of its auctions, made while they were open.
select category, avg(price) as price
from (
    select auction.id, auction.category, max(bid.price) as price
    from auction join bid on bid.auction = auction.id
    where bid.date_time between auction.date_time and auction.expires
    group by all
)
group by category
