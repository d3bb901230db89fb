//! The ring, in closed form: around a Hamiltonian cycle of direct links, both ways round at once.

use crate::schedule::{Schedule, Transfer, split};
use crate::synthesize::Request;
use crate::{Collective, Graph};
use ahbm_machine::Diagnostic;

/// The ring schedule of `request`; `None` where no cycle over direct links is known or the buffer is too small.
///
/// Known cycles: the order of the NPUs, and on grids in row-major order the boustrophedon that returns along a side.
pub(crate) fn ring(graph: &Graph, request: &Request) -> Result<Option<Schedule>, Diagnostic> {
    let n = graph.nodes();
    let Some(cycle) = cycle(graph) else { return Ok(None) };
    let step = |from: u32, to: u32| graph.out(from).iter().copied().find(|&l| graph.link(l).to == to);
    let around = |reverse: bool| -> Option<Vec<u32>> {
        let at = |i: u32| cycle[(if reverse { n - i % n } else { i } % n) as usize];
        (0..n).map(|i| step(at(i), at(i + 1))).collect()
    };
    let mut ways: Vec<Vec<u32>> = [around(false), around(true)].into_iter().flatten().collect();
    ways.truncate(if n == 2 { 1 } else { 2 });
    let owned = if request.collective == Collective::AllReduce { n } else { 1 };
    // Each way round takes its part of every share.
    let per = owned * ways.len() as u32;
    let pieces = request.chunks.div_ceil(ways.len() as u32).max(1);
    if ways.is_empty() || request.share_bytes / request.unit < u64::from(per * pieces) {
        return Ok(None);
    }
    let chunk_bytes = split(request.share_bytes, per * pieces, request.unit);
    let way_count = ways.len() as u32;
    let mut transfers = Vec::new();
    let mut pass = |first: u32, adds: bool| {
        for round in 0..n - 1 {
            for (w, way) in ways.iter().enumerate() {
                for (position, &link) in way.iter().enumerate() {
                    // The share that was at `position` in round 0 has moved on by one in each round.
                    let origin = (position as u32 + n - round % n + first) % n;
                    let owner = graph.link(way[origin as usize]).from;
                    for piece in 0..pieces {
                        let chunk = (owner * way_count + w as u32) * pieces + piece;
                        transfers.push(if adds { Transfer::add(link, chunk) } else { Transfer::copy(link, chunk) });
                    }
                }
            }
        }
    };
    // In a reduce-scatter a share sets out one after its owner and arrives there last.
    match request.collective {
        Collective::ReduceScatter => pass(n - 1, true),
        Collective::AllReduce => {
            pass(n - 1, true);
            pass(0, false);
        }
        _ => pass(0, false),
    }
    Ok(Some(Schedule {
        collective: request.collective,
        method: "ring",
        root: 0,
        shares: request.collective.shares(n),
        chunk_bytes,
        transfers,
    }))
}

/// A cycle of direct links through all NPUs.
fn cycle(graph: &Graph) -> Option<Vec<u32>> {
    let n = graph.nodes();
    let linked = |a: u32, b: u32| graph.out(a).iter().any(|&l| graph.link(l).to == b);
    let closed = |cycle: &[u32]| (0..n as usize).all(|i| linked(cycle[i], cycle[(i + 1) % n as usize]));
    let gray: Vec<u32> = (0..n).map(|i| i ^ (i >> 1)).collect();
    let natural: Vec<u32> = (0..n).collect();
    let snakes = (2..n).filter(|w| n.is_multiple_of(*w) && (n / w).is_multiple_of(2)).map(|w| snake(w, n / w));
    let all = [natural].into_iter().chain(n.is_power_of_two().then_some(gray)).chain(snakes);
    all.into_iter().find(|c| closed(c))
}

/// Down the first column of a row-major grid of `w` by `h`, then back through the others, row by row.
fn snake(w: u32, h: u32) -> Vec<u32> {
    let rows = (0..h).rev().flat_map(|row| {
        let columns: Vec<u32> = if (h - 1 - row).is_multiple_of(2) { (1..w).collect() } else { (1..w).rev().collect() };
        columns.into_iter().map(move |column| row * w + column)
    });
    (0..h).map(|row| row * w).chain(rows).collect()
}
