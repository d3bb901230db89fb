//! Which files a path means: a prefix, one of its files, or a folder that holds one prefix.

use super::{Graph, ReadOptions, Trace, Usage, graph_of, json, one};
use ahbm_findings::Diagnostic;
use ahbm_plan::Limit;
use ahbm_wire::chakra::{encode, of_rank, prefix, refuse_foreign, split};
use ahbm_wire::load::load;
use ahbm_wire::store::Output;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of a trace in rank order: `P.0.et`, `P.1.et`, …, or the same in `.json`. Where the path does not end in one of
/// both, `.et` files go first, and JSON counts where it is a trace. A JSON file whose name has no number is a trace of one
/// rank.
///
/// # Errors
/// `AHBM-F139` when the path names no trace, more than one, or one with a missing rank; `AHBM-B206` too many ranks.
pub fn find(path: &Path, options: &ReadOptions) -> Result<Vec<PathBuf>, Diagnostic> {
    let shown = path.display();
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let ends = named_ending(path);
    if ends == Some(".json") && split(name, ".json").is_none() && !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut kind = ends.unwrap_or(".et");
    let mut traces = listed(path, kind)?;
    if traces.is_empty() && ends.is_none() {
        kind = ".json";
        traces = listed(path, kind)?;
        traces.retain(|_, files| files.values().next().is_some_and(|first| is_json_trace(first)));
    }
    let mut prefixes = traces.into_iter();
    let (Some((prefix, files)), other) = (prefixes.next(), prefixes.next()) else {
        return Err(Diagnostic::new("AHBM-F139", format!("{shown} names no execution trace")).hint(
            "name a folder, or a prefix P whose files are P.0.et, P.1.et, … or P.0.json, P.1.json, …; of PyTorch's traces, \
             the file of a rank",
        ));
    };
    if let Some((second, _)) = other {
        return Err(Diagnostic::new("AHBM-F139", format!("{shown} holds several traces: {prefix}, {second}, …"))
            .hint("name one of them by its prefix"));
    }
    options.budget.check(Limit::Ranks, files.len() as u64)?;
    if let Some((expected, (&found, _))) = (0..).zip(&files).find(|(expected, (found, _))| *expected != **found) {
        return Err(Diagnostic::new(
            "AHBM-F139",
            format!("{prefix}.{expected}{kind} is missing, {prefix}.{found}{kind} is there"),
        )
        .site("in", folder_of(path).display().to_string())
        .hint("the files of a trace are numbered from 0 without gaps"));
    }
    Ok(files.into_values().collect())
}

/// The numbered files of every trace that a path can mean, by prefix.
fn listed(path: &Path, kind: &str) -> Result<BTreeMap<String, BTreeMap<u32, PathBuf>>, Diagnostic> {
    let wanted = (!path.is_dir()).then(|| prefix(path, kind));
    let folder = folder_of(path);
    let mut traces: BTreeMap<String, BTreeMap<u32, PathBuf>> = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(|e| unreadable(folder, &e))? {
        let entry = entry.map_err(|e| unreadable(folder, &e))?;
        let name = entry.file_name();
        let Some((prefix, rank)) = name.to_str().and_then(|name| split(name, kind)) else { continue };
        if wanted.is_none_or(|wanted| wanted == prefix) {
            traces.entry(prefix.to_owned()).or_default().insert(rank, entry.path());
        }
    }
    Ok(traces)
}

fn folder_of(path: &Path) -> &Path {
    if path.is_dir() {
        return path;
    }
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether `path` can only mean a trace: one of its files, a prefix, or a folder.
pub fn is_trace(path: &Path) -> bool {
    let first = |kind: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(".0");
        name.push(kind);
        PathBuf::from(name)
    };
    let is_prefix = || first(".et").is_file() || is_json_trace(&first(".json"));
    path.extension().is_some_and(|e| e == "et") || path.is_dir() || (!path.is_file() && is_prefix())
}

/// Whether a `.json` file is a trace, by what stands at its beginning.
pub fn is_json_trace(path: &Path) -> bool {
    load(path, LOOKED_AT).is_ok_and(|start| json::is_trace(&start))
}

/// Bytes of a JSON file that tell what it is.
const LOOKED_AT: u64 = 64 << 10;

/// What the files of a trace end in, where the path says so.
fn named_ending(path: &Path) -> Option<&'static str> {
    [".et", ".json"].into_iter().find(|ending| path.extension().is_some_and(|e| *e == ending[1..]))
}

/// The name of the trace that a path names.
pub(super) fn name_of(path: &Path) -> &str {
    match prefix(path, named_ending(path).unwrap_or(".et")) {
        "" => "trace",
        name => name,
    }
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
        let bytes = load_of(&path, options, &mut usage)?;
        let file: Arc<str> = path.to_string_lossy().into();
        graphs.push(graph_of(rank, &file, &bytes, options, &mut usage)?);
    }
    Ok(Trace { name: name_of(path).to_owned(), graphs, warnings: Vec::new() })
}

/// The bytes of a rank's file, counted.
pub(super) fn load_of(path: &Path, options: &ReadOptions, usage: &mut Usage) -> Result<Vec<u8>, Vec<Diagnostic>> {
    let size = fs::metadata(path).map_err(|e| one(unreadable(path, &e)))?.len();
    options.budget.check(Limit::FileBytes, usage.file_bytes.saturating_add(size)).map_err(one)?;
    let bytes = load(path, options.budget.get(Limit::FileBytes)).map_err(|e| one(unreadable(path, &e)))?;
    usage.file_bytes += bytes.len() as u64;
    options.budget.check(Limit::FileBytes, usage.file_bytes).map_err(one)?;
    Ok(bytes)
}

/// The files of a trace, `<prefix>.<rank>.et`, where `path` is the prefix, with or without `.et`.
///
/// # Errors
/// `AHBM-F139` a file of a rank that the trace does not have is there: both together would be read as one trace.
pub fn render(trace: &Trace, path: &Path) -> Result<Vec<Output>, Diagnostic> {
    refuse_foreign(path, trace.graphs.len())?;
    let bytes = |graph: &Graph| encode(&graph.metadata, &graph.nodes);
    let output = |(rank, graph)| Output { path: of_rank(path, rank), bytes: bytes(graph) };
    Ok(trace.graphs.iter().enumerate().map(output).collect())
}
