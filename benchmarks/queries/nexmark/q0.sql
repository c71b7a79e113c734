-- Pass through: the cost of everything around a query.
SELECT auction, bidder, price, date_time, extra FROM bid
