//! State tables that are read while the database runs: what is durable, and what is on its way there.
//!
//! A table is read bucket by bucket (see `paged.rs`). What a reader gets is the sum of the blocks of the newest checkpoint and of
//! all changes that the task has handed over since: its state at its last checkpoint barrier, durable or not. A [`View`] is a
//! moment of it that stays readable as long as it is held: its blocks are dropped only when nobody does any more, be it after a
//! restart of the dataflow or the end of the relation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;

use super::StateKind;
use super::backend::StateBackend;
use super::block;
use super::layout::{BlockRecord, TableKey, damaged};
use super::occupied::Occupied;
use super::paged::{
    PLACE_BITS, Places, bucket_bits, covered, number_of, read_all, read_buckets, read_into,
};
use super::resident::Resident;
use super::sorted::Sorted;
use crate::change_batch::ChangeBatch;
use crate::error::Result;
use crate::plan::RelationId;
use crate::time::Epoch;

pub(crate) mod merging;
mod parts;
pub(crate) mod sweep;

/// Rows that a scan adds up at once, about; ...
const SCAN_ROWS: u64 = if cfg!(test) { 16 } else { 32 * 1024 };
/// ... and their bytes.
const SCAN_BYTES: u64 = 16 << 20;

/// Into how many parts (2 to the power of it) so much is divided that is added up part by part.
pub(crate) fn scan_bits(rows: u64, bytes: u64) -> u8 {
    (rows / SCAN_ROWS).max(bytes / SCAN_BYTES).max(1).ilog2() as u8
}

/// A block that may be in use.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) record: BlockRecord,
}

/// Changes that were handed over and are not durable.
#[derive(Debug)]
pub(crate) struct Pending {
    epoch: Epoch,
    changes: ChangeBatch,
    sorted: OnceLock<Arc<Sorted>>,
}

/// A table at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) blocks: Vec<Arc<Block>>,
    pending: Vec<Arc<Pending>>,
}

impl View {
    /// Rows of all changes that it is the sum of.
    pub(crate) fn rows(&self) -> u64 {
        let blocks: u64 = self.blocks.iter().map(|block| block.record.rows).sum();
        blocks + self.pending.iter().map(|pending| pending.changes.num_rows() as u64).sum::<u64>()
    }

    /// Whether nothing in it takes away from anything else in it.
    pub(crate) fn only_adds(&self, kind: &StateKind) -> bool {
        let mut pending = self.pending.iter();
        self.blocks.iter().all(|block| !block.record.takes_away)
            && pending.all(|pending| !block::takes_away(kind, &pending.changes, false))
    }
}

/// One state table of one task.
#[derive(Debug)]
pub(crate) struct Stored {
    backend: Arc<dyn StateBackend>,
    key: TableKey,
    kind: StateKind,
    schema: SchemaRef,
    /// Where rows of a key are; absent where the table is never read by key.
    places: Option<Places>,
    view: Mutex<Arc<View>>,
    /// Somebody reads it bucket by bucket: changes that are handed over are noted here, and blocks are cut into pages.
    is_read: AtomicBool,
    /// Everything that was handed over up to this epoch is durable.
    durable: AtomicU64,
    /// Where it has rows, as far as that has been seen.
    occupied: Mutex<Occupied>,
}

impl Stored {
    /// A table with these blocks. `places`: how it is read by key.
    pub(crate) fn new(
        (backend, key, kind, schema): (Arc<dyn StateBackend>, TableKey, StateKind, SchemaRef),
        places: Option<Places>,
        blocks: Vec<Arc<Block>>,
    ) -> Self {
        Self {
            backend,
            key,
            kind,
            schema,
            places,
            view: Mutex::new(Arc::new(View { blocks, pending: Vec::new() })),
            is_read: AtomicBool::new(false),
            durable: AtomicU64::new(0),
            occupied: Mutex::default(),
        }
    }

    pub(crate) fn kind(&self) -> &StateKind {
        &self.kind
    }

    pub(crate) fn places(&self) -> Option<&Places> {
        self.places.as_ref()
    }

