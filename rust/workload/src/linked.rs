//! A job whose calls and messages are known: which node of which rank takes part in what.

use crate::calls::Call;
use crate::copies::Copies;
use crate::messages::Message;
use crate::node::{CallSpec, Work};
use crate::shares::Shares;
use crate::workload::Workload;
use ahbm_findings::Diagnostic;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// A launch and the part that a node has in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Share {
    /// A position in [`Linked::calls`], and behind them in [`Linked::messages`].
    pub launch: u32,
    /// Position in the group; of a message, 0 sends and 1 receives.
    pub part: u32,
}

/// Nodes from which on copies are left out.
pub const LARGE: u64 = 1 << 22;

impl Share {
    const NONE: Self = Self { launch: u32::MAX, part: 0 };
}

/// A workload with its calls and messages. Nodes of all ranks have one numbering, rank by rank: their places. Ranks that
/// are copies of each other have the places, calls and messages of the one that leads.
#[derive(Debug)]
pub struct Linked {
    /// The job.
    pub workload: Workload,
    /// Its collectives.
    pub calls: Vec<Call>,
    /// Its messages.
    pub messages: Vec<Message>,
    /// The chunks of calls that nodes wait for or deliver, in the order of the first such node.
    pub chunks: Vec<Chunk>,
    /// The renumbering whose copies are left out.
    pub copies: Option<Copies>,
    /// Per rank that leads the place of its first node, and the end.
    first: Vec<u32>,
    /// Ranks that lead, ascending; none where all do.
    leads: Vec<u32>,
    /// Per launch, how many of the job it is.
    times: Vec<u32>,
    shares: Vec<Share>,
    /// The chunk of every place that stands for one.
    chunk_of: FxHashMap<u32, u32>,
}

/// A chunk of a call at a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// The rank's part in the call.
    pub share: Share,
    /// The chunk, of as many as the group has ranks.
    pub chunk: u32,
    /// Somebody waits for it; else somebody delivers it.
    pub completes: bool,
}

impl Linked {
    /// Finds calls and messages.
    ///
    /// # Errors
    /// As [`Workload::calls`], [`Workload::messages`] and [`Workload::crossings`]; `AHBM-F136` a root that is not in its
    /// group, a chunk that its call does not have.
    pub fn new(workload: Workload) -> Result<Self, Vec<Diagnostic>> {
        Self::of(workload, None)
    }

    /// The same with one of the ranks that are copies of each other, where there are any.
    ///
    /// # Errors
    /// As [`Linked::new`].
    pub fn thin(workload: Workload) -> Result<Self, Vec<Diagnostic>> {
        let copies = workload.copies();
        Self::of(workload, copies)
    }

    /// Thin for a job of more than [`LARGE`] nodes, else whole.
    ///
    /// # Errors
    /// As [`Linked::new`].
    pub fn sized(workload: Workload) -> Result<Self, Vec<Diagnostic>> {
        if workload.nodes() > LARGE { Self::thin(workload) } else { Self::new(workload) }
    }

    fn of(workload: Workload, copies: Option<Copies>) -> Result<Self, Vec<Diagnostic>> {
        let (calls, messages) = (workload.calls_of(copies)?, workload.messages_of(copies)?);
        workload.crossings_of(&calls, &messages, copies)?;
        workload.check_roots(&calls)?;
        let ranks = 0..workload.ranks.len() as u32;
        let leads = copies.map_or(Vec::new(), |copies| ranks.clone().filter(|rank| copies.leads(*rank)).collect());
        let mut first = vec![0u32];
        for rank in ranks.filter(|rank| copies.is_none_or(|copies| copies.leads(*rank))) {
            let nodes = workload.graph(rank).nodes().len() as u32;
            let Some(end) = first[first.len() - 1].checked_add(nodes) else {
                let what = format!("{} nodes of all ranks, at most {}", workload.nodes(), u32::MAX);
                return Err(vec![Diagnostic::new("AHBM-F136", what)]);
            };
            first.push(end);
        }
        let shares = vec![Share::NONE; first[first.len() - 1] as usize];
        let (chunks, chunk_of) = Default::default();
        let times = vec![1; calls.len() + messages.len()];
        let mut linked = Self { workload, calls, messages, chunks, copies, first, leads, times, shares, chunk_of };
        if let Some(copies) = copies {
            let mut known: FxHashMap<Box<[u32]>, u32> = FxHashMap::default();
            for launch in 0..linked.launches() as u32 {
                let ranks = linked.ranks(launch);
                let count = *known.entry(ranks).or_insert_with_key(|ranks| copies.of(ranks).len() as u32);
                linked.times[launch as usize] = count;
            }
        }
        for launch in 0..linked.launches() as u32 {
            for part in 0..linked.parts(launch) {
                let (rank, node) = linked.member(launch, part);
                if linked.leads(rank) {
                    let place = linked.place(rank, node);
                    linked.shares[place as usize] = Share { launch, part };
                }
            }
        }
        linked.find_chunks()?;
        Ok(linked)
    }

    /// Whether a rank has places of its own.
    pub fn leads(&self, rank: u32) -> bool {
        self.copies.is_none_or(|copies| copies.leads(rank))
    }

    /// How many calls or messages of the job a launch is: its copies and itself.
    pub fn times(&self, launch: u32) -> u32 {
        self.times[launch as usize]
    }

