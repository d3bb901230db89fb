//! Which files a path means: that of a rank and its siblings, or all in a folder.

use super::Options;
use crate::scan::told;
use ahbm_findings::Diagnostic;
use ahbm_plan::Limit;
use ahbm_wire::load::load;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What a trace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The profiler's trace, with kernels and their times.
    Kineto,
    /// A host execution trace, with operators and their arguments.
    Host,
}

/// Bytes of a file, and of its text, that tell what it is.
const LOOKED_AT: u64 = 64 << 10;

/// What a path names: a file by what stands at its beginning, a folder by its first trace; none where it is no trace of
/// PyTorch.
pub fn kind(path: &Path) -> Option<Kind> {
    if path.is_dir() {
        return listed(path).ok()?.iter().find_map(|path| of_file(path));
    }
    of_file(path)
}

fn of_file(path: &Path) -> Option<Kind> {
    ending(path.file_name()?.to_str()?)?;
    let bytes = load(path, LOOKED_AT).ok()?;
    let mut text = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        // What is cut here ends within the stream: what came before is there.
        let _ = flate2::read::MultiGzDecoder::new(&*bytes).take(LOOKED_AT).read_to_end(&mut text);
    } else {
        text = bytes;
    }
    told(&text, |key| match key {
        b"traceEvents" | b"schemaVersion" | b"deviceProperties" | b"distributedInfo" => Some(Some(Kind::Kineto)),
        b"pid" | b"start_ts" | b"finish_ts" => Some(Some(Kind::Host)),
        b"nodes" | b"workload_graph" | b"version" | b"gpus" => Some(None),
        _ => None,
    })?
}

/// The rank in the name of a file, where it has one, and the file.
type Numbered = (Option<u32>, PathBuf);

/// The traces that a path names with the number in each name, and what they are.
pub(super) fn find(path: &Path, options: &Options) -> Result<(Kind, Vec<Numbered>), Diagnostic> {
    let none = || Diagnostic::new("AHBM-F183", format!("{} is no trace of PyTorch", path.display()));
    let name = |path: &Path| path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
    let (kind, found) = if path.is_dir() {
        let mut found: Vec<(Kind, PathBuf)> = Vec::new();
        for path in listed(path)? {
            found.extend(of_file(&path).map(|kind| (kind, path)));
        }
        let (kind, first) = found.first().ok_or_else(none)?.clone();
        if let Some((_, other)) = found.iter().find(|(other, _)| *other != kind) {
            let what = format!("{} has traces of the profiler and of the host", path.display());
            let finding = Diagnostic::new("AHBM-F185", what).site("one", first.display().to_string());
            return Err(finding.site("other", other.display().to_string()).hint("name a file of those that are meant"));
        }
        (kind, found.into_iter().map(|(_, path)| path).collect())
    } else {
        let kind = of_file(path).ok_or_else(none)?;
        let Some((before, _, behind)) = numbered(&name(path)) else {
            return Ok((kind, vec![(None, path.to_path_buf())]));
        };
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut found = listed(folder)?;
        found.retain(|path| numbered(&name(path)).is_some_and(|(a, _, b)| a == before && b == behind));
        found.retain(|path| of_file(path) == Some(kind));
        (kind, found)
    };
    options.budget.check(Limit::Ranks, found.len() as u64)?;
    let number = |path: &Path| numbered(&name(path)).map(|(_, number, _)| number);
    Ok((kind, found.into_iter().map(|path| (number(&path), path)).collect()))
}

/// The JSON files of a folder, by name.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, Diagnostic> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| unreadable(folder, &e))? {
        let path = entry.map_err(|e| unreadable(folder, &e))?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| ending(name).is_some()) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn ending(name: &str) -> Option<&'static str> {
    [".json", ".json.gz"].into_iter().find(|ending| name.ends_with(ending))
}

/// The rank in a file's name, with what stands before and behind it: the number behind `rank`, or else the last part of
/// the name before its ending.
pub(super) fn numbered(name: &str) -> Option<(String, u32, &'static str)> {
    let ending = ending(name)?;
    let stem = &name[..name.len() - ending.len()];
    let lower = stem.to_ascii_lowercase();
    for (at, word) in lower.match_indices("rank") {
        let start = at + word.len();
        let start = start + usize::from(lower[start..].starts_with(['_', '-', '.']));
        let digits = lower[start..].bytes().take_while(u8::is_ascii_digit).count();
        if let Ok(number) = lower[start..start + digits].parse() {
            return Some((format!("{}#{}", &stem[..start], &stem[start + digits..]), number, ending));
        }
    }
    let (before, last) = stem.rsplit_once(['.', '_', '-']).unwrap_or(("", stem));
    // Longer numbers are dates and processes.
    let short = last.len() <= 5 && last.bytes().all(|byte| byte.is_ascii_digit());
    Some((
        format!("{before}{}#", &stem[before.len()..stem.len() - last.len()]),
        short.then(|| last.parse().ok())??,
        ending,
    ))
}

/// Name for people: that of the file without its ending, or of the folder.
pub(super) fn name_of(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("trace");
    ending(name).and_then(|ending| name.strip_suffix(ending)).unwrap_or(name).to_owned()
}

pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::new("AHBM-F139", format!("{} cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_stands_behind_its_word_or_last() {
        let rank = |name: &str| numbered(name).map(|(_, rank, _)| rank);
        assert_eq!(rank("rank7_trace.json.gz"), Some(7));
        assert_eq!(rank("step-Rank_12.pt.trace.json"), Some(12));
        assert_eq!(rank("ddp_2gpu.0.json.gz"), Some(0));
        assert_eq!(rank("kineto_3.json"), Some(3));
        assert_eq!(rank("host_2590092.1706850122846.pt.trace.json"), None);
        assert_eq!(rank("trace.json"), None);
        assert_eq!(numbered("a.0.json").unwrap().0, numbered("a.11.json").unwrap().0);
        assert_ne!(numbered("a.0.json").unwrap().0, numbered("b.0.json").unwrap().0);
    }
}
