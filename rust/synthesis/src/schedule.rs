//! Schedules: what crosses which link in which order, when that happens, and whether it is right.

use crate::{Collective, Graph};
use ahbm_machine::Ps;

/// One chunk over one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The link.
    pub link: u32,
    chunk: u32,
}

const ADDS: u32 = 1 << 31;

impl Transfer {
    /// The receiver keeps the chunk.
    pub fn copy(link: u32, chunk: u32) -> Self {
        Self { link, chunk }
    }

    /// The receiver adds the chunk to its own.
    pub fn add(link: u32, chunk: u32) -> Self {
        Self { link, chunk: chunk | ADDS }
    }

    /// The chunk.
    pub fn chunk(self) -> u32 {
        self.chunk & !ADDS
    }

    /// True for [`Transfer::add`].
    pub fn adds(self) -> bool {
        self.chunk & ADDS != 0
    }
}

/// A synthesized schedule.
///
/// Each NPU has one register per chunk. A transfer reads the sender's register as the transfers before it in the list
/// have left it, and writes or adds to the receiver's. Per link, the order of the list is the order of sending: it is
/// part of the schedule, not a consequence of data dependences.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// What it does.
    pub collective: Collective,
    /// How it was found.
    pub method: &'static str,
    /// Root of rooted collectives.
    pub root: u32,
    /// Shares of the buffer, each cut into the same number of chunks.
    pub shares: u32,
    /// Bytes of each chunk of a share.
    pub chunk_bytes: Vec<u64>,
    /// All transfers in an order that respects every dependence.
    pub transfers: Vec<Transfer>,
}

/// When the transfers of a schedule happen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Times {
    /// The last arrival.
    pub total_ps: Ps,
    /// Per transfer, the arrival of its last byte; empty unless asked for.
    pub arrivals: Vec<Ps>,
}

impl Schedule {
    /// Number of chunks with a name: those of all shares; for all-to-all, of all pairs.
    pub fn chunks(&self, nodes: u32) -> u32 {
        let pieces = self.chunk_bytes.len() as u32;
        if self.collective == Collective::AllToAll { nodes * nodes * pieces } else { self.shares * pieces }
    }

    /// Size of a chunk.
    pub fn bytes(&self, chunk: u32) -> u64 {
        self.chunk_bytes[chunk as usize % self.chunk_bytes.len()]
    }

    /// Runs the schedule: a link serves its transfers in order, each once the sender's register is complete; it is
    /// occupied for the time of the bytes, and the chunk arrives one latency later.
    pub fn times(&self, graph: &Graph, record: bool) -> Times {
        let chunks = self.chunks(graph.nodes()) as usize;
        let mut ready: Vec<Ps> = vec![0; chunks * graph.nodes() as usize];
        let mut free: Vec<Ps> = vec![0; graph.links().len()];
        let mut times = Times::default();
        for transfer in &self.transfers {
            let link = graph.link(transfer.link);
            let chunk = transfer.chunk() as usize;
            let start = free[transfer.link as usize].max(ready[link.from as usize * chunks + chunk]);
            let left = start + link.rate.ps(self.bytes(transfer.chunk()));
            free[transfer.link as usize] = left;
            let arrival = left + link.latency_ps;
            let register = &mut ready[link.to as usize * chunks + chunk];
            *register = arrival.max(*register);
            times.total_ps = times.total_ps.max(arrival);
            if record {
                times.arrivals.push(arrival);
            }
        }
        times
    }

    /// Number of rounds when every link carries one chunk a round and what arrived in a round is there in the next.
    pub fn rounds(&self, graph: &Graph) -> u64 {
        let chunks = self.chunks(graph.nodes()) as usize;
        let mut ready = vec![0u32; chunks * graph.nodes() as usize];
        let mut free = vec![0u32; graph.links().len()];
        for transfer in &self.transfers {
            let link = graph.link(transfer.link);
            let chunk = transfer.chunk() as usize;
            let end = free[transfer.link as usize].max(ready[link.from as usize * chunks + chunk]) + 1;
            free[transfer.link as usize] = end;
            let register = &mut ready[link.to as usize * chunks + chunk];
            *register = end.max(*register);
        }
        u64::from(free.into_iter().max().unwrap_or(0))
    }

