//! What the ranks of a call agree on.

use ahbm_findings::Diagnostic;
use ahbm_workload::{Call, CallSpec, Collective, Gather, Groups, Linked, NodeBuilder, RankBuilder, Shares};

const LIKE: CallSpec = {
    let mut spec = CallSpec::new(Collective::AllToAll, 0);
    spec.bytes = 64;
    spec
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
    let of = |bytes: u64, sends: Option<&[u64]>| CallSpec { bytes, sends: sends.map(Into::into), ..LIKE };
    assert!(!call(&[of(64, None), of(64, None)]).unwrap().uneven);
    assert!(call(&[of(64, None), of(32, None)]).unwrap().uneven);
    // What the longest split says alone is no row.
    let found = call(&[of(64, Some(&[32])), of(64, Some(&[48])), of(64, Some(&[32]))]).unwrap();
    assert_eq!((found.uneven, found.longest, found.shares), (true, Some(48), None));
}

#[test]
fn what_ranks_have_for_each_other_is_known_from_either_side() {
    let rows: [[u64; 3]; 3] = [[1, 2, 3], [4, 0, 6], [7, 8, 900]];
    let sends = |rank: usize| CallSpec { sends: Some(rows[rank].into()), ..LIKE };
    let receives = |rank: usize| CallSpec { receives: Some(rows.map(|row| row[rank]).into()), ..LIKE };
    let whole: Box<[Box<[u64]>]> = rows.iter().map(|row| row[..].into()).collect();
    for specs in [[0, 1, 2].map(sends), [0, 1, 2].map(receives)] {
        let found = call(&specs).unwrap();
        assert_eq!(found.shares, Some(Shares { rows: whole.clone(), spread: false }));
        assert_eq!((found.uneven, found.longest), (false, Some(900)));
    }
    let even = CallSpec { sends: Some([5, 5].into()), receives: Some([5, 5].into()), ..LIKE };
    assert_eq!(call(&[even.clone(), even]).unwrap().shares, None);
}

#[test]
fn sums_are_spread_in_proportion() {
    let of = |own, out| CallSpec { through: Some([own, out]), bytes: own, ..LIKE };
    let found = call(&[of(90, 30), of(10, 70)]).unwrap();
    let rows: Box<[Box<[u64]>]> = [[27, 63].into(), [3, 7].into()].into();
    assert_eq!((found.uneven, found.shares), (false, Some(Shares { rows, spread: true })));
    assert_eq!(call(&[of(50, 50), of(50, 50)]).unwrap().shares, None);
}

#[test]
fn gathers_of_unequal_tensors_are_one_call_if_each_rank_gets_the_whole() {
    let collective = Collective::AllGather;
    let of = |own, all| CallSpec { collective, bytes: 4 * own, through: Some([own, all]), ..LIKE };
    let found = call(&[of(1, 7), of(4, 7), of(2, 7)]).unwrap();
    assert_eq!((found.longest, found.shares.unwrap().rows), (Some(4), [[1, 4, 2].into()].into()));
    assert_eq!(call(&[of(1, 9), of(4, 9), of(2, 9)]).unwrap_err()[0].code, "AHBM-F149");
    let unstated = |own| CallSpec { collective, bytes: own, ..LIKE };
    assert_eq!(call(&[unstated(1), unstated(2)]).unwrap_err()[0].code, "AHBM-F149");
    let scatter = |out| CallSpec { collective: Collective::ReduceScatter, through: Some([7, out]), ..LIKE };
    assert_eq!(call(&[scatter(1), scatter(4), scatter(2)]).unwrap().shares.unwrap().rows, [[1, 4, 2].into()].into());
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
