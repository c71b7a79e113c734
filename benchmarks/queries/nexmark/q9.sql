-- Winning bids: the best bid of each auction while it was open.
SELECT id, item_name, description, initial_bid, reserve, a_date_time, expires, seller, category, a_extra,
       auction, bidder, price, b_date_time, b_extra
FROM (
    SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS a_date_time, a.expires,
           a.seller, a.category, a.extra AS a_extra, b.auction, b.bidder, b.price, b.date_time AS b_date_time,
           b.extra AS b_extra,
           row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC) AS rownum
    FROM auction AS a, bid AS b
    WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
) AS ranked
WHERE rownum <= 1
