-- Hot items: the auctions with the most bids in each hopping window.
SELECT ab.auction, ab.num
FROM (
    SELECT auction, count(*) AS num, window_start
    FROM HOP(bid, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND)
    GROUP BY auction, window_start
) AS ab
JOIN (
    SELECT max(num) AS maxn, window_start
    FROM (
        SELECT count(*) AS num, window_start
        FROM HOP(bid, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND)
        GROUP BY auction, window_start
    ) AS counts
    GROUP BY window_start
) AS mb ON ab.window_start = mb.window_start AND ab.num >= mb.maxn
