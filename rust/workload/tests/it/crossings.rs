//! Collectives of different ranks that wait for each other.

use ahbm_findings::Diagnostic;
use ahbm_workload::{Collective, Gather, MessageSpec, NodeBuilder, RankBuilder, Work, Workload};
use proptest::prelude::*;

type Adds<'a> = dyn Fn(u32, &mut Gather, &mut RankBuilder) + 'a;

fn job(ranks: u32, add: &Adds) -> Workload {
    let all: Vec<u32> = (0..ranks).collect();
    let named = [("a".to_owned(), all.clone()), ("b".to_owned(), all)].into_iter().collect();
    let mut gather = Gather::new("job", ranks, named);
    for rank in 0..ranks {
        let mut builder = RankBuilder::new(rank, format!("job.{rank}.et"));
        add(rank, &mut gather, &mut builder);
        gather.add(builder.finish(false).unwrap());
    }
    gather.finish()
}

fn call(rank: u32, gather: &mut Gather, builder: &mut RankBuilder, id: u64, group: &str, after: &[u64]) {
    let group = gather.group(rank, group, None, String::new).unwrap();
    let work = builder.call(Collective::AllReduce, group, 64);
    builder.push(NodeBuilder::new(id, format!("call {id}")).work(work).after(after));
}

fn message(builder: &mut RankBuilder, id: u64, peer: u32, sends: bool, after: &[u64]) {
    let spec = MessageSpec { peer: builder.peer(peer), group: None, bytes: 8, tag: 0 };
    let work = if sends { Work::Send(spec) } else { Work::Recv(spec) };
    builder.push(NodeBuilder::new(id, format!("message {id}")).work(work).after(after));
}

fn crossings(job: &Workload) -> Result<(), Vec<Diagnostic>> {
    job.crossings(&job.calls().unwrap(), &job.messages().unwrap())
}

#[test]
fn two_groups_in_crossing_orders() {
    let order = |rank: u32| if rank.is_multiple_of(2) { ["a", "b"] } else { ["b", "a"] };
    let job = job(4, &|rank, gather, builder| {
        call(rank, gather, builder, 0, order(rank)[0], &[]);
        call(rank, gather, builder, 1, order(rank)[1], &[0]);
    });
    let finding = &crossings(&job).unwrap_err()[0];
    assert_eq!((finding.code, &*finding.message), ("AHBM-D102", "groups \"a\", \"b\" are entered in crossing orders"));
    let sites: Vec<_> = finding.sites.iter().map(|site| (&*site.label, &*site.origin)).collect();
    assert_eq!(sites.len(), 2, "{sites:?}");
    assert!(
        sites.iter().all(|(label, origin)| label.contains("waits for node 0") && origin.ends_with("node 1")),
        "{sites:?}"
    );
}

#[test]
fn groups_without_a_dependency_between_them_do_not_cross() {
    let order = |rank: u32| if rank.is_multiple_of(2) { ["a", "b"] } else { ["b", "a"] };
    let job = job(4, &|rank, gather, builder| {
        call(rank, gather, builder, 0, order(rank)[0], &[]);
        call(rank, gather, builder, 1, order(rank)[1], &[]);
    });
    assert_eq!(crossings(&job), Ok(()));
}

#[test]
fn ranks_that_receive_before_they_send() {
    let waits = job(2, &|rank, _, builder| {
        message(builder, 0, 1 - rank, false, &[]);
        message(builder, 1, 1 - rank, true, &[0]);
    });
    let finding = &crossings(&waits).unwrap_err()[0];
    assert_eq!((finding.code, finding.sites.len()), ("AHBM-D102", 4), "{finding}");
    let eager = job(2, &|rank, _, builder| {
        message(builder, 0, 1 - rank, true, &[]);
        message(builder, 1, 1 - rank, false, &[0]);
    });
    assert_eq!(crossings(&eager), Ok(()), "a send waits for nobody");
}

#[test]
fn a_message_that_crosses_a_collective() {
    let job = job(2, &|rank, gather, builder| {
        if rank == 0 {
            call(rank, gather, builder, 0, "a", &[]);
            message(builder, 1, 1, true, &[0]);
        } else {
            message(builder, 0, 0, false, &[]);
            call(rank, gather, builder, 1, "a", &[0]);
        }
    });
    assert_eq!(crossings(&job).unwrap_err()[0].code, "AHBM-D102");
}

proptest! {
    /// Whatever is written down in the order in which it can happen is sound.
    #[test]
    fn a_job_that_happened_has_no_crossing(steps in prop::collection::vec((0u8..4, 0u32..4, 0u32..4), 1..60)) {
        let job = job(4, &|rank, gather, builder| {
            let mut last: Vec<u64> = Vec::new();
            for (id, (kind, from, to)) in (0..).zip(&steps) {
                match kind {
                    0 => call(rank, gather, builder, id, "a", &last),
                    1 => call(rank, gather, builder, id, "b", &last),
                    _ if from != to && rank == *from => message(builder, id, *to, true, &last),
                    _ if from != to && rank == *to => message(builder, id, *from, false, &last),
                    _ => continue,
                }
                last = vec![id];
            }
        });
        prop_assert_eq!(crossings(&job), Ok(()));
    }
}
