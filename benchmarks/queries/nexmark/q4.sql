-- Average closing price for each category: an average over maxima over a join.
SELECT category, avg(final) AS avg_final
FROM (
    SELECT max(b.price) AS final, a.category
    FROM auction AS a, bid AS b
    WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.category
) AS q
GROUP BY category
