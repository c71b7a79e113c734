//! A small prompt: statements end with a semicolon, errors do not end the session, Ctrl-D does.

use std::io::Write;

use tokio::sync::mpsc;

use super::Script;
use super::runner::{Ended, Runner};
use crate::cli::Failure;

/// Reads and runs statements until the input ends or a signal comes.
pub(super) async fn run(runner: &mut Runner) -> Result<(), Failure> {
    println!("Millstream {}: statements end with ; and Ctrl-D ends.", env!("CARGO_PKG_VERSION"));
    let mut lines = read_lines()?;
    let mut text = String::new();
    loop {
        print!("{}", if text.is_empty() { "millstream> " } else { "        -> " });
        // A prompt that cannot be shown is no reason to end.
        let _ = std::io::stdout().flush();
        let line = tokio::select! {
            line = lines.recv() => line,
            () = runner.stop.cancelled() => return Ok(()),
        };
        let Some(line) = line else {
            println!();
            return Ok(());
        };
        text.push_str(&line);
        text.push('\n');
        if text.trim().is_empty() {
            text.clear();
            continue;
        }
        if !text.trim_end().ends_with(';') {
            continue;
        }
        let script = Script { name: None, text: std::mem::take(&mut text) };
        match runner.run_text(&script).await {
            Ok(()) => {}
            Err(Ended::Failed(text)) => eprintln!("{text}"),
            Err(Ended::LiveStopped | Ended::Interrupted | Ended::OutputClosed) => return Ok(()),
        }
    }
}

/// Lines of standard input, read by a thread of its own, since reading blocks.
fn read_lines() -> Result<mpsc::Receiver<String>, Failure> {
    let (sender, receiver) = mpsc::channel(1);
    let read = move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    let spawned = std::thread::Builder::new().name("millstream-input".to_string()).spawn(read);
    spawned.map_err(Failure::start)?;
    Ok(receiver)
}
