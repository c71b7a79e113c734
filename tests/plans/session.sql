CREATE MATERIALIZED VIEW v AS SELECT item, window_start, window_end, sum(price) AS s FROM SESSION(bid PARTITION BY item, ts, INTERVAL '10 seconds') GROUP BY item, window_start, window_end
