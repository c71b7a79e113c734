//! What is visible when, and that it comes back as it was written.

use millstream_engine::sink::{Committable, Guarantee, Sink};
use millstream_engine::{ChangeBatch, Epoch};

use super::*;

fn sink(directory: &TempDir, pairs: &[(&str, &str)]) -> Arc<dyn Sink> {
    let folder = directory.path().display().to_string();
    let mut pairs = pairs.to_vec();
    pairs.push(("path", &folder));
    FileConnector.sink(&bids(), &options(&pairs)).unwrap()
}

fn names(directory: &TempDir) -> (Vec<String>, Vec<String>) {
    let entries = fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names.into_iter().partition(|name| !name.starts_with('.'))
}

#[test]
fn what_is_written_is_read_back() {
    for (format, compression, ending) in [
        ("json", "none", "json"),
        ("json", "gzip", "json.gz"),
        ("csv", "zstd", "csv.zst"),
        ("csv", "none", "csv"),
        ("parquet", "none", "parquet"),
        ("arrow", "none", "arrow"),
    ] {
        let directory = TempDir::new().unwrap();
        let sink = sink(&directory, &[("format", format), ("compression", compression)]);
        assert_eq!(sink.guarantee(), Guarantee::ExactlyOnce);
        let mut writer = sink.writer(0, 1).unwrap();
        writer.write(&ChangeBatch::insert(bid_rows(0..100))).unwrap();
        writer.write(&ChangeBatch::insert(bid_rows(100..300))).unwrap();
        let committables = writer.prepare(Epoch(7)).unwrap();
        assert_eq!(names(&directory).0, Vec::<String>::new(), "nothing is visible yet");
        sink.commit(&committables).unwrap();
        assert_eq!(names(&directory), (vec![format!("part-0-7-0.{ending}")], vec![]));
        // Again, as after a crash.
        sink.commit(&committables).unwrap();
        assert!(writer.prepare(Epoch(8)).unwrap().is_empty(), "nothing new");
        let folder = directory.path().display().to_string();
        let source =
            source(&bids(), &[("path", &folder), ("watch", "false"), ("file.split.num", "1")]);
        assert_eq!(
            read_all(source.as_ref(), &bids()).unwrap(),
            (bid_rows(0..300), vec![]),
            "{ending}"
        );
    }
}

#[test]
fn after_a_crash_what_was_prepared_is_committed_and_the_rest_goes() {
    let directory = TempDir::new().unwrap();
    let first = sink(&directory, &[("format", "json")]);
    let mut writer = first.writer(0, 1).unwrap();
    writer.write(&ChangeBatch::insert(bid_rows(0..10))).unwrap();
    let committed = writer.prepare(Epoch(1)).unwrap();
    writer.write(&ChangeBatch::insert(bid_rows(10..20))).unwrap();
    let lost = writer.prepare(Epoch(2)).unwrap();
    assert_eq!(lost.len(), 1);
    // Someone else's open file, and one that a dead writer left.
    let mut other = sink(&directory, &[("format", "json")]).writer(1, 2).unwrap();
    other.write(&ChangeBatch::insert(bid_rows(0..1))).unwrap();
    fs::write(directory.path().join(".inprogress-dead-0-0"), "half").unwrap();
    drop(writer);
    drop(first);
    // The new process commits what the checkpoint has, then goes on.
    let second = sink(&directory, &[("format", "json")]);
    second.commit(&committed).unwrap();
    let mut writer = second.writer(0, 1).unwrap();
    assert!(!names(&directory).1.contains(&".inprogress-dead-0-0".to_string()));
    writer.write(&ChangeBatch::insert(bid_rows(10..20))).unwrap();
    let again = writer.prepare(Epoch(2)).unwrap();
    second.commit(&again).unwrap();
    let (visible, hidden) = names(&directory);
    assert_eq!(visible, ["part-0-1-0.json", "part-0-2-0.json"]);
    assert_eq!(hidden.len(), 1, "only the living writer's: {hidden:?}");
    // A run from the beginning, with the same epochs, adds and does not overwrite.
    let third = sink(&directory, &[("format", "json")]);
    let mut writer = third.writer(0, 1).unwrap();
    writer.write(&ChangeBatch::insert(bid_rows(0..10))).unwrap();
    let committables = writer.prepare(Epoch(1)).unwrap();
    third.commit(&committables).unwrap();
    assert_eq!(names(&directory).0, ["part-0-1-0.json", "part-0-1-1.json", "part-0-2-0.json"]);
}

