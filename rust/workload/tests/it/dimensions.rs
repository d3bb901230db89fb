//! Calls along some dimensions of a network.

use ahbm_workload::{CallSpec, Collective, Gather, Groups, Linked, NodeBuilder, RankBuilder, Workload};

/// Twelve ranks, each with one all_reduce of the group of this name per list of flags.
fn job(group: &str, calls: &[&[bool]]) -> Workload {
    let named: Groups = [("tp".to_owned(), (0..12).collect())].into_iter().collect();
    let mut gather = Gather::new("step", 12, named);
    for rank in 0..12 {
        let mut job = RankBuilder::new(rank, "step.et");
        let group = gather.group(rank, group, None, String::new).unwrap();
        for (id, flags) in (0..).zip(calls) {
            let (group, dimensions) = (job.group(group), Some((*flags).into()));
            let (collective, dtype, op) = (Collective::AllReduce, None, None);
            let spec = CallSpec {
                collective,
                group,
                bytes: 64,
                sends: None,
                receives: None,
                through: None,
                dtype,
                op,
                root: None,
                dimensions,
            };
            let call = job.call_of(spec);
            job.push(NodeBuilder::new(id, format!("call {id}")).work(call));
        }
        gather.add(job.finish(false).unwrap());
    }
    gather.finish()
}

/// The ranks of every call on a network, by what is called.
fn ranks(job: &Workload, npus: &[u32]) -> Vec<Vec<u32>> {
    let linked = Linked::new(job.on_network(npus)).unwrap();
    assert!(linked.workload.without_dimensions().is_none(), "a network has them all");
    (0..linked.calls.len() as u32).map(|call| linked.ranks(call).into_vec()).collect()
}

#[test]
fn the_first_dimension_varies_fastest() {
    let first: Vec<Vec<u32>> = (0..4).map(|row| (3 * row..3 * row + 3).collect()).collect();
    assert_eq!(ranks(&job("", &[&[true, false]]), &[3, 4]), first);
    let second: Vec<Vec<u32>> = (0..3).map(|column| (0..4).map(|row| 3 * row + column).collect()).collect();
    assert_eq!(ranks(&job("", &[&[false, true]]), &[3, 4]), second);
    let outer: Vec<Vec<u32>> =
        (0..2).map(|plane| (0..3).flat_map(|z| [plane + 4 * z, plane + 4 * z + 2]).collect()).collect();
    assert_eq!(ranks(&job("", &[&[false, true, true]]), &[2, 2, 3]), outer);
    assert_eq!(ranks(&job("", &[&[false, false]]), &[3, 4]).len(), 12);
}

#[test]
fn calls_in_the_same_dimensions_share_groups() {
    let job = job("", &[&[true, false], &[false, true], &[true, false], &[true, true], &[]]);
    let on = job.on_network(&[3, 4]);
    assert_eq!((on.groups.len(), on.graphs.len()), (1 + 4 + 3, 1));
    assert_eq!(Linked::new(on).unwrap().calls.len(), 4 + 3 + 4 + 1 + 1);
}

#[test]
fn what_says_all_dimensions_is_of_all_ranks() {
    let all = vec![(0..12).collect::<Vec<u32>>()];
    for flags in [&[true, true][..], &[], &[true], &[true, true, false, false]] {
        assert_eq!(ranks(&job("", &[flags]), &[3, 4]), all, "{flags:?}");
    }
    // A dimension of one NPU says the same either way.
    assert_eq!(ranks(&job("", &[&[true, false, true]]), &[3, 1, 4]), all);
}

#[test]
fn a_named_group_has_its_own_ranks() {
    let job = job("tp", &[&[true, false]]);
    assert_eq!(ranks(&job, &[3, 4]), [(0..12).collect::<Vec<u32>>()]);
    assert!(job.without_dimensions().is_none());
}

#[test]
fn without_a_network_a_warning_names_the_first_node() {
    let job = job("", &[&[true, true], &[true, false], &[false, true]]);
    let warning = job.without_dimensions().unwrap();
    assert_eq!(warning.code, "AHBM-U238");
    let said =
        "involved_dim of all_reduce is [true, false], and 1 other node: without a network it runs among all ranks";
    assert_eq!(warning.message, said);
    assert_eq!((&*warning.sites[0].label, &*warning.sites[0].origin), ("rank 0: call 1", "step.et node 1"));
    assert_eq!(job.on_network(&[5, 5]), job, "a network of other ranks");
}
