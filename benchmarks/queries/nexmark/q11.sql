-- User sessions: the bids that each user made in a session of activity.
SELECT bidder, count(*) AS bid_count,
       SESSION_START(date_time, INTERVAL '10' SECOND) AS window_start,
       SESSION_END(date_time, INTERVAL '10' SECOND) AS window_end
FROM bid
GROUP BY bidder, SESSION(date_time, INTERVAL '10' SECOND)