    /// The table as it was handed over last.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock())
    }

    pub(crate) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }

    /// Everything that was handed over up to here in this run is durable.
    pub(crate) fn durable(&self) -> Epoch {
        Epoch(self.durable.load(Ordering::Acquire))
    }

    /// From here on all changes are noted: [`Self::view`] holds them. What was handed over before counts when it is durable.
    pub(crate) fn start_reading(&self) {
        self.is_read.store(true, Ordering::Release);
    }

    /// Notes changes that are handed over at a checkpoint barrier.
    pub(crate) fn hand_over(&self, epoch: Epoch, changes: &[ChangeBatch]) {
        if !self.is_read() || changes.is_empty() {
            return;
        }
        let mut view = self.view.lock();
        let mut next = View::clone(&view);
        next.pending.extend(changes.iter().map(|changes| {
            Arc::new(Pending { epoch, changes: changes.clone(), sorted: OnceLock::new() })
        }));
        *view = Arc::new(next);
    }

    /// The blocks are these from now on, and hold everything up to this epoch (if one is given). Gives those that are no more.
    fn replace(&self, list: &[BlockRecord], durable: Option<Epoch>) -> Vec<Arc<Block>> {
        let mut view = self.view.lock();
        let mut old: BTreeMap<u64, Arc<Block>> =
            view.blocks.iter().map(|block| (block.record.number, Arc::clone(block))).collect();
        let blocks = list.iter().map(|&record| match old.remove(&record.number) {
            Some(block) => block,
            None => Arc::new(Block { record }),
        });
        let blocks = blocks.collect();
        let mut pending = view.pending.clone();
        if let Some(durable) = durable {
            pending.retain(|pending| pending.epoch > durable);
            self.durable.store(durable.0, Ordering::Release);
        }
        *view = Arc::new(View { blocks, pending });
        old.into_values().collect()
    }

    fn sorted(&self, pending: &Pending) -> Result<Arc<Sorted>> {
        if let Some(sorted) = pending.sorted.get() {
            return Ok(Arc::clone(sorted));
        }
        let sorted = match &self.places {
            Some(places) => Sorted::new(places, vec![pending.changes.clone()])?,
            None => Sorted::at_one_place(pending.changes.clone())?,
        };
        let sorted = Arc::new(sorted);
        Ok(Arc::clone(pending.sorted.get_or_init(|| sorted)))
    }

    /// The contents of these buckets, given in ascending order.
    ///
    /// # Errors
    /// When the store cannot be read, or is damaged.
    pub(crate) fn read(&self, view: &View, buckets: &[u32], bits: u8) -> Result<ChangeBatch> {
        self.read_seeing(view, buckets, bits, &mut |_| ())
    }

    /// As [`Self::read`]; shows the places of all rows of the pages that it reads.
    fn read_seeing(
        &self,
        view: &View,
        buckets: &[u32],
        bits: u8,
        see: &mut dyn FnMut(&[u32]),
    ) -> Result<ChangeBatch> {
        let mut found = Vec::new();
        let places = parts::places_of(self)?;
        for block in &view.blocks {
            let (backend, wanted) = (&*self.backend, (buckets, bits));
            read_buckets(backend, &self.key, &block.record, places, wanted, see, &mut found)?;
        }
        for pending in &view.pending {
            let rows = self.sorted(pending)?.select(buckets, bits)?;
            if !rows.is_empty() {
                found.push(rows);
            }
        }
        self.sum(&found)
    }

    /// The contents of these buckets, given in ascending order, for one who holds them from now on, and is the only one to
    /// change them. Those that are known to be empty are not read.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn load(&self, buckets: &[u32], bits: u8) -> Result<ChangeBatch> {
        let mut occupied = self.occupied.lock();
        if bits < PLACE_BITS {
            // Whoever holds everything puts rows anywhere.
            occupied.forget();
            return self.read(&self.view(), buckets, bits);
        }
        let wanted = buckets.iter().copied().filter(|&place| occupied.may_have(place));
        let wanted: Vec<u32> = wanted.collect();
        if wanted.is_empty() {
            occupied.add(buckets);
            return Ok(ChangeBatch::empty(Arc::clone(&self.schema)));
        }
        let (view, age) = (self.view(), occupied.age());
        let rows = self.read_seeing(&view, &wanted, bits, &mut |places| occupied.add(places))?;
        // What has been seen of all blocks: the pages of that which is cut finest.
        let page_bits = view.blocks.iter().map(|block| block.record.pages).max().unwrap_or(0);
        let mut pages: Vec<u32> = wanted.iter().map(|&place| number_of(place, page_bits)).collect();
        pages.dedup();
        for pending in &view.pending {
            let sorted = self.sorted(pending)?;
            for &page in &pages {
                occupied.add(&sorted.places()[sorted.range(covered(page, page_bits))]);
            }
        }
        pages.iter().for_each(|&page| occupied.learn(page, page_bits, age));
        occupied.add(buckets);
        Ok(rows)
    }

    /// Whoever holds these buckets, which were not loaded by [`Self::load`], may put rows there from now on.
    pub(crate) fn may_get(&self, buckets: &[u32], bits: u8) {
        let mut occupied = self.occupied.lock();
        if bits < PLACE_BITS {
            occupied.forget();
        } else {
            occupied.add(buckets);
        }
    }

    /// Adds everything up; nothing may be left that takes away.
    fn sum(&self, changes: &[ChangeBatch]) -> Result<ChangeBatch> {
        if changes.is_empty() {
            return Ok(ChangeBatch::empty(Arc::clone(&self.schema)));
        }
        let summed = block::sum(&self.kind, changes, true)?;
        if summed.weights().is_some_and(|weights| weights.iter().any(|weight| *weight < 0)) {
            return Err(damaged("a state table (it does not add up)"));
        }
        Ok(summed)
    }

    /// Parts that are read one by one, each of a size that fits into memory many times.
    pub(crate) fn parts(&self, view: &View) -> usize {
        if self.places.is_none() && view.only_adds(&self.kind) {
            return view.blocks.len() + view.pending.len();
        }
        1 << self.scan_bits(view)
    }

    fn scan_bits(&self, view: &View) -> u8 {
        if self.places.is_none() {
            return 0;
        }
        let records = || view.blocks.iter().map(|block| &block.record);
        let bits = scan_bits(view.rows(), records().map(|record| record.bytes).sum());
        // Uncut blocks are read anew for each part: all that together should be no more than the rest.
        let uncut = records().filter(|record| record.pages == 0 && record.rows >= SCAN_ROWS);
        let uncut: u64 = uncut.map(|record| record.rows).sum();
        let most = view.rows().checked_div(uncut).map(|parts| parts.max(1).ilog2() as u8);
        most.map_or(bits, |most| bits.min(most))
    }

    /// Those rows of one part that lie in buckets which are not in memory.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn cold_part(
        &self,
        view: &View,
        part: usize,
        resident: &Resident,
    ) -> Result<ChangeBatch> {
        let rows = self.read(view, &[part as u32], self.scan_bits(view))?;
        resident.without(parts::places_of(self)?, rows)
    }

    /// The contents of one part.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn part(&self, view: &View, part: usize) -> Result<ChangeBatch> {
        let mut found = Vec::new();
        self.scan(view, part, &mut |rows| {
            found.push(rows);
            Ok(())
        })?;
        match found.len() {
            1 => Ok(found.remove(0)),
            _ => ChangeBatch::concat(&self.schema, &found),
        }
    }

    fn scan(
        &self,
        view: &View,
        part: usize,
        give: &mut dyn FnMut(ChangeBatch) -> Result<()>,
    ) -> Result<()> {
        if self.places.is_none() && view.only_adds(&self.kind) {
            return match view.blocks.get(part) {
                Some(block) => read_all(&*self.backend, &self.key, &block.record, give),
                None => match view.pending.get(part - view.blocks.len()) {
                    Some(pending) => give(pending.changes.clone()),
                    None => Ok(()),
                },
            };
        }
        let bits = self.scan_bits(view);
        let rows = if self.places.is_some() {
            self.read(view, &[part as u32], bits)?
        } else {
            let mut all = Vec::new();
            for block in &view.blocks {
                read_into(&*self.backend, &self.key, &block.record, &mut all)?;
            }
            all.extend(view.pending.iter().map(|pending| pending.changes.clone()));
            self.sum(&all)?
        };
        if rows.is_empty() { Ok(()) } else { give(rows) }
    }

    /// How finely it should be loaded: see [`bucket_bits`].
    pub(crate) fn bucket_bits(&self) -> u8 {
        bucket_bits(self.view().rows())
    }
}