    /// Follows every contribution through the schedule; the first thing that is wrong, if any.
    ///
    /// A register holds a set of NPUs whose data it is the sum of. Sending an empty register, adding a contribution
    /// twice, or ending without the result is wrong.
    pub fn check(&self, graph: &Graph) -> Result<(), String> {
        let n = graph.nodes();
        let (chunks, words) = (self.chunks(n) as usize, (n as usize).div_ceil(64));
        let mut sets = vec![0u64; chunks * n as usize * words];
        let at = |node: u32, chunk: u32| (node as usize * chunks + chunk as usize) * words;
        for chunk in 0..chunks as u32 {
            for node in self.holders(n, chunk) {
                sets[at(node, chunk) + node as usize / 64] |= 1 << (node % 64);
            }
        }
        for (index, transfer) in self.transfers.iter().enumerate() {
            let link = graph.link(transfer.link);
            let (from, to) = (at(link.from, transfer.chunk()), at(link.to, transfer.chunk()));
            let sent: Vec<u64> = sets[from..from + words].to_vec();
            if sent.iter().all(|&w| w == 0) {
                return Err(format!("transfer {index}: {} sends a chunk it does not have", link.from));
            }
            for (word, &bits) in sets[to..to + words].iter_mut().zip(&sent) {
                if transfer.adds() && *word & bits != 0 {
                    return Err(format!("transfer {index}: {} adds a contribution twice", link.to));
                }
                *word = if transfer.adds() { *word | bits } else { bits };
            }
        }
        for chunk in 0..chunks as u32 {
            let wanted: Vec<u32> = if self.collective.reduces() { (0..n).collect() } else { self.holders(n, chunk) };
            for node in self.takers(n, chunk) {
                let here = &sets[at(node, chunk)..at(node, chunk) + words];
                let count: u32 = here.iter().map(|w| w.count_ones()).sum();
                let all = wanted.iter().all(|&w| here[w as usize / 64] >> (w % 64) & 1 == 1);
                if !all || count as usize != wanted.len() {
                    return Err(format!("{node} ends without the result in chunk {chunk}"));
                }
            }
        }
        Ok(())
    }

    /// NPUs whose data the chunk is made of.
    pub(crate) fn holders(&self, nodes: u32, chunk: u32) -> Vec<u32> {
        let share = chunk / self.chunk_bytes.len() as u32;
        match self.collective {
            Collective::AllGather | Collective::Gather => vec![share],
            Collective::AllToAll => vec![share / nodes],
            Collective::Broadcast | Collective::Scatter => vec![self.root],
            Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce => (0..nodes).collect(),
        }
    }

    /// NPUs that need the result.
    pub(crate) fn takers(&self, nodes: u32, chunk: u32) -> Vec<u32> {
        let share = chunk / self.chunk_bytes.len() as u32;
        match self.collective {
            Collective::AllGather | Collective::AllReduce | Collective::Broadcast => (0..nodes).collect(),
            Collective::ReduceScatter | Collective::Scatter => vec![share],
            Collective::AllToAll => vec![share % nodes],
            Collective::Reduce | Collective::Gather => vec![self.root],
        }
    }

    /// The schedule turned round in time, on the reversed graph: copies away from a chunk's owner become sums into it.
    #[must_use]
    pub(crate) fn reversed(mut self, collective: Collective, adds: bool) -> Self {
        self.collective = collective;
        self.transfers.reverse();
        if adds {
            for transfer in &mut self.transfers {
                *transfer = Transfer::add(transfer.link, transfer.chunk());
            }
        }
        self
    }
}

/// `bytes` in `pieces` parts of whole `unit`s that differ by at most one unit.
pub fn split(bytes: u64, pieces: u32, unit: u64) -> Vec<u64> {
    let (units, pieces) = (bytes / unit, u64::from(pieces));
    (0..pieces).map(|i| (units / pieces + u64::from(i < units % pieces)) * unit).collect()
}
