//! The sessions of one partition, and how changes of its rows change them.

use std::cmp::Ordering;

use super::output::Given;
use crate::error::{EngineError, Result};
use crate::operators::row_store::{NONE, RowStore};
use crate::plan;

/// A change of the input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) partition: u32,
    /// Its row in the store; `NONE` where rows are counted.
    pub(super) id: u32,
    pub(super) time: i64,
    pub(super) weight: i64,
}

/// Equal rows that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) time: i64,
    pub(super) weight: i64,
    pub(super) id: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// Time of the first row.
    pub(super) start: i64,
    /// Time of the last row.
    pub(super) last: i64,
    /// Number of rows, equal ones too.
    pub(super) count: i64,
}

impl Session {
    fn has_bounds_of(&self, other: &Self) -> bool {
        (self.start, self.last) == (other.start, other.last)
    }
}

/// A change of what is held, for the state tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    pub(super) partition: u32,
    /// Its row in the store; `NONE` where rows are counted.
    pub(super) id: u32,
    /// A row's time twice, or a session's first and last.
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) weight: i64,
}

/// One partition.
#[derive(Debug)]
pub(super) struct Partition {
    /// In order, each at least the gap after the one before. On close: those not given yet.
    pub(super) sessions: Vec<Session>,
    /// The rows of these sessions by time, then by columns. Not held where the sessions say it all.
    pub(super) entries: Vec<Entry>,
    /// Time of the last row of the last session that was given on close.
    pub(super) closed_last: Option<i64>,
    /// When this partition is to be looked at for closing.
    pub(super) scheduled: i64,
    /// Its id has been given back.
    pub(super) is_removed: bool,
}

impl Default for Partition {
    fn default() -> Self {
        let (sessions, entries) = (Vec::new(), Vec::new());
        Self { sessions, entries, closed_last: None, scheduled: i64::MAX, is_removed: false }
    }
}

/// Sessions and entries of all partitions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) sessions: usize,
    pub(super) entries: usize,
}

impl Counted {
    fn add(&mut self, sessions: isize, entries: isize) {
        self.sessions = self.sessions.saturating_add_signed(sessions);
        self.entries = self.entries.saturating_add_signed(entries);
    }
}

/// What partitions need to work on their changes, and what they leave for the end of the epoch.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) gap: i64,
    appends: bool,
    counts: bool,
    pub(super) on_close: bool,
    /// Changes of what is held are logged.
    pub(super) durable: bool,
    /// Rows (or sessions) that came and went.
    pub(super) logged: Vec<Logged>,
    /// Last moments of closed sessions that came and went.
    pub(super) logged_closed: Vec<Logged>,
    /// Only sessions are held, no entries: rows only come, and are counted.
    pub(super) coalesces: bool,
    /// On close: the frontier up to which sessions have been given.
    pub(super) closed_at: i64,
    /// Rows with their sessions, to be given.
    pub(super) given: Vec<Given>,
    /// Rows of the store that are not held any more.
    pub(super) leaving: Vec<u32>,
    /// Partitions that may be without rows.
    pub(super) unused: Vec<u32>,
    /// Late rows dropped in this epoch.
    pub(super) late: u64,
    pub(super) held: Counted,
    /// Scratch: the rows around some changes, with their weights before; and their sessions.
    merged: Vec<(Entry, i64)>,
    sessions: Vec<Session>,
}

/// Changes that touch one another, with the sessions that they touch.
struct Cluster<'a> {
    changes: &'a [Change],
    /// Places of the sessions.
    sessions: std::ops::Range<usize>,
}

impl Work {
    pub(super) fn new(plan: &plan::SessionWindow, appends: bool, counts: bool) -> Self {
        Self {
            gap: plan.gap_us,
            appends,
            counts,
            on_close: plan.on_close,
            durable: false,
            logged: Vec::new(),
            logged_closed: Vec::new(),
            coalesces: appends && counts,
            closed_at: i64::MIN,
            given: Vec::new(),
            leaving: Vec::new(),
            unused: Vec::new(),
            late: 0,
            held: Counted::default(),
            merged: Vec::new(),
            sessions: Vec::new(),
        }
    }

    /// Puts changes in the order of partitions, and within each in that of entries.
    pub(super) fn sort(&self, changes: &mut [Change], store: Option<&RowStore>) {
        match store.filter(|_| !self.appends) {
            None => changes.sort_unstable_by_key(|change| (change.partition, change.time)),
            Some(store) => changes.sort_unstable_by(|a, b| {
                let places = (a.partition, a.time).cmp(&(b.partition, b.time));
                places.then_with(|| compare_rows(store, a.id, b.id))
            }),
        }
    }

