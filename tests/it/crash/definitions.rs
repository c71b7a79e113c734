//! What is defined, and a client that goes on defining.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::process::connect;
use crate::twin::{View, created};

/// `{name}` is a directory of the test.
pub(super) const SETUP: [&str; 14] = [
    "CREATE TABLE account (id BIGINT PRIMARY KEY, owner BIGINT, balance BIGINT)",
    "CREATE TABLE owner (id BIGINT PRIMARY KEY, name TEXT)",
    "INSERT INTO owner VALUES (0, 'Ann'), (1, 'Bob'), (2, 'Cid')",
    "CREATE MATERIALIZED VIEW totals AS SELECT owner, count(*) AS n, sum(balance)::BIGINT AS total, \
     max(balance) AS most FROM account GROUP BY owner",
    "CREATE MATERIALIZED VIEW named AS SELECT a.id, a.balance, o.name FROM account a \
     LEFT JOIN owner o ON o.id = a.owner WHERE a.balance % 2 = 0",
    "CREATE MATERIALIZED VIEW richest AS SELECT id, balance FROM account ORDER BY balance DESC, id LIMIT 10",
    "CREATE MATERIALIZED VIEW above AS SELECT count(*) AS owners, sum(total)::BIGINT AS total FROM totals",
    "CREATE SOURCE bid WITH (connector = 'nexmark', \"nexmark.table.type\" = 'bid', \
     \"nexmark.event.num\" = '60000', \"nexmark.rate\" = '5000')",
    "CREATE MATERIALIZED VIEW channels AS SELECT channel, count(*) AS n, sum(price)::BIGINT AS turnover \
     FROM bid GROUP BY channel",
    "CREATE MATERIALIZED VIEW bids AS SELECT count(*) AS n, sum(price)::BIGINT AS turnover FROM bid",
    "CREATE SOURCE feed (id BIGINT, value BIGINT) \
     WITH (connector = 'file', path = '{feed}', format = 'json', watch = 'true')",
    "CREATE MATERIALIZED VIEW fed AS SELECT count(*) AS n, sum(value)::BIGINT AS total FROM feed",
    "CREATE SINK fed_rows AS SELECT id, value * 2 AS twice FROM feed \
     WITH (connector = 'file', path = '{fed_rows}', format = 'json')",
    "CREATE SINK account_changes FROM account \
     WITH (connector = 'file', path = '{account_changes}', format = 'json', changelog = 'true')",
];

/// Views over tables, whose answer at one moment can be asked at any moment.
fn views() -> Vec<View> {
    let over_sources = ["channels", "bids", "fed"];
    let all = SETUP.iter().filter_map(|sql| created(sql));
    all.filter(|view| !over_sources.contains(&view.name.as_str())).collect()
}

/// Each view against its query, at one moment: in one statement.
pub(super) async fn compare_views(client: &Client) -> Result<(), Error> {
    for view in views() {
        compare(client, &view).await?;
    }
    // Two views over one source have read it equally far.
    let sql = "SELECT (SELECT coalesce(sum(n), 0) FROM channels) = (SELECT coalesce(sum(n), 0) FROM bids)";
    assert_eq!(texts(client, sql).await?, ["t"], "views over one source differ");
    Ok(())
}

/// Views over sources, when these have been read to their end.
pub(super) async fn compare_sources(client: &Client) {
    for view in SETUP.iter().filter_map(|sql| created(sql)) {
        compare(client, &view).await.unwrap();
    }
    // 46 of 50 events of the generator are bids.
    let count = texts(client, "SELECT n FROM bids").await.unwrap();
    assert_eq!(count, ["55200"]);
}

pub async fn compare(client: &Client, View { name, query }: &View) -> Result<(), Error> {
    for (from, without, what) in [
        (format!("SELECT * FROM {name}"), query.clone(), "too many"),
        (query.clone(), format!("SELECT * FROM {name}"), "missing"),
    ] {
        let sql = format!("SELECT * FROM ({from}) AS l EXCEPT ALL SELECT * FROM ({without}) AS r");
        let rows = texts(client, &sql).await?;
        assert!(rows.is_empty(), "view {name} is not its query's answer; {what}: {rows:?}");
    }
    Ok(())
}

/// Rows as text.
pub async fn texts(client: &Client, sql: &str) -> Result<Vec<String>, Error> {
    let messages = client.simple_query(sql).await?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let text = |row: &tokio_postgres::SimpleQueryRow| {
        let cells: Vec<&str> = (0..row.len()).map(|at| row.get(at).unwrap_or("NULL")).collect();
        cells.join("|")
    };
    Ok(rows.map(text).collect())
}

/// Makes views and drops them.
#[derive(Default)]
pub(super) struct Definer {
    number: u64,
    /// Made for certain.
    there: Option<String>,
    /// Dropped for certain, or never to come.
    gone: Vec<String>,
    /// On its way, one way or the other, when the program died.
    uncertain: Option<String>,
}

const QUERY: &str =
    "SELECT owner % 2 AS half, min(balance) AS least FROM account GROUP BY owner % 2";

impl Definer {
    /// Until the connection breaks.
    pub(super) async fn work(&mut self, settings: &str) {
        let ended = async {
            let client = connect(settings).await?;
            loop {
                self.step(&client).await?;
            }
        };
        let ended: Result<(), Error> = ended.await;
        if let Err(error) = ended {
            assert!(error.as_db_error().is_none(), "{error:?}");
        }
    }

    async fn step(&mut self, client: &Client) -> Result<(), Error> {
        match self.there.take() {
            None => {
                self.number += 1;
                let name = format!("extra_{}", self.number);
                self.uncertain = Some(name.clone());
                let sql = format!("CREATE MATERIALIZED VIEW {name} AS {QUERY}");
                client.batch_execute(&sql).await?;
                self.there = Some(name);
            }
            Some(name) => {
                self.uncertain = Some(name.clone());
                client.batch_execute(&format!("DROP MATERIALIZED VIEW {name}")).await?;
                self.gone.push(name);
            }
        }
        self.uncertain = None;
        Ok(())
    }

    pub(super) async fn compare(&mut self, client: &Client) -> Result<(), Error> {
        // It stays uncertain if the program dies meanwhile.
        if let Some(name) = self.uncertain.clone() {
            let found = texts(client, &format!("SELECT count(*) FROM {name}")).await;
            match found {
                Ok(_) => self.there = Some(name),
                Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => {
                    self.gone.push(name);
                }
                // It is filled again.
                Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) => {
                    client.batch_execute(&format!("DROP MATERIALIZED VIEW {name}")).await?;
                    self.gone.push(name);
                }
                Err(error) => return Err(error),
            }
            self.uncertain = None;
        }
        if let Some(name) = &self.there {
            compare(client, &View { name: name.clone(), query: QUERY.to_string() }).await?;
        }
        let listed = "SELECT name FROM millstream.relations WHERE name LIKE 'extra%'";
        let listed = texts(client, listed).await?;
        let expected: Vec<String> = self.there.iter().cloned().collect();
        assert_eq!(listed, expected, "dropped: {:?}", self.gone);
        Ok(())
    }
}
