//! A run as tracks of slices: what a timeline file shows, whatever its format ([`crate::timeline_file`]).
//!
//! 1. One track per exclusive resource: agents, DMA channels, math engines, links, and the receives an agent has
//!    posted on a queue. On each, slices are disjoint; those of an agent's operations contain slices of what the
//!    operation spent its time on, waits included.
//! 2. Every message that is received is one flow, from the slice of its send to the slice that reads its slot.
//! 3. Counters per receiving SIP: payload bytes on their way, and slots from their claim until their credit is back.
//!    Per group of links (those that leave one cube or SIP): how many of them are busy.
//!
//! Both formats count nanoseconds. Times are rounded down, and since that never changes an order, what is nested or
//! disjoint in picoseconds is so in nanoseconds; a slice whose ends are no whole nanoseconds states them exactly.

mod build;
mod counters;
mod messages;
mod replayed;
mod rows;

pub use rows::Stretch;

use ahbm_emulator::Timeline;
use ahbm_findings::Diagnostic;
use ahbm_machine::{Machine, Ps};
use ahbm_program::Program;
use indexmap::{IndexMap, IndexSet};

/// Most pieces of a run that are shown: about 2 GB of file.
const MOST: usize = 1 << 24;

/// A row of the timeline, or a group of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// Unique among the children of its parent.
    pub name: String,
    /// The group it stands in, an earlier track.
    pub parent: Option<u32>,
}

/// How a slice takes part in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// It does not.
    None,
    /// It sends the message of this number.
    Out(u32),
    /// It reads the message of this number.
    In(u32),
    /// It is one of several that are joined in the order of time.
    With(u32),
}

impl Flow {
    /// With its number counted from `first`.
    fn moved(self, first: u32) -> Self {
        match self {
            Self::None => Self::None,
            Self::Out(number) => Self::Out(first + number),
            Self::In(number) => Self::In(first + number),
            Self::With(number) => Self::With(first + number),
        }
    }
}

/// Something that kept a resource busy, or an agent waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Index into [`Tracks::tracks`].
    pub track: u32,
    /// Index into [`Tracks::names`].
    pub name: u32,
    /// The place of its operation in the source, an index into [`Tracks::origins`]; `None` if it is not known.
    pub origin: Option<u32>,
    /// 0, or 1 inside the last slice with 0 before it.
    pub depth: u8,
    /// Its message.
    pub flow: Flow,
    /// The message that occupies the resource, by its number.
    pub carries: Option<u32>,
    /// First picosecond.
    pub start: Ps,
    /// End.
    pub end: Ps,
}

impl Slice {
    /// True when nanoseconds do not tell its ends.
    pub fn is_fine(&self) -> bool {
        !(self.start.is_multiple_of(1000) && self.end.is_multiple_of(1000))
    }
}

/// The things a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Payload bytes.
    Bytes,
    /// Slots of queues.
    Slots,
    /// Links.
    Links,
}

impl Unit {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Slots => "slots",
            Self::Links => "links",
        }
    }
}

/// A number over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Its track, which has no slices.
    pub track: u32,
    /// The things it counts.
    pub unit: Unit,
    /// Nanosecond and value from then on.
    pub points: Vec<(u64, i64)>,
}

/// A run as tracks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tracks {
    /// Parents before their children.
    pub tracks: Vec<Track>,
    /// Distinct names of slices.
    pub names: IndexSet<String>,
    /// Distinct origins.
    pub origins: Vec<String>,
    /// Those of one track in order of time, those with depth 1 behind theirs with depth 0. The first one is the run.
    pub slices: Vec<Slice>,
    /// Counters.
    pub counters: Vec<Counter>,
    /// The subject of the run and the version that ran it: never anything of the computer that ran it.
    pub facts: Vec<(&'static str, String)>,
}

/// The begin or end of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) at: Ps,
    pub(crate) slice: u32,
    pub(crate) begins: bool,
}

