//! Several jobs on one network.

use ahbm_workload::{
    CallSpec, Collective, Gather, Groups, Linked, MessageSpec, NodeBuilder, RankBuilder, Work, Workload,
};

/// Each half of the ranks broadcasts from its last rank; then every rank sends to the next one.
fn job(name: &str, size: u32) -> Workload {
    let mut gather = Gather::new(name, size, Groups::default());
    for rank in 0..size {
        let half = rank * 2 / size;
        let members: Vec<u32> = (half * size / 2..(half + 1) * size / 2).collect();
        let root = members.last().copied();
        let mut job = RankBuilder::new(rank, format!("{name}.{rank}.et"));
        let known = gather.group(rank, &format!("half{half}"), Some(members), String::new).expect("it is in it");
        let spec = CallSpec {
            collective: Collective::Broadcast,
            group: job.group(known),
            bytes: 64,
            sends: None,
            receives: None,
            through: None,
            dtype: None,
            op: None,
            root,
            dimensions: None,
        };
        let call = job.call_of(spec);
        job.push(NodeBuilder::new(0, "broadcast").work(call));
        let (next, last) = (job.peer((rank + 1) % size), job.peer((rank + size - 1) % size));
        job.push(
            NodeBuilder::new(1, "send")
                .work(Work::Send(MessageSpec { peer: next, group: None, tag: 0, bytes: 8 }))
                .after(&[0]),
        );
        job.push(
            NodeBuilder::new(2, "recv")
                .work(Work::Recv(MessageSpec { peer: last, group: None, tag: 0, bytes: 8 }))
                .after(&[0]),
        );
        gather.add(job.finish(false).expect("a graph"));
    }
    gather.finish()
}

fn refused(jobs: &[(&Workload, &[u32])], size: u32) -> String {
    let findings = Workload::together("both", jobs, size).expect_err("places that do not fit");
    format!("{} {}", findings[0].code, findings[0].message)
}

#[test]
fn every_rank_does_at_its_place_what_its_job_says() {
    let (one, other) = (job("one", 4), job("other", 4));
    let places: [&[u32]; 2] = [&[3, 1, 0, 7], &[4, 6, 5, 8]];
    let both = Workload::together("both", &[(&one, places[0]), (&other, places[1])], 9).expect("they fit");
    assert_eq!((both.ranks.len(), both.nodes()), (9, one.nodes() + other.nodes()));
    assert!(both.graph(2).nodes().is_empty(), "nobody is there");
    for (alone, places) in [(&one, places[0]), (&other, places[1])] {
        let at = |rank: &u32| places[*rank as usize];
        for (rank, &place) in (0..).zip(places) {
            let (own, here) = (&alone.ranks[rank as usize], &both.ranks[place as usize]);
            assert_eq!((alone.graph(rank).nodes(), &own.file), (both.graph(place).nodes(), &here.file));
            let (group, there) = (alone.group(rank, 0), both.group(place, 0));
            assert_eq!((&group.name, group.ranks.iter().map(at).collect()), (&there.name, there.ranks.to_vec()));
            assert_eq!(both.graph(place).spec(0).and_then(|spec| spec.root), there.ranks.last().copied());
            assert_eq!(own.peers.iter().map(at).collect::<Vec<_>>(), here.peers.to_vec());
        }
    }
    let linked = Linked::new(both).expect("every call has its ranks");
    assert_eq!((linked.calls.len(), linked.messages.len()), (4, 8));
}

#[test]
fn a_job_on_its_own_places_is_itself() {
    let alone = job("one", 4);
    assert_eq!(Workload::together("one", &[(&alone, &[0, 1, 2, 3])], 4).expect("it fits"), alone);
}

#[test]
fn places_that_do_not_fit_are_refused() {
    let one = job("one", 2);
    assert_eq!(refused(&[(&one, &[0])], 2), "AHBM-C120 one has 2 ranks, and 1 places");
    assert_eq!(refused(&[(&one, &[0, 2])], 2), "AHBM-C120 rank 1 of one has the place 2 of 2");
    assert_eq!(refused(&[(&one, &[0, 1]), (&one, &[2, 1])], 4), "AHBM-C120 two ranks have the place 1");
}
