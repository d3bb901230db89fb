//! Dumps of PyTorch's Flight Recorder: the latest communications of every rank of a job that hangs, or that ended.
//!
//! A dump is a pickle (`nccl_trace_rank_3`) or JSON, schema 2.x, or 1.x, which states no groups and numbers calls as `seq_id`: `entries` with the communications in the order in which
//! the rank issued them, and `pg_config` with the ranks of process groups (torch/csrc/distributed/c10d/FlightRecorder.hpp
//! of PyTorch 2.5 to 2.15). What a rank waited for is not in it, so calls are taken to follow each other; messages between
//! two ranks follow the calls before them and hold up nothing. A ring of entries forgets the oldest: a group begins with
//! the first call that all its ranks still have.

mod pickle;

use super::comms::{At, Comms, note};
use super::facts::{self, Facts, Kind, kind};
use super::stream::{Part, Stream, malformed, owned};
use ahbm_findings::Diagnostic;
use ahbm_workload::{Gather, NodeBuilder, RankGraph, Workload};
use rustc_hash::FxHashMap;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// The first byte of a pickle of protocol 2 or later.
pub(super) const PICKLE: u8 = 0x80;

/// Where frames lie that are no lines of the script.
const LIBRARIES: [&str; 5] = ["site-packages/", "dist-packages/", "/torch/", "lib/python", "<"];

/// Calls in flight of which a job tells.
const TOLD: usize = 8;

/// A communication that a rank issued.
#[derive(Debug)]
struct Entry {
    /// Its number among those that the rank recorded.
    id: u64,
    group: Box<str>,
    /// The number of a call in its group.
    number: u64,
    /// What it is, and the script's line.
    name: Box<str>,
    facts: Facts,
    /// `scheduled`, `started` or `completed`.
    state: Box<str>,
    /// Whether it is over.
    ended: bool,
}

impl Entry {
    fn is_call(&self) -> bool {
        matches!(self.facts.kind, Some(Kind::Collective(_)))
    }
}

/// What the dump of a rank says.
#[derive(Debug, Default)]
pub(super) struct Dumped {
    /// Ranks of the process groups by name, empty for all.
    groups: Vec<(String, Vec<u32>)>,
    entries: Vec<Entry>,
}

impl Dumped {
    /// Number of ranks that it knows of.
    pub(super) fn world(&self) -> u32 {
        self.groups.iter().flat_map(|(_, ranks)| ranks).map(|rank| rank.saturating_add(1)).max().unwrap_or(0)
    }
}

/// Reads a dump.
pub(super) fn read(file: &str, mut stream: Stream<'_>) -> Result<Dumped, Diagnostic> {
    let mut dumped = Dumped::default();
    let mut configuration = Json::Null;
    let mut titles = BTreeMap::new();
    if stream.peek()? == Some(PICKLE) {
        let budget = stream.budget();
        let mut document = pickle::value(file, &stream.whole()?, budget)?;
        configuration = document["pg_config"].take();
        let Json::Array(entries) = document["entries"].take() else {
            return Err(malformed(file, 0, "the dump has no entries"));
        };
        for entry in &entries {
            dumped.entries.extend(entry_of(entry, &mut titles).map_err(|what| malformed(file, 0, &what))?);
        }
    } else {
        let had = stream.each("entries", |part, offset| {
            let wrong = |error: serde_json::Error| malformed(file, offset, &error.to_string());
            match part {
                Part::Element(bytes) => {
                    let entry: Json = owned(bytes).map_err(wrong)?;
                    let found = entry_of(&entry, &mut titles).map_err(|what| malformed(file, offset, &what))?;
                    dumped.entries.extend(found);
                }
                Part::Member("pg_config", bytes) => configuration = owned(bytes).map_err(wrong)?,
                Part::Member(..) => {}
            }
            Ok(())
        })?;
        if !had {
            return Err(malformed(file, 0, "the dump has no entries"));
        }
    }
    dumped.entries.sort_by_key(|entry| entry.id);
    for (name, group) in configuration.as_object().into_iter().flatten() {
        let title =
            titles.get(name).cloned().unwrap_or_else(|| title(name, group["desc"].as_str().unwrap_or_default()));
        dumped.groups.extend(facts::numbers(&group["ranks"]).map(|ranks| (title, ranks)));
    }
    Ok(dumped)
}

/// What a group is called: its name, and what it is for where the script says it.
fn title(name: &str, description: &str) -> String {
    let description = if description == "undefined" { "" } else { description };
    format!("{name} {description}").trim().to_owned()
}

