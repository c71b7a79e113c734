-- Local item suggestion: who sells in some states and one category (an incremental join).
SELECT p.name, p.city, p.state, a.id
FROM auction AS a INNER JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('or', 'id', 'ca')
