//! A client that writes rows of its own and knows what must be there.

use std::collections::BTreeMap;

use futures::SinkExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::process::connect;

/// Balances by number.
type Rows = BTreeMap<i64, i64>;

/// One change of the writer's rows.
#[derive(Clone, Debug)]
enum Change {
    Insert(Vec<(i64, i64)>),
    Copy(Vec<(i64, i64)>),
    /// Inserts or replaces.
    Upsert(i64, i64),
    /// Adds to each third balance.
    Add {
        third: i64,
        amount: i64,
    },
    Delete(i64),
}

pub(super) struct Writer {
    number: i64,
    random: StdRng,
    next: i64,
    /// What was acknowledged.
    rows: Rows,
    /// What was on its way when the program died.
    in_flight: Option<Rows>,
}

impl Writer {
    pub(super) fn new(number: usize, seed: u64) -> Self {
        let number = i64::try_from(number).unwrap();
        let random = StdRng::seed_from_u64(seed ^ (0x9e37_79b9 + number.unsigned_abs()));
        Self { number, random, next: 0, rows: Rows::new(), in_flight: None }
    }

    /// As in the table: number, owner, balance.
    pub(super) fn rows(&self) -> impl Iterator<Item = (i64, i64, i64)> {
        self.rows.iter().map(|(id, balance)| (*id, self.number, *balance))
    }

    /// Writes until the connection breaks.
    pub(super) async fn work(&mut self, settings: &str) {
        let ended = async {
            let client = connect(settings).await?;
            loop {
                self.step(&client).await?;
            }
        };
        let ended: Result<(), Error> = ended.await;
        if let Err(error) = ended {
            // The program is there, and refuses what it should not.
            assert!(error.as_db_error().is_none(), "{error:?}");
        }
    }

    async fn step(&mut self, client: &Client) -> Result<(), Error> {
        match self.random.random_range(0..10) {
            0 => self.refused(client).await,
            1 | 2 => self.transaction(client).await,
            _ => {
                let change = self.change();
                let after = self.after(&self.rows, &change);
                self.in_flight = Some(after);
                self.run(client, &change).await?;
                self.acknowledged();
                Ok(())
            }
        }
    }

    fn acknowledged(&mut self) {
        if let Some(rows) = self.in_flight.take() {
            self.rows = rows;
        }
    }

    /// Several changes; what is not committed must not be there.
    async fn transaction(&mut self, client: &Client) -> Result<(), Error> {
        client.batch_execute("BEGIN").await?;
        let mut after = self.rows.clone();
        for _ in 0..self.random.random_range(1..4) {
            let change = self.change();
            after = self.after(&after, &change);
            self.run(client, &change).await?;
        }
        if self.random.random_bool(0.2) {
            return client.batch_execute("ROLLBACK").await;
        }
        self.in_flight = Some(after);
        client.batch_execute("COMMIT").await?;
        self.acknowledged();
        Ok(())
    }

    /// One row too many: none of them may come.
    async fn refused(&mut self, client: &Client) -> Result<(), Error> {
        let Some((known, _)) = self.rows.first_key_value() else { return Ok(()) };
        let (known, new, owner) = (*known, self.id(), self.number);
        let sql = format!("INSERT INTO account VALUES ({new}, {owner}, 1), ({known}, {owner}, 1)");
        match client.batch_execute(&sql).await {
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => panic!("a second row {known} was taken"),
        }
    }

    fn id(&mut self) -> i64 {
        self.next += 1;
        self.number * 1_000_000 + self.next
    }

    fn change(&mut self) -> Change {
        let amount = self.random.random_range(1..1000);
        match self.random.random_range(0..10) {
            0..4 => Change::Insert(self.new_rows(4)),
            4 => Change::Copy(self.new_rows(50)),
            5 => Change::Upsert(self.some_id(), amount),
            6 | 7 => Change::Add { third: self.random.random_range(0..3), amount },
            _ => Change::Delete(self.some_id()),
        }
    }

    fn new_rows(&mut self, most: usize) -> Vec<(i64, i64)> {
        let count = self.random.random_range(1..=most);
        (0..count).map(|_| (self.id(), self.random.random_range(0..1000))).collect()
    }

    /// A row that is there, as a rule; if it is not, it is never a new one after that.
    fn some_id(&mut self) -> i64 {
        let first = self.number * 1_000_000;
        self.next = self.next.max(1);
        first + self.random.random_range(1..=self.next)
    }

    /// What a change makes of rows.
    fn after(&self, rows: &Rows, change: &Change) -> Rows {
        let mut rows = rows.clone();
        match change {
            Change::Insert(new) | Change::Copy(new) => rows.extend(new.iter().copied()),
            Change::Upsert(id, balance) => drop(rows.insert(*id, *balance)),
            Change::Add { third, amount } => {
                for (_, balance) in rows.iter_mut().filter(|(id, _)| *id % 3 == *third) {
                    *balance += amount;
                }
            }
            Change::Delete(id) => drop(rows.remove(id)),
        }
        rows
    }

    async fn run(&self, client: &Client, change: &Change) -> Result<(), Error> {
        let owner = self.number;
        let sql = match change {
            Change::Insert(new) => {
                let rows: Vec<String> =
                    new.iter().map(|(id, balance)| format!("({id}, {owner}, {balance})")).collect();
                format!("INSERT INTO account VALUES {}", rows.join(", "))
            }
            Change::Copy(new) => {
                let sink = client.copy_in("COPY account FROM STDIN").await?;
                let mut sink = std::pin::pin!(sink);
                let lines: String =
                    new.iter().map(|(id, balance)| format!("{id}\t{owner}\t{balance}\n")).collect();
                sink.send(bytes::Bytes::from(lines)).await?;
                sink.finish().await?;
                return Ok(());
            }
            Change::Upsert(id, balance) => format!(
                "INSERT INTO account VALUES ({id}, {owner}, {balance}) \
                 ON CONFLICT (id) DO UPDATE SET balance = excluded.balance"
            ),
            Change::Add { third, amount } => format!(
                "UPDATE account SET balance = balance + {amount} \
                 WHERE owner = {owner} AND id % 3 = {third}"
            ),
            Change::Delete(id) => format!("DELETE FROM account WHERE id = {id}"),
        };
        client.batch_execute(&sql).await
    }

    /// Everything acknowledged is there; what was on its way is there whole or not at all.
    pub(super) async fn compare(&mut self, client: &Client) -> Result<(), Error> {
        let sql = format!("SELECT id, balance FROM account WHERE owner = {}", self.number);
        let mut found = Rows::new();
        for message in client.simple_query(&sql).await? {
            if let SimpleQueryMessage::Row(row) = message {
                let number = |at: usize| row.get(at).unwrap().parse::<i64>().unwrap();
                let before = found.insert(number(0), number(1));
                assert_eq!(before, None, "row {} is there twice", number(0));
            }
        }
        let after = self.in_flight.take();
        if found != self.rows && Some(&found) != after.as_ref() {
            let (before, after) = (&self.rows, after.as_ref().unwrap_or(&self.rows));
            panic!(
                "writer {}\nagainst what was acknowledged: {}\nwith what was on its way: {}",
                self.number,
                difference(before, &found),
                difference(after, &found)
            );
        }
        self.rows = found;
        Ok(())
    }
}

fn difference(expected: &Rows, found: &Rows) -> String {
    let missing: Vec<_> = expected.iter().filter(|(id, b)| found.get(id) != Some(b)).collect();
    let extra: Vec<_> = found.iter().filter(|(id, b)| expected.get(id) != Some(b)).collect();
    format!("missing {missing:?}, too many {extra:?}")
}
