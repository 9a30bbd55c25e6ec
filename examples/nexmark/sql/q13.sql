-- Bounded side input join: every bid with what a table says of its auction.
select bid.auction, bid.bidder, bid.price, bid.date_time, side_input.value
from bid join side_input on bid.auction % 10000 = side_input.key