    /// Whether two moments, the earlier one first, are in one session.
    #[inline]
    fn joins(&self, earlier: i64, later: i64) -> bool {
        later.saturating_sub(earlier) < self.gap
    }

    #[inline]
    fn end(&self, session: &Session) -> i64 {
        session.last.saturating_add(self.gap)
    }

    fn drop_change(&mut self, change: &Change) {
        if change.id != NONE {
            self.leaving.push(change.id);
        }
    }

    fn drop_late(&mut self, change: &Change) {
        self.late += change.weight.unsigned_abs();
        self.drop_change(change);
    }

    fn log(&mut self, partition: u32, entry: &Entry, weight: i64) {
        if self.durable && weight != 0 {
            let Entry { id, time, .. } = *entry;
            self.logged.push(Logged { partition, id, first: time, last: time, weight });
        }
    }

    fn log_session(&mut self, partition: u32, session: &Session, sign: i64) {
        if self.durable {
            let Session { start: first, last, count } = *session;
            let weight = sign * count;
            self.logged.push(Logged { partition, id: NONE, first, last, weight });
        }
    }

    /// The last moment of the partition's closed sessions is another one, or need not be known any more.
    pub(super) fn log_closed(&mut self, partition: u32, old: Option<i64>, new: Option<i64>) {
        if self.durable {
            let changes = old.map(|last| (last, -1)).into_iter().chain(new.map(|last| (last, 1)));
            self.logged_closed.extend(changes.map(|(last, weight)| Logged {
                partition,
                id: NONE,
                first: last,
                last,
                weight,
            }));
        }
    }

    fn give(&mut self, id: u32, session: &Session, weight: i64) {
        let (start, end) = (session.start, self.end(session));
        self.given.push(Given { id, start, end, weight });
    }
}

