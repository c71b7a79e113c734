CREATE MATERIALIZED VIEW v AS SELECT t.id, x.s FROM t JOIN (VALUES (1, 'one'), (2, 'two')) AS x (n, s) ON t.a = x.n