impl Tracks {
    /// The tracks of a run of `program` on `machine`.
    ///
    /// # Errors
    /// `AHBM-V123` without detail, `AHBM-D191` for another program's timeline, `AHBM-B122` for a run too long to show.
    pub fn of(program: &Program, machine: &Machine, timeline: &Timeline) -> Result<Self, Diagnostic> {
        Self::with_rows(program, machine, timeline, Vec::new())
    }

    /// The tracks of a replayed job: those of its program, where `rows` take the place of its hosts.
    ///
    /// # Errors
    /// As [`Tracks::of`].
    pub fn with_rows(
        program: &Program,
        machine: &Machine,
        timeline: &Timeline,
        rows: Vec<Stretch>,
    ) -> Result<Self, Diagnostic> {
        let Some(detail) = timeline.detail.as_deref() else {
            return Err(
                Diagnostic::new("AHBM-V123", "the timeline was recorded without detail").hint("simulate(detail=True)")
            );
        };
        if detail.last.len() != program.agents.len() {
            return Err(Diagnostic::new("AHBM-D191", "the timeline belongs to another program"));
        }
        bounded(detail.pieces.len() + rows.len())?;
        let mut tracks = Self {
            facts: vec![
                ("ahbm", env!("CARGO_PKG_VERSION").to_owned()),
                ("program", program.name.clone()),
                ("program_hash", format!("{:016x}", program.hash())),
                ("machine_hash", format!("{:016x}", machine.hash())),
                ("timeline_hash", format!("{:016x}", timeline.hash)),
                ("latency_ps", timeline.latency.to_string()),
            ],
            ..Self::default()
        };
        build::Builder::new(program, machine, timeline, detail).build(rows, &mut tracks);
        Ok(tracks)
    }

    /// Begins and ends of all slices in order of time; those of one track at one time in the order that nests them.
    pub(crate) fn edges(&self) -> Vec<Edge> {
        let mut edges = Vec::with_capacity(2 * self.slices.len());
        let mut open: Option<u32> = None;
        for (index, slice) in (0..).zip(&self.slices) {
            let edge = |begins| Edge { at: if begins { slice.start } else { slice.end }, slice: index, begins };
            if slice.depth == 0 {
                edges.extend(open.replace(index).map(|open| self.end(open)));
                edges.push(edge(true));
            } else {
                edges.extend([edge(true), edge(false)]);
            }
        }
        edges.extend(open.map(|open| self.end(open)));
        edges.sort_by_key(|edge| edge.at);
        edges
    }

    fn end(&self, slice: u32) -> Edge {
        Edge { at: self.slices[slice as usize].end, slice, begins: false }
    }

    /// The origin of a slice that has one to show.
    pub fn shown_origin(&self, slice: &Slice) -> Option<u32> {
        slice.origin.filter(|&origin| self.origins.get(origin as usize).is_some_and(|text| !text.is_empty()))
    }

    /// True for tracks with children, which have neither slices nor counters.
    pub(crate) fn is_group(&self) -> Vec<bool> {
        let mut group = vec![false; self.tracks.len()];
        self.tracks.iter().filter_map(|t| t.parent).for_each(|parent| group[parent as usize] = true);
        group
    }
}

fn bounded(pieces: usize) -> Result<(), Diagnostic> {
    if pieces > MOST {
        let what = format!("the run has {pieces} pieces, a timeline file shows at most {MOST}");
        return Err(Diagnostic::new("AHBM-B122", what).hint("fewer bytes or ranks"));
    }
    Ok(())
}

/// Makes tracks as they are asked for.
#[derive(Default)]
struct Tree(IndexMap<(Option<u32>, String), ()>);

impl Tree {
    fn track(&mut self, parent: Option<u32>, name: impl Into<String>) -> u32 {
        self.0.insert_full((parent, name.into()), ()).0 as u32
    }

    fn into_tracks(self) -> Vec<Track> {
        self.0.into_keys().map(|(parent, name)| Track { name, parent }).collect()
    }
}
