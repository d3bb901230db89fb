//! Jobs with other numbers of replicas against jobs that were made with them.

use crate::transformer::small;
use ahbm_workload::{
    Collective, Gather, Groups, Linked, MessageSpec, NodeBuilder, RankBuilder, Transformer, Work, Workload,
};

type Called = (Vec<u32>, Collective, u64, Option<u32>);

/// Ranks, collective, bytes and root of every call, and the ends of every message, in order of the ranks.
fn traffic(job: Workload) -> (Vec<Called>, Vec<(u32, u32, u64)>) {
    let linked = Linked::new(job).unwrap();
    let of = |call: &ahbm_workload::Call| {
        let ranks = linked.workload.groups[call.group as usize].ranks.to_vec();
        (ranks, call.spec.collective, call.spec.bytes, call.spec.root)
    };
    let mut calls: Vec<_> = linked.calls.iter().map(of).collect();
    let mut messages: Vec<_> = linked.messages.iter().map(|m| (m.send.0, m.recv.0, m.bytes)).collect();
    calls.sort();
    messages.sort_unstable();
    (calls, messages)
}

#[test]
fn replicas_of_a_transformer_are_those_that_it_has_when_it_is_made_with_them() {
    for (tensor, pipeline, zero) in [(1, 1, 0), (2, 1, 0), (1, 2, 0), (2, 2, 0), (2, 2, 1), (2, 1, 3)] {
        let made = |data| {
            let of = Transformer { tensor, pipeline, data, zero, hidden: 256, heads: 8, kv_heads: 8, ..small() };
            of.workload("step").unwrap()
        };
        for (recorded, wanted) in [(2, 4), (4, 2), (2, 2), (4, 8)] {
            let found = made(recorded).replicated(wanted).unwrap();
            assert_eq!(found.ranks.len() as u64, tensor * pipeline * u64::from(wanted));
            assert_eq!(traffic(found), traffic(made(u64::from(wanted))), "tp {tensor} pp {pipeline} zero {zero}");
        }
    }
}

#[test]
fn ranks_that_do_the_same_share_one_graph_among_any_number_of_replicas() {
    let job = Transformer { data: 2, ..small() }.workload("step").unwrap();
    let many = job.replicated(512).unwrap();
    assert_eq!((many.ranks.len(), many.graphs.len()), (512, job.graphs.len()));
    assert_eq!(many.notes.len(), job.notes.len() + 1, "it says that computing stays");
}

/// Two ranks that call `collective` together, and send to each other where `sends`.
fn pair(collective: Collective, sends: bool) -> Workload {
    let mut gather = Gather::new("step", 2, Groups::default());
    for rank in 0..2 {
        let mut job = RankBuilder::new(rank, "step.et");
        let group = gather.group(rank, "", None, || "node 0".into()).unwrap();
        let call = job.call(collective, group, 4096);
        job.push(NodeBuilder::new(0, "together").work(call));
        if sends {
            let peer = job.peer(1 - rank);
            let message = MessageSpec { peer, group: None, bytes: 8, tag: 0 };
            let work = if rank == 0 { Work::Send(message) } else { Work::Recv(message) };
            job.push(NodeBuilder::new(1, "message").work(work).after(&[0]));
        }
        gather.add(job.finish(false).unwrap());
    }
    gather.finish()
}

fn refused(job: &Workload, replicas: u32) -> String {
    let findings = job.replicated(replicas).unwrap_err();
    assert!(findings.iter().all(|finding| finding.code == "AHBM-U236"), "{findings:?}");
    findings[0].message.clone()
}

#[test]
fn what_cannot_be_scaled_is_named() {
    assert!(refused(&pair(Collective::AllReduce, true), 4).contains("ranks 0 and 1 of different replicas send"));
    assert!(refused(&pair(Collective::AllToAll, false), 4).contains("all_to_all of replicas"));
    assert!(refused(&pair(Collective::AllReduce, false), 0).contains("0 in place of 2 replicas"));
    assert!(refused(&pair(Collective::AllReduce, false), u32::MAX).contains("ranks with"));
    let alone = Transformer { pipeline: 2, ..small() }.workload("step").unwrap();
    assert!(refused(&alone, 2).contains("no groups of the job") || refused(&alone, 2).contains("send to each other"));
}

#[test]
fn shares_of_a_whole_follow_the_number_of_replicas() {
    let bytes = |collective, replicas| {
        let job = pair(collective, false).replicated(replicas).unwrap();
        job.graph(0).spec(0).unwrap().bytes
    };
    assert_eq!(bytes(Collective::AllGather, 3), 2731, "a third of 8192 bytes, rounded up");
    assert_eq!(bytes(Collective::ReduceScatter, 3), 4098, "the whole, in three equal parts");
    assert_eq!(bytes(Collective::AllReduce, 3), 4096);
}
