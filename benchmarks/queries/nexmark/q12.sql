-- Bids of each user in tumbling windows (of event time here; the original counts by processing time).
SELECT bidder, count(*) AS bid_count, window_start, window_end
FROM TUMBLE(bid, date_time, INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end