/// Rows of the store by all their columns.
fn compare_rows(store: &RowStore, a: u32, b: u32) -> Ordering {
    let mut columns = (0..store.width()).map(|column| store.compare(column, a, b));
    columns.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

impl Partition {
    /// Whether nothing of it must be remembered.
    pub(super) fn is_unused(&self) -> bool {
        self.sessions.is_empty() && self.closed_last.is_none()
    }

    /// On close: the frontier at which its first session can be given, or from which on no row in time can meet the
    /// last session that was.
    pub(super) fn due(&self, gap: i64) -> Option<i64> {
        match (self.sessions.first(), self.closed_last) {
            (Some(first), _) => Some(first.last.saturating_add(gap)),
            (None, Some(last)) => Some(last.saturating_add(gap).saturating_add(gap)),
            (None, None) => None,
        }
    }

    /// Takes changes in, which are in order.
    pub(super) fn apply(
        &mut self,
        changes: &[Change],
        work: &mut Work,
        store: Option<&RowStore>,
    ) -> Result<()> {
        self.is_removed = false;
        let mut rest = self.without_late(changes, work);
        while !rest.is_empty() {
            let cluster = self.cluster(rest, work);
            rest = &rest[cluster.changes.len()..];
            if work.coalesces {
                self.coalesce(&cluster, work);
            } else {
                self.merge(&cluster, work, store)?;
            }
        }
        Ok(())
    }

    /// Drops the changes that would touch a session that was given.
    fn without_late<'a>(&self, changes: &'a [Change], work: &mut Work) -> &'a [Change] {
        let Some(closed) = self.closed_last else {
            return changes;
        };
        let late = changes.partition_point(|change| work.joins(closed, change.time));
        changes[..late].iter().for_each(|change| work.drop_late(change));
        &changes[late..]
    }

    /// The first changes that touch one another or the same sessions.
    fn cluster<'a>(&self, changes: &'a [Change], work: &Work) -> Cluster<'a> {
        let mut reach = changes[0].time;
        let first = self
            .sessions
            .partition_point(|session| session.last < reach && !work.joins(session.last, reach));
        let (mut sessions, mut count) = (first..first, 1);
        loop {
            if let Some(next) = self.sessions.get(sessions.end)
                && work.joins(reach, next.start)
            {
                reach = reach.max(next.last);
                sessions.end += 1;
            } else if let Some(next) = changes.get(count)
                && work.joins(reach, next.time)
            {
                reach = reach.max(next.time);
                count += 1;
            } else {
                return Cluster { changes: &changes[..count], sessions };
            }
        }
    }

    /// Rows that come, counted: all that a cluster touches is one session.
    fn coalesce(&mut self, cluster: &Cluster<'_>, work: &mut Work) {
        let (changes, old) = (cluster.changes, &self.sessions[cluster.sessions.clone()]);
        let (first, last) = (&changes[0], &changes[changes.len() - 1]);
        let start = old.first().map_or(first.time, |old| old.start.min(first.time));
        let end = old.last().map_or(last.time, |old| old.last.max(last.time));
        let added: i64 = changes.iter().map(|change| change.weight).sum();
        let count = added + old.iter().map(|session| session.count).sum::<i64>();
        let session = Session { start, last: end, count };
        if work.on_close {
            if old.is_empty() && work.end(&session) <= work.closed_at {
                work.late += changes.len() as u64;
                return;
            }
        } else {
            give_counts(first.partition, old, &[session], work);
        }
        old.iter().for_each(|old| work.log_session(first.partition, old, -1));
        work.log_session(first.partition, &session, 1);
        work.held.add(1 - old.len() as isize, 0);
        match old {
            [_] => self.sessions[cluster.sessions.start] = session,
            _ => drop(self.sessions.splice(cluster.sessions.clone(), [session])),
        }
    }

    /// Any changes: the rows around them are put together again.
    fn merge(
        &mut self,
        cluster: &Cluster<'_>,
        work: &mut Work,
        store: Option<&RowStore>,
    ) -> Result<()> {
        let old = &self.sessions[cluster.sessions.clone()];
        let range = match (old.first(), old.last()) {
            (Some(first), Some(last)) => {
                let from = self.entries.partition_point(|entry| entry.time < first.start);
                let length = self.entries[from..].partition_point(|e| e.time <= last.last);
                from..from + length
            }
            _ => {
                let time = cluster.changes[0].time;
                let from = self.entries.partition_point(|entry| entry.time < time);
                from..from
            }
        };
        let mut merged = std::mem::take(&mut work.merged);
        let mut sessions = std::mem::take(&mut work.sessions);
        merge_rows(&self.entries[range.clone()], cluster.changes, &mut merged, work, store);
        let mut missing = false;
        merged.retain(|(entry, before)| match entry.weight {
            ..0 if work.on_close => {
                // A delete of a row that was late when it came.
                work.late += entry.weight.unsigned_abs();
                leave(entry, work);
                false
            }
            ..0 => {
                missing = true;
                true
            }
            0 if *before == 0 => {
                leave(entry, work);
                false
            }
            _ => true,
        });
        if missing {
            return Err(EngineError::internal("a delete of a row that is in no session"));
        }
        cut(&merged, &mut sessions, work);
        if work.on_close {
            drop_late_sessions(&mut merged, &mut sessions, work);
        } else if work.counts {
            give_counts(cluster.changes[0].partition, old, &sessions, work);
        } else {
            give_rows(&merged, old, &sessions, work);
        }
        for (entry, before) in &merged {
            work.log(cluster.changes[0].partition, entry, entry.weight - before);
        }
        let entries = merged.iter().filter(|(entry, _)| entry.weight > 0).map(|(entry, _)| *entry);
        let (many, all) = (range.len() as isize, self.entries.len() as isize);
        self.entries.splice(range, entries);
        let added = self.entries.len() as isize - all;
        debug_assert!(added >= -many, "no more rows leave than were there");
        work.held.add(sessions.len() as isize - old.len() as isize, added);
        for (entry, _) in merged.iter().filter(|(entry, _)| entry.weight == 0) {
            leave(entry, work);
        }
        self.sessions.splice(cluster.sessions.clone(), sessions.iter().copied());
        merged.clear();
        sessions.clear();
        (work.merged, work.sessions) = (merged, sessions);
        Ok(())
    }

    /// Sessions that were taken back in any order, and in parts, become those that they were.
    pub(super) fn put_sessions_in_order(&mut self) {
        self.sessions.sort_unstable_by_key(|session| session.start);
        self.sessions.dedup_by(|part, session| {
            let is_part = part.has_bounds_of(session);
            session.count += if is_part { part.count } else { 0 };
            is_part
        });
    }

    /// Gives the rows of the sessions that have ended by the frontier, and forgets them.
    pub(super) fn close(&mut self, partition: u32, frontier: i64, work: &mut Work) {
        let count = self.sessions.partition_point(|session| work.end(session) <= frontier);
        let Some(last) = count.checked_sub(1).map(|place| self.sessions[place].last) else {
            return;
        };
        work.log_closed(partition, self.closed_last, Some(last));
        self.closed_last = Some(last);
        let mut entries = 0;
        for session in &self.sessions[..count] {
            if work.coalesces {
                work.log_session(partition, session, -1);
            }
            if work.counts {
                work.give(partition, session, session.count);
            }
            while let Some(entry) = self.entries.get(entries)
                && entry.time <= session.last
            {
                if !work.counts {
                    work.give(entry.id, session, entry.weight);
                }
                work.log(partition, entry, -entry.weight);
                leave(entry, work);
                entries += 1;
            }
        }
        work.held.add(-(count as isize), -(entries as isize));
        self.sessions.drain(..count);
        self.entries.drain(..entries);
    }
}

