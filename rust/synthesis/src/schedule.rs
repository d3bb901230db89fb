//! Schedules: what crosses which link in which order, when that happens, and whether it is right.

use crate::graph::Clock;
use crate::{Collective, Graph};
use ahbm_engine::interrupt::spend;
use ahbm_machine::Ps;
use ahbm_plan::collective::Relation;

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

/// A chunk under way to an NPU that is not a neighbour.
///
/// It has a number of its own, counted on from those of the chunks. At its two ends that number means the chunk's
/// register; the NPUs in between keep it apart from theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parcel {
    /// The chunk.
    pub chunk: u32,
    /// NPU whose register it is a copy of.
    pub from: u32,
    /// NPU whose register it is for.
    pub to: u32,
}

/// A synthesized schedule.
///
/// Each NPU has one register per chunk; that of an NPU which takes no part is empty at first. A transfer reads the
/// sender's register as the transfers before it in the list have left it, and writes or adds to the receiver's. Per
/// link (per port at a switch), the order of the list is the order of sending: it is part of the schedule, not a
/// consequence of data dependences.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The collective that it performs.
    pub collective: Collective,
    /// How it was found.
    pub method: &'static str,
    /// The NPUs that take part, by rank; the others relay.
    pub members: Vec<u32>,
    /// Root of rooted collectives, a rank.
    pub root: u32,
    /// Shares of the buffer, each cut into the same number of chunks.
    pub shares: u32,
    /// Bytes of each chunk of a share.
    pub chunk_bytes: Vec<u64>,
    /// The parcels for NPUs that are not neighbours.
    pub parcels: Vec<Parcel>,
    /// All transfers in an order that respects every dependence.
    pub transfers: Vec<Transfer>,
}

/// Transfers whose registers are fetched at a time: both their memory and the list of them fit into a small cache.
const BLOCK: usize = 256;

/// When the transfers of a schedule happen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Times {
    /// The last arrival.
    pub total_ps: Ps,
    /// Rounds, if every transfer took one and what arrives in a round were there in the next.
    pub rounds: u64,
    /// Per transfer, the arrival of its last byte; empty unless asked for.
    pub arrivals: Vec<Ps>,
}

impl Schedule {
    /// Number of chunks with a register: those of all shares; for all-to-all, of all pairs.
    pub fn chunks(&self) -> u32 {
        let (ranks, pieces) = (self.members.len() as u32, self.chunk_bytes.len() as u32);
        if self.collective == Collective::AllToAll { ranks * ranks * pieces } else { self.shares * pieces }
    }

    /// The parcel a number means, if it is one.
    pub fn parcel(&self, chunk: u32) -> Option<&Parcel> {
        self.parcels.get(chunk.checked_sub(self.chunks())? as usize)
    }

    /// The meaning of a number at an NPU: a parcel that passes, or a chunk.
    pub fn meaning(&self, node: u32, chunk: u32) -> u32 {
        match self.parcel(chunk) {
            Some(parcel) if node == parcel.from || node == parcel.to => parcel.chunk,
            _ => chunk,
        }
    }

    /// Size of a chunk or parcel.
    pub fn bytes(&self, chunk: u32) -> u64 {
        let chunk = self.parcel(chunk).map_or(chunk, |p| p.chunk);
        self.chunk_bytes[chunk as usize % self.chunk_bytes.len()]
    }

    /// The time that the busiest port needs for its load: no order of the transfers takes less.
    pub(crate) fn busiest_ps(&self, graph: &Graph) -> Ps {
        let mut busy = vec![0; graph.ports() as usize];
        for transfer in &self.transfers {
            busy[graph.port(transfer.link) as usize] += graph.link(transfer.link).rate.ps(self.bytes(transfer.chunk()));
        }
        busy.into_iter().max().unwrap_or(0)
    }

