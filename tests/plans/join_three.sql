CREATE MATERIALIZED VIEW v AS SELECT t.id, count(*) AS n FROM t JOIN u ON t.a = u.k JOIN bid ON bid.item = u.w GROUP BY t.id
