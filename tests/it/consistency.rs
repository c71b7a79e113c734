//! One consistent moment (C2) and read-your-writes (C4), under concurrent writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millstream_sql::SqlError;
use millstream_sql::session::Database;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::database::{Client, Setup, run_for};

const ACCOUNTS: i64 = 40;
const BRANCHES: i64 = 4;
const OPENING_BALANCE: i64 = 1000;
const WRITERS: i64 = 4;
const TRANSFERS: u64 = 60;
const READS: u64 = 2000;

async fn bank(database: &Arc<Database>) {
    let mut client = Client::new(database);
    client
        .execute(
            "CREATE TABLE branch (id BIGINT PRIMARY KEY, name TEXT);
             CREATE TABLE account (id BIGINT PRIMARY KEY, branch BIGINT, balance BIGINT);
             CREATE TABLE counter (writer BIGINT PRIMARY KEY, n BIGINT);
             CREATE MATERIALIZED VIEW per_branch AS
                 SELECT b.name, sum(a.balance) AS balance, count(*) AS accounts
                 FROM account a JOIN branch b ON a.branch = b.id GROUP BY b.name;
             CREATE MATERIALIZED VIEW total AS SELECT sum(balance) AS balance FROM account;
             CREATE MATERIALIZED VIEW branches AS SELECT sum(balance) AS balance, sum(accounts) AS n FROM per_branch;
             CREATE MATERIALIZED VIEW done AS SELECT writer, n * 10 AS tens FROM counter;
             CREATE MATERIALIZED VIEW done_in_all AS SELECT sum(tens) AS tens FROM done",
        )
        .await;
    let values = |count: i64, row: &dyn Fn(i64) -> String| {
        (0..count).map(row).collect::<Vec<_>>().join(", ")
    };
    let branches = values(BRANCHES, &|id| format!("({id}, 'b{id}')"));
    client.execute(&format!("INSERT INTO branch VALUES {branches}")).await;
    let accounts = values(ACCOUNTS, &|id| format!("({id}, {}, {OPENING_BALANCE})", id % BRANCHES));
    client.execute(&format!("INSERT INTO account VALUES {accounts}")).await;
    let counters = values(WRITERS, &|id| format!("({id}, 0)"));
    client.execute(&format!("INSERT INTO counter VALUES {counters}")).await;
    // Other sessions see it when this one does.
    assert_eq!(client.query("SELECT n FROM branches").await.single(), ACCOUNTS.to_string());
}

/// One transfer, tried until no other writer is in its way; how often that was so.
async fn transfer(client: &mut Client, rng: &mut StdRng, writer: i64) -> u64 {
    let (from, to) = (rng.random_range(0..ACCOUNTS), rng.random_range(0..ACCOUNTS));
    let amount = rng.random_range(1..100);
    let sql = format!(
        "BEGIN;
         UPDATE account SET balance = balance - {amount} WHERE id = {from};
         UPDATE account SET balance = balance + {amount} WHERE id = {to};
         UPDATE account SET branch = {} WHERE id = {from};
         UPDATE counter SET n = n + 1 WHERE writer = {writer};
         COMMIT",
        rng.random_range(0..BRANCHES)
    );
    let mut conflicts = 0;
    loop {
        match client.try_execute(&sql).await {
            Ok(_) => return conflicts,
            Err(SqlError { sqlstate: "40001", .. }) => {
                conflicts += 1;
                if client.in_transaction() {
                    client.execute("ROLLBACK").await;
                }
                tokio::time::sleep(Duration::from_millis(rng.random_range(0..5))).await;
            }
            Err(error) => panic!("{}: {error}", error.sqlstate),
        }
    }
}

async fn write(database: Arc<Database>, writer: i64) -> u64 {
    let mut client = Client::new(&database);
    let mut rng = StdRng::seed_from_u64(writer.unsigned_abs());
    let mut conflicts = 0;
    for number in 1..=TRANSFERS {
        conflicts += transfer(&mut client, &mut rng, writer).await;
        // C4: no one else writes this counter, and a view of a view shows at least all of ours.
        let seen = client.query(&format!("SELECT tens FROM done WHERE writer = {writer}")).await;
        assert_eq!(
            seen.single(),
            (number * 10).to_string(),
            "writer {writer} does not see its write"
        );
        let all = client.query("SELECT tens FROM done_in_all").await;
        assert!(all.single().parse::<u64>().unwrap() >= number * 10, "{all:?}");
    }
    conflicts
}

