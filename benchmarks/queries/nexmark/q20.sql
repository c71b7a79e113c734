-- Bids with the auction that they are on, of one category.
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS b_date_time, b.extra AS b_extra,
       a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS a_date_time, a.expires,
       a.seller, a.category, a.extra AS a_extra
FROM bid AS b INNER JOIN auction AS a ON b.auction = a.id
WHERE a.category = 10
