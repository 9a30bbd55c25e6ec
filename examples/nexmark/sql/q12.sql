-- Processing time windows: how many bids of a user came in each ten seconds of the clock? Which ones that are no data
-- says: what must be equal is their sum.
select bidder, count(*) as bids from bid group by bidder