    /// A place for everything an NPU can hold, parcels in passing behind the registers of all NPUs.
    pub(crate) fn register(&self, nodes: u32, chunks: u32, node: u32, chunk: u32) -> usize {
        let chunk = if chunk < chunks { chunk } else { self.meaning(node, chunk) };
        if chunk < chunks {
            node as usize * chunks as usize + chunk as usize
        } else {
            (nodes as usize - 1) * chunks as usize + chunk as usize
        }
    }

    /// Number of places of [`Schedule::register`].
    pub(crate) fn registers(&self, nodes: u32) -> usize {
        nodes as usize * self.chunks() as usize + self.parcels.len()
    }

    /// Runs the schedule: a port serves its transfers in order, each once the sender's register is complete; it is
    /// occupied for the time of the bytes, and the chunk arrives one latency later.
    pub fn times(&self, graph: &Graph, record: bool) -> Times {
        let (n, chunks) = (graph.nodes(), self.chunks());
        let mut ready: Vec<(Ps, u32)> = vec![(0, 0); self.registers(n)];
        let mut clock = Clock::new(graph);
        let mut served = vec![0u32; graph.ports() as usize];
        let mut times = Times::default();
        if record {
            times.arrivals.reserve_exact(self.transfers.len());
        }
        let mut ends = Vec::with_capacity(BLOCK);
        for block in self.transfers.chunks(BLOCK) {
            spend(16 * block.len() as u64);
            ends.clear();
            ends.extend(block.iter().map(|transfer| {
                let (link, chunk) = (graph.link(transfer.link), transfer.chunk());
                [link.from, link.to].map(|node| self.register(n, chunks, node, chunk))
            }));
            // A transfer waits for the one before it, the memory of its registers need not: it is fetched ahead.
            std::hint::black_box(ends.iter().flatten().fold(0, |sum, &end| sum ^ ready[end].0));
            for (transfer, &[source, target]) in block.iter().zip(&ends) {
                let (at, round) = ready[source];
                let arrival = clock.send(transfer.link, at, self.bytes(transfer.chunk())).1;
                let served = &mut served[graph.port(transfer.link) as usize];
                *served = round.max(*served) + 1;
                let register = &mut ready[target];
                *register = (arrival.max(register.0), register.1.max(*served));
                times.total_ps = times.total_ps.max(arrival);
                if record {
                    times.arrivals.push(arrival);
                }
            }
        }
        times.rounds = u64::from(served.into_iter().max().unwrap_or(0));
        times
    }

