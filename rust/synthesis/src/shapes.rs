//! Networks for tests.

use crate::{Collective, Graph, Link, Schedule};
use ahbm_machine::Rate;

fn graph(nodes: u32, pairs: impl IntoIterator<Item = (u32, u32)>) -> Graph {
    let rate = Rate::from_gbs(50.0).expect("a bandwidth");
    let links = pairs
        .into_iter()
        .flat_map(|(a, b)| [(a, b), (b, a)])
        .map(|(from, to)| Link { from, to, rate, latency_ps: 500_000 })
        .collect();
    Graph::new(nodes, links).expect("connected")
}

pub(crate) fn grid(extents: &[u32], wrap: bool) -> Graph {
    let nodes: u32 = extents.iter().product();
    let mut pairs = Vec::new();
    let mut stride = 1;
    for &extent in extents {
        for v in 0..nodes {
            let at = v / stride % extent;
            if at + 1 < extent {
                pairs.push((v, v + stride));
            } else if wrap && extent > 2 {
                pairs.push((v, v + stride - extent * stride));
            }
        }
        stride *= extent;
    }
    graph(nodes, pairs)
}

pub(crate) fn hypercube(dims: u32) -> Graph {
    let pairs = (0..1u32 << dims).flat_map(|v| (0..dims).map(move |d| (v, v ^ (1 << d)))).filter(|(a, b)| a < b);
    graph(1 << dims, pairs)
}

pub(crate) fn full(nodes: u32) -> Graph {
    graph(nodes, (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b))))
}

/// An all-gather of a megabyte each.
pub(crate) fn gather(n: u32) -> Schedule {
    Schedule {
        collective: Collective::AllGather,
        method: "greedy",
        members: (0..n).collect(),
        root: 0,
        shares: n,
        chunk_bytes: vec![1_000_000],
        parcels: Vec::new(),
        transfers: Vec::new(),
    }
}
