//! Rows per second over inputs like those of Nexmark q15, q16, q17 and q4: run with
//! `cargo test -p millstream-engine aggregate::tests::speed -- --ignored --nocapture --test-threads 1`.

use arrow::array::{Int64Array, RecordBatch, StringViewArray, StringViewBuilder};

use super::*;

const ROWS: usize = 2_000_000;
const BATCH: usize = 8192;

struct Bids {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

fn bids() -> Bids {
    let fields =
        [("auction", DataType::Int64), ("bidder", DataType::Int64), ("price", DataType::Int64)];
    let mut fields: Vec<Field> =
        fields.iter().map(|(name, t)| Field::new(*name, t.clone(), false)).collect();
    fields.push(Field::new("channel", DataType::Utf8View, false));
    fields.push(Field::new("day", DataType::Utf8View, false));
    fields.push(Field::new("minute", DataType::Utf8View, false));
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut batches = Vec::new();
    for start in (0..ROWS).step_by(BATCH) {
        let rows: Vec<usize> = (start..(start + BATCH).min(ROWS)).collect();
        // One in two bids is for a hot auction, three in four are by a hot bidder.
        let auction = rows.iter().map(|&row| {
            let last = row as i64 * 3 / 46;
            if random() % 2 == 0 { last / 100 * 100 } else { last - (random() % 100) as i64 }
        });
        let auction = Int64Array::from_iter_values(auction.collect::<Vec<_>>());
        let bidder = rows.iter().map(|&row| {
            let last = row as i64 / 46;
            if random() % 4 != 0 { last / 100 * 100 + 1 } else { last - (random() % 1000) as i64 }
        });
        let bidder = Int64Array::from_iter_values(bidder.collect::<Vec<_>>());
        let price =
            rows.iter().map(|_| 10_f64.powf((random() % 6000) as f64 / 1000.0 + 2.0) as i64);
        let price = Int64Array::from_iter_values(price.collect::<Vec<_>>());
        let mut channel = StringViewBuilder::new();
        for _ in &rows {
            if random() % 2 == 0 {
                channel.append_value(
                    ["Google", "Facebook", "Baidu", "Apple"][(random() % 4) as usize],
                );
            } else {
                channel.append_value(format!("channel-{}", random() % 10_000));
            }
        }
        let day = StringViewArray::from_iter_values(rows.iter().map(|_| "2026-11-30"));
        let minute =
            rows.iter().map(|row| format!("{:02}:{:02}", row / 60_000 % 24, row / 1000 % 60));
        let minute = StringViewArray::from_iter_values(minute);
        let columns: Vec<arrow::array::ArrayRef> = vec![
            Arc::new(auction),
            Arc::new(bidder),
            Arc::new(price),
            Arc::new(channel.finish()),
            Arc::new(day),
            Arc::new(minute),
        ];
        batches.push(RecordBatch::try_new(Arc::clone(&schema), columns).unwrap());
    }
    Bids { schema, batches }
}

fn ranks(schema: &SchemaRef) -> [Option<Expr>; 4] {
    let price = || column(schema, "price");
    let less = |limit: i64| binary(price(), Op::Lt, lit(limit), schema).unwrap();
    let at_least = |limit: i64| binary(price(), Op::GtEq, lit(limit), schema).unwrap();
    let middle = binary(at_least(10_000), Op::And, less(1_000_000), schema).unwrap();
    [None, Some(less(10_000)), Some(middle), Some(at_least(1_000_000))]
}

fn counts(schema: &SchemaRef, columns: &[&str]) -> Vec<Call> {
    let mut calls = Vec::new();
    for filter in ranks(schema) {
        calls.push(Call { filter, ..count_star() });
    }
    for name in columns {
        for filter in ranks(schema) {
            calls.push(Call { filter, ..Call::new("count", &[column(schema, name)]).distinct() });
        }
    }
    calls
}

/// Time that this thread has been on a processor, in nanoseconds: other work on the machine does not count.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

fn measure(name: &str, bids: &Bids, group: &[usize], calls: &[Call], appends: bool) {
    let mut run = Run::with_schema("", &bids.schema, group, calls, appends);
    let start = cpu_time();
    let mut emitted = 0;
    for (number, rows) in bids.batches.iter().enumerate() {
        let batch = if appends {
            ChangeBatch::insert(rows.clone())
        } else {
            ChangeBatch::new(rows.clone(), Some(vec![1; rows.num_rows()].into()))
        };
        run.batch(batch);
        if number % 16 == 15 {
            emitted += run.barrier().iter().map(ChangeBatch::num_rows).sum::<usize>();
        }
    }
    emitted += run.barrier().iter().map(ChangeBatch::num_rows).sum::<usize>();
    let seconds = (cpu_time() - start) as f64 / 1e9;
    let state = run.operator.state_size();
    eprintln!(
        "{name:24} {:6.2} M rows/s, {:4.0} ns/row, {emitted} rows out, {} groups, {} MB",
        ROWS as f64 / seconds / 1e6,
        seconds * 1e9 / ROWS as f64,
        state.rows,
        state.bytes >> 20
    );
}

#[test]
#[ignore = "a measurement"]
fn nexmark_aggregates() {
    let bids = bids();
    let schema = &bids.schema;
    let price = || column(schema, "price");
    let q15 = counts(schema, &["bidder", "auction"]);
    let mut q16 = counts(schema, &["bidder", "auction"]);
    q16.insert(0, Call::new("max", &[column(schema, "minute")]));
    let mut q17 = counts(schema, &[]);
    for name in ["min", "max", "pg_avg", "pg_sum"] {
        q17.push(Call::new(name, &[price()]));
    }
    for (mode, appends) in [("append", APPENDS), ("retract", CHANGES)] {
        measure(&format!("q15 {mode}"), &bids, &[4], &q15, appends);
        measure(&format!("q16 {mode}"), &bids, &[3, 4], &q16, appends);
        measure(&format!("q17 {mode}"), &bids, &[0, 4], &q17, appends);
        let q4 = [Call::new("pg_avg", &[price()])];
        measure(&format!("avg by auction {mode}"), &bids, &[0], &q4, appends);
        measure(&format!("count by bidder {mode}"), &bids, &[1], &[count_star()], appends);
        measure(&format!("distinct auction {mode}"), &bids, &[0], &[], appends);
        measure(
            &format!("global sum {mode}"),
            &bids,
            &[],
            &[Call::new("pg_sum", &[price()])],
            appends,
        );
    }
}

/// As in q5: the largest of counts that change, by window. As in q4: the average of values that change.
#[test]
#[ignore = "a measurement"]
fn over_changes() {
    let schema = schema_of("window: i64 | num: i64");
    let (mut counts, mut state) = (vec![[0_i64; 5000]; 5], 1_u64);
    let batches = (0..200).map(|_| {
        let (mut windows, mut numbers, mut weights) = (vec![], vec![], vec![]);
        for _ in 0..4096 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (window, auction) = ((state >> 33) as usize % 5, (state >> 40) as usize % 5000);
            let count = &mut counts[window][auction];
            windows.extend([window as i64; 2]);
            numbers.extend([*count, *count + 1]);
            weights.extend([if *count == 0 { 0 } else { -1 }, 1]);
            *count += 1;
        }
        let columns: Vec<arrow::array::ArrayRef> =
            vec![Arc::new(Int64Array::from(windows)), Arc::new(Int64Array::from(numbers))];
        let rows = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        ChangeBatch::new(rows, Some(weights.into()))
    });
    let batches: Vec<ChangeBatch> = batches.collect();
    for name in ["max", "pg_avg", "stddev", "percentile_cont"] {
        let float = datafusion_physical_expr::expressions::cast(
            column(&schema, "num"),
            &schema,
            DataType::Float64,
        );
        let call = match name {
            "stddev" => Call::new(name, &[float.unwrap()]),
            "percentile_cont" => Call::new(name, &[float.unwrap(), lit(0.5)]),
            _ => Call::new(name, &[column(&schema, "num")]),
        };
        let mut run = Run::with_schema("", &schema, &[0], &[call], CHANGES);
        let start = cpu_time();
        for (number, batch) in batches.iter().enumerate() {
            run.batch(batch.clone());
            if number % 10 == 9 {
                run.barrier();
            }
        }
        let seconds = (cpu_time() - start) as f64 / 1e9;
        let rows = batches.len() as f64 * 8192.0;
        eprintln!(
            "{name:16} {:6.2} M changes/s, {} MB",
            rows / seconds / 1e6,
            run.operator.state_size().bytes >> 20
        );
    }
}