/// The tables of a database that are, or may be, read while it runs.
#[derive(Debug)]
pub(crate) struct Tables {
    backend: Arc<dyn StateBackend>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    tables: BTreeMap<TableKey, Arc<Stored>>,
    /// Blocks that no list names any more, and that somebody may still read.
    retired: Vec<(TableKey, Arc<Block>)>,
    /// Blocks on lists, of tables that are not known here yet, that somebody may read who began before a restart.
    inherited: BTreeMap<(TableKey, u64), Arc<Block>>,
}

impl Inner {
    /// The block of this record, as it is known to whoever reads it.
    fn block(&mut self, key: TableKey, record: BlockRecord) -> Arc<Block> {
        let known = self.inherited.remove(&(key, record.number));
        known.unwrap_or_else(|| Arc::new(Block { record }))
    }
}

/// Blocks of a list, by table.
pub(crate) type Lists = BTreeMap<TableKey, Vec<BlockRecord>>;

impl Tables {
    pub(crate) fn new(backend: Arc<dyn StateBackend>) -> Arc<Self> {
        Arc::new(Self { backend, inner: Mutex::default() })
    }

    /// Of a dataflow that takes the place of another one in this process: whoever reads blocks of that one goes on reading them.
    /// `lists`: what there is now.
    pub(crate) fn in_place_of(previous: &Self, lists: &Lists) -> Arc<Self> {
        let tables = Self::new(Arc::clone(&previous.backend));
        let (mut inner, before) = (tables.inner.lock(), previous.inner.lock());
        let held = before.tables.iter().flat_map(|(key, stored)| {
            let view = stored.view();
            view.blocks.iter().map(|block| (*key, Arc::clone(block))).collect::<Vec<_>>()
        });
        let waiting = before.inherited.iter().map(|((key, _), block)| (*key, Arc::clone(block)));
        let retired = before.retired.iter().cloned();
        for (key, block) in held.chain(waiting).chain(retired) {
            let (number, list) = (block.record.number, lists.get(&key));
            if list.is_some_and(|list| list.iter().any(|record| record.number == number)) {
                inner.inherited.insert((key, number), block);
            } else {
                inner.retired.push((key, block));
            }
        }
        drop(inner);
        tables
    }

