//! Which files a path means: that of a rank and its siblings, or all in a folder.

use super::stream::MARK;
use super::{Options, facts, flight};
use crate::packed::{Packing, beginning};
use crate::scan::{told, told_with};
use ahbm_findings::Diagnostic;
use ahbm_plan::Limit;
use ahbm_wire::load::load;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// What a trace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The profiler's trace, with kernels and their times.
    Kineto,
    /// A host execution trace, with operators and their arguments.
    Host,
    /// A dump of the Flight Recorder, with the latest communications.
    Flight,
}

/// Bytes of a file, and of its text, that tell what it is.
const LOOKED_AT: u64 = 64 << 10;

/// Files of a folder that are asked which rank they are of.
const ASKED: usize = 4096;

/// Digits of a number that is a time: seconds since 1970 and finer.
const DIGITS_OF_TIME: usize = 10;

/// What a path names: a file by what stands at its beginning, a folder by its first trace; none where it is no trace of
/// PyTorch.
pub fn kind(path: &Path) -> Option<Kind> {
    if path.is_dir() {
        return within(path).ok()?.iter().find_map(|path| of_file(path));
    }
    of_file(path)
}

fn of_file(path: &Path) -> Option<Kind> {
    let text = head(path)?;
    // What a broken stream has in it is not known. Its name says that it is a trace, and who reads it says what is wrong.
    if text.is_empty() && path.extension().is_some_and(|ending| ending == "zst") {
        return Some(Kind::Kineto);
    }
    kind_of(&text)
}

/// The beginning of a file's text.
fn head(path: &Path) -> Option<Vec<u8>> {
    ending(path.file_name()?.to_str()?)?;
    let start = load(path, LOOKED_AT).ok()?;
    if Packing::of(&start) != Some(Packing::Zstandard) {
        return Some(beginning(&start, LOOKED_AT));
    }
    // Of a frame that is cut, a decoder gives nothing within a window of its end.
    let mut text = Vec::new();
    let packed = BufReader::new(File::open(path).ok()?);
    let _ = Packing::Zstandard.reader(packed).take(LOOKED_AT).read_to_end(&mut text);
    Some(text)
}

fn kind_of(text: &[u8]) -> Option<Kind> {
    let text = text.strip_prefix(MARK).unwrap_or(text);
    let says = |key: &[u8]| text.windows(key.len()).any(|part| part == key);
    if text.first() == Some(&flight::PICKLE) {
        return ((says(b"pg_config") || says(b"profiling_name")) && says(b"version")).then_some(Kind::Flight);
    }
    told(text, |key| match key {
        b"traceEvents" | b"schemaVersion" | b"deviceProperties" | b"distributedInfo" => Some(Some(Kind::Kineto)),
        b"pid" | b"start_ts" | b"finish_ts" => Some(Some(Kind::Host)),
        b"entries" | b"pg_config" | b"pg_status" | b"comm_lib_version" | b"nccl_version" => Some(Some(Kind::Flight)),
        b"version" if says(b"\"pg_config\"") || says(b"\"profiling_name\"") => Some(Some(Kind::Flight)),
        b"nodes" | b"workload_graph" | b"version" | b"gpus" => Some(None),
        _ => None,
    })?
}

/// The rank and the number of ranks that the beginning of a profiler's trace states, which may end within the statement:
/// groups stand behind them.
fn stated(text: &[u8]) -> Option<(u32, u32)> {
    let text = text.strip_prefix(MARK).unwrap_or(text);
    let info = told_with(text, |key, behind| (key == b"distributedInfo").then_some(behind))?;
    let whole = serde_json::Deserializer::from_slice(info).into_iter::<Json>().next().and_then(Result::ok);
    let number = |name: &str| match &whole {
        Some(info) => facts::number(&info[name]),
        None => told_with(info, |key, behind| (key == name.as_bytes()).then_some(behind)).and_then(|behind| {
            let value = serde_json::Deserializer::from_slice(behind).into_iter::<Json>().next()?.ok()?;
            facts::number(&value)
        }),
    };
    let (rank, world): (u32, u32) = (number("rank")?, number("world_size")?);
    (rank < world).then_some((rank, world))
}

