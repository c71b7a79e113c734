//! The configuration of `serve` and `demo`: flag, then environment, then file, then default.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use millstream::{EngineConfig, ServerConfig, Setting};
use serde::Deserialize;

use super::Failure;
use super::checkpoint_flags::CheckpointFlags;

pub(super) const PRECEDENCE: &str = "\
Each option is taken from the first of: its flag, its environment variable, its key in the --config file, what
ALTER SYSTEM has set in the database, its default.
The file may also hold the sections [server] and [engine] with all limits and intervals; see docs/operations.md.";

const DATA_DIR: &str = "millstream-data";

/// Flags that `serve` and `demo` share.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct CommonFlags {
    /// Address for Postgres clients [env: MILLSTREAM_PG_ADDR] [file: pg_addr] [default: 127.0.0.1:7432]
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) pg_addr: Option<String>,
    /// Address for health and metrics [env: MILLSTREAM_HTTP_ADDR] [file: http_addr] [default: 127.0.0.1:7480]
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) http_addr: Option<String>,
    /// Tasks per query fragment, and worker threads [env: MILLSTREAM_PARALLELISM] [file: parallelism] [default: cores]
    #[arg(long, value_name = "N")]
    pub(super) parallelism: Option<String>,
    #[command(flatten)]
    pub(super) checkpoint: CheckpointFlags,
    /// What to log: error, warn, info, debug, or per module [env: MILLSTREAM_LOG] [file: log] [default: info]
    #[arg(long, value_name = "FILTER")]
    pub(super) log: Option<String>,
    /// A TOML file with any of these options [env: MILLSTREAM_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

/// Flags that say where data lives.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct StorageFlags {
    /// Directory of the database [env: MILLSTREAM_DATA_DIR] [file: data_dir] [default: ./millstream-data]
    #[arg(long, value_name = "DIR", conflicts_with = "in_memory")]
    pub(super) data_dir: Option<PathBuf>,
    /// No directory: all in memory [env: MILLSTREAM_IN_MEMORY=true] [file: in_memory = true]
    #[arg(long)]
    pub(super) in_memory: bool,
    /// Upload checkpoints to this object store: file:///DIR, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX
    /// [env: MILLSTREAM_CHECKPOINT_STORE] [file: [engine] checkpoint_store] [default: none]
    #[arg(long, value_name = "URL", conflicts_with = "in_memory")]
    pub(super) checkpoint_store: Option<String>,
}

/// The TOML file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FileConfig {
    data_dir: Option<PathBuf>,
    in_memory: Option<bool>,
    pg_addr: Option<String>,
    http_addr: Option<String>,
    parallelism: Option<usize>,
    log: Option<String>,
    server: ServerConfig,
    engine: EngineConfig,
}

/// What is in force.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resolved {
    /// `None`: in memory.
    pub(super) data_dir: Option<PathBuf>,
    pub(super) server: ServerConfig,
    pub(super) engine: EngineConfig,
    pub(super) log: String,
}

/// Looks an environment variable up; tests have their own.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The process's environment; an empty variable counts as absent.
pub(super) fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Puts the layers together.
///
/// # Errors
/// When the file cannot be read or has unknown keys, or a value is not of its kind; the text names the option.
pub(super) fn resolve(
    flags: &CommonFlags,
    storage: &StorageFlags,
    environment: Environment<'_>,
) -> Result<Resolved, Failure> {
    let path = flags.config.clone().or_else(|| environment("MILLSTREAM_CONFIG").map(PathBuf::from));
    let file = path.as_deref().map(read_file).transpose()?.unwrap_or_default();
    let (mut server, mut engine) = (file.server.clone(), file.engine.clone());
    let address = |flag: &Option<String>, name, key: &Option<String>| -> Result<_, Failure> {
        pick(flag.clone(), environment, name)?
            .or(key.clone())
            .map(|text| resolve_address(&text))
            .transpose()
    };
    if let Some(addr) = address(&flags.pg_addr, "MILLSTREAM_PG_ADDR", &file.pg_addr)? {
        server.pg_addr = addr;
    }
    if let Some(addr) = address(&flags.http_addr, "MILLSTREAM_HTTP_ADDR", &file.http_addr)? {
        server.http_addr = addr;
    }
    let tasks =
        flags.parallelism.as_deref().map(|text| parsed("--parallelism", text)).transpose()?;
    let tasks = pick(tasks, environment, "MILLSTREAM_PARALLELISM")?.or(file.parallelism);
    if let Some(tasks) = tasks {
        engine.parallelism = tasks;
        engine.given.insert(Setting::Parallelism);
    }
    if engine.parallelism == 0 {
        return Err(Failure::usage("parallelism must be at least 1"));
    }
    flags.checkpoint.apply(environment, &mut engine)?;
    if engine.checkpoint_retained == 0 {
        return Err(Failure::usage("checkpoint_retained must be at least 1"));
    }
    let flag = storage.checkpoint_store.clone();
    if let Some(url) = pick(flag, environment, "MILLSTREAM_CHECKPOINT_STORE")? {
        engine.checkpoint_store = Some(url);
    }
    let log = pick(flags.log.clone(), environment, "MILLSTREAM_LOG")?.or(file.log.clone());
    let data_dir = data_dir(storage, environment, &file)?;
    Ok(Resolved { data_dir, server, engine, log: log.unwrap_or_else(|| "info".to_string()) })
}

