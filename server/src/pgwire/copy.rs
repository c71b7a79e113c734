//! COPY TO STDOUT and COPY FROM STDIN, in text, CSV and binary.
//!
//! Out: one message per row, streamed. In: decoded as it comes into Arrow batches; nothing is
//! written until the client has sent all and all of it was good.

mod csv;
mod decode;
mod out;
mod text;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use bytes::BufMut;
use millstream_sql::{CopyFormat, CopyKind, CopyTarget, RowStream};
use pgwire::messages::copy::{CopyDone, CopyInResponse, CopyOutResponse};

use crate::pgwire::connection::Connection;
use crate::pgwire::encode::{RowEncoder, patch_length};
use crate::pgwire::error::{Failure, error, protocol};
use crate::pgwire::frontend::{Format, Frontend};
use crate::pgwire::reader::Incoming;
use crate::pgwire::rows::Batches;
use crate::pgwire::watch::Watch;
use decode::Decoder;
use out::RowWriter;

impl Connection {
    pub(crate) async fn copy_out(
        &mut self,
        schema: &Schema,
        rows: RowStream,
        format: &CopyFormat,
        watch: &Watch,
    ) -> Result<(), Failure> {
        let (whole, columns) = overall(format.kind, schema.fields().len());
        let count = i16::try_from(columns.len()).unwrap_or(i16::MAX);
        self.output.put(&CopyOutResponse::new(whole, count, columns));
        let wire = if format.kind == CopyKind::Binary { Format::Binary } else { Format::Text };
        let encoder = RowEncoder::new(schema, &[wire], self.styles())?;
        let mut writer = RowWriter::new(format);
        writer.start(schema, &mut self.output.buffer);
        let mut batches = Batches::new(rows);
        let mut sent = 0;
        while let Some(batch) = batches.next(&mut self.output, watch).await? {
            let columns = encoder.columns(&batch)?;
            for row in 0..batch.num_rows() {
                let start = self.output.buffer.len();
                self.output.buffer.put_u8(b'd');
                self.output.buffer.put_u32(0);
                let written = writer.row(&encoder, &columns, row, &mut self.output.buffer);
                if let Err(error) = written {
                    self.output.buffer.truncate(start);
                    return Err(Failure::Error(*error));
                }
                patch_length(&mut self.output.buffer, start + 1, start + 1);
                if self.output.is_full() {
                    self.output.flush().await?;
                    if watch.cancel.is_cancelled() {
                        return Err(watch.interrupted().await);
                    }
                }
            }
            sent += batch.num_rows() as u64;
        }
        writer.end(&mut self.output.buffer);
        self.output.put(&CopyDone::new());
        self.shared.counters.rows_sent(sent);
        self.put_notices();
        self.output.complete(format!("COPY {sent}"));
        Ok(())
    }

    pub(crate) async fn copy_in(
        &mut self,
        target: &CopyTarget,
        format: &CopyFormat,
        watch: &Watch,
    ) -> Result<(), Failure> {
        let mut decoder = Decoder::new(target, format, &self.styles().zone)?;
        let (whole, columns) = overall(format.kind, target.schema.fields().len());
        let count = i16::try_from(columns.len()).unwrap_or(i16::MAX);
        self.output.put(&CopyInResponse::new(whole, count, columns));
        self.output.flush().await?;
        self.receive_rows(&mut decoder, watch).await?;
        let rows: Vec<RecordBatch> = decoder.finish()?;
        let handle = self.session.cancel_handle();
        let work = Box::pin(self.session.copy_in(target, rows));
        let written = watch.run(&handle, work).await?;
        self.put_notices();
        self.output.complete(format!("COPY {written}"));
        Ok(())
    }

    async fn receive_rows(&mut self, decoder: &mut Decoder, watch: &Watch) -> Result<(), Failure> {
        let limit = self.shared.config.copy_bytes_max;
        let mut taken = 0_usize;
        loop {
            let incoming = watch.race(self.inbox.receive()).await?.ok_or(Failure::Gone)?;
            match incoming {
                Incoming::Message(Frontend::CopyData(bytes)) => {
                    taken = taken.saturating_add(bytes.len());
                    if taken > limit {
                        let text = format!("COPY FROM STDIN is limited to {limit} bytes");
                        let hint =
                            "Load the data in several COPY statements, or through a file source.";
                        return Err(error("54000", text).with_hint(hint).into());
                    }
                    decoder.push(&bytes)?;
                }
                Incoming::Message(Frontend::CopyDone) => return Ok(()),
                Incoming::Message(Frontend::CopyFail(reason)) => {
                    let text = format!("COPY from stdin failed: {reason}");
                    return Err(error("57014", text).into());
                }
                // Clients that pipeline send these behind Execute without knowing of the COPY.
                Incoming::Message(Frontend::Flush | Frontend::Sync) => {}
                Incoming::Message(Frontend::Terminate) => return Err(Failure::Gone),
                Incoming::Message(_) => {
                    return Err(protocol("unexpected message during COPY from stdin").into());
                }
                Incoming::Malformed(error, _) => return Err(error.into()),
                Incoming::Broken(error) => return Err(Failure::Fatal(error)),
            }
        }
    }
}

/// The overall format and that of each column, as the COPY responses tell them.
fn overall(kind: CopyKind, columns: usize) -> (i8, Vec<i16>) {
    match kind {
        CopyKind::Binary => (1, vec![1; columns]),
        CopyKind::Text | CopyKind::Csv => (0, vec![0; columns]),
    }
}
