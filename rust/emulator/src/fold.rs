//! Folding: of ranks that do the same, one is simulated.
//!
//! Ranks are put into classes so that nothing tells the ranks of a class apart ([`classes`]): they have one graph, their
//! parts of calls are the same, and whom they talk to over which links are again ranks and links of the same classes.
//! The simulation then has one rank for each class. It talks to the ranks that stand for its peers, possibly itself,
//! over links that stand for those that are really there. Each channel of a class has one sender and one receiver in
//! every rank of two classes, and each link carries one flow of every kind that any link of its class carries
//! ([`cover`] holds the classes to that). So every queue, engine and link of the small run sees what its fellows of the
//! whole run see, at the same times: in the terms of graph theory the whole run covers the small one (D. Angluin, STOC
//! 1980).
//!
//! One thing is not a matter of symmetry: the order of two events at one moment, which in the whole run depends on the
//! numbers of ranks. The small run notices where such an order could matter (`timing/ties`), and the whole job is then
//! simulated. A ring on which all ranks do the same folds to one rank; a line does not fold.
//!
//! A job is folded where its ranks' graphs agree, a program that runs alone ([`simulate`]) where its SIPs do.

mod alone;
mod body;
mod classes;
mod cover;
mod shape;
mod sites;

use crate::timing::Stand;
use ahbm_machine::{LinkId, Machine};
use ahbm_program::Program;
use ahbm_program::job::{Share, Stands};
use ahbm_workload::{Copies, Linked};
use rustc_hash::FxHashMap;
use shape::Shape;

pub use alone::simulate;

/// A well mixed number for two (the finalizer of SplitMix64: G. Steele, D. Lea, C. Flood, OOPSLA 2014).
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.rotate_left(29).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(b ^ 0x632b_e59b_d9b4_e019);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Ranks and the programs that they launch together.
pub(crate) trait Parties {
    /// Per rank, a number for what it does besides: equal numbers do the same.
    fn graphs(&self) -> Vec<u32>;
    /// Number of launches.
    fn launches(&self) -> u32;
    /// Number of ranks in a launch.
    fn parts(&self, launch: u32) -> u32;
    /// Rank and node of a part of a launch.
    fn member(&self, launch: u32, part: u32) -> (u32, u32);
    /// Launch and part of a rank's node.
    fn part(&self, rank: u32, node: u32) -> Option<(u32, u32)>;
    /// Whether a launch is a message from its first part to its second one.
    fn is_message(&self, launch: u32) -> bool;
    /// More classes than these are not worth it.
    fn most(&self) -> usize;
    /// The renumbering whose copies of launches are left out.
    fn copies(&self) -> Option<Copies> {
        None
    }
}

impl Parties for Linked {
    fn graphs(&self) -> Vec<u32> {
        self.workload.ranks.iter().map(|rank| rank.graph).collect()
    }

    fn launches(&self) -> u32 {
        Self::launches(self) as u32
    }

    fn parts(&self, launch: u32) -> u32 {
        Self::parts(self, launch)
    }

    fn member(&self, launch: u32, part: u32) -> (u32, u32) {
        Self::member(self, launch, part)
    }

    fn part(&self, rank: u32, node: u32) -> Option<(u32, u32)> {
        self.share(self.place(rank, node)).filter(|_| self.leads(rank)).map(|share| (share.launch, share.part))
    }

    fn is_message(&self, launch: u32) -> bool {
        Self::is_message(self, launch)
    }

    fn most(&self) -> usize {
        self.workload.ranks.len().saturating_sub(1)
    }

    fn copies(&self) -> Option<Copies> {
        self.copies
    }
}

/// Which ranks stand for which.
#[derive(Debug)]
pub(crate) struct Fold {
    /// Per rank, the one that stands for it; the lowest of its class, which stands for itself.
    pub(crate) stands: Vec<u32>,
    /// Per launch, the first of those that make one together.
    orbits: Vec<u32>,
    /// The link that stands for each link that ranks use which stand for others.
    pub(crate) links: FxHashMap<LinkId, Stand>,
    /// What the programs have in common wherever they run.
    shapes: Vec<Shape>,
}

impl Fold {
    /// The classes of a job; the reason where no two ranks are alike, or where the run could tell ranks of a class apart.
    pub(crate) fn new(job: &impl Parties, launches: &[Share<'_>], machine: &Machine) -> Result<Self, &'static str> {
        if !machine.is_even() {
            return Err("the machine has faults");
        }
        let sites = sites::Sites::new(job, launches, machine).ok_or("no agent of a program can stand for another")?;
        let stands = classes::classes(job, &sites).ok_or("no two ranks are alike")?;
        let orbits = cover::orbits(job, &sites, &stands).ok_or("calls of ranks that seem alike differ")?;
        let links = cover::links(&sites, &stands, &orbits, machine).ok_or("links of ranks that seem alike differ")?;
        Ok(Self { stands, orbits, links, shapes: sites.shapes })
    }

    /// Per agent of a program, the number among the agents that are simulated of the one that stands for it.
    fn agents(&self, program: usize) -> Vec<u32> {
        let shape = &self.shapes[program];
        let mut numbers = vec![0; shape.actors.len()];
        let simulated = |member: u32| self.stands[member as usize] == member;
        let own = (0..).zip(&shape.actors).filter(|(_, actor)| simulated(actor.member));
        own.zip(0..).for_each(|((agent, _), number): ((usize, _), u32)| numbers[agent] = number);
        let stand = |actor: &shape::Actor| {
            let rank = self.stands[actor.member as usize];
            numbers[shape.agents[rank as usize][actor.number as usize] as usize]
        };
        shape.actors.iter().map(stand).collect()
    }
}

/// Messages that launches send, and their bytes; `times` says for how many each of them stands.
pub(crate) fn traffic(launches: &[Share<'_>], times: impl Fn(u32) -> u32) -> (u64, u64) {
    let mut known: FxHashMap<*const Program, (u64, u64)> = FxHashMap::default();
    (0..).zip(launches).fold((0, 0), |(messages, bytes), (launch, share)| {
        let own = *known.entry(std::ptr::from_ref(share.program)).or_insert_with(|| body::traffic(share.program));
        let times = u64::from(times(launch));
        (messages + own.0 * times, bytes + own.1 * times)
    })
}

/// Which part of which launch stands for another.
pub(crate) struct Parts<'a, P> {
    pub(crate) job: &'a P,
    pub(crate) fold: &'a Fold,
}

impl<P: Parties> Stands for Parts<'_, P> {
    fn part(&self, launch: u32, part: u32) -> (u32, u32) {
        let (rank, node) = self.job.member(launch, part);
        let stand = self.fold.stands[rank as usize];
        self.job.part(stand, node).filter(|_| stand != rank).unwrap_or((launch, part))
    }

    fn launch(&self, launch: u32) -> u32 {
        self.fold.orbits[launch as usize]
    }
}
