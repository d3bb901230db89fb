//! Ranks whose files differ in groups and peers alone share a graph, and are bound as if they had been read.

use ahbm_formats::chakra::{ReadOptions, parse_workload};
use ahbm_plan::{Budget, Limit};
use ahbm_wire::chakra::{Arm, Attribute, Metadata, Node, NodeKind, encode};
use ahbm_workload::{Groups, Workload};
use std::sync::Arc;

const RANKS: u32 = 6;

fn number(name: &str, n: i64) -> Attribute {
    Attribute::integer(&Arc::from(name), Arm::Int64, n)
}

/// Computes, calls the group of its half and the world, sends around a ring.
fn nodes(rank: u32) -> Vec<Node> {
    let mut gemm = Node::new(0, "gemm", NodeKind::Comp);
    gemm.duration_micros = 5;
    let mut call = Node::new(1, "call", NodeKind::Collective);
    let group = Attribute::text(&Arc::from("pg_name"), if rank < 3 { "1" } else { "1000" });
    call.attributes = vec![number("comm_type", 0), group, number("comm_size", 4096)];
    call.data_deps = vec![0];
    let mut world = Node::new(2, "world", NodeKind::Collective);
    world.attributes = vec![number("comm_type", 2), number("comm_size", 64)];
    let mut send = Node::new(3, "send", NodeKind::Send);
    send.attributes =
        vec![number("comm_dst", ((rank + 1) % RANKS).into()), number("comm_size", 8), number("comm_tag", 7)];
    send.attributes.push(number("comm_src", rank.into()));
    let mut recv = Node::new(4, "recv", NodeKind::Recv);
    recv.attributes =
        vec![number("comm_src", ((rank + RANKS - 1) % RANKS).into()), number("comm_size", 8), number("comm_tag", 7)];
    vec![gemm, call, world, send, recv]
}

fn read(change: impl Fn(u32, &mut Vec<Node>), options: &ReadOptions) -> Result<Workload, String> {
    let files: Vec<(String, Vec<u8>)> = (0..RANKS)
        .map(|rank| {
            let mut nodes = nodes(rank);
            change(rank, &mut nodes);
            (format!("job.{rank}.et"), encode(&Metadata { version: "0.0.4".into(), attributes: vec![] }, &nodes))
        })
        .collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    let groups: Groups = [("1".to_owned(), vec![0, 1, 2]), ("1000".to_owned(), vec![5, 4, 3])].into_iter().collect();
    parse_workload("job", &files, options, groups).map_err(|findings| findings[0].to_string())
}

#[test]
fn ranks_are_bound_to_their_own_groups_and_peers() {
    let job = read(|_, _| {}, &ReadOptions::default()).unwrap();
    assert_eq!((job.graphs.len(), job.ranks.len()), (1, 6));
    for (rank, bound) in (0..).zip(&job.ranks) {
        let names: Vec<&str> = bound.groups.iter().map(|&group| &*job.groups[group as usize].name).collect();
        assert_eq!(names, [if rank < 3 { "1" } else { "1000" }, ""]);
        assert_eq!(*bound.peers, [(rank + 1) % RANKS, (rank + RANKS - 1) % RANKS]);
        assert_eq!(&*bound.file, format!("job.{rank}.et"));
    }
    assert_eq!(*job.groups[job.ranks[4].groups[0] as usize].ranks, [5, 4, 3]);
    // Files that differ in what nobody reads are not compared, but read: equal to the last field.
    let spelled =
        read(|rank, nodes| nodes[0].attributes.push(number("ignored", rank.into())), &ReadOptions::default()).unwrap();
    assert_eq!(job, spelled);
}

#[test]
fn any_other_difference_is_read() {
    for (at, change) in [
        (0, (|node: &mut Node| node.duration_micros = 6) as fn(&mut Node)),
        (0, |node| node.name = "other".into()),
        (1, |node| node.attributes[2] = number("comm_size", 8192)),
        (1, |node| node.data_deps.clear()),
        (2, |node| node.attributes[0] = number("comm_type", 7)),
        (3, |node| node.attributes[2] = number("comm_tag", 8)),
        (4, |node| node.id = 9),
    ] {
        let job = read(
            |rank, nodes| {
                if rank == 4 {
                    change(&mut nodes[at])
                }
            },
            &ReadOptions::default(),
        )
        .unwrap();
        assert_eq!((job.graphs.len(), job.ranks[4].graph, job.ranks[5].graph), (2, 1, 0), "node {at}");
    }
}

#[test]
fn what_is_wrong_with_a_rank_that_repeats_another_is_found() {
    let refused = |change: fn(u32, &mut Vec<Node>)| read(change, &ReadOptions::default()).unwrap_err();
    let unknown = refused(|rank, nodes| {
        if rank == 5 {
            nodes[1].attributes[1] = Attribute::text(&Arc::from("pg_name"), "9")
        }
    });
    assert!(unknown.starts_with("AHBM-U234") && unknown.contains("job.5.et node 1"), "{unknown}");
    let outside = refused(|rank, nodes| {
        if rank == 5 {
            nodes[1].attributes[1] = Attribute::text(&Arc::from("pg_name"), "1")
        }
    });
    assert!(outside.starts_with("AHBM-F136 rank 5 is not in"), "{outside}");
    let nobody = refused(|rank, nodes| {
        if rank == 5 {
            nodes[3].attributes[0] = number("comm_dst", 6)
        }
    });
    assert!(nobody.contains("comm_dst is 6"), "{nobody}");
    let itself = refused(|rank, nodes| {
        if rank == 5 {
            nodes[4].attributes[0] = number("comm_src", 5)
        }
    });
    assert!(itself.contains("comm_src is the rank itself"), "{itself}");
}

#[test]
fn ranks_that_repeat_others_count_against_the_limits() {
    let options = ReadOptions { budget: Budget::default().with(Limit::Steps, 29), ..ReadOptions::default() };
    assert!(read(|_, _| {}, &options).unwrap_err().starts_with("AHBM-B204"));
}
