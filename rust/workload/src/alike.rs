//! One rank that stands for all: its graph, bound to every rank by the groups that all ranks have made.

use crate::build::RankGraph;
use crate::node::CallSpec;
use crate::one;
use crate::workload::{Gather, Group};
use ahbm_findings::Diagnostic;
use rustc_hash::FxHashMap;
use std::sync::Arc;

impl Gather {
    /// Adds every rank of the job: each does what `own` does, in groups of its own.
    ///
    /// A family has groups of equally many ranks that together are all ranks. In the place of a group of `own`, a rank
    /// has the one of the same family that it is in, and in the place of a root the rank at the same place of that group.
    ///
    /// # Errors
    /// `AHBM-F136` a group that has not all ranks and is in no family, a family that does not have every rank once, or a
    /// rank that sends or receives: to whom others send is not known.
    pub fn add_alike(&mut self, own: RankGraph, families: &[Vec<Group>]) -> Result<(), Vec<Diagnostic>> {
        let wrong =
            |what: String| one(Diagnostic::new("AHBM-F136", what).site(format!("rank {}", own.rank), &*own.file));
        if !own.peers.is_empty() {
            return Err(wrong(
                "one rank stands for all, but it sends or receives: to whom others do is not known".into(),
            ));
        }
        let slots: Vec<Vec<Group>> =
            own.groups.iter().map(|&group| self.by_rank(group, families)).collect::<Result<_, _>>().map_err(wrong)?;
        let mut known: FxHashMap<Vec<CallSpec>, u32> = FxHashMap::default();
        for rank in 0..self.size() {
            let at = |slot: u32| &slots[slot as usize][rank as usize];
            let mut specs: Vec<CallSpec> = own.graph.specs().iter().cloned().collect();
            for spec in &mut specs {
                let place = |root| slots[spec.group as usize][own.rank as usize].ranks.iter().position(|&r| r == root);
                // One that is in no group is found where all roots are checked.
                spec.root = spec.root.map(|root| place(root).map_or(root, |place| at(spec.group).ranks[place]));
            }
            let graph = match known.get(&specs) {
                Some(&graph) => graph,
                None => {
                    let same = own.graph.specs().iter().eq(&specs);
                    let graph = self.add_graph(if same { own.graph.clone() } else { own.graph.with_specs(&specs) });
                    known.insert(specs, graph);
                    graph
                }
            };
            let bound = (0..slots.len() as u32)
                .map(|slot| {
                    let Group { name, ranks } = at(slot);
                    self.group(rank, name, Some(ranks.to_vec()), || own.file.to_string())
                })
                .collect::<Result<_, _>>()?;
            self.bind(graph, bound, Vec::new(), Arc::clone(&own.file));
        }
        Ok(())
    }

    /// Per rank of the job, the group that it has in the place of a group of the one that stands for it.
    fn by_rank(&self, group: u32, families: &[Vec<Group>]) -> Result<Vec<Group>, String> {
        let (own, count) = (self.known_group(group), self.size() as usize);
        if own.ranks.len() == count {
            return Ok(vec![own.clone(); count]);
        }
        let name = &own.name;
        let family = families.iter().find(|family| family.contains(own));
        let family =
            family.ok_or(format!("process group {name:?} has not all ranks: what others call is not known"))?;
        let mut found: Vec<Option<&Group>> = vec![None; count];
        for one in family {
            for &rank in &*one.ranks {
                match found.get_mut(rank as usize) {
                    Some(of @ None) if one.ranks.len() == own.ranks.len() => *of = Some(one),
                    _ => {
                        return Err(format!("process group {name:?} is one of groups of other sizes, or that overlap"));
                    }
                }
            }
        }
        let all = found.into_iter().map(|of| of.cloned()).collect::<Option<Vec<_>>>();
        all.ok_or(format!("process group {name:?} is one of groups that have not all ranks"))
    }
}
