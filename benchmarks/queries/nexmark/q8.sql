-- New users: who opened an auction in the window in which they came.
SELECT p.id, p.name, p.window_start
FROM (
    SELECT id, name, window_start
    FROM TUMBLE(person, date_time, INTERVAL '10' SECOND)
    GROUP BY id, name, window_start
) AS p
JOIN (
    SELECT seller, window_start
    FROM TUMBLE(auction, date_time, INTERVAL '10' SECOND)
    GROUP BY seller, window_start
) AS a ON p.id = a.seller AND p.window_start = a.window_start