    /// Follows every contribution through the schedule; the first thing that is wrong, if any.
    ///
    /// A register holds a set of NPUs whose data it is the sum of. Sending an empty register, adding a contribution
    /// twice, or ending without the result is wrong.
    pub fn check(&self, graph: &Graph) -> Result<(), String> {
        let n = graph.nodes();
        let (chunks, words) = (self.chunks(), (n as usize).div_ceil(64));
        let mut sets = vec![0u64; self.registers(n) * words];
        let at = |node: u32, chunk: u32| self.register(n, chunks, node, chunk) * words;
        for chunk in 0..chunks {
            for node in self.holders(chunk) {
                sets[at(node, chunk) + node as usize / 64] |= 1 << (node % 64);
            }
        }
        for (index, transfer) in self.transfers.iter().enumerate() {
            spend(16 + 2 * words as u64);
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
        for chunk in 0..chunks {
            let wanted = if self.collective.reduces() { self.members.clone() } else { self.holders(chunk) };
            for node in self.takers(chunk) {
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
    pub(crate) fn holders(&self, chunk: u32) -> Vec<u32> {
        self.among(chunk, Relation::sources)
    }

    /// NPUs that need the result.
    pub(crate) fn takers(&self, chunk: u32) -> Vec<u32> {
        self.among(chunk, Relation::destinations)
    }

    fn among(&self, chunk: u32, ranks: fn(&Relation, u32, u32) -> Vec<u32>) -> Vec<u32> {
        let block = chunk / self.chunk_bytes.len() as u32;
        let mut found = ranks(&self.collective.relation(self.root), block, self.members.len() as u32);
        found.iter_mut().for_each(|rank| *rank = self.members[*rank as usize]);
        found
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
        for parcel in &mut self.parcels {
            std::mem::swap(&mut parcel.from, &mut parcel.to);
        }
        self
    }
}

/// `bytes` in `pieces` parts of whole `unit`s that differ by at most one unit.
pub fn split(bytes: u64, pieces: u32, unit: u64) -> Vec<u64> {
    let (units, pieces) = (bytes / unit, u64::from(pieces));
    (0..pieces).map(|i| (units / pieces + u64::from(i < units % pieces)) * unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::grid;
    use crate::{Request, synthesize};

    fn schedule(graph: &Graph, collective: Collective, method: &str, chunks: u32) -> Schedule {
        let request = Request {
            collective,
            share_bytes: 1 << 16,
            chunks,
            unit: 1,
            members: Vec::new(),
            root: 1,
            method: method.into(),
            seed: 7,
        };
        synthesize(graph, &request, &request.bound(graph).unwrap()).unwrap().schedule
    }

    /// Fetching ahead is no model: one transfer after the other comes to the same.
    #[test]
    fn times_are_those_of_a_plain_walk() {
        let graph = grid(&[4, 4], true);
        for (collective, method, chunks) in [
            (Collective::AllGather, "greedy", 5),
            (Collective::AllReduce, "trees", 1),
            (Collective::AllToAll, "direct", 1),
            (Collective::Reduce, "binomial", 20),
        ] {
            let found = schedule(&graph, collective, method, chunks);
            assert!(found.transfers.len() > BLOCK / 2, "{}", found.transfers.len());
            let (n, chunks) = (graph.nodes(), found.chunks());
            let mut ready: Vec<(Ps, u64)> = vec![(0, 0); found.registers(n)];
            let (mut free, mut served) = (vec![0; graph.links().len()], vec![0u64; graph.links().len()]);
            let mut wanted = Times::default();
            for transfer in &found.transfers {
                let (link, port) = (graph.link(transfer.link), transfer.link as usize);
                let (at, round) = ready[found.register(n, chunks, link.from, transfer.chunk())];
                free[port] = link.rate.ps(found.bytes(transfer.chunk())) + at.max(free[port]);
                served[port] = 1 + round.max(served[port]);
                let arrival = free[port] + link.latency_ps;
                let target = &mut ready[found.register(n, chunks, link.to, transfer.chunk())];
                *target = (arrival.max(target.0), served[port].max(target.1));
                wanted.arrivals.push(arrival);
                wanted.total_ps = wanted.total_ps.max(arrival);
                wanted.rounds = wanted.rounds.max(served[port]);
            }
            assert_eq!(found.times(&graph, true), wanted, "{method}");
        }
    }

    /// A seed stands for one schedule, in every build.
    #[test]
    fn schedules_are_the_same_in_every_build() {
        let digest = |graph: &Graph, collective, method, chunks| {
            let found = schedule(graph, collective, method, chunks);
            found.transfers.iter().fold(0u64, |sum, t| {
                (sum ^ u64::from(t.link) << 32 ^ u64::from(t.chunk)).wrapping_mul(0x100_0000_01b3).rotate_left(17)
            })
        };
        let (mesh, torus) = (grid(&[4, 4], false), grid(&[6, 4], true));
        let found = [
            digest(&mesh, Collective::AllGather, "greedy", 1),
            digest(&torus, Collective::AllGather, "greedy", 3),
            digest(&mesh, Collective::AllReduce, "trees", 1),
            digest(&torus, Collective::AllToAll, "routed", 1),
        ];
        assert_eq!(
            found,
            [0x25fac3eb52dd165c, 0x431cf23733f8a271, 0x879af00bef612dab, 0x1a1ac59bab90505c],
            "{found:#x?}"
        );
    }
}
