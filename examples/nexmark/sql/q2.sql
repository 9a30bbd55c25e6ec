-- Selection: bids on some auctions.
select auction, price from bid where auction % 123 = 0
