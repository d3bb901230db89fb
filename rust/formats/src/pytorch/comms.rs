//! Statements about a communication as the work of a node.

use super::facts::{Facts, Kind, dtype};
use crate::chakra::one;
use ahbm_findings::Diagnostic;
use ahbm_workload::{CallSpec, Collective, Gather, MessageSpec, RankBuilder, Work};
use rustc_hash::FxHashMap;

/// A group as a communication states it.
type Stated = (Option<Box<str>>, Option<u32>, Option<Box<[u32]>>);

/// Makes the communications of a rank.
pub(super) struct Comms<'a> {
    pub(super) gather: &'a mut Gather,
    pub(super) builder: RankBuilder,
    file: &'a str,
    /// Ranks by name as this rank's trace lists them, empty for all.
    listed: &'a [(String, Vec<u32>)],
    /// All communications use one communicator, as far as can be seen.
    lone: bool,
    /// Those of groups of one rank are kept.
    scaled: bool,
    known: FxHashMap<Stated, u32>,
}

/// The node that a communication becomes.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) id: u64,
    pub(super) name: &'a str,
}

impl<'a> Comms<'a> {
    pub(super) fn new(
        gather: &'a mut Gather,
        rank: u32,
        file: &'a str,
        listed: &'a [(String, Vec<u32>)],
        lone: bool,
        scaled: bool,
    ) -> Self {
        Self { gather, builder: RankBuilder::new(rank, file), file, listed, lone, scaled, known: FxHashMap::default() }
    }

    /// The work of a communication.
    pub(super) fn work(&mut self, facts: &Facts, at: At<'_>) -> Result<Work, Vec<Diagnostic>> {
        let Some(kind) = facts.kind else {
            return Err(one(self.lacking(at, "which operation it is")));
        };
        let kept = self.scaled && matches!(kind, Kind::Collective(_));
        if facts.group_size == Some(1) && !kept {
            self.gather.note(note("communications of groups of one rank are left out".into()));
            return Ok(Work::Nothing);
        }
        match kind {
            Kind::Collective(collective) => self.call(collective, facts, at),
            Kind::Send => Ok(Work::Send(self.message(facts, at)?)),
            Kind::Recv => Ok(Work::Recv(self.message(facts, at)?)),
            Kind::Coalesced => Err(one(self.lacking(at, "which operations it joins"))),
        }
    }

    fn call(&mut self, collective: Collective, facts: &Facts, at: At<'_>) -> Result<Work, Vec<Diagnostic>> {
        let group = self.group(facts, at)?;
        let ranks = self.gather.members(group);
        let Some(bytes) = facts.bytes(collective, ranks.len() as u64) else {
            return Err(one(self.without_size(at)));
        };
        // Ranks may disagree on whether an uneven all_to_all is empty.
        if bytes == 0 && !matches!(collective, Collective::Barrier | Collective::AllToAll) {
            self.gather.note(note("collectives of 0 bytes are left out".into()));
            return Ok(Work::Nothing);
        }
        use Collective::{Broadcast, Gather, Reduce, Scatter};
        let rooted = matches!(collective, Broadcast | Reduce | Gather | Scatter);
        let root = match facts.other.filter(|_| rooted) {
            None => None,
            Some(place) => Some(self.member(&ranks, place, at)?),
        };
        let group = self.builder.group(group);
        use Collective::{AllGather, AllToAll, ReduceScatter};
        let [sends, receives] = if collective == AllToAll { facts.splits.clone() } else { [None, None] };
        let through = facts.inputs.zip(facts.outputs).map(|(own, out)| [own, out]);
        Ok(self.builder.call_of(CallSpec {
            collective,
            group,
            bytes,
            sends,
            receives,
            through: through.filter(|_| ranks.len() > 1 && matches!(collective, AllToAll | AllGather | ReduceScatter)),
            dtype: facts.dtype.as_deref().and_then(dtype).map(Into::into),
            op: None,
            root,
            dimensions: None,
        }))
    }

