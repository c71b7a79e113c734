CREATE MATERIALIZED VIEW v AS SELECT item, count(*) AS n, sum(price) AS s FROM bid GROUP BY item