#[test]
fn abort_leaves_nothing() {
    let directory = TempDir::new().unwrap();
    let sink = sink(&directory, &[("format", "csv"), ("rollover.rows", "10")]);
    let mut writer = sink.writer(0, 1).unwrap();
    writer.write(&ChangeBatch::insert(bid_rows(0..25))).unwrap();
    assert_eq!(names(&directory).1.len(), 3);
    writer.abort();
    assert_eq!(names(&directory), (vec![], vec![]));
    writer.write(&ChangeBatch::insert(bid_rows(0..25))).unwrap();
    let committables = writer.prepare(Epoch(3)).unwrap();
    sink.commit(&committables).unwrap();
    let expected = ["part-0-3-0.csv", "part-0-3-1.csv", "part-0-3-2.csv"];
    assert_eq!(names(&directory), (expected.map(String::from).to_vec(), vec![]));
}

#[test]
fn files_roll_over_by_bytes() {
    let directory = TempDir::new().unwrap();
    let sink = sink(&directory, &[("format", "json"), ("rollover.bytes", "20000")]);
    let mut writer = sink.writer(0, 1).unwrap();
    for batch in 0..10 {
        writer.write(&ChangeBatch::insert(bid_rows(batch * 200..(batch + 1) * 200))).unwrap();
    }
    let committables: Vec<Committable> = writer.prepare(Epoch(1)).unwrap();
    assert!((5..=10).contains(&committables.len()), "{}", committables.len());
}

#[test]
fn weights() {
    let directory = TempDir::new().unwrap();
    let changes = ChangeBatch::new(bid_rows(0..3), Some(vec![1, 0, 2].into()));
    let deletes = ChangeBatch::delete(bid_rows(0..1));
    let append = sink(&directory, &[("format", "csv")]);
    assert!(!append.accepts_retractions());
    let mut writer = append.writer(0, 1).unwrap();
    writer.write(&changes).unwrap();
    assert!(writer.write(&deletes).unwrap_err().to_string().contains("changelog = true"));
    let committables = writer.prepare(Epoch(1)).unwrap();
    append.commit(&committables).unwrap();
    let text = fs::read_to_string(directory.path().join("part-0-1-0.csv")).unwrap();
    assert_eq!(
        text,
        "auction,channel,at\n0,channel number 0,2015-07-15T00:00:00\n\
         2,channel number 2,2015-07-15T00:00:00.002\n2,channel number 2,2015-07-15T00:00:00.002\n"
    );
    let all = sink(&directory, &[("format", "json"), ("changelog", "true")]);
    assert!(all.accepts_retractions());
    let mut writer = all.writer(0, 1).unwrap();
    writer.write(&changes).unwrap();
    writer.write(&deletes).unwrap();
    let committables = writer.prepare(Epoch(2)).unwrap();
    all.commit(&committables).unwrap();
    let text = fs::read_to_string(directory.path().join("part-0-2-0.json")).unwrap();
    assert!(text.ends_with("\"at\":\"2015-07-15T00:00:00\",\"weight\":-1}\n"), "{text}");
}

#[test]
fn an_arrow_file_holds_its_own_text_only() {
    let directory = TempDir::new().unwrap();
    let sink = sink(&directory, &[("format", "arrow")]);
    let mut writer = sink.writer(0, 1).unwrap();
    let rows = bid_rows(0..20_000);
    for row in 0..50 {
        writer.write(&ChangeBatch::insert(rows.slice(row * 100, 1))).unwrap();
    }
    sink.commit(&writer.prepare(Epoch(1)).unwrap()).unwrap();
    let size = fs::metadata(directory.path().join("part-0-1-0.arrow")).unwrap().len();
    assert!(size < 100_000, "{size} bytes for 50 rows");
}
