CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n, sum(v) AS s, max(b) AS hi FROM t GROUP BY a