    fn message(&mut self, facts: &Facts, at: At<'_>) -> Result<MessageSpec, Vec<Diagnostic>> {
        let group = self.group(facts, at)?;
        let ranks = self.gather.members(group);
        let rank = self.builder.rank();
        let peer = match facts.other {
            Some(place) => Some(self.member(&ranks, place, at)?),
            None => self.gather.other_of_two(group, rank),
        };
        let Some(peer) = peer.filter(|&peer| peer != rank) else {
            let hint = "only in a group of two is the other end known; later versions of PyTorch record it";
            return Err(one(self.lacking(at, "the other end of its message").hint(hint)));
        };
        let Some(bytes) = facts.message_bytes() else {
            return Err(one(self.without_size(at)));
        };
        let (peer, group) = (self.builder.peer(peer), self.builder.group(group));
        Ok(MessageSpec { peer, group: Some(group), bytes, tag: 0 })
    }

    /// The group of a communication.
    fn group(&mut self, facts: &Facts, at: At<'_>) -> Result<u32, Vec<Diagnostic>> {
        let stated = (facts.group.clone(), facts.group_size, facts.ranks.clone());
        if let Some(&group) = self.known.get(&stated) {
            return Ok(group);
        }
        let (rank, size) = (self.builder.rank(), self.gather.size());
        let all = || (0..size).collect::<Vec<u32>>();
        let name = facts.group.as_deref().unwrap_or_default();
        let of_trace = || self.listed.iter().find(|(known, _)| known == name);
        let mut listed = facts.ranks.as_deref().map(<[u32]>::to_vec);
        listed = listed.or_else(|| of_trace().map(|(_, ranks)| if ranks.is_empty() { all() } else { ranks.clone() }));
        let mut assumed = false;
        if listed.is_none() {
            assumed = facts.group.is_none() && facts.group_size.is_none() && self.lone;
            listed = (assumed || facts.group_size == Some(size)).then(all);
        }
        if assumed && size > 1 {
            self.gather.note(note(
                "the traces name no process groups: every communication is taken for one of all ranks".into(),
            ));
        }
        let origin = || format!("{} node {}", self.file, at.id);
        let unnamed = facts.group_size.map(|size| format!("of {size} ranks"));
        let name = match &unnamed {
            Some(unnamed) if name.is_empty() && listed.is_none() => unnamed,
            None if name.is_empty() && listed.is_none() => "unnamed",
            _ => name,
        };
        let title =
            facts.title.as_deref().filter(|_| self.scaled && listed.as_ref().is_some_and(|ranks| ranks.len() == 1));
        let group = self.gather.group(rank, title.unwrap_or(name), listed, origin)?;
        let members = self.gather.members(group).len();
        if facts.group_size.is_some_and(|size| size as usize != members) {
            let what = format!(
                "{} states a group of {} ranks, group {name:?} has {members}",
                at.name,
                facts.group_size.unwrap_or(0)
            );
            return Err(one(Diagnostic::new("AHBM-F184", what).site(format!("rank {rank}"), origin())));
        }
        self.known.insert(stated, group);
        Ok(group)
    }

    fn member(&self, ranks: &[u32], place: u32, at: At<'_>) -> Result<u32, Vec<Diagnostic>> {
        ranks.get(place as usize).copied().ok_or_else(|| {
            let what = format!("{} names position {place} of a group of {} ranks", at.name, ranks.len());
            let label = format!("rank {}", self.builder.rank());
            one(Diagnostic::new("AHBM-F184", what).site(label, format!("{} node {}", self.file, at.id)))
        })
    }

    fn without_size(&self, at: At<'_>) -> Diagnostic {
        self.lacking(at, "its size: elements and their type").hint(
            "torch.profiler states sizes with record_shapes=True, Nsight Systems by NCCL's ranges (--trace=cuda,nvtx; NCCL \
             2.24 and later)",
        )
    }

    fn lacking(&self, at: At<'_>, what: &str) -> Diagnostic {
        Diagnostic::new("AHBM-F184", format!("the trace does not state of {}: {what}", at.name))
            .site(format!("rank {}", self.builder.rank()), format!("{} node {}", self.file, at.id))
    }
}

/// What a trace leaves open, and how it is taken.
pub(super) fn note(what: String) -> Diagnostic {
    Diagnostic::new("AHBM-F186", what)
}
