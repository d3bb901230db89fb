//! What the ranks of a call agree on.

use ahbm_machine::Diagnostic;
use ahbm_workload::{Call, CallSpec, Collective, Gather, Groups, Linked, NodeBuilder, RankBuilder};

const LIKE: CallSpec = CallSpec {
    collective: Collective::AllToAll,
    group: 0,
    bytes: 64,
    longest: None,
    dtype: None,
    op: None,
    root: None,
    dimensions: None,
};

/// The call of ranks that each state it so.
fn call(specs: &[CallSpec]) -> Result<Call, Vec<Diagnostic>> {
    let mut gather = Gather::new("step", specs.len() as u32, Groups::default());
    for (rank, spec) in (0..).zip(specs) {
        let mut job = RankBuilder::new(rank, format!("step.{rank}.et"));
        let group = gather.group(rank, "", None, String::new).unwrap();
        let group = job.group(group);
        let call = job.call_of(CallSpec { group, ..spec.clone() });
        job.push(NodeBuilder::new(7, "call").work(call));
        gather.add(job.finish(false).unwrap());
    }
    Ok(Linked::new(gather.finish())?.calls.remove(0))
}

#[test]
fn ranks_that_state_other_splits_are_uneven() {
    let of = |bytes: u64, longest: Option<u64>| CallSpec { bytes, longest, ..LIKE };
    assert!(!call(&[of(64, None), of(64, None)]).unwrap().uneven);
    assert!(call(&[of(64, None), of(32, None)]).unwrap().uneven);
    let found = call(&[of(64, Some(32)), of(64, Some(48)), of(64, Some(32))]).unwrap();
    assert_eq!((found.uneven, found.spec.longest), (true, Some(48)));
}

#[test]
fn a_root_outside_of_the_group_is_refused() {
    for collective in [Collective::Broadcast, Collective::Reduce, Collective::Gather, Collective::Scatter] {
        let spec = CallSpec { collective, root: Some(9), ..LIKE };
        let finding = call(&[spec.clone(), spec]).unwrap_err().remove(0);
        assert_eq!(finding.code, "AHBM-F136");
        assert_eq!(finding.message, "attribute root is 9, which is not in the group of ranks 0, 1");
        assert_eq!(finding.sites[0].origin, "step.0.et node 7");
    }
}

#[test]
fn a_root_means_nothing_to_a_collective_without() {
    let spec = CallSpec { collective: Collective::AllReduce, root: Some(9), ..LIKE };
    assert_eq!(call(&[spec.clone(), spec]).unwrap().spec.root, None);
}

#[test]
fn a_reduce_scatter_has_two_names() {
    let spec = CallSpec { collective: Collective::ReduceScatterBlock, ..LIKE };
    assert_eq!(call(&[spec.clone(), spec]).unwrap().spec.collective, Collective::ReduceScatter);
}