fn leave(entry: &Entry, work: &mut Work) {
    if entry.id != NONE {
        work.leaving.push(entry.id);
    }
}

/// Rows and changes of them in one order, with the weights before.
fn merge_rows(
    entries: &[Entry],
    changes: &[Change],
    merged: &mut Vec<(Entry, i64)>,
    work: &mut Work,
    store: Option<&RowStore>,
) {
    let store = store.filter(|_| !work.appends);
    let order = |entry: &Entry, change: &Change| {
        let by_time = entry.time.cmp(&change.time);
        match store {
            Some(store) => by_time.then_with(|| compare_rows(store, entry.id, change.id)),
            None => by_time,
        }
    };
    let mut entries = entries.iter().peekable();
    for change in changes {
        while let Some(entry) = entries.next_if(|entry| order(entry, change).is_le()) {
            merged.push((*entry, entry.weight));
        }
        let Change { id, time, weight, .. } = *change;
        let equal = merged.last_mut().filter(|(last, _)| order(last, change).is_eq());
        match equal.filter(|_| !work.appends) {
            Some((entry, _)) => {
                entry.weight += weight;
                work.drop_change(change);
            }
            None => merged.push((Entry { time, weight, id }, 0)),
        }
    }
    merged.extend(entries.map(|entry| (*entry, entry.weight)));
}

/// The sessions of rows in order.
fn cut(rows: &[(Entry, i64)], sessions: &mut Vec<Session>, work: &Work) {
    for (entry, _) in rows.iter().filter(|(entry, _)| entry.weight > 0) {
        let Entry { time, weight, .. } = *entry;
        match sessions.last_mut().filter(|last| work.joins(last.last, time)) {
            Some(session) => {
                session.last = time;
                session.count += weight;
            }
            None => sessions.push(Session { start: time, last: time, count: weight }),
        }
    }
}

/// On close: drops new rows that are alone in sessions that would have been given by now.
fn drop_late_sessions(rows: &mut [(Entry, i64)], sessions: &mut Vec<Session>, work: &mut Work) {
    sessions.retain(|session| {
        let is_of = |time: i64| session.start <= time && time <= session.last;
        let is_new = || rows.iter().all(|(entry, before)| !is_of(entry.time) || *before == 0);
        if work.end(session) > work.closed_at || !is_new() {
            return true;
        }
        for (entry, _) in rows.iter_mut().filter(|(entry, _)| is_of(entry.time)) {
            work.late += entry.weight.unsigned_abs();
            entry.weight = 0;
        }
        false
    });
}

/// Gives the counts of sessions that came, went or have another count.
fn give_counts(partition: u32, old: &[Session], new: &[Session], work: &mut Work) {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    while let Some(before) = old.peek().copied() {
        while let Some(after) = new.next_if(|after| after.start < before.start) {
            work.give(partition, after, after.count);
        }
        old.next();
        match new.next_if(|after| after.has_bounds_of(before)) {
            Some(after) if after.count == before.count => {}
            Some(after) => work.give(partition, after, after.count - before.count),
            None => work.give(partition, before, -before.count),
        }
    }
    for after in new {
        work.give(partition, after, after.count);
    }
}

/// Gives the rows whose session or weight is another one.
fn give_rows(rows: &[(Entry, i64)], old: &[Session], new: &[Session], work: &mut Work) {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    for (entry, before) in rows {
        while old.next_if(|session| session.last < entry.time).is_some() {}
        while new.next_if(|session| session.last < entry.time).is_some() {}
        let before = old.peek().copied().filter(|_| *before > 0).map(|session| (session, *before));
        let after = new.peek().copied().filter(|_| entry.weight > 0);
        match (before, after) {
            (Some((before, weight)), Some(after)) if before.has_bounds_of(after) => {
                if entry.weight != weight {
                    work.give(entry.id, after, entry.weight - weight);
                }
            }
            (before, after) => {
                if let Some((before, weight)) = before {
                    work.give(entry.id, before, -weight);
                }
                if let Some(after) = after {
                    work.give(entry.id, after, entry.weight);
                }
            }
        }
    }
}