    /// Blocks that no list names and that somebody may still read: their keys.
    pub(crate) fn retired(&self) -> BTreeSet<Vec<u8>> {
        let inner = self.inner.lock();
        inner.retired.iter().map(|(key, block)| key.block(block.record.number)).collect()
    }

    /// Adds a table, with the blocks that it has. `places`: how it is read by key.
    pub(crate) fn add(
        &self,
        key: TableKey,
        kind: StateKind,
        schema: SchemaRef,
        places: Option<Places>,
        list: &[BlockRecord],
    ) -> Arc<Stored> {
        let mut inner = self.inner.lock();
        let blocks = list.iter().map(|&record| inner.block(key, record)).collect();
        let own = (Arc::clone(&self.backend), key, kind, schema);
        let stored = Arc::new(Stored::new(own, places, blocks));
        inner.tables.insert(key, Arc::clone(&stored));
        stored
    }

    pub(crate) fn get(&self, key: &TableKey) -> Option<Arc<Stored>> {
        self.inner.lock().tables.get(key).map(Arc::clone)
    }

    /// The lists of these tables have changed, durably; blocks that a table had and has no more go as soon as nobody reads
    /// them. `all` is where lists are that may not be known here.
    pub(crate) fn replaced(
        &self,
        key: TableKey,
        old: &[BlockRecord],
        new: &[BlockRecord],
        durable: Option<Epoch>,
    ) {
        let stored = self.get(&key);
        let mut gone = match &stored {
            Some(stored) => stored.replace(new, durable),
            None => Vec::new(),
        };
        let mut inner = self.inner.lock();
        if stored.is_none() {
            let kept: BTreeSet<u64> = new.iter().map(|record| record.number).collect();
            let old = old.iter().filter(|record| !kept.contains(&record.number));
            gone.extend(old.map(|&record| inner.block(key, record)));
        }
        inner.retired.extend(gone.into_iter().map(|block| (key, block)));
    }