async fn read(database: Arc<Database>, stop: Arc<AtomicBool>, reads: Arc<AtomicU64>) {
    let mut client = Client::new(&database);
    let money = (ACCOUNTS * OPENING_BALANCE).to_string();
    let queries = [
        "SELECT sum(balance) FROM per_branch",
        "SELECT (SELECT balance FROM total) FROM branches",
        "SELECT b.balance FROM branches b JOIN total t ON b.balance = t.balance",
        "SELECT sum(p.balance) FROM per_branch p JOIN branch b ON p.name = b.name",
        "SELECT sum(balance) FROM account",
        "SELECT t.balance FROM total t WHERE t.balance = (SELECT sum(balance) FROM account)",
        "SELECT sum(p.balance) FROM per_branch p,
             (SELECT b.name, sum(a.balance) AS s FROM account a JOIN branch b ON b.id = a.branch GROUP BY 1) AS q
         WHERE q.name = p.name AND q.s = p.balance",
    ];
    while !stop.load(Ordering::Relaxed) || reads.load(Ordering::Relaxed) < READS {
        for query in queries {
            let rows = client.query(query).await;
            assert_eq!(rows.rows.len(), 1, "views of different moments: {query}");
            assert_eq!(rows.single(), money, "money came or went: {query}");
            reads.fetch_add(1, Ordering::Relaxed);
        }
        let accounts = client.query("SELECT n FROM branches").await;
        assert_eq!(accounts.single(), ACCOUNTS.to_string());
    }
}

fn move_money(parallelism: usize) {
    run_for(180, "moving money", async {
        let database = Setup::parallel(parallelism).open();
        bank(&database).await;
        let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                tokio::spawn(read(Arc::clone(&database), Arc::clone(&stop), Arc::clone(&reads)))
            })
            .collect();
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| tokio::spawn(write(Arc::clone(&database), writer))).collect();
        let mut conflicts = 0;
        for writer in writers {
            conflicts += writer.await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.await.unwrap();
        }
        eprintln!("{} reads beside {conflicts} conflicts", reads.load(Ordering::Relaxed));
        let mut client = Client::new(&database);
        let done = client.query("SELECT tens FROM done_in_all").await;
        assert_eq!(done.single(), (TRANSFERS * 10 * WRITERS.unsigned_abs()).to_string());
    });
}

#[test]
fn money_is_neither_made_nor_lost_at_one_task() {
    move_money(1);
}

#[test]
fn money_is_neither_made_nor_lost_at_four_tasks() {
    move_money(4);
}

/// Views over one endless source, one of them made late, agree at every moment.
#[test]
fn views_of_one_source_agree() {
    run_for(60, "the test", async {
        let database = Setup::parallel(2).open();
        let mut client = Client::new(&database);
        client
            .execute(
                "CREATE SOURCE bid WITH (connector = 'nexmark', \"nexmark.table.type\" = 'bid',
                     \"nexmark.min.event.gap.in.ns\" = '20000');
                 CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(price) AS s FROM bid;
                 CREATE MATERIALIZED VIEW per_auction AS
                     SELECT auction, count(*) AS n, sum(price) AS s FROM bid GROUP BY auction",
            )
            .await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        client
            .execute("CREATE MATERIALIZED VIEW late AS SELECT bidder, count(*) AS n FROM bid GROUP BY bidder")
            .await;
        let (until, mut last, mut reads) = (Instant::now() + Duration::from_secs(3), 0, 0);
        while Instant::now() < until {
            let rows = client
                .query(
                    "SELECT (SELECT n FROM total), (SELECT sum(n) FROM per_auction), (SELECT sum(n) FROM late),
                         (SELECT s FROM total), (SELECT sum(s) FROM per_auction)",
                )
                .await;
            let row: Vec<&str> = rows.rows[0].iter().map(|v| v.as_deref().unwrap_or("0")).collect();
            assert!(row[0] == row[1] && row[0] == row[2], "counts of one moment differ: {row:?}");
            assert_eq!(row[3], row[4], "sums of one moment differ");
            let seen: u64 = row[0].parse().unwrap();
            assert!(seen >= last, "time went back: {seen} after {last}");
            (last, reads) = (seen, reads + 1);
        }
        eprintln!("{reads} reads, {last} rows");
        assert!(reads > 20 && last > 1000, "{reads} reads, {last} rows");
    });
}

