//! The options of file sources and sinks, checked, and which files a path means.

use std::fs;
use std::path::{Path, PathBuf};

use millstream_engine::{EngineError, Options, Result};
use serde::Deserialize;

use crate::format::Format;
use crate::format::csv::CsvDialect;
use crate::options::parse_options;

/// How text is compressed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// By the ending of a file.
    pub(crate) fn of(path: &Path) -> Self {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("gz" | "gzip") => Self::Gzip,
            Some("zst" | "zstd") => Self::Zstd,
            _ => Self::None,
        }
    }

    /// The ending that says so.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceOptions {
    path: String,
    format: Option<String>,
    encode: Option<String>,
    compression: Option<Compression>,
    watch: Option<bool>,
    #[serde(rename = "file.split.num", default = "default_split_num")]
    split_num: usize,
    #[serde(rename = "csv.delimiter", alias = "delimiter", alias = "csv.field-delimiter")]
    delimiter: Option<String>,
    #[serde(rename = "csv.header", alias = "header")]
    header: Option<bool>,
    #[serde(rename = "without_header", alias = "csv.without_header")]
    without_header: Option<bool>,
    #[serde(rename = "csv.quote", alias = "csv.quote-character")]
    quote: Option<String>,
    #[serde(rename = "csv.escape", alias = "csv.escape-character")]
    escape: Option<String>,
    #[serde(rename = "csv.comment")]
    comment: Option<String>,
    #[serde(rename = "csv.null", alias = "csv.null-literal")]
    null: Option<String>,
}

fn default_split_num() -> usize {
    2
}

/// A file source's options, checked.
#[derive(Clone, Debug)]
pub(crate) struct SourceConfig {
    pub(crate) location: Location,
    pub(crate) format: Format,
    /// `None`: by each file's ending.
    pub(crate) compression: Option<Compression>,
    /// Whether new files are looked for, for ever.
    pub(crate) watch: bool,
    /// Splits of a Parquet file.
    pub(crate) split_num: usize,
    pub(crate) dialect: CsvDialect,
    pub(crate) header: bool,
}

/// What the path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    File(PathBuf),
    Glob(String),
    /// All files of a directory, or those of one format.
    Directory(PathBuf, Option<Format>),
}

impl SourceConfig {
    pub(crate) fn parse(options: &Options) -> Result<Self> {
        let options: SourceOptions = parse_options("file source", options)?;
        let named = named_format(options.format.as_deref(), options.encode.as_deref())?;
        let mut location = Location::parse(&options.path, named);
        let watch = options.watch.unwrap_or(matches!(location, Location::Directory(..)));
        let format = match named {
            Some(format) => format,
            None => location.guess_format(&options.path)?,
        };
        if let (Location::Directory(_, only), None) = (&mut location, named) {
            *only = Some(format);
        }
        let byte =
            |name, text: &Option<String>| text.as_deref().map(|t| one_byte(name, t)).transpose();
        let dialect = CsvDialect {
            delimiter: byte("csv.delimiter", &options.delimiter)?.unwrap_or(b','),
            quote: byte("csv.quote", &options.quote)?.unwrap_or(b'"'),
            escape: byte("csv.escape", &options.escape)?,
            comment: byte("csv.comment", &options.comment)?,
            null: options.null.unwrap_or_default(),
        };
        if options.split_num == 0 {
            return Err(invalid("file source: option \"file.split.num\" must be at least 1"));
        }
        if !format.is_text() && options.compression.is_some_and(|c| c != Compression::None) {
            return Err(invalid("file source: option \"compression\" is for json and csv only"));
        }
        let header = options.header.unwrap_or(!options.without_header.unwrap_or(false));
        let compression = options.compression;
        let split_num = options.split_num;
        Ok(Self { location, format, compression, watch, split_num, dialect, header })
    }
}

impl Location {
    fn parse(path: &str, only: Option<Format>) -> Self {
        let path = path.strip_prefix("file://").unwrap_or(path);
        if Path::new(path).is_dir() || path.ends_with('/') {
            return Self::Directory(path.into(), only);
        }
        if path.contains(['*', '?', '[']) && !Path::new(path).exists() {
            return Self::Glob(path.into());
        }
        Self::File(path.into())
    }

    /// The format that the files' endings tell.
    fn guess_format(&self, path: &str) -> Result<Format> {
        let unknown = || {
            let message = format!(
                "file source: the format of \"{path}\" cannot be told from its name; set \"format\" to one of: json, \
                 csv, parquet, arrow"
            );
            EngineError::InvalidOption(message)
        };
        match self {
            Self::File(path) => format_of(path).ok_or_else(unknown),
            Self::Glob(pattern) => match format_of(Path::new(pattern)) {
                Some(format) => Ok(format),
                None => {
                    self.files()?.iter().find_map(|(_, path)| format_of(path)).ok_or_else(unknown)
                }
            },
            Self::Directory(..) => {
                self.files()?.iter().find_map(|(_, path)| format_of(path)).ok_or_else(unknown)
            }
        }
    }

