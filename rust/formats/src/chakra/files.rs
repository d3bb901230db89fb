//! Which files a path means: a prefix, one of its files, or a folder that holds one prefix.

use super::{ReadOptions, Trace, Usage, decode, one};
use crate::Limit;
use ahbm_machine::Diagnostic;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of a trace in rank order.
///
/// # Errors
/// `AHBM-F139` when the path names no trace, more than one, or one with a missing rank; `AHBM-B206` too many ranks.
pub fn find(path: &Path, options: &ReadOptions) -> Result<Vec<PathBuf>, Diagnostic> {
    let shown = path.display();
    let (folder, wanted) = if path.is_dir() {
        (path.to_path_buf(), None)
    } else {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let prefix = split(name).map_or(name, |(prefix, _)| prefix).to_owned();
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        (folder.to_path_buf(), Some(prefix))
    };
    let listing = fs::read_dir(&folder).map_err(|e| unreadable(&folder, &e))?;
    let mut traces: BTreeMap<String, BTreeMap<u32, PathBuf>> = BTreeMap::new();
    for entry in listing {
        let entry = entry.map_err(|e| unreadable(&folder, &e))?;
        let name = entry.file_name();
        let Some((prefix, rank)) = name.to_str().and_then(split) else { continue };
        if wanted.as_deref().is_none_or(|wanted| wanted == prefix) {
            traces.entry(prefix.to_owned()).or_default().insert(rank, entry.path());
        }
    }
    let mut prefixes = traces.into_iter();
    let (Some((prefix, files)), other) = (prefixes.next(), prefixes.next()) else {
        return Err(Diagnostic::new("AHBM-F139", format!("{shown} names no execution trace"))
            .hint("name a folder, or a prefix P whose files are P.0.et, P.1.et, …"));
    };
    if let Some((second, _)) = other {
        return Err(Diagnostic::new("AHBM-F139", format!("{shown} holds several traces: {prefix}, {second}, …"))
            .hint("name one of them by its prefix"));
    }
    options.budget.check(Limit::Ranks, files.len() as u64)?;
    if let Some((expected, (&found, _))) = (0..).zip(&files).find(|(expected, (found, _))| *expected != **found) {
        return Err(Diagnostic::new(
            "AHBM-F139",
            format!("{prefix}.{expected}.et is missing, {prefix}.{found}.et is there"),
        )
        .site("in", folder.display().to_string())
        .hint("the files of a trace are numbered from 0 without gaps"));
    }
    Ok(files.into_values().collect())
}

/// Whether `path` can only mean a trace: one of its files, a prefix, or a folder.
pub fn is_trace(path: &Path) -> bool {
    let first = || {
        let mut name = path.as_os_str().to_owned();
        name.push(".0.et");
        Path::new(&name).is_file()
    };
    path.extension().is_some_and(|e| e == "et") || path.is_dir() || (!path.is_file() && first())
}

/// `ring.3.et` is rank 3 of `ring`; ranks have no padding.
fn split(name: &str) -> Option<(&str, u32)> {
    let (prefix, rank) = name.strip_suffix(".et")?.rsplit_once('.')?;
    let number: u32 = rank.parse().ok()?;
    (number.to_string() == rank).then_some((prefix, number))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::new("AHBM-F139", format!("{} cannot be read: {error}", path.display()))
}

/// Reads the trace that `path` names: a prefix, one of its files, or a folder that holds one prefix.
///
/// # Errors
/// Everything [`find`] and [`super::parse`] report, and what the file system does (`AHBM-F139`).
pub fn read(path: &Path, options: &ReadOptions) -> Result<Trace, Vec<Diagnostic>> {
    let mut usage = Usage::default();
    let mut graphs = Vec::new();
    for (rank, path) in (0..).zip(find(path, options).map_err(one)?) {
        let size = fs::metadata(&path).map_err(|e| one(unreadable(&path, &e)))?.len();
        options.budget.check(Limit::FileBytes, usage.file_bytes.saturating_add(size)).map_err(one)?;
        let bytes = fs::read(&path).map_err(|e| one(unreadable(&path, &e)))?;
        let file: Arc<str> = path.to_string_lossy().into();
        graphs.push(decode::graph(rank, &file, &bytes, options, &mut usage)?);
    }
    let name = path.file_name().and_then(|n| n.to_str()).map_or("trace", |n| split(n).map_or(n, |(prefix, _)| prefix));
    Ok(Trace { name: name.to_owned(), graphs })
}

/// Writes `<prefix>.<rank>.et` for every rank; the folder must exist.
///
/// # Errors
/// `AHBM-F139` what the file system reports.
pub fn write(trace: &Trace, prefix: &Path) -> Result<Vec<PathBuf>, Diagnostic> {
    let mut written = Vec::new();
    for graph in &trace.graphs {
        let mut name = prefix.as_os_str().to_owned();
        name.push(format!(".{}.et", graph.rank));
        let path = PathBuf::from(name);
        fs::write(&path, decode::encode(&graph.metadata, &graph.nodes))
            .map_err(|e| Diagnostic::new("AHBM-F139", format!("{} cannot be written: {e}", path.display())))?;
        written.push(path);
    }
    Ok(written)
}
