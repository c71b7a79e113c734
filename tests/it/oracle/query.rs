//! Random queries over everything that can be maintained, with types right by construction.

use rand::Rng;
use rand::rngs::StdRng;

use super::tables::known_value;

/// What a column holds, as far as the generator cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    /// Counts, ranks and exact sums: integers or numerics of some width.
    Big,
    Text,
    Float,
    /// Averages and the like: the last digits may differ, so nothing may depend on them.
    Approximate,
    Time,
    Bool,
}

impl Kind {
    pub(super) fn sql_type(self) -> &'static str {
        match self {
            Self::Int => "INT",
            Self::Big => "BIGINT",
            Self::Text => "TEXT",
            Self::Float | Self::Approximate => "DOUBLE PRECISION",
            Self::Time => "TIMESTAMP",
            Self::Bool => "BOOLEAN",
        }
    }

    pub(super) fn letter(self) -> &'static str {
        match self {
            Self::Int => "i",
            Self::Big => "n",
            Self::Text => "s",
            Self::Float | Self::Approximate => "f",
            Self::Time => "ts",
            Self::Bool => "b",
        }
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// What a query can read.
#[derive(Clone, Debug)]
pub(super) struct Relation {
    pub(super) name: String,
    pub(super) columns: Vec<Column>,
    /// A table, which window functions may read.
    pub(super) base: bool,
}

/// A FROM item under an alias: columns are named `alias.column`.
struct Item {
    sql: String,
    columns: Vec<Column>,
}

/// Makes one query.
pub(super) struct Generator<'a> {
    rng: &'a mut StdRng,
    relations: &'a [Relation],
    aliases: usize,
}

impl<'a> Generator<'a> {
    pub(super) fn new(rng: &'a mut StdRng, relations: &'a [Relation]) -> Self {
        Self { rng, relations, aliases: 0 }
    }

    /// A query and its columns, `c0`, `c1`...
    pub(super) fn query(&mut self) -> (String, Vec<Column>) {
        let depth = [0, 1, 1, 2][self.rng.random_range(0..4)];
        self.at_depth(depth)
    }

    fn below(&mut self, most: usize) -> usize {
        self.rng.random_range(0..most)
    }

    fn chance(&mut self, part: f64) -> bool {
        self.rng.random_bool(part)
    }

    fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("q{}", self.aliases)
    }

    fn at_depth(&mut self, depth: usize) -> (String, Vec<Column>) {
        match self.below(20) {
            0..3 => self.select(depth),
            3..7 => self.aggregate(depth),
            7..11 => self.join(depth),
            11..13 => self.set_operation(depth),
            13 => self.distinct(depth),
            14 => self.top_n(depth),
            15 | 16 => self.ranked(depth),
            17 => self.windowed(),
            18 => self.semi_join(depth),
            _ => self.scalar(depth),
        }
    }

    /// Something to read, under a new alias.
    fn item(&mut self, depth: usize) -> Item {
        let alias = self.alias();
        if depth > 0 && self.chance(0.7) {
            let (sql, columns) = self.at_depth(depth - 1);
            return Item {
                sql: format!("({sql}) AS {alias}"),
                columns: qualified(&alias, columns),
            };
        }
        let at = self.below(self.relations.len());
        let relation = &self.relations[at];
        let sql = format!("{} AS {alias}", relation.name);
        Item { sql, columns: qualified(&alias, relation.columns.clone()) }
    }

    fn pick(&mut self, columns: &[Column], wanted: impl Fn(Kind) -> bool) -> Option<Column> {
        let fitting: Vec<&Column> = columns.iter().filter(|column| wanted(column.kind)).collect();
        if fitting.is_empty() {
            return None;
        }
        let at = self.below(fitting.len());
        Some(fitting[at].clone())
    }

    /// A condition over these columns.
    fn condition(&mut self, columns: &[Column]) -> String {
        let Some(column) = self.pick(columns, exact) else {
            return "true".to_string();
        };
        let name = &column.name;
        let simple = match self.below(8) {
            0 => format!("{name} IS NULL"),
            1 => format!("{name} IS NOT NULL"),
            2 => match self.pick(columns, |kind| kind == column.kind) {
                Some(other) => format!("{name} <= {}", other.name),
                None => format!("{name} IS NOT NULL"),
            },
            3 => {
                let (one, two) =
                    (known_value(self.rng, column.kind), known_value(self.rng, column.kind));
                format!("{name} IN ({one}, {two})")
            }
            _ => {
                let operator = ["=", "<>", "<", ">", ">="][self.below(5)];
                format!("{name} {operator} {}", known_value(self.rng, column.kind))
            }
        };
        match self.below(6) {
            0 => format!("({simple} OR {})", self.condition(columns)),
            1 => format!("NOT ({simple})"),
            2 => format!("{simple} AND {}", self.condition(columns)),
            _ => simple,
        }
    }

    fn filter(&mut self, columns: &[Column], part: f64) -> String {
        if self.chance(part) {
            format!(" WHERE {}", self.condition(columns))
        } else {
            String::new()
        }
    }

    /// An expression and its kind.
    fn expression(&mut self, columns: &[Column]) -> (String, Kind) {
        let at = self.below(columns.len());
        let Column { name, kind } = columns[at].clone();
        match (kind, self.below(5)) {
            (Kind::Int, 0) => (format!("{name} * 2 + 1"), Kind::Int),
            (Kind::Int, 1) => (format!("coalesce({name}, -7)"), Kind::Int),
            (Kind::Int, 2) => {
                (format!("CASE WHEN {name} > 1 THEN 'big' ELSE 'small' END"), Kind::Text)
            }
            (Kind::Text, 0) => (format!("upper({name}) || '!'"), Kind::Text),
            (Kind::Text, 1) => (format!("length({name})"), Kind::Int),
            (Kind::Float, 0) => (format!("{name} * 2"), Kind::Float),
            (Kind::Time, 0) => (format!("{name} + INTERVAL '1 second'"), Kind::Time),
            (Kind::Approximate, _) => (name, kind),
            (_, 3) => (format!("{name} IS NULL"), Kind::Bool),
            _ => (name, kind),
        }
    }

    fn select(&mut self, depth: usize) -> (String, Vec<Column>) {
        let item = self.item(depth);
        let count = 1 + self.below(4);
        let outputs: Vec<_> = (0..count).map(|_| self.expression(&item.columns)).collect();
        let filter = self.filter(&item.columns, 0.8);
        let (list, columns) = list(&outputs);
        (format!("SELECT {list} FROM {}{filter}", item.sql), columns)
    }

    fn distinct(&mut self, depth: usize) -> (String, Vec<Column>) {
        let item = self.item(depth);
        let keys = self.some_columns(&item.columns, 3);
        let filter = self.filter(&item.columns, 0.3);
        let (list, columns) = list(&keys);
        (format!("SELECT DISTINCT {list} FROM {}{filter}", item.sql), columns)
    }

    /// Some columns on whose values a result may depend; a constant when there are none.
    fn some_columns(&mut self, columns: &[Column], most: usize) -> Vec<(String, Kind)> {
        let mut chosen: Vec<(String, Kind)> = Vec::new();
        for _ in 0..1 + self.below(most) {
            if let Some(column) = self.pick(columns, exact)
                && !chosen.iter().any(|(name, _)| *name == column.name)
            {
                chosen.push((column.name, column.kind));
            }
        }
        if chosen.is_empty() {
            chosen.push(("1".to_string(), Kind::Big));
        }
        chosen
    }

    fn aggregate_call(&mut self, columns: &[Column]) -> (String, Kind) {
        let choice = self.below(12);
        let call = match choice {
            0 => None,
            1 | 2 => self.pick(columns, |kind| kind == Kind::Int).map(|c| match choice {
                1 => (format!("sum({})", c.name), Kind::Big),
                _ => (format!("avg({})", c.name), Kind::Approximate),
            }),
            3 => self
                .pick(columns, |kind| kind == Kind::Float)
                .map(|column| (format!("sum({})", column.name), Kind::Approximate)),
            4 | 5 => self.pick(columns, |kind| exact(kind) && kind != Kind::Bool).map(|c| {
                let function = if choice == 4 { "min" } else { "max" };
                (format!("{function}({})", c.name), c.kind)
            }),
            6 => self
                .pick(columns, exact)
                .map(|c| (format!("count(DISTINCT {})", c.name), Kind::Big)),
            7 => self
                .pick(columns, |kind| kind == Kind::Int)
                .map(|column| (format!("sum(DISTINCT {})", column.name), Kind::Big)),
            8 => self.pick(columns, |kind| kind == Kind::Text).map(|column| {
                (format!("string_agg({0}, ',' ORDER BY {0})", column.name), Kind::Text)
            }),
            9 => self
                .pick(columns, |kind| kind == Kind::Int)
                .map(|column| (format!("stddev_pop({})", column.name), Kind::Approximate)),
            10 => self
                .pick(columns, |kind| kind == Kind::Bool)
                .map(|column| (format!("bool_or({})", column.name), Kind::Bool)),
            _ => self.pick(columns, |_| true).map(|c| (format!("count({})", c.name), Kind::Big)),
        };
        let (mut call, kind) = call.unwrap_or(("count(*)".to_string(), Kind::Big));
        if self.chance(0.15) {
            call = format!("{call} FILTER (WHERE {})", self.condition(columns));
        }
        (call, kind)
    }

    fn aggregate(&mut self, depth: usize) -> (String, Vec<Column>) {
        let item = self.item(depth);
        let filter = self.filter(&item.columns, 0.3);
        let calls: Vec<_> =
            (0..1 + self.below(3)).map(|_| self.aggregate_call(&item.columns)).collect();
        let has_key = item.columns.iter().any(|column| exact(column.kind));
        if !has_key || self.chance(0.15) {
            let (list, columns) = list(&calls);
            return (format!("SELECT {list} FROM {}{filter}", item.sql), columns);
        }
        let keys = self.some_columns(&item.columns, 2);
        let names: Vec<&str> = keys.iter().map(|(name, _)| name.as_str()).collect();
        let group = match self.below(12) {
            0 => format!("ROLLUP ({})", names.join(", ")),
            1 => format!("CUBE ({})", names.join(", ")),
            2 => format!("GROUPING SETS (({}), ())", names.join(", ")),
            _ => names.join(", "),
        };
        let having = if self.chance(0.2) { " HAVING count(*) > 1" } else { "" };
        let (list, columns) = list(&[keys, calls].concat());
        (format!("SELECT {list} FROM {}{filter} GROUP BY {group}{having}", item.sql), columns)
    }

    /// Two columns, one of each list, that can be compared.
    fn key_pair(&mut self, left: &[Column], right: &[Column]) -> Option<(String, String)> {
        for _ in 0..4 {
            let one = self.pick(left, exact)?;
            if let Some(other) = self.pick(right, |kind| kind == one.kind) {
                return Some((one.name, other.name));
            }
        }
        None
    }

    fn join(&mut self, depth: usize) -> (String, Vec<Column>) {
        let (left, right) = (self.item(depth), self.item(depth.min(1)));
        let both = [left.columns.clone(), right.columns.clone()].concat();
        let kind = ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"][self.below(5)];
        let pair = self.key_pair(&left.columns, &right.columns);
        let from = match pair {
            Some((one, other)) => {
                let mut on = format!("{one} = {other}");
                if self.chance(0.3)
                    && let Some((one, other)) = self.key_pair(&left.columns, &right.columns)
                {
                    let operator = ["<", ">=", "<>", "="][self.below(4)];
                    on.push_str(&format!(" AND {one} {operator} {other}"));
                }
                if self.chance(0.15) {
                    on.push_str(&format!(" AND {}", self.condition(&both)));
                }
                format!("{} {kind} {} ON {on}", left.sql, right.sql)
            }
            None => format!("{} CROSS JOIN {}", left.sql, right.sql),
        };
        let count = 1 + self.below(4);
        let outputs: Vec<_> = (0..count).map(|_| self.expression(&both)).collect();
        let filter = self.filter(&both, 0.25);
        let (list, columns) = list(&outputs);
        (format!("SELECT {list} FROM {from}{filter}"), columns)
    }

    fn set_operation(&mut self, depth: usize) -> (String, Vec<Column>) {
        let (left, right) = (self.item(depth), self.item(depth.min(1)));
        let mut pairs = Vec::new();
        for _ in 0..1 + self.below(3) {
            pairs.extend(self.key_pair(&left.columns, &right.columns));
        }
        let kind_of = |name: &str| left.columns.iter().find(|c| c.name == name).map(|c| c.kind);
        let (ones, others): (Vec<_>, Vec<_>) = match pairs.is_empty() {
            true => (vec![("1".to_string(), Kind::Big)], vec![("1".to_string(), Kind::Big)]),
            false => pairs
                .into_iter()
                .map(|(one, other)| {
                    let kind = kind_of(&one).unwrap_or(Kind::Big);
                    ((one, kind), (other, kind))
                })
                .unzip(),
        };
        let operation = [
            "UNION ALL",
            "UNION ALL",
            "UNION",
            "EXCEPT",
            "EXCEPT ALL",
            "INTERSECT",
            "INTERSECT ALL",
        ][self.below(7)];
        let (left_filter, right_filter) =
            (self.filter(&left.columns, 0.3), self.filter(&right.columns, 0.3));
        let ((one, columns), (other, _)) = (list(&ones), list(&others));
        let sql = format!(
            "SELECT {one} FROM {}{left_filter} {operation} SELECT {other} FROM {}{right_filter}",
            left.sql, right.sql
        );
        (sql, columns)
    }

    /// Rows by an order that leaves no ties but between equal rows.
    fn top_n(&mut self, depth: usize) -> (String, Vec<Column>) {
        let item = self.item(depth);
        let outputs = self.some_columns(&item.columns, 3);
        let (list, columns) = list(&outputs);
        let order: Vec<String> = (0..columns.len())
            .map(|at| {
                let direction = ["", " DESC", " NULLS FIRST", " DESC NULLS LAST"][self.below(4)];
                format!("c{at}{direction}")
            })
            .collect();
        let limit = match self.below(5) {
            0 => format!("LIMIT {} OFFSET {}", self.below(5), self.below(4)),
            1 => format!("OFFSET {}", self.below(5)),
            _ => format!("LIMIT {}", 1 + self.below(5)),
        };
        let filter = self.filter(&item.columns, 0.3);
        let order = order.join(", ");
        (format!("SELECT {list} FROM {}{filter} ORDER BY {order} {limit}", item.sql), columns)
    }

    fn ranked(&mut self, depth: usize) -> (String, Vec<Column>) {
        let item = self.item(depth);
        let outputs = self.some_columns(&item.columns, 3);
        let (list, mut columns) = list(&outputs);
        let function = ["row_number", "row_number", "rank", "dense_rank"][self.below(4)];
        let partition = match self.chance(0.7) {
            true => format!("PARTITION BY {} ", outputs[0].0),
            false => String::new(),
        };
        // row_number needs a total order of what is shown; ranks treat ties alike.
        let order: Vec<String> = match function {
            "row_number" => outputs.iter().map(|(name, _)| name.clone()).collect(),
            _ => vec![outputs[outputs.len() - 1].0.clone()],
        };
        let direction = ["", " DESC"][self.below(2)];
        let over = format!("{partition}ORDER BY {}{direction}", order.join(", "));
        let bound = match self.below(6) {
            0 => String::new(),
            1 => " WHERE rn = 1".to_string(),
            2 => " WHERE rn < 3".to_string(),
            3 => " WHERE rn BETWEEN 2 AND 3".to_string(),
            _ => format!(" WHERE rn <= {}", 1 + self.below(3)),
        };
        let alias = self.alias();
        let names: Vec<String> = (0..columns.len()).map(|at| format!("c{at}")).collect();
        let shown = names.join(", ");
        let with_rank = self.chance(0.5);
        let rank = if with_rank { format!(", rn AS c{}", columns.len()) } else { String::new() };
        let sql = format!(
            "SELECT {shown}{rank} FROM (SELECT {list}, {function}() OVER ({over}) AS rn FROM {}) AS {alias}{bound}",
            item.sql
        );
        if with_rank {
            columns.push(Column { name: format!("c{}", columns.len()), kind: Kind::Big });
        }
        (sql, columns)
    }

    fn windowed(&mut self) -> (String, Vec<Column>) {
        let timed = |relation: &&Relation| {
            relation.base && relation.columns.iter().any(|column| column.kind == Kind::Time)
        };
        let Some(relation) = self.relations.iter().find(timed).cloned() else {
            return self.aggregate(0);
        };
        let time = relation.columns.iter().find(|column| column.kind == Kind::Time);
        let (table, time) = (&relation.name, time.map_or("", |column| &column.name));
        let from = match self.below(5) {
            0 => format!("HOP({table}, {time}, INTERVAL '5 seconds', INTERVAL '10 seconds')"),
            1 => format!("TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '10' SECOND))"),
            2 => {
                let key = self.pick(&relation.columns, |kind| kind != Kind::Float);
                let by = key.map_or(String::new(), |key| format!(" PARTITION BY {}", key.name));
                // Times are multiples of 3 seconds: some are exactly the gap apart.
                let gap = [3, 4, 7][self.below(3)];
                format!("SESSION({table}{by}, {time}, INTERVAL '{gap} seconds')")
            }
            3 => format!("SESSION({table}, {time}, INTERVAL '4 seconds')"),
            _ => format!("TUMBLE({table}, {time}, INTERVAL '10 seconds')"),
        };
        let mut keys = vec![("window_start".to_string(), Kind::Time)];
        if self.chance(0.5) {
            keys.extend(self.some_columns(&relation.columns, 1));
        }
        let calls: Vec<_> =
            (0..1 + self.below(2)).map(|_| self.aggregate_call(&relation.columns)).collect();
        let group: Vec<&str> = keys.iter().map(|(name, _)| name.as_str()).collect();
        let group = group.join(", ");
        let (list, columns) = list(&[keys.clone(), calls].concat());
        (format!("SELECT {list} FROM {from} GROUP BY {group}"), columns)
    }

    fn semi_join(&mut self, depth: usize) -> (String, Vec<Column>) {
        let (left, right) = (self.item(depth), self.item(depth.min(1)));
        let outputs = self.some_columns(&left.columns, 3);
        let (list, columns) = list(&outputs);
        let Some((one, other)) = self.key_pair(&left.columns, &right.columns) else {
            return self.select(depth);
        };
        let from = &right.sql;
        let condition = match self.below(4) {
            0 => {
                format!("{one} IN (SELECT {other} FROM {from}{})", self.filter(&right.columns, 0.5))
            }
            1 => format!(
                "{one} NOT IN (SELECT {other} FROM {from}{})",
                self.filter(&right.columns, 0.5)
            ),
            2 => format!("EXISTS (SELECT 1 FROM {from} WHERE {other} = {one})"),
            _ => format!("NOT EXISTS (SELECT 1 FROM {from} WHERE {other} = {one})"),
        };
        (format!("SELECT {list} FROM {} WHERE {condition}", left.sql), columns)
    }

    fn scalar(&mut self, depth: usize) -> (String, Vec<Column>) {
        let (left, right) = (self.item(depth), self.item(0));
        let mut outputs = self.some_columns(&left.columns, 2);
        let call = match self.pick(&right.columns, |kind| kind == Kind::Int) {
            Some(column) => {
                let function = ["count", "max", "sum"][self.below(3)];
                (format!("{function}({})", column.name), Kind::Big)
            }
            None => ("count(*)".to_string(), Kind::Big),
        };
        let condition = match self.key_pair(&left.columns, &right.columns) {
            Some((one, other)) if self.chance(0.7) => format!(" WHERE {other} = {one}"),
            _ => String::new(),
        };
        outputs.push((format!("(SELECT {} FROM {}{condition})", call.0, right.sql), call.1));
        let (list, columns) = list(&outputs);
        (format!("SELECT {list} FROM {}", left.sql), columns)
    }
}

/// Whether results may depend on values of this kind.
fn exact(kind: Kind) -> bool {
    kind != Kind::Approximate
}

fn qualified(alias: &str, columns: Vec<Column>) -> Vec<Column> {
    let name = |column: Column| Column { name: format!("{alias}.{}", column.name), ..column };
    columns.into_iter().map(name).collect()
}

/// A select list and the columns that it gives.
fn list(outputs: &[(String, Kind)]) -> (String, Vec<Column>) {
    let named = outputs.iter().enumerate().map(|(at, (sql, kind))| {
        (format!("{sql} AS c{at}"), Column { name: format!("c{at}"), kind: *kind })
    });
    let (texts, columns): (Vec<_>, Vec<_>) = named.unzip();
    (texts.join(", "), columns)
}
