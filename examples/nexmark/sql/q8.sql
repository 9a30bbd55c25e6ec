-- Monitor new users: who came and opened an auction in the same ten seconds?
select distinct person.id, person.name, person.date_time // 10000 * 10000 as window_start
from person join auction
on auction.seller = person.id and auction.date_time // 10000 = person.date_time // 10000