    /// The files that are there now, by name: the name says the same after a restart.
    pub(crate) fn files(&self) -> Result<Vec<(String, PathBuf)>> {
        let failed = |what: &dyn std::fmt::Display, error: &dyn std::fmt::Display| {
            EngineError::external(format!("listing {what}"), error)
        };
        let mut files = Vec::new();
        match self {
            Self::File(path) => {
                fs::metadata(path).map_err(|error| failed(&path.display(), &error))?;
                files.push((path.display().to_string(), path.clone()));
            }
            Self::Glob(pattern) => {
                let found = glob::glob(pattern).map_err(|error| {
                    EngineError::InvalidOption(format!(
                        "file source: wrong glob \"{pattern}\": {error}"
                    ))
                })?;
                for path in found {
                    let path = path.map_err(|error| failed(pattern, &error))?;
                    if path.is_file() && !is_hidden(&path) {
                        files.push((path.display().to_string(), path));
                    }
                }
            }
            Self::Directory(directory, only) => {
                let shown = directory.display();
                for entry in fs::read_dir(directory).map_err(|error| failed(&shown, &error))? {
                    let path = entry.map_err(|error| failed(&shown, &error))?.path();
                    let fits = only.is_none_or(|only| format_of(&path) == Some(only));
                    if let Some(name) = path.file_name()
                        && fits
                        && !is_hidden(&path)
                        && path.is_file()
                    {
                        files.push((name.to_string_lossy().into_owned(), path));
                    }
                }
            }
        }
        files.sort();
        Ok(files)
    }

    /// The file of a name.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        match self {
            Self::Directory(directory, _) => directory.join(name),
            Self::File(_) | Self::Glob(_) => name.into(),
        }
    }
}

/// Files that are being written, by custom.
fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_none_or(|name| name.starts_with(['.', '_']))
}

/// By the ending, under that of a compression.
fn format_of(path: &Path) -> Option<Format> {
    let stem = match Compression::of(path) {
        Compression::None => path.to_path_buf(),
        _ => path.with_extension(""),
    };
    Format::from_name(&stem.extension()?.to_str()?.to_ascii_lowercase())
}

/// `FORMAT PLAIN ENCODE JSON`, or `format = 'json'`.
fn named_format(format: Option<&str>, encode: Option<&str>) -> Result<Option<Format>> {
    let mut named = None;
    for (option, value) in [("format", format), ("encode", encode)] {
        let Some(value) = value.map(str::to_ascii_lowercase) else {
            continue;
        };
        if ["plain", "native"].contains(&value.as_str()) {
            continue;
        }
        let Some(format) = Format::from_name(&value) else {
            let message = format!(
                "file: invalid value \"{value}\" for option \"{option}\": expected one of: json, csv, parquet, arrow"
            );
            return Err(EngineError::InvalidOption(message));
        };
        if named.is_some_and(|other| other != format) {
            return Err(invalid("file: options \"format\" and \"encode\" name different formats"));
        }
        named = Some(format);
    }
    Ok(named)
}

/// One ASCII character; a tab may be spelled.
fn one_byte(name: &str, text: &str) -> Result<u8> {
    match text {
        "\\t" | "tab" => Ok(b'\t'),
        _ if text.len() == 1 && text.is_ascii() => Ok(text.as_bytes()[0]),
        _ => {
            let message = format!(
                "file source: invalid value \"{text}\" for option \"{name}\": expected one ASCII character"
            );
            Err(EngineError::InvalidOption(message))
        }
    }
}

fn invalid(message: &str) -> EngineError {
    EngineError::InvalidOption(message.into())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SinkOptions {
    path: String,
    format: Option<String>,
    encode: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    compression: Option<Compression>,
    #[serde(rename = "rollover.rows")]
    rollover_rows: Option<u64>,
    #[serde(rename = "rollover.bytes")]
    rollover_bytes: Option<u64>,
    #[serde(default)]
    changelog: bool,
}

/// A file sink's options, checked.
#[derive(Clone, Debug)]
pub(crate) struct SinkConfig {
    pub(crate) directory: PathBuf,
    pub(crate) format: Format,
    pub(crate) compression: Compression,
    pub(crate) rollover_rows: u64,
    pub(crate) rollover_bytes: u64,
    /// Deletes are written too, and a column `weight`.
    pub(crate) changelog: bool,
}

impl SinkConfig {
    pub(crate) fn parse(options: &Options) -> Result<Self> {
        let options: SinkOptions = parse_options("file sink", options)?;
        let format = named_format(options.format.as_deref(), options.encode.as_deref())?;
        let Some(format) = format else {
            return Err(invalid(
                "file sink: option \"format\" is missing: json, csv, parquet or arrow",
            ));
        };
        let changelog = match options.kind.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("append-only") => options.changelog,
            Some("changelog") => true,
            Some(other) => {
                let message = format!(
                    "file sink: invalid value \"{other}\" for option \"type\": expected one of: append-only, changelog"
                );
                return Err(EngineError::InvalidOption(message));
            }
        };
        let compression = options.compression.unwrap_or(Compression::None);
        if !format.is_text() && compression != Compression::None {
            return Err(invalid("file sink: option \"compression\" is for json and csv only"));
        }
        let path = options.path.strip_prefix("file://").unwrap_or(&options.path);
        Ok(Self {
            directory: path.into(),
            format,
            compression,
            rollover_rows: options.rollover_rows.unwrap_or(u64::MAX).max(1),
            rollover_bytes: options.rollover_bytes.unwrap_or(u64::MAX).max(1),
            changelog,
        })
    }
}
