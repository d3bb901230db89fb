//! Ranks that are copies of each other, and jobs without them.

use crate::transformer::small;
use ahbm_workload::{
    CallSpec, Collective, Copies, Gather, Groups, Linked, NodeBuilder, RankBuilder, Transformer, Workload,
};
use std::collections::{BTreeMap, BTreeSet};

/// A call or a message: what it is, and its ranks with their nodes.
type Launch = (String, Vec<(u32, u32)>);

fn launches(job: &Linked, launch: u32) -> Launch {
    let what = job.calls.get(launch as usize).map_or_else(
        || format!("{}", job.messages[launch as usize - job.calls.len()].bytes),
        |call| format!("{:?} {}", call.spec.collective, call.spec.bytes),
    );
    let mut ranks: Vec<(u32, u32)> = (0..job.parts(launch)).map(|part| job.member(launch, part)).collect();
    if !job.is_message(launch) {
        ranks.sort_unstable();
    }
    (what, ranks)
}

/// The copies of what is kept are the whole job.
fn covers(of: &Transformer) -> Copies {
    let job = of.workload("step").unwrap();
    let (whole, thin) = (Linked::new(job.clone()).unwrap(), Linked::thin(job).unwrap());
    let copies = thin.copies.expect("ranks are alike");
    assert_eq!(thin.nodes() * copies.count() as usize, whole.nodes());
    let all: BTreeSet<Launch> = (0..whole.launches() as u32).map(|launch| launches(&whole, launch)).collect();
    let mut found = BTreeSet::new();
    for launch in 0..thin.launches() as u32 {
        let (what, ranks) = launches(&thin, launch);
        let numbers = copies.of(&thin.ranks(launch));
        assert_eq!(numbers.len() as u32, thin.times(launch));
        for nth in numbers {
            let mut moved: Vec<(u32, u32)> = ranks.iter().map(|&(rank, node)| (copies.copy(rank, nth), node)).collect();
            if !thin.is_message(launch) {
                moved.sort_unstable();
            }
            assert!(found.insert((what.clone(), moved)), "a copy is there once");
        }
    }
    assert_eq!(found, all);
    for place in 0..thin.nodes() as u32 {
        let (rank, at) = thin.node(place);
        assert_eq!((thin.place(rank, at), copies.lead(rank)), (place, rank));
    }
    copies
}

#[test]
fn replicas_and_tensor_parallel_ranks_are_copies() {
    let dense = Transformer { tensor: 2, pipeline: 2, data: 4, ..small() };
    assert_eq!(covers(&dense).count(), 8);
    assert_eq!(covers(&Transformer { data: 8, zero: 3, ..small() }).count(), 8);
    assert_eq!(covers(&Transformer { context: 2, tensor: 2, data: 3, ..small() }).count(), 6);
    // Ranks of other stages do something else.
    assert_eq!(covers(&Transformer { tensor: 4, pipeline: 4, zero: 1, data: 2, ..small() }).count(), 8);
    let routed = Transformer { data: 4, expert: 2, experts: 4, sequence_parallel: true, tensor: 2, ..small() };
    assert!(covers(&routed).count() >= 4);
}

fn gathered(groups: &[&[u32]], root: Option<u32>) -> Workload {
    let size = groups.iter().flat_map(|group| group.iter()).count() as u32;
    let mut gather = Gather::new("job", size, Groups::default());
    let of: BTreeMap<u32, &[u32]> = groups.iter().flat_map(|group| group.iter().map(|&rank| (rank, *group))).collect();
    for rank in 0..size {
        let mut builder = RankBuilder::new(rank, "job.et");
        let name = format!("of{}", of[&rank][0]);
        let group = gather.group(rank, &name, Some(of[&rank].to_vec()), String::new).unwrap();
        let work = match root {
            None => builder.call(Collective::AllReduce, group, 64),
            Some(_) => {
                let group = builder.group(group);
                let (sends, receives, through) = (None, None, None);
                let (dtype, op, dimensions) = (None, None, None);
                let collective = Collective::Broadcast;
                let spec =
                    CallSpec { collective, group, bytes: 64, sends, receives, through, dtype, op, root, dimensions };
                builder.call_of(spec)
            }
        };
        builder.push(NodeBuilder::new(0, "call").work(work));
        gather.add(builder.finish(false).unwrap());
    }
    gather.finish()
}

#[test]
fn what_a_renumbering_changes_has_no_copies() {
    let count = |job: Workload| job.copies().map_or(1, Copies::count);
    assert_eq!(count(gathered(&[&[0, 1], &[2, 3]], None)), 4);
    assert_eq!(count(gathered(&[&[0, 2], &[1, 3]], None)), 4);
    // Groups of other ranks than the copies of theirs.
    assert_eq!(count(gathered(&[&[0, 1, 2], &[3]], None)), 1);
    assert_eq!(count(gathered(&[&[0, 3], &[1, 2]], None)), 2);
    // A program is made for ascending ranks.
    assert_eq!(count(gathered(&[&[1, 0], &[2, 3]], None)), 1);
    assert_eq!(count(gathered(&[&[0, 1, 2, 3]], Some(0))), 1);
}
