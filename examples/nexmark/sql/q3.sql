-- Local item suggestion: who sells in OR, ID or CA in category 10, and which auctions?
select person.name, person.city, person.state, auction.id as auction
from auction join person on auction.seller = person.id
where auction.category = 10 and person.state in ('OR', 'ID', 'CA')
