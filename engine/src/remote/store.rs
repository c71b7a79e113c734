//! The address of a checkpoint store: a URL, checked, without secrets.
//!
//! Access keys and the like are read from environment variables (`AWS_*`, `GOOGLE_*`, `AZURE_*`), under the names that the
//! crate `object_store` documents. A URL that holds a password is refused, so that it can be shown anywhere.

use std::fmt;
use std::sync::Arc;

#[cfg(any(test, feature = "hdfs"))]
use object_store::{ObjectStore, path::Path};
use url::Url;

use super::error::RemoteError;
use super::objects::Objects;

/// What addresses look like, for messages.
const EXPECTED: &str = "expected file:///DIR, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, \
                        az://CONTAINER/PREFIX or hdfs://HOST:PORT/DIR";

/// Environment variables that are meant for a store; others of the same names without these beginnings are not.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// Where checkpoints are uploaded to. Holds no connection.
#[derive(Clone)]
pub struct RemoteStore {
    label: String,
    target: Target,
}

#[derive(Clone)]
enum Target {
    Url(Url),
    #[cfg(test)]
    Given(Arc<dyn ObjectStore>),
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteStore").field(&self.label).finish()
    }
}

impl fmt::Display for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

/// Two are equal when they name the same place.
impl PartialEq for RemoteStore {
    fn eq(&self, other: &Self) -> bool {
        self.label == other.label
    }
}

impl RemoteStore {
    /// Reads an address. Does not connect.
    ///
    /// # Errors
    /// `Address` when it is of no known kind, holds a password, or its environment variables do not fit.
    pub fn parse(text: &str) -> Result<Self, RemoteError> {
        let wrong =
            |url: &str, reason: String| Err(RemoteError::Address { url: url.to_string(), reason });
        let url = match Url::parse(text) {
            Ok(url) => url,
            // The text may hold anything: it is not repeated.
            Err(error) => return wrong("URL", format!("{error}; {EXPECTED}")),
        };
        let label = label(&url);
        if url.password().is_some() || url.query().is_some() {
            let reason =
                "access keys and options belong into environment variables, not into the URL";
            return wrong(&label, reason.to_string());
        }
        let store = Self { label, target: Target::Url(url) };
        store.connect()?;
        Ok(store)
    }

    /// Objects that live in this process, for tests.
    #[cfg(test)]
    pub(super) fn given(store: Arc<dyn ObjectStore>) -> Self {
        Self { label: "memory:///".to_string(), target: Target::Given(store) }
    }

    /// A connection of its own, for one runtime.
    pub(super) fn connect(&self) -> Result<Objects, RemoteError> {
        match &self.target {
            Target::Url(url) => connect(url)
                .map_err(|reason| RemoteError::Address { url: self.label.clone(), reason }),
            #[cfg(test)]
            Target::Given(store) => {
                Ok(Objects::new(Arc::clone(store), Path::from("in/here"), None))
            }
        }
    }
}

fn label(url: &Url) -> String {
    let user = Some(url.username()).filter(|user| !user.is_empty());
    let user = user.map_or_else(String::new, |user| format!("{user}@"));
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let path = url.path().trim_end_matches('/');
    format!("{}://{user}{host}{port}{path}", url.scheme())
}

fn connect(url: &Url) -> Result<Objects, String> {
    match url.scheme() {
        "file" | "s3" | "s3a" | "gs" | "az" | "azure" | "adl" | "abfs" | "abfss" => {
            let variables = std::env::vars_os().filter_map(|(name, value)| {
                let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
                PREFIXES.iter().any(|prefix| name.starts_with(prefix)).then_some((name, value))
            });
            let parsed = object_store::parse_url_opts(url, variables);
            let (store, prefix) = parsed.map_err(|error| error.to_string())?;
            let directory = if url.scheme() == "file" { url.to_file_path().ok() } else { None };
            Ok(Objects::new(Arc::from(store), prefix, directory))
        }
        "hdfs" | "viewfs" => connect_hdfs(url),
        other => Err(format!("\"{other}\" is no known kind of store; {EXPECTED}")),
    }
}

#[cfg(feature = "hdfs")]
fn connect_hdfs(url: &Url) -> Result<Objects, String> {
    let store = hdfs_native_object_store::HdfsObjectStoreBuilder::new().with_url(url.as_str());
    let store: Arc<dyn ObjectStore> = Arc::new(store.build().map_err(|error| error.to_string())?);
    let prefix = Path::from_url_path(url.path()).map_err(|error| error.to_string())?;
    Ok(Objects::new(store, prefix, None))
}

#[cfg(not(feature = "hdfs"))]
fn connect_hdfs(_url: &Url) -> Result<Objects, String> {
    Err("this program was built without the feature \"hdfs\"".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_refused_and_not_repeated() {
        for url in ["s3://key:secret@bucket/x", "s3://bucket/x?aws_secret_access_key=secret"] {
            let error = RemoteStore::parse(url).unwrap_err().to_string();
            assert!(error.contains("environment variables"), "{error}");
            assert!(!error.contains("secret@") && !error.contains("=secret"), "{error}");
        }
    }

    #[test]
    fn addresses_are_told_apart_and_shown() {
        for url in
            ["file:///tmp/a%20b/", "s3://bucket/a/b", "abfss://c@account.dfs.core.windows.net/p"]
        {
            let store = RemoteStore::parse(url).expect(url);
            assert_eq!(store.to_string(), url.trim_end_matches('/'));
        }
        assert_eq!(
            RemoteStore::parse("s3://b/x").unwrap(),
            RemoteStore::parse("s3://b/x/").unwrap()
        );
        for (url, reason) in [
            ("/var/backups", "relative URL"),
            ("ftp://host/x", "\"ftp\" is no known kind"),
            ("memory:///", "\"memory\" is no known kind"),
            ("file://host/dir", "host"),
        ] {
            let error = RemoteStore::parse(url).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