/// The first layer that says anything about where data lives decides, whichever way.
fn data_dir(
    flags: &StorageFlags,
    environment: Environment<'_>,
    file: &FileConfig,
) -> Result<Option<PathBuf>, Failure> {
    if flags.in_memory {
        return Ok(None);
    }
    if let Some(directory) = &flags.data_dir {
        return Ok(Some(directory.clone()));
    }
    let in_memory: Option<bool> = pick(None, environment, "MILLSTREAM_IN_MEMORY")?;
    let directory = environment("MILLSTREAM_DATA_DIR").map(PathBuf::from);
    for (where_from, in_memory, directory) in [
        ("the environment", in_memory, directory),
        ("the configuration file", file.in_memory, file.data_dir.clone()),
    ] {
        match (in_memory, directory) {
            (Some(true), Some(_)) => {
                let text = format!("{where_from} asks for both in_memory and data_dir");
                return Err(Failure::usage(text));
            }
            (Some(true), None) => return Ok(None),
            (_, Some(directory)) => return Ok(Some(directory)),
            (Some(false), None) => return Ok(Some(DATA_DIR.into())),
            (None, None) => {}
        }
    }
    Ok(Some(DATA_DIR.into()))
}

fn read_file(path: &Path) -> Result<FileConfig, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("configuration file {shown}: {error}")))?;
    parse_file(&text)
        .map_err(|error| Failure::usage(format!("configuration file {shown}: {error}")))
}

fn parse_file(text: &str) -> Result<FileConfig, String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    // These have their places at the top, where the flags' names are.
    for (section, keys) in
        [("server", ["pg_addr", "http_addr"].as_slice()), ("engine", &["parallelism"])]
    {
        let section_table = table.get(section).and_then(toml::Value::as_table);
        for key in keys {
            if table.contains_key(*key)
                && section_table.is_some_and(|found| found.contains_key(*key))
            {
                return Err(format!("{key} is given twice: at the top and in [{section}]"));
            }
        }
    }
    let mut config: FileConfig = toml::from_str(text).map_err(|error| error.to_string())?;
    let engine = table.get("engine").and_then(toml::Value::as_table);
    let said = |setting: &Setting| engine.is_some_and(|keys| keys.contains_key(setting.key()));
    config.engine.given = Setting::ALL.into_iter().filter(said).collect();
    Ok(config)
}

/// The flag, or the environment.
fn pick<T: FromStr>(
    flag: Option<T>,
    environment: Environment<'_>,
    name: &str,
) -> Result<Option<T>, Failure>
where
    T::Err: std::fmt::Display,
{
    match flag {
        Some(value) => Ok(Some(value)),
        None => environment(name).map(|text| parsed(name, &text)).transpose(),
    }
}

fn parsed<T: FromStr>(name: &str, text: &str) -> Result<T, Failure>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| Failure::usage(format!("{name}: \"{text}\": {error}")))
}

