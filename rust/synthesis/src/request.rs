//! The request for a synthesis, and the answer.

use crate::bound::bound_among;
use crate::schedule::Schedule;
use crate::{Bound, Collective, Graph, bound};
use ahbm_findings::Diagnostic;

/// Most NPUs for which `auto` tries what is slow or rarely the quickest.
pub(crate) const AUTO: u32 = 256;
/// Most chunks a schedule may keep track of, over all NPUs.
const REGISTERS: u64 = 400_000_000;

/// A request for a synthesis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The collective.
    pub collective: Collective,
    /// Bytes of one share: of the whole buffer for all-reduce, broadcast and reduce; of one NPU's part of it for the
    /// others.
    pub share_bytes: u64,
    /// Chunks of one share; trees choose their own number.
    pub chunks: u32,
    /// No chunk boundary falls inside a unit: the element size.
    pub unit: u64,
    /// The NPUs that take part, by rank; empty for all of them.
    pub members: Vec<u32>,
    /// Root of rooted collectives, a rank.
    pub root: u32,
    /// `auto` or the name of one of [`METHODS`](crate::METHODS).
    pub method: String,
    /// Seed of every random choice.
    pub seed: u64,
}

/// A schedule and what it costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthesis {
    /// The schedule.
    pub schedule: Schedule,
    /// Time of the schedule.
    pub time_ps: u64,
    /// Rounds of the schedule if every transfer took one.
    pub rounds: u64,
}

impl Synthesis {
    /// A schedule and what it costs on `graph`.
    pub fn of(graph: &Graph, schedule: Schedule) -> Self {
        let times = schedule.times(graph, false);
        Self { schedule, time_ps: times.total_ps, rounds: times.rounds }
    }
}

impl Request {
    /// Checks the request and bounds it.
    ///
    /// # Errors
    /// `AHBM-B401` for more chunks than memory is meant to hold, `AHBM-U407` for sizes that cannot be cut as asked,
    /// `AHBM-U408` for a root that does not exist.
    pub fn bound(&self, graph: &Graph) -> Result<Bound, Diagnostic> {
        let (n, collective, request) = (graph.nodes(), self.collective, self);
        let units = request.share_bytes / request.unit.max(1);
        if request.chunks == 0
            || !request.share_bytes.is_multiple_of(request.unit.max(1))
            || units < u64::from(request.chunks)
        {
            let (bytes, chunks, unit) = (request.share_bytes, request.chunks, request.unit);
            let text = format!("{bytes} bytes cannot be cut into {chunks} chunks of whole elements of {unit} bytes");
            return Err(Diagnostic::new("AHBM-U407", text).hint("ask for fewer chunks or for more bytes"));
        }
        let mut seen = vec![false; n as usize];
        for &member in &request.members {
            if member >= n || std::mem::replace(&mut seen[member as usize], true) {
                let text = format!("NPU {member} in a group of {n} NPUs, or twice in it");
                return Err(Diagnostic::new("AHBM-U408", text));
            }
        }
        let ranks = request.group(graph).len() as u32;
        if request.root >= ranks || ranks < 2 {
            return Err(Diagnostic::new("AHBM-U408", format!("root {} of {ranks} ranks", request.root)));
        }
        let pairs = if collective == Collective::AllToAll { u64::from(ranks) } else { 1 };
        let registers = u64::from(collective.shares(ranks)) * pairs * u64::from(request.chunks) * u64::from(n);
        if registers > REGISTERS {
            let text =
                format!("{} chunks on {n} NPUs make {registers} registers, more than {REGISTERS}", request.chunks);
            return Err(Diagnostic::new("AHBM-B401", text).hint("ask for fewer chunks"));
        }
        if self.members.is_empty() {
            return Ok(bound(graph, collective, self.share_bytes, self.root));
        }
        let root = self.members[self.root as usize];
        Ok(bound_among(graph, &self.members, collective, self.share_bytes, root))
    }

    /// The NPUs that take part, by rank.
    pub(crate) fn group(&self, graph: &Graph) -> Vec<u32> {
        if self.members.is_empty() { (0..graph.nodes()).collect() } else { self.members.clone() }
    }

    /// A schedule without transfers.
    pub(crate) fn base(&self, graph: &Graph, method: &'static str, chunk_bytes: Vec<u64>) -> Schedule {
        let members = self.group(graph);
        Schedule {
            collective: self.collective,
            method,
            root: self.root,
            shares: self.collective.shares(members.len() as u32),
            members,
            chunk_bytes,
            parcels: Vec::new(),
            transfers: Vec::new(),
        }
    }
}

/// A method does not do a collective on a network, and why.
pub(crate) fn refuse(method: &str, collective: Collective, why: &str) -> Diagnostic {
    Diagnostic::new("AHBM-U406", format!("the method {method} does not apply to {}: {why}", collective.name()))
        .hint("`auto` takes the quickest method that applies")
}
