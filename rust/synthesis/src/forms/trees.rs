//! Trees for broadcast; reduce turns them round, all-reduce goes in and out.

use super::{ClosedForm, Form, Trees, to_everybody};
use crate::Collective;

pub(crate) static BINOMIAL: ClosedForm = ClosedForm {
    name: "binomial",
    about: "A tree of doubling distances carries the buffer, in pieces.",
    applies: |request, _| one_buffer(request.collective),
    form: |request, graph| Ok(Form::Trees(binomial(request.group(graph).len() as u32, request.root))),
};

pub(crate) static DOUBLE_BINARY: ClosedForm = ClosedForm {
    name: "double_binary",
    about: "Two binary trees carry half of the buffer each, in pieces; the leaves of one are inner nodes of the other.",
    applies: |request, _| one_buffer(request.collective),
    form: |request, graph| {
        let p = request.group(graph).len() as u32;
        Ok(Form::Trees(match request.collective {
            Collective::AllReduce => double_binary(p),
            _ => double_binary_from(p, request.root),
        }))
    },
};

/// Refuses collectives whose buffer is not one share.
fn one_buffer(collective: Collective) -> Result<(), &'static str> {
    to_everybody(collective)?;
    let many = matches!(collective, Collective::AllGather | Collective::ReduceScatter);
    if many { Err("trees carry one buffer to all") } else { Ok(()) }
}

/// The root sends to everybody.
pub(super) fn star(p: u32, root: u32) -> Trees {
    Trees { lanes: vec![(0..p).filter(|&r| r != root).map(|r| (root, r)).collect()], height: 1 }
}

/// From the root along a cycle, one way or with half the buffer each way.
pub(super) fn chains(cycle: &[u32], root: u32, ways: u32) -> Trees {
    let p = cycle.len();
    let start = cycle.iter().position(|&r| r == root).unwrap_or(0);
    let at = |i: usize, back: bool| cycle[if back { start + p - i } else { start + i } % p];
    let lane = |way: u32| (1..p).map(|i| (at(i - 1, way == 1), at(i, way == 1))).collect();
    Trees { lanes: (0..ways).map(lane).collect(), height: p as u32 - 1 }
}

/// The binomial tree: a rank that has the buffer passes it on over the greatest distance left. Neighbours on a hypercube.
fn binomial(p: u32, root: u32) -> Trees {
    let rank = |v: u32| if p.is_power_of_two() { v ^ root } else { (v + root) % p };
    let steps = p.next_power_of_two().ilog2();
    let distances = (0..steps).rev().map(|k| 1 << k);
    let pairs = distances.flat_map(|d: u32| (0..p).step_by(2 * d as usize).map(move |v| (v, v + d)));
    Trees { lanes: vec![pairs.filter(|e| e.1 < p).map(|(a, b)| (rank(a), rank(b))).collect()], height: steps }
}

/// A binary tree over `0..m` in order, all odd numbers being leaves: its root and its edges outwards.
fn in_order(m: u32) -> Vec<(u32, u32)> {
    let parent = |r: u32| {
        let bit = r & r.wrapping_neg();
        let up = (r ^ bit) | (bit << 1);
        if up < m { up } else { r ^ bit }
    };
    let mut depth: Vec<(u32, u32)> = (1..m)
        .map(|r| {
            let (mut at, mut levels) = (r, 0);
            while at != 0 {
                (at, levels) = (parent(at), levels + 1);
            }
            (levels, r)
        })
        .collect();
    depth.sort_unstable();
    depth.into_iter().map(|(_, r)| (parent(r), r)).collect()
}

/// Two binary trees, each for half the buffer, the leaves of one being inner nodes of the other (Sanders, Speck,
/// Träff, Parallel Computing 2009; built as NCCL builds them).
fn double_binary(p: u32) -> Trees {
    let first = in_order(p);
    let twin = |r: u32| if p.is_multiple_of(2) { p - 1 - r } else { (r + p - 1) % p };
    let second = first.iter().map(|&(a, b)| (twin(a), twin(b))).collect();
    Trees { lanes: vec![first, second], height: p.next_power_of_two().ilog2() + 1 }
}

/// The same over all ranks but the root, which feeds both.
fn double_binary_from(p: u32, root: u32) -> Trees {
    let rest = double_binary(p - 1);
    let rank = |r: u32| (r + 1 + root) % p;
    let heads = [0, p - 2];
    let lane = |(edges, head): (&Vec<(u32, u32)>, u32)| {
        [(root, rank(head))].into_iter().chain(edges.iter().map(|&(a, b)| (rank(a), rank(b)))).collect()
    };
    Trees { lanes: rest.lanes.iter().zip(heads).map(lane).collect(), height: rest.height + 1 }
}
