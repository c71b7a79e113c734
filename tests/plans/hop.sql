CREATE MATERIALIZED VIEW v AS SELECT window_start, item, sum(price) AS s FROM HOP(bid, ts, INTERVAL '5 seconds', INTERVAL '10 seconds') GROUP BY window_start, item
