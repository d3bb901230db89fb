//! Several jobs on one network, each on ranks of its own.

use crate::build::RankBuilder;
use crate::node::CallSpec;
use crate::one;
use crate::workload::{Gather, Groups, Workload};
use ahbm_findings::Diagnostic;
use rustc_hash::FxHashMap;

impl Workload {
    /// A job of `size` ranks: rank `places[r]` does what rank r of the job beside it does, and every other rank nothing.
    ///
    /// Groups keep their names and the order of their ranks.
    ///
    /// # Errors
    /// `AHBM-C120` as many places as no job has ranks, and a place that does not exist or has two ranks; as
    /// [`Gather::group`].
    pub fn together(name: &str, jobs: &[(&Self, &[u32])], size: u32) -> Result<Self, Vec<Diagnostic>> {
        let mut owners: Vec<Option<(usize, u32)>> = vec![None; size as usize];
        for (job, (of, places)) in jobs.iter().enumerate() {
            if of.ranks.len() != places.len() {
                let what = format!("{} has {} ranks, and {} places", of.name, of.ranks.len(), places.len());
                return Err(one(Diagnostic::new("AHBM-C120", what)));
            }
            for (rank, &place) in (0..).zip(*places) {
                match owners.get_mut(place as usize) {
                    Some(owner @ None) => *owner = Some((job, rank)),
                    Some(_) => {
                        return Err(one(Diagnostic::new("AHBM-C120", format!("two ranks have the place {place}"))));
                    }
                    None => {
                        let what = format!("rank {rank} of {} has the place {place} of {size}", of.name);
                        return Err(one(Diagnostic::new("AHBM-C120", what)));
                    }
                }
            }
        }
        let mut gather = Gather::new(name, size, Groups::default());
        if !jobs.is_empty() && jobs.iter().all(|(job, _)| job.recorded) {
            gather.recorded();
        }
        jobs.iter().flat_map(|(job, _)| &job.notes).for_each(|note| gather.note(note.clone()));
        let (mut graphs, mut groups) = (FxHashMap::default(), FxHashMap::default());
        for (place, owner) in (0..size).zip(&owners) {
            let Some((at, rank)) = *owner else {
                gather.add(RankBuilder::new(place, "").finish(false)?);
                continue;
            };
            let (job, places) = jobs[at];
            let own = &job.ranks[rank as usize];
            let graph = *graphs.entry((at, own.graph)).or_insert_with(|| {
                let graph = &job.graphs[own.graph as usize];
                let moved = |spec: &CallSpec| {
                    // A root that is no rank of the job is found where all roots are checked.
                    let root = spec.root.map(|root| places.get(root as usize).copied().unwrap_or(u32::MAX));
                    CallSpec { root, ..spec.clone() }
                };
                let specs: Vec<CallSpec> = graph.specs().iter().map(moved).collect();
                let same = graph.specs().iter().eq(&specs);
                gather.share(if same { graph.clone() } else { graph.with_specs(&specs) })
            });
            let mut bound = Vec::with_capacity(own.groups.len());
            for &group in &own.groups {
                let known = match groups.get(&(at, group)) {
                    Some(&known) => known,
                    None => {
                        let of = &job.groups[group as usize];
                        let ranks = of.ranks.iter().map(|&rank| places[rank as usize]).collect();
                        let known = gather.group(place, &of.name, Some(ranks), || own.file.to_string())?;
                        groups.insert((at, group), known);
                        known
                    }
                };
                bound.push(known);
            }
            let peers = own.peers.iter().map(|&peer| places.get(peer as usize).copied().unwrap_or(u32::MAX)).collect();
            gather.bind(graph, bound, peers, own.file.clone());
        }
        Ok(gather.finish())
    }
}
