-- Currency conversion: the price of every bid in euros.
select auction, bidder, price * 0.908::double as price, date_time, extra from bid
