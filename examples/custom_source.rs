//! Custom source: a connector of your own, usable in CREATE SOURCE like the built-in ones.
//!
//! The source is a set of numbered splits; reading a split from its start gives the same rows every time. That is all
//! that the engine needs for parallel reading, for views that are added later, and for going on after a restart.
//!
//! `cargo run --example custom_source`

use std::sync::Arc;

use millstream::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use millstream::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream::arrow::util::pretty::pretty_format_batches;
use millstream::source::{Offset, Polled, Source, Split, SplitReader};
use millstream::{Connector, Database, EngineError, Options, Result, parse_options};

/// `connector = 'primes'`: the prime numbers below a limit.
#[derive(Debug)]
struct PrimesConnector;

/// The options of WITH (...): unknown ones and wrong values are refused with a hint.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct PrimesOptions {
    below: u64,
    #[serde(default = "one")]
    splits: u64,
}

fn one() -> u64 {
    1
}

impl Connector for PrimesConnector {
    fn name(&self) -> &'static str {
        "primes"
    }

    fn description(&self) -> &'static str {
        "prime numbers below a limit"
    }

    fn is_source(&self) -> bool {
        true
    }

    fn is_sink(&self) -> bool {
        false
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, EngineError> {
        Ok(Arc::new(Schema::new(vec![Field::new("prime", DataType::Int64, false)])))
    }

    fn source(
        &self,
        schema: &SchemaRef,
        options: &Options,
    ) -> Result<Arc<dyn Source>, EngineError> {
        let options: PrimesOptions = parse_options("primes source", options)?;
        if schema != &self.infer_schema(&Options::new())? {
            return Err(EngineError::InvalidOption(
                "primes: the one column is prime BIGINT".into(),
            ));
        }
        Ok(Arc::new(Primes { options, schema: Arc::clone(schema) }))
    }
}

#[derive(Debug)]
struct Primes {
    options: PrimesOptions,
    schema: SchemaRef,
}

impl Source for Primes {
    fn list_splits(&self) -> Result<Vec<Split>, EngineError> {
        Ok((0..self.options.splits.max(1)).map(|part| Split(part.to_string().into())).collect())
    }

    fn open(
        &self,
        split: &Split,
        from: Offset,
        projection: &[usize],
    ) -> Result<Box<dyn SplitReader>, EngineError> {
        let part: u64 = split.0.parse().map_err(EngineError::internal)?;
        let schema = Arc::new(self.schema.project(projection)?);
        let (below, step) = (self.options.below, self.options.splits.max(1));
        Ok(Box::new(Reader { part, step, below, next: from.0, schema }))
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

/// Split `part` of `step` tests the numbers `part`, `part + step`, ... Offset `n` is its n-th number.
struct Reader {
    part: u64,
    step: u64,
    below: u64,
    next: u64,
    schema: SchemaRef,
}

impl SplitReader for Reader {
    fn poll(&mut self, rows_max: usize, until: Option<Offset>) -> Result<Polled, EngineError> {
        let mut primes = Vec::new();
        let begun = self.next;
        while primes.len() < rows_max && until.is_none_or(|until| self.next < until.0) {
            let number = self.part + self.next * self.step;
            if number >= self.below {
                break;
            }
            if is_prime(number) {
                primes.push(i64::try_from(number).map_err(EngineError::internal)?);
            }
            self.next += 1;
        }
        if self.next == begun {
            return Ok(Polled::Finished);
        }
        // A query that uses no column of the source asks for rows without columns.
        let rows = arrow_rows(&self.schema, primes)?;
        Ok(Polled::Rows { rows, next: Offset(self.next), bad: Vec::new() })
    }
}

fn arrow_rows(schema: &SchemaRef, primes: Vec<i64>) -> Result<RecordBatch, EngineError> {
    use millstream::arrow::array::RecordBatchOptions;
    let options = RecordBatchOptions::new().with_row_count(Some(primes.len()));
    let column: ArrayRef = Arc::new(Int64Array::from(primes));
    let columns = schema.fields().iter().map(|_| Arc::clone(&column)).collect();
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

fn is_prime(number: u64) -> bool {
    number > 1 && (2..).take_while(|d| d * d <= number).all(|d| !number.is_multiple_of(d))
}

/// Runs the example and gives what it prints.
pub(crate) async fn run() -> Result<String> {
    let db = Database::builder().connector(Arc::new(PrimesConnector)).open().await?;
    db.execute(
        "CREATE SOURCE primes WITH (connector = 'primes', below = 1000, splits = 4);
         CREATE MATERIALIZED VIEW last_digits AS
             SELECT prime % 10 AS digit, count(*) AS primes FROM primes GROUP BY 1;",
    )
    .await?;
    db.wait_for_bounded_sources().await?;
    let rows = db.query("SELECT * FROM last_digits ORDER BY digit").await?;
    db.close().await?;
    let table = pretty_format_batches(&rows).map_err(EngineError::from)?;
    Ok(table.to_string())
}

#[tokio::main]
async fn main() -> Result<()> {
    println!("{}", run().await?);
    Ok(())
}