/// `localhost:7432` is an address too.
fn resolve_address(text: &str) -> Result<SocketAddr, Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("address \"{text}\": {why} (expected HOST:PORT)"))
    };
    let mut found =
        std::net::ToSocketAddrs::to_socket_addrs(text).map_err(|error| wrong(&error))?;
    let first = found.next().ok_or_else(|| wrong(&"it has no address"))?;
    // Where a name has both, clients that write 127.0.0.1 are the more common ones.
    Ok(found.find(SocketAddr::is_ipv4).filter(|_| !first.is_ipv4()).unwrap_or(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn with_file(text: &str) -> (tempfile::NamedTempFile, CommonFlags) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let config = Some(file.path().to_path_buf());
        (file, CommonFlags { config, ..CommonFlags::default() })
    }

    #[test]
    fn defaults() {
        let resolved =
            resolve(&CommonFlags::default(), &StorageFlags::default(), &nothing).unwrap();
        assert_eq!(resolved.data_dir.unwrap(), Path::new("millstream-data"));
        assert_eq!(resolved.server, ServerConfig::default());
        assert_eq!(resolved.engine, EngineConfig::default());
        assert_eq!(resolved.log, "info");
    }

    #[test]
    fn flag_before_environment_before_file() {
        let text = "parallelism = 3\npg_addr = \"127.0.0.1:1\"\nhttp_addr = \"127.0.0.1:2\"\nlog = \"warn\"\n\
                    [engine]\nbarrier_interval_ms = 50\n[server]\nconnections_max = 7\n";
        let (_file, mut flags) = with_file(text);
        let environment = |name: &str| match name {
            "MILLSTREAM_PG_ADDR" => Some("127.0.0.1:10".to_string()),
            "MILLSTREAM_HTTP_ADDR" => Some("localhost:20".to_string()),
            _ => None,
        };
        flags.pg_addr = Some("127.0.0.1:100".to_string());
        let resolved = resolve(&flags, &StorageFlags::default(), &environment).unwrap();
        assert_eq!(resolved.server.pg_addr.port(), 100);
        assert_eq!(resolved.server.http_addr.to_string(), "127.0.0.1:20");
        assert_eq!(resolved.engine.parallelism, 3);
        assert_eq!(resolved.engine.given, [Setting::Parallelism].into());
        assert_eq!(resolved.engine.barrier_interval_ms, 50);
        assert_eq!(resolved.server.connections_max, 7);
        assert_eq!(resolved.log, "warn");
    }

    #[test]
    fn the_first_layer_that_speaks_decides_where_data_lives() {
        let (_file, flags) = with_file("data_dir = \"from-file\"");
        let memory = StorageFlags { in_memory: true, ..StorageFlags::default() };
        assert_eq!(resolve(&flags, &memory, &nothing).unwrap().data_dir, None);
        let environment = |name: &str| (name == "MILLSTREAM_IN_MEMORY").then(|| "true".to_string());
        let none = StorageFlags::default();
        assert_eq!(resolve(&flags, &none, &environment).unwrap().data_dir, None);
        let directory = resolve(&flags, &none, &nothing).unwrap().data_dir;
        assert_eq!(directory.unwrap(), Path::new("from-file"));
        let flag = StorageFlags { data_dir: Some("flag".into()), ..StorageFlags::default() };
        assert_eq!(
            resolve(&flags, &flag, &environment).unwrap().data_dir.unwrap(),
            Path::new("flag")
        );
    }

    #[test]
    fn the_checkpoint_store_comes_from_flag_environment_or_file() {
        let (_file, flags) = with_file("[engine]\ncheckpoint_store = \"file:///a\"");
        let store = |storage: &StorageFlags, environment: Environment<'_>| {
            resolve(&flags, storage, environment).unwrap().engine.checkpoint_store.unwrap()
        };
        let environment =
            |name: &str| (name == "MILLSTREAM_CHECKPOINT_STORE").then(|| "file:///b".to_string());
        let none = StorageFlags::default();
        assert_eq!(store(&none, &nothing), "file:///a");
        assert_eq!(store(&none, &environment), "file:///b");
        let flag = StorageFlags { checkpoint_store: Some("file:///c".into()), ..none };
        assert_eq!(store(&flag, &environment), "file:///c");
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let message = |text: &str| {
            let (_file, flags) = with_file(text);
            let failure = resolve(&flags, &StorageFlags::default(), &nothing).unwrap_err();
            assert_eq!(failure.code, Failure::USAGE);
            failure.message.unwrap()
        };
        assert!(message("pgaddr = 1").contains("unknown field `pgaddr`"));
        assert!(message("[engine]\nbatch_row = 1").contains("unknown field `batch_row`"));
        assert!(message("pg_addr = \"x\"").contains("expected HOST:PORT"));
        assert!(message("parallelism = 0").contains("at least 1"));
        assert!(message("[engine]\ncheckpoint_retained = 0").contains("checkpoint_retained"));
        assert!(message("parallelism = 2\n[engine]\nparallelism = 3").contains("given twice"));
        assert!(message("in_memory = true\ndata_dir = \"x\"").contains("both"));
        let environment = |name: &str| (name == "MILLSTREAM_PARALLELISM").then(|| "x".to_string());
        let failure = resolve(&CommonFlags::default(), &StorageFlags::default(), &environment);
        assert!(failure.unwrap_err().message.unwrap().contains("MILLSTREAM_PARALLELISM"));
    }
}
