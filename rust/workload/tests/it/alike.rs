//! One rank that stands for all: what the others are bound to.

use ahbm_workload::{CallSpec, Collective, Gather, Group, Groups, Linked, NodeBuilder, RankBuilder, Workload};

fn group(name: &str, ranks: &[u32]) -> Group {
    Group { name: name.into(), ranks: ranks.into() }
}

/// A job of four ranks, of which rank 3 calls in all of `own`, a broadcast from the last rank of each.
fn job(own: &[Group], families: &[Vec<Group>]) -> Result<Workload, String> {
    let mut gather = Gather::new("step", 4, Groups::default());
    let mut builder = RankBuilder::new(3, "step.0.et");
    for (id, group) in (0..).zip(own) {
        let known = gather.group(3, &group.name, Some(group.ranks.to_vec()), String::new).expect("rank 3 is in it");
        let slot = builder.group(known);
        let root = group.ranks.last().copied();
        let spec = CallSpec {
            collective: Collective::Broadcast,
            group: slot,
            bytes: 64,
            longest: None,
            dtype: None,
            op: None,
            root,
            dimensions: None,
        };
        let call = builder.call_of(spec);
        builder.push(NodeBuilder::new(id, "broadcast").work(call));
    }
    let rank = builder.finish(false).expect("a graph");
    gather.add_alike(rank, families).map_err(|findings| findings[0].message.clone())?;
    Ok(gather.finish())
}

#[test]
fn ranks_call_in_the_groups_that_they_have_in_each_others_place() {
    let (rows, columns) = ([group("a", &[0, 1]), group("b", &[2, 3])], [group("c", &[0, 2]), group("d", &[1, 3])]);
    let found = job(&[rows[1].clone(), columns[1].clone()], &[columns.to_vec(), rows.to_vec()]).expect("a mesh");
    let named = |rank: u32| [found.group(rank, 0).name.to_string(), found.group(rank, 1).name.to_string()];
    assert_eq!([0, 1, 2, 3].map(named), [["a", "c"], ["a", "d"], ["b", "c"], ["b", "d"]]);
    let linked = Linked::new(found).expect("every group agrees");
    let roots: Vec<_> = linked.calls.iter().map(|call| call.spec.root).collect();
    assert_eq!(linked.calls.len(), 4);
    for (call, root) in linked.calls.iter().zip(roots) {
        assert_eq!(root, linked.workload.groups[call.group as usize].ranks.last().copied());
    }
}

#[test]
fn ranks_of_one_group_share_the_graph() {
    let found = job(&[group("WORLD", &[0, 1, 2, 3])], &[]).expect("all ranks");
    assert_eq!((found.ranks.len(), found.graphs.len(), found.groups.len()), (4, 1, 1));
}

#[test]
fn groups_that_make_no_mesh_are_refused() {
    let own = [group("b", &[2, 3])];
    for (families, what) in [
        (vec![], "what others call is not known"),
        (vec![vec![own[0].clone(), group("a", &[0])]], "other sizes"),
        (vec![vec![own[0].clone(), group("a", &[1, 2])]], "overlap"),
        (vec![vec![own[0].clone()]], "not all ranks"),
    ] {
        let found = job(&own, &families).expect_err("no mesh");
        assert!(found.contains(what), "{found}");
    }
}
