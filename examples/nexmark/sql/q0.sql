-- Pass through: every bid as it is.
select auction, bidder, price, channel, url, date_time, extra from bid