    fn find_chunks(&mut self) -> Result<(), Vec<Diagnostic>> {
        let mut of = FxHashMap::default();
        let mut found: IndexSet<Chunk, FxBuildHasher> = IndexSet::default();
        for rank in (0..self.workload.ranks.len() as u32).filter(|rank| self.leads(*rank)) {
            for at in 0..self.workload.graph(rank).nodes().len() as u32 {
                let Work::Part(part) = self.workload.graph(rank).node(at).work else { continue };
                let Some(share) = self.share(self.place(rank, part.call)) else { continue };
                let chunk = Chunk { share, chunk: part.chunk, completes: part.completes };
                let ranks = self.ranks(chunk.share.launch).len();
                if chunk.chunk as usize >= ranks {
                    let what = format!("attribute part is {}, the call has {ranks} ranks", chunk.chunk);
                    let finding = Diagnostic::new("AHBM-F136", what);
                    return Err(vec![finding.site(self.workload.label(rank, at), self.workload.origin(rank, at))]);
                }
                of.insert(self.place(rank, at), found.insert_full(chunk).0 as u32);
            }
        }
        (self.chunks, self.chunk_of) = (found.into_iter().collect(), of);
        Ok(())
    }

    /// The chunk that a node stands for: a position in [`Linked::chunks`].
    pub fn chunk(&self, place: u32) -> Option<usize> {
        self.chunk_of.get(&place).map(|&chunk| chunk as usize)
    }

    /// Number of calls and messages.
    pub fn launches(&self) -> usize {
        self.calls.len() + self.messages.len()
    }

    /// Per launch the first one that says the same of the same ranks.
    pub fn alike(&self) -> Vec<u32> {
        let mut calls: FxHashMap<(u32, CallSpec, Option<&Shares>), u32> = FxHashMap::default();
        let mut found: Vec<u32> = Vec::with_capacity(self.calls.len());
        for (number, call) in (0..).zip(&self.calls) {
            let spec = CallSpec { group: 0, ..call.spec.clone() };
            found.push(*calls.entry((call.group, spec, call.shares.as_ref())).or_insert(number));
        }
        let mut messages: FxHashMap<(u32, u32, u64, Option<u32>), u32> = FxHashMap::default();
        let message = |(number, message): (u32, &Message)| {
            let key = (message.send.0, message.recv.0, message.bytes, message.group);
            *messages.entry(key).or_insert(number)
        };
        let behind = (found.len() as u32..).zip(&self.messages).map(message);
        found.into_iter().chain(behind).collect()
    }

    /// Whether a launch is a message.
    pub fn is_message(&self, launch: u32) -> bool {
        launch as usize >= self.calls.len()
    }

    /// Whether a node sends a message: it waits for nobody.
    pub fn is_sender(&self, place: u32) -> bool {
        self.share(place).is_some_and(|share| self.is_message(share.launch) && share.part == 0)
    }

    /// The ranks of a launch, in the order of its parts.
    pub fn ranks(&self, launch: u32) -> Box<[u32]> {
        match self.calls.get(launch as usize) {
            Some(call) => self.workload.groups[call.group as usize].ranks.as_ref().into(),
            None => {
                let message = &self.messages[launch as usize - self.calls.len()];
                [message.send.0, message.recv.0].into()
            }
        }
    }

    /// Rank and node position of a part of a launch.
    pub fn member(&self, launch: u32, part: u32) -> (u32, u32) {
        match self.calls.get(launch as usize) {
            Some(call) => {
                let rank = self.workload.groups[call.group as usize].ranks[part as usize];
                (rank, call.nodes[part as usize])
            }
            None => {
                let message = &self.messages[launch as usize - self.calls.len()];
                if part == 0 { message.send } else { message.recv }
            }
        }
    }

    /// Number of parts of a launch.
    pub fn parts(&self, launch: u32) -> u32 {
        self.calls.get(launch as usize).map_or(2, |call| call.nodes.len() as u32)
    }

    /// Per part of a launch, the place of its node.
    pub fn places(&self, launch: u32) -> Box<[u32]> {
        let place = |(&rank, &node): (&u32, &u32)| self.place(rank, node);
        match self.calls.get(launch as usize) {
            Some(call) => self.workload.groups[call.group as usize].ranks.iter().zip(&call.nodes).map(place).collect(),
            None => {
                let message = &self.messages[launch as usize - self.calls.len()];
                [message.send, message.recv].iter().map(|(rank, node)| place((rank, node))).collect()
            }
        }
    }

    /// Number of places.
    pub fn nodes(&self) -> usize {
        self.shares.len()
    }

    /// The place of a rank's node.
    #[inline]
    pub fn place(&self, rank: u32, at: u32) -> u32 {
        let index = match self.copies {
            None => rank as usize,
            // Equally many lead in every block.
            Some(copies) => copies.index(rank),
        };
        self.first[index] + at
    }

    /// Rank and node position of a place; of copies the one that leads.
    #[inline]
    pub fn node(&self, place: u32) -> (u32, u32) {
        let index = self.first.partition_point(|&first| first <= place) - 1;
        let rank = self.leads.get(index).copied().unwrap_or(index as u32);
        (rank, place - self.first[index])
    }

    /// The part that a node has in a launch.
    #[inline]
    pub fn share(&self, place: u32) -> Option<Share> {
        Some(self.shares[place as usize]).filter(|share| share.launch != u32::MAX)
    }

    /// What the node at a place does.
    pub fn work(&self, place: u32) -> &Work {
        let (rank, at) = self.node(place);
        &self.workload.graph(rank).node(at).work
    }
}