/// Time of checkpoints: of one in a hundred of a million groups, and beside the work on five million rows between two.
#[test]
#[ignore = "a measurement"]
fn checkpoints() {
    let schema = schema_of("k: i64 | v: i64");
    let v = || column(&schema, "v");
    let calls = [
        Call::new("pg_sum", &[v()]),
        count_star(),
        Call::new("min", &[v()]),
        Call::new("max", &[v()]),
    ];
    let mut state = 1_u64;
    let mut batch = |groups: u64, rows: usize| {
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % groups
        };
        let keys = Int64Array::from_iter_values((0..rows).map(|_| random() as i64));
        let values = Int64Array::from_iter_values((0..rows).map(|_| random() as i64));
        let columns: Vec<arrow::array::ArrayRef> = vec![Arc::new(keys), Arc::new(values)];
        RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
    };
    let few: Vec<RecordBatch> = (0..610).map(|_| batch(100_000, BATCH)).collect();
    let many: Vec<RecordBatch> = (0..600).map(|_| batch(1_000_000, BATCH)).collect();
    let tenth = batch(1_000_000, 10_000);
    for appends in [APPENDS, CHANGES] {
        let changes = |rows: &RecordBatch| {
            let weights = (!appends).then(|| vec![1; rows.num_rows()].into());
            ChangeBatch::new(rows.clone(), weights)
        };
        let mode = if appends { "append" } else { "retract" };
        let run = |durable: bool, batches: &[RecordBatch]| {
            let mut run = Run::with_schema("", &schema, &[0], &calls, appends);
            run.context.durable = durable;
            for (number, rows) in batches.iter().enumerate() {
                run.batch(changes(rows));
                if number % 16 == 15 {
                    run.barrier();
                }
            }
            run.barrier();
            run
        };
        let checkpoint = |run: &mut Run| {
            // The clock of `cpu_time` is too coarse here.
            let (mut delta, start) = (crate::state::Delta::default(), std::time::Instant::now());
            run.operator.checkpoint(&mut delta).unwrap();
            let rows = |t: usize, all: &[(usize, ChangeBatch)]| {
                all.iter().filter(|(of, _)| *of == t).map(|(_, c)| c.num_rows()).sum::<usize>()
            };
            let (time, all) = (start.elapsed(), delta.into_changes());
            (time.as_secs_f64() * 1e3, rows(0, &all), all)
        };
        for _ in 0..2 {
            let start = cpu_time();
            drop(run(false, &few));
            let plain = cpu_time() - start;
            let start = cpu_time();
            let mut durable = run(true, &few);
            let work = cpu_time() - start;
            let (time, rows, all) = checkpoint(&mut durable);
            eprintln!(
                "{mode}: 5 M rows into 100k groups: {} ms, durable {} ms; checkpoint {time:.1} ms, {rows} groups",
                plain / 1_000_000,
                work / 1_000_000,
            );
            let start = cpu_time();
            let mut back = Run::with_schema("", &schema, &[0], &calls, appends);
            let changes = all.into_iter();
            changes.for_each(|(table, rows)| back.operator.restore(table, rows).unwrap());
            back.operator.restored(crate::time::Watermark::MIN).unwrap();
            eprintln!("  restored in {} ms", (cpu_time() - start) / 1_000_000);
        }
        let mut durable = run(true, &many);
        let (time, rows, _) = checkpoint(&mut durable);
        eprintln!("{mode}: first checkpoint of {rows} groups: {time:.1} ms");
        for _ in 0..3 {
            durable.batch(changes(&tenth));
            durable.barrier();
            let (time, rows, _) = checkpoint(&mut durable);
            eprintln!("{mode}: checkpoint of {rows} groups: {time:.2} ms");
        }
    }
}