    /// What a task handed over up to this epoch is durable, also where it did not change a list.
    pub(crate) fn written(&self, relation: RelationId, fragment: u16, task: u16, epoch: Epoch) {
        let first = TableKey { relation, fragment, node: 0, table: 0, task: 0 };
        let last = TableKey { node: u16::MAX, table: u8::MAX, task: u16::MAX, ..first };
        let inner = self.inner.lock();
        for (key, stored) in inner.tables.range(first..=last) {
            if key.task != task || stored.durable() >= epoch {
                continue;
            }
            let mut view = stored.view.lock();
            if view.pending.iter().any(|pending| pending.epoch <= epoch) {
                let mut next = View::clone(&view);
                next.pending.retain(|pending| pending.epoch > epoch);
                *view = Arc::new(next);
            }
            stored.durable.store(epoch.0, Ordering::Release);
        }
    }

    /// Blocks to be dropped now: nobody reads them.
    pub(crate) fn take_retired(&self) -> Vec<(TableKey, BlockRecord)> {
        let mut inner = self.inner.lock();
        let (free, used) = std::mem::take(&mut inner.retired)
            .into_iter()
            .partition::<Vec<_>, _>(|(_, block)| Arc::strong_count(block) == 1);
        inner.retired = used;
        free.into_iter().map(|(key, block)| (key, block.record)).collect()
    }

    /// Whether somebody may still read blocks of this relation.
    pub(crate) fn is_read(&self, relation: RelationId) -> bool {
        let inner = self.inner.lock();
        let shared = |block: &Arc<Block>| Arc::strong_count(block) > 1;
        let mut tables = inner.tables.iter().filter(|(key, _)| key.relation == relation);
        let mut inherited = inner.inherited.iter().filter(|((key, _), _)| key.relation == relation);
        let mut retired = inner.retired.iter().filter(|(key, _)| key.relation == relation);
        tables.any(|(_, stored)| {
            let view = stored.view.lock();
            let is_shared = Arc::strong_count(stored) > 1 || Arc::strong_count(&view) > 1;
            is_shared || view.blocks.iter().any(shared)
        }) || inherited.any(|(_, block)| shared(block))
            || retired.any(|(_, block)| shared(block))
    }

    /// A relation is no more; its blocks, which are on these lists, go as soon as nobody reads them.
    pub(crate) fn end(&self, relation: RelationId, lists: &[(TableKey, Vec<BlockRecord>)]) {
        let ended: Vec<_> = {
            let mut inner = self.inner.lock();
            let ended = inner.tables.extract_if(.., |key, _| key.relation == relation);
            ended.collect()
        };
        for (key, stored) in ended {
            let blocks = stored.view().blocks.clone();
            let blocks = blocks.into_iter().map(|block| ((key, block.record.number), block));
            self.inner.lock().inherited.extend(blocks);
        }
        for (key, list) in lists {
            self.replaced(*key, list, &[], None);
        }
        let mut inner = self.inner.lock();
        let Inner { inherited, retired, .. } = &mut *inner;
        let rest = inherited.extract_if(.., |(key, _), _| key.relation == relation);
        retired.extend(rest.map(|((key, _), block)| (key, block)));
    }

    /// A relation is no more, and neither are its blocks.
    pub(crate) fn forget(&self, relation: RelationId) {
        let mut inner = self.inner.lock();
        inner.tables.retain(|key, _| key.relation != relation);
        inner.inherited.retain(|(key, _), _| key.relation != relation);
        inner.retired.retain(|(key, _)| key.relation != relation);
    }
}

#[cfg(test)]
mod tests;
