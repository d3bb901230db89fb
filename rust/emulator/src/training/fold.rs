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

mod body;
mod classes;
mod cover;
mod shape;
mod sites;

use crate::timing::Stand;
use ahbm_machine::{LinkId, Machine};
use ahbm_program::Program;
use ahbm_program::job::{Share, Stands};
use ahbm_workload::Linked;
use rustc_hash::FxHashMap;

/// Which ranks stand for which.
#[derive(Debug)]
pub(super) struct Fold {
    /// Per rank, the one that stands for it; the lowest of its class, which stands for itself.
    pub(super) stands: Vec<u32>,
    /// Per launch, the first of those that make one together.
    orbits: Vec<u32>,
    /// The link that stands for each link in use.
    pub(super) links: FxHashMap<LinkId, Stand>,
}

impl Fold {
    /// The classes of a job; the reason where no two ranks are alike, or where the run could tell ranks of a class apart.
    pub(super) fn new(job: &Linked, launches: &[Share<'_>], machine: &Machine) -> Result<Self, &'static str> {
        if !machine.is_even() {
            return Err("the machine has faults");
        }
        if !job.chunks.is_empty() {
            return Err("ranks wait for chunks, each for others");
        }
        let sites = sites::Sites::new(job, launches, machine).ok_or("no agent of a program can stand for another")?;
        let stands = classes::classes(job, &sites).ok_or("no two ranks are alike")?;
        let orbits = cover::orbits(job, &sites, &stands).ok_or("calls of ranks that seem alike differ")?;
        let links = cover::links(&sites, &stands, &orbits, machine).ok_or("links of ranks that seem alike differ")?;
        Ok(Self { stands, orbits, links })
    }
}

/// Messages that launches send, and their bytes.
pub(super) fn traffic(launches: &[Share<'_>]) -> (u64, u64) {
    let mut known: FxHashMap<*const Program, (u64, u64)> = FxHashMap::default();
    launches.iter().fold((0, 0), |(messages, bytes), share| {
        let own = *known.entry(std::ptr::from_ref(share.program)).or_insert_with(|| body::traffic(share.program));
        (messages + own.0, bytes + own.1)
    })
}

/// Which part of which launch stands for another.
pub(super) struct Parts<'a> {
    pub(super) job: &'a Linked,
    pub(super) fold: &'a Fold,
}

impl Stands for Parts<'_> {
    fn part(&self, launch: u32, part: u32) -> (u32, u32) {
        let (rank, node) = self.job.member(launch, part);
        let stand = self.fold.stands[rank as usize];
        let share = self.job.share(self.job.place(stand, node)).filter(|_| stand != rank);
        share.map_or((launch, part), |share| (share.launch, share.part))
    }

    fn launch(&self, launch: u32) -> u32 {
        self.fold.orbits[launch as usize]
    }
}
