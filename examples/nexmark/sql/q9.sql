-- Winning bids: the highest bid of each auction while it was open; of equal ones the first.
select auction.id, auction.item, auction.seller, auction.category, auction.expires,
    bid.bidder, bid.price, bid.date_time
from auction join bid on bid.auction = auction.id
where bid.date_time between auction.date_time and auction.expires
qualify row_number() over (partition by auction.id order by bid.price desc, bid.date_time, bid.bidder) = 1