/// The rank that a file is of as far as its name or a sibling says, and the file.
type Numbered = (Option<u32>, PathBuf);

/// The traces that a path names.
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) files: Vec<Numbered>,
    /// How siblings were chosen, where names leave it open.
    pub(super) chosen: Option<String>,
}

/// The traces that a path names with the number in each name, and what they are.
pub(super) fn find(path: &Path, options: &Options) -> Result<Found, Diagnostic> {
    let none = || Diagnostic::new("AHBM-F183", format!("{} is no trace of PyTorch", path.display()));
    let (kind, mut found) = if path.is_dir() {
        let mut found: Vec<(Kind, PathBuf)> = Vec::new();
        for path in within(path)? {
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
        let text = head(path).ok_or_else(none)?;
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut found = vec![path.to_path_buf()];
        let own = numbered(name(path));
        if let Some((before, _, behind)) = &own {
            found = listed(folder)?;
            found.retain(|path| numbered(name(path)).is_some_and(|(a, _, b)| a == *before && b == *behind));
            found.retain(|path| of_file(path) == Some(kind));
        }
        if let Some((rank, world)) = stated(&text).filter(|_| kind == Kind::Kineto) {
            options.budget.check(Limit::Ranks, world.into())?;
            let says_rank = own.is_some_and(|(_, number, _)| number == rank);
            if (!says_rank || found.len() < world as usize)
                && let Some(siblings) = siblings(path, listed(folder)?, (rank, world), says_rank)
                && (!says_rank || siblings.files.len() > found.len())
            {
                return Ok(siblings);
            }
        }
        (kind, found)
    };
    options.budget.check(Limit::Ranks, found.len() as u64)?;
    let of_folder = |file: &Path| {
        let folder = file.parent().filter(|folder| path.is_dir() && *folder != path)?;
        numbered(&format!("{}.json", name(folder)))
    };
    let number = |path: &Path| numbered(name(path)).or_else(|| of_folder(path)).map(|(_, number, _)| number);
    // Ranks begin with 0; the last number of a date or a version may be any.
    let from_zero = found.iter().any(|path| number(path) == Some(0));
    let named = |path: &Path| number(path).filter(|_| from_zero || !dated(name(path)));
    if !path.is_dir() && named(path).is_none() {
        found = vec![path.to_path_buf()];
    }
    Ok(Found { kind, files: found.into_iter().map(|path| (named(&path), path)).collect(), chosen: None })
}

/// The traces of the ranks of `path`'s job, by what they state of themselves: of those of one rank, the nearest in time.
/// Where the name of `path` says its rank, only names that differ in numbers count, and none is chosen among several.
fn siblings(path: &Path, listed: Vec<PathBuf>, (rank, world): (u32, u32), says_rank: bool) -> Option<Found> {
    let now = time_in(name(path));
    let away = |path: &Path| Some(time_in(name(path))?.abs_diff(now?));
    let mut candidates: Vec<(u128, PathBuf)> =
        listed.into_iter().map(|path| (away(&path).unwrap_or(u128::MAX), path)).collect();
    candidates.retain(|(_, other)| name(other) != name(path));
    candidates.retain(|(_, other)| !says_rank || shape(name(other)) == shape(name(path)));
    candidates.sort();
    let mut taken: BTreeMap<u32, (u128, Vec<PathBuf>)> = BTreeMap::from([(rank, (0, vec![path.to_path_buf()]))]);
    let mut several = false;
    for (distance, other) in candidates.into_iter().take(ASKED) {
        let Some(text) = head(&other).filter(|text| kind_of(text) == Some(Kind::Kineto)) else { continue };
        let Some((of, _)) = stated(&text).filter(|&(_, size)| size == world) else { continue };
        match taken.get_mut(&of) {
            None => drop(taken.insert(of, (distance, vec![other]))),
            Some(_) if says_rank => return None,
            Some((known, files)) if of != rank && *known == distance => files.push(other),
            Some(_) => several |= distance < u128::MAX,
        }
    }
    let chosen =
        several.then(|| format!("of several traces of a rank, the one nearest in time to {} is taken", name(path)));
    let alike =
        || format!("the ranks are those that the traces state: the names of {} and others differ in more", name(path));
    let chosen = chosen.or_else(|| (says_rank && taken.len() > 1).then(alike));
    let of_rank =
        |(rank, (_, files)): (u32, (u128, Vec<PathBuf>))| files.into_iter().map(move |file| (Some(rank), file));
    let files: Vec<Numbered> = taken.into_iter().flat_map(of_rank).collect();
    Some(Found { kind: Kind::Kineto, files, chosen })
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The longest number of a name that is a time, as `HOST_PID.NANOSECONDS.pt.trace.json` has it.
fn time_in(name: &str) -> Option<u128> {
    let longest = name.split(|c: char| !c.is_ascii_digit()).max_by_key(|digits| digits.len())?;
    longest.parse().ok().filter(|_| longest.len() >= DIGITS_OF_TIME)
}

/// A name without its numbers.
fn shape(name: &str) -> Vec<&str> {
    name.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect()
}

/// Whether a name ends in a date or a version: `2026-01-15`, `1.2.3`, `v2.1`.
fn dated(name: &str) -> bool {
    // A rank behind its word is one, whatever stands behind it.
    let Some((_, _, ending)) = numbered(name).filter(|(before, ..)| before.ends_with('#')) else { return false };
    let stem = &name[..name.len() - ending.len()];
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = stem.rsplit(['.', '_', '-']);
    let [last, before, first] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    number(last) && (before.strip_prefix(['v', 'V']).is_some_and(number) || (number(before) && number(first)))
}

/// The files of a folder that are JSON or pickles by their names, by name.
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

/// The traces of a folder; where it has none, those of the folders in it, of which some tools write one for each rank.
fn within(folder: &Path) -> Result<Vec<PathBuf>, Diagnostic> {
    let found = listed(folder)?;
    if found.iter().any(|path| of_file(path).is_some()) {
        return Ok(found);
    }
    let unreadable = |e| unreadable(folder, &e);
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    let mut inner = Vec::new();
    for folder in folders.iter().take(ASKED) {
        inner.extend(listed(folder)?);
        if inner.len() > ASKED {
            break;
        }
    }
    Ok(inner)
}

/// Of JSON, and of pickles, whose names end with the rank.
fn ending(name: &str) -> Option<&'static str> {
    let pickle = || (!name.contains('.') && name.ends_with(|c: char| c.is_ascii_digit())).then_some("");
    [".json", ".json.gz", ".json.zst", ".pickle", ".pkl"]
        .into_iter()
        .find(|ending| name.ends_with(ending))
        .or_else(pickle)
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
        assert_eq!(rank("rank7_trace.json.zst"), Some(7));
        assert_eq!(rank("step-Rank_12.pt.trace.json"), Some(12));
        assert_eq!(rank("ddp_2gpu.0.json.gz"), Some(0));
        assert_eq!(rank("kineto_3.json"), Some(3));
        assert_eq!(rank("host_2590092.1706850122846.pt.trace.json"), None);
        assert_eq!(rank("trace.json"), None);
        assert_eq!(numbered("a.0.json").unwrap().0, numbered("a.11.json").unwrap().0);
        assert_ne!(numbered("a.0.json").unwrap().0, numbered("b.0.json").unwrap().0);
    }

    #[test]
    fn dates_and_versions_are_no_ranks() {
        for name in ["trace_2026-01-15.json", "run.10_52_41.json", "torch-2.10.0.json", "llama-v2.1.json.gz"] {
            assert!(dated(name), "{name}");
        }
        for name in ["ddp_2gpu.0.json", "step.3.json", "iteration_10.3.json", "rank1.2026-01-15.json", "a_v3.json"] {
            assert!(!dated(name), "{name}");
        }
    }

    #[test]
    fn a_statement_that_is_cut_off_says_its_rank() {
        let text = br#"{"a": {"rank": 9, "world_size": 9}, "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [{"ra"#;
        assert_eq!(stated(text), Some((3, 8)));
        assert_eq!(stated(&text[..90]), None, "before the number of ranks");
        let whole = br#"{"distributedInfo": {"rank": 3}, "b": {"world_size": 8}, "traceEvents": ["#;
        assert_eq!(stated(whole), None);
        assert_eq!(stated(br#"{"distributedInfo": {"rank": 8, "world_size": 8}"#), None);
    }
}
