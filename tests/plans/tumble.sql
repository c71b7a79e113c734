CREATE MATERIALIZED VIEW v AS SELECT window_start, window_end, count(*) AS n FROM TUMBLE(bid, ts, INTERVAL '10 seconds') GROUP BY window_start, window_end