/// A commit is visible to its own session in a view over a join at the very next statement, every time.
#[test]
fn sessions_read_their_writes() {
    run_for(60, "the test", async {
        let database = Setup::parallel(4).open();
        let mut client = Client::new(&database);
        client
            .execute(
                "CREATE TABLE l (id BIGINT PRIMARY KEY, k BIGINT);
                 CREATE TABLE r (k BIGINT, v BIGINT);
                 CREATE MATERIALIZED VIEW j AS SELECT l.id, sum(r.v) AS s FROM l JOIN r ON l.k = r.k GROUP BY l.id;
                 CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n, sum(s) AS s FROM j;
                 INSERT INTO r VALUES (0, 1), (1, 10), (2, 100)",
            )
            .await;
        let mut sum = 0_i64;
        for id in 0..150_i64 {
            client.execute(&format!("INSERT INTO l VALUES ({id}, {})", id % 3)).await;
            sum += [1, 10, 100][usize::try_from(id % 3).unwrap()];
            let row = client.query("SELECT n || ':' || s FROM n").await;
            assert_eq!(row.single(), format!("{}:{sum}", id + 1));
        }
        for id in (0..150_i64).step_by(3) {
            client.execute(&format!("DELETE FROM l WHERE id = {id}")).await;
            sum -= 1;
            assert_eq!(client.query("SELECT s FROM n").await.single(), sum.to_string());
        }
    });
}

/// Views are made and dropped while data flows: each is right from its first moment, and writers never stop.
#[test]
fn views_come_and_go_while_data_flows() {
    run_for(120, "the test", async {
        let database = Setup::parallel(2).open();
        let mut client = Client::new(&database);
        client.execute("CREATE TABLE t (k BIGINT, v BIGINT); CREATE TABLE u (k BIGINT PRIMARY KEY, w BIGINT)").await;
        let stop = Arc::new(AtomicBool::new(false));
        let writer = tokio::spawn(write_until(Arc::clone(&database), Arc::clone(&stop)));
        let queries = [
            "SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k",
            "SELECT t.k, t.v, u.w FROM t LEFT JOIN u ON t.k = u.k",
            "SELECT k FROM t UNION SELECT k FROM u",
            "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 5",
            "SELECT k, max(v) AS hi FROM t WHERE k IN (SELECT k FROM u) GROUP BY k",
        ];
        for round in 0..30 {
            let query = queries[round % queries.len()];
            client.execute(&format!("CREATE MATERIALIZED VIEW v AS {query}")).await;
            client.execute("CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM v").await;
            // Both sides in one query are of one moment.
            let sql = format!(
                "SELECT (SELECT count(*) FROM (SELECT * FROM v EXCEPT ALL ({query})) AS a),
                        (SELECT count(*) FROM (({query}) EXCEPT ALL SELECT * FROM v) AS b),
                        (SELECT count(*) FROM v) - (SELECT n FROM above)"
            );
            for _ in 0..3 {
                let rows = client.query(&sql).await;
                assert_eq!(rows.sorted_lines(), ["0|0|0"], "{query}");
            }
            client.execute("DROP MATERIALIZED VIEW v CASCADE").await;
        }
        stop.store(true, Ordering::Relaxed);
        let written = writer.await.unwrap();
        assert!(written > 50, "only {written} statements were written");
    });
}

async fn write_until(database: Arc<Database>, stop: Arc<AtomicBool>) -> u64 {
    let mut client = Client::new(&database);
    let mut rng = StdRng::seed_from_u64(7);
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        let (k, v) = (rng.random_range(0..20), rng.random_range(0..100));
        let sql = match rng.random_range(0..10) {
            0..5 => format!("INSERT INTO t VALUES ({k}, {v}), ({v}, {k})"),
            5 | 6 => format!("UPDATE t SET v = v + 1 WHERE k = {k}"),
            7 => format!("DELETE FROM t WHERE v = {v}"),
            8 => format!(
                "INSERT INTO u VALUES ({k}, {v}) ON CONFLICT (k) DO UPDATE SET w = excluded.w"
            ),
            _ => format!("DELETE FROM u WHERE k = {k}"),
        };
        client.execute(&sql).await;
        written += 1;
    }
    written
}
