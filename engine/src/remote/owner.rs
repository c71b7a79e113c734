//! Who a checkpoint store belongs to: one object, with the number of one database.
//!
//! It keeps two databases from one prefix, where each would remove the other's files. A database that is restored from the store
//! takes it over; should the old one still run, its next upload sees that and stops.

use serde::{Deserialize, Serialize};

use super::error::RemoteError;
use super::manifest::{FORMAT, MANIFESTS, Manifest, seal, unseal};
use super::objects::Objects;
use super::store::RemoteStore;
use super::{block_on, now_us};

const OWNER: &str = "owner.json";

/// A database, as a store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its number, which no other database has.
    pub id: String,
    /// Its data directory, for people.
    pub place: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    format: u32,
    owner: String,
    place: String,
    since_us: i64,
}

impl Owner {
    fn sealed(&self) -> Result<Vec<u8>, RemoteError> {
        let (owner, place) = (self.id.clone(), self.place.clone());
        seal(&Record { format: FORMAT, owner, place, since_us: now_us() })
    }

    /// Makes sure that the store is this database's; a store of nobody becomes it.
    ///
    /// # Errors
    /// `Foreign`; when the store cannot be asked.
    pub(super) async fn claim(&self, objects: &Objects) -> Result<(), RemoteError> {
        let mut found = objects.get(OWNER).await;
        if matches!(found, Err(RemoteError::Missing { .. })) {
            match objects.put_new(OWNER, self.sealed()?).await {
                // Another one came first, or our own first attempt did arrive.
                Err(RemoteError::Exists { .. }) => found = objects.get(OWNER).await,
                made => return made,
            }
        }
        let record: Record = unseal(OWNER, &found?)?;
        if record.owner == self.id {
            return Ok(());
        }
        Err(RemoteError::Foreign { id: record.owner, place: record.place })
    }

    /// The store is this database's from now on, whoever had it.
    pub(super) async fn take_over(&self, objects: &Objects) -> Result<(), RemoteError> {
        objects.put(OWNER, self.sealed()?).await
    }
}

/// Makes sure that the store is this database's; a store of nobody becomes it. Blocks.
///
/// # Errors
/// `Foreign`; when the store cannot be asked within this time.
pub fn claim(store: &RemoteStore, owner: &Owner, timeout_s: u64) -> Result<(), RemoteError> {
    block_on(async {
        let objects = store.connect()?;
        within(timeout_s, owner.claim(&objects)).await
    })
}

/// Whether there is any checkpoint in the store, good or bad. Blocks.
///
/// # Errors
/// When the store cannot be asked within this time.
pub fn holds_checkpoints(store: &RemoteStore, timeout_s: u64) -> Result<bool, RemoteError> {
    block_on(async {
        let objects = store.connect()?;
        let listed = within(timeout_s, objects.list(MANIFESTS)).await?;
        Ok(listed.keys().any(|name| Manifest::number(name).is_some()))
    })
}

async fn within<T>(
    seconds: u64,
    future: impl Future<Output = Result<T, RemoteError>>,
) -> Result<T, RemoteError> {
    let limit = std::time::Duration::from_secs(seconds);
    match tokio::time::timeout(limit, future).await {
        Ok(done) => done,
        Err(_) => Err(RemoteError::Timeout(seconds)),
    }
}
