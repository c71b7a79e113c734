CREATE MATERIALIZED VIEW v AS SELECT t.id, u.w FROM t LEFT JOIN u ON t.a = u.k AND t.id < u.w