/// A communication; none for what is none. `titles` has what groups are called by their names.
fn entry_of(entry: &Json, titles: &mut BTreeMap<String, String>) -> Result<Option<Entry>, String> {
    let said = entry["profiling_name"].as_str().ok_or("an entry says no profiling_name")?;
    let plain = said.rsplit_once(':').map_or(said, |(_, plain)| plain);
    let Some(kind) = kind(plain).filter(|kind| *kind != Kind::Coalesced) else { return Ok(None) };
    let id = facts::number(&entry["record_id"]).ok_or("an entry says no record_id")?;
    let group = match &entry["process_group"] {
        Json::Array(said) => {
            let text = |at: usize| said.get(at).and_then(Json::as_str).unwrap_or_default();
            let title = title(text(0), text(1));
            titles.insert(text(0).to_owned(), title.clone());
            title
        }
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    let elements = |of: &str| facts::elements(&entry[of]).filter(|&count| count > 0);
    let types = |of: &str| entry[of].as_array().and_then(|list| list.first()).and_then(Json::as_str);
    let found = Facts {
        kind: Some(kind),
        inputs: elements("input_sizes"),
        outputs: elements("output_sizes"),
        dtype: types("input_dtypes").or_else(|| types("output_dtypes")).map(Into::into),
        group: Some(group.as_str().into()),
        other: facts::other_of(plain),
        ..Facts::default()
    };
    let what = plain.split(' ').next().unwrap_or_default();
    let name = line_of(&entry["frames"]).map_or_else(|| what.to_owned(), |line| format!("{what} {line}"));
    let state = entry["state"].as_str().unwrap_or_default();
    Ok(Some(Entry {
        id,
        group: group.into(),
        number: ["collective_seq_id", "seq_id"].iter().find_map(|key| facts::number(&entry[*key])).unwrap_or(0),
        name: name.into(),
        facts: found,
        state: state.into(),
        ended: state == "completed" || entry["retired"] == Json::Bool(true),
    }))
}

/// The script's line, among frames from the innermost to the outermost.
fn line_of(frames: &Json) -> Option<String> {
    let frame = frames.as_array()?.iter().find(|frame| {
        let file = frame["filename"].as_str().unwrap_or("<");
        !LIBRARIES.iter().any(|library| file.contains(library))
    })?;
    let file = frame["filename"].as_str()?;
    let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
    Some(format!("{file}:{}", frame["line"].as_u64()?))
}

/// What the dumps of a job say together.
pub(super) struct Joined {
    /// Ranks of the process groups by name.
    groups: Vec<(String, Vec<u32>)>,
    /// By group, the number of the first call that all of its ranks still have.
    starts: FxHashMap<Box<str>, u64>,
    /// Whether messages between two ranks are left out.
    cut: bool,
    /// By group, its ranks that left no dump.
    absent: BTreeMap<String, Vec<u32>>,
}

/// Joins dumps, each with its rank.
pub(super) fn joined(gather: &mut Gather, dumps: &[(u32, &str, &Dumped)]) -> Joined {
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (name, ranks) in dumps.iter().flat_map(|(.., dumped)| &dumped.groups) {
        groups.entry(name.clone()).or_insert_with(|| ranks.clone());
    }
    let mut starts: FxHashMap<Box<str>, u64> = FxHashMap::default();
    let mut callers: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    let mut cut = false;
    for (rank, _, dumped) in dumps {
        let mut firsts: BTreeMap<&str, u64> = BTreeMap::new();
        for entry in &dumped.entries {
            let known = callers.entry(&entry.group).or_default();
            if known.last() != Some(rank) {
                known.push(*rank);
            }
            if entry.is_call() {
                firsts.entry(&entry.group).or_insert(entry.number);
            }
        }
        for (group, first) in firsts {
            let start = starts.entry(group.into()).or_insert(first);
            *start = first.max(*start);
        }
        cut |= dumped.entries.first().is_some_and(|entry| entry.id > 0);
    }
    let mut assumed = Vec::new();
    for (name, ranks) in callers {
        if !groups.contains_key(name) && !name.ends_with("default_pg") {
            assumed.push(format!("{name:?}"));
            groups.insert(name.to_owned(), ranks);
        } else if !groups.contains_key(name) {
            groups.insert(name.to_owned(), Vec::new());
        }
    }
    let (absent, some) = present(gather, dumps, &mut groups);
    if !assumed.is_empty() {
        let what = format!("the dumps do not list the ranks of group {}: those that called in it", assumed.join(", "));
        gather.note(note(what + " are taken"));
    }
    if cut {
        let what = "the recorder has forgotten the oldest entries: groups begin with the first call that all ranks have, \
                    and messages between two ranks are left out";
        gather.note(note(what.into()).hint("TORCH_FR_BUFFER_SIZE=N keeps more"));
    }
    let what = "what a rank waited for is not recorded: its calls are taken to follow each other, whatever their group";
    gather.note(note(what.into()));
    Joined { groups: groups.into_iter().collect(), starts, cut: cut || some, absent }
}

/// Takes ranks that left no dump out of the groups: by group those, and whether there are any. What the others recorded is
/// judged among them.
fn present(
    gather: &mut Gather,
    dumps: &[(u32, &str, &Dumped)],
    groups: &mut BTreeMap<String, Vec<u32>>,
) -> (BTreeMap<String, Vec<u32>>, bool) {
    let there: BTreeSet<u32> = dumps.iter().map(|(rank, ..)| *rank).collect();
    let lacking: Vec<u32> = (0..gather.size()).filter(|rank| !there.contains(rank)).collect();
    if lacking.is_empty() {
        return (BTreeMap::new(), false);
    }
    let mut absent = BTreeMap::new();
    for (name, ranks) in groups.iter_mut() {
        if ranks.is_empty() {
            *ranks = (0..gather.size()).collect();
        }
        let (own, without): (Vec<u32>, Vec<u32>) = ranks.iter().partition(|rank| there.contains(rank));
        *ranks = own;
        if !without.is_empty() {
            absent.insert(name.clone(), without);
        }
    }
    let what = format!(
        "{} of {} left no dump: the calls of the others are judged and timed among themselves, without messages between \
         two ranks",
        named(&lacking),
        gather.size()
    );
    gather.note(note(what).hint("a rank that has crashed leaves none: look at its log first"));
    (absent, true)
}

/// The graph of a rank.
pub(super) fn graph(
    gather: &mut Gather,
    rank: u32,
    file: &str,
    dumped: &Dumped,
    joined: Option<&Joined>,
) -> Result<RankGraph, Vec<Diagnostic>> {
    let groups = joined.map_or(&[][..], |joined| &joined.groups);
    let mut comms = Comms::new(gather, rank, file, groups, false, false);
    let start = |group: &str| joined.and_then(|joined| joined.starts.get(group)).copied().unwrap_or(0);
    let cut = joined.is_some_and(|joined| joined.cut);
    let some = joined.is_some_and(|joined| !joined.absent.is_empty());
    let mut last: Option<u64> = None;
    for entry in &dumped.entries {
        let at = At { id: entry.id, name: &entry.name };
        let of_group = || groups.iter().find(|(name, _)| **name == *entry.group).map(|(_, ranks)| ranks.len());
        let is_out = if entry.is_call() {
            // Of the group's others none left a dump.
            entry.number < start(&entry.group) || (some && of_group() == Some(1))
        } else {
            cut
        };
        if is_out {
            continue;
        }
        let work = comms.work(&entry.facts, at)?;
        comms.builder.push(NodeBuilder::new(entry.id, &*entry.name).work(work).after(last.as_slice()));
        if entry.is_call() {
            last = Some(entry.id);
        }
    }
    comms.builder.finish(false)
}

/// A call in flight: its name, and its ranks by their states.
type Flying<'a> = (&'a str, BTreeMap<&'a str, Vec<u32>>);

/// Says what was in flight, where all ranks agree about their calls.
///
/// # Errors
/// `AHBM-F149` where they do not, with the lines of the script.
pub(super) fn judged(
    workload: &mut Workload,
    dumps: &[(u32, &str, &Dumped)],
    joined: &Joined,
) -> Result<(), Vec<Diagnostic>> {
    workload
        .calls()
        .map_err(|findings| findings.into_iter().map(|finding| told(finding, dumps)).collect::<Vec<_>>())?;
    let mut flying: BTreeMap<(&str, u64), Flying<'_>> = BTreeMap::new();
    for (rank, _, dumped) in dumps {
        for entry in dumped.entries.iter().filter(|entry| entry.is_call() && !entry.ended) {
            let known = flying.entry((&entry.group, entry.number)).or_insert((&entry.name, BTreeMap::new()));
            known.1.entry(&entry.state).or_default().push(*rank);
        }
    }
    let many = flying.len();
    for ((group, number), (name, states)) in flying.into_iter().take(TOLD) {
        let mut parts: Vec<String> =
            states.iter().map(|(state, ranks)| format!("{state} on {}", named(ranks))).collect();
        parts.extend(joined.absent.get(group).map(|ranks| format!("no dump of {}", named(ranks))));
        let mut what = format!("in flight: {name}, call {number} of group {group:?}: {}", parts.join(", "));
        if let (Some(late), true) = (states.get("scheduled"), states.contains_key("started")) {
            what +=
                &format!("; {} waited for: not begun there", named(late) + if late.len() > 1 { " are" } else { " is" });
        }
        workload.notes.push(note(what));
    }
    if many > TOLD {
        workload.notes.push(note(format!("{} more calls were in flight", many - TOLD)));
    }
    Ok(())
}

/// A finding with what the dumps say of the entries that it names.
fn told(mut finding: Diagnostic, dumps: &[(u32, &str, &Dumped)]) -> Diagnostic {
    for site in &mut finding.sites {
        let Some((file, id)) = site.origin.rsplit_once(" node ") else { continue };
        let dump = dumps.iter().find(|(_, known, _)| *known == file);
        let entry = dump.zip(id.parse().ok()).and_then(|((_, _, dumped), id): (_, u64)| {
            let at = dumped.entries.binary_search_by_key(&id, |entry| entry.id).ok()?;
            Some(&dumped.entries[at])
        });
        if let Some(entry) = entry {
            let Entry { name, number, state, .. } = entry;
            site.origin = format!("{name}, call {number} of its group, {state}; {file} entry {id}");
        }
    }
    finding
}

/// Ranks in short: `ranks 0-3, 5`.
fn named(ranks: &[u32]) -> String {
    let mut found: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match found.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => found.push((rank, rank)),
        }
    }
    let text = |&(first, last): &(u32, u32)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    let listed: Vec<String> = found.iter().map(text).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, listed.join(", "))
}
