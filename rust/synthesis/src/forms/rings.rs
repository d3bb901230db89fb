//! All-gathers around cycles: of all ranks, of the lines of a grid, and by rotations.

use super::{ClosedForm, Form, Gather, Move, among_equals, to_everybody, trees};
use crate::graph::Grid;
use crate::request::Request;
use crate::{Collective, Graph};

pub(crate) static RING: ClosedForm = ClosedForm {
    name: "ring",
    about: "The shares go around a cycle of the ranks, half of each share either way.",
    applies: |request, _| to_everybody(request.collective),
    // Two ranks, and the two ports of an NPU at a switch, have one way round.
    form: |request, graph| {
        let both = request.group(graph).len() > 2 && graph.switch().is_none();
        Ok(cyclic(request, graph, if both { 2 } else { 1 }))
    },
};

pub(crate) static ONE_WAY_RING: ClosedForm = ClosedForm {
    name: "one_way_ring",
    about: "The shares go around a cycle of the ranks, all of them the same way.",
    applies: |request, _| to_everybody(request.collective),
    form: |request, graph| Ok(cyclic(request, graph, 1)),
};

pub(crate) static DIMENSIONS: ClosedForm = ClosedForm {
    name: "dimensions",
    about: "Rings along the lines of a grid follow each other dimension by dimension; every lane begins with another one.",
    applies: |request, graph| {
        among_equals(request.collective)?;
        whole_grid(request, graph).map(drop)
    },
    form: |request, graph| Ok(Form::Gather(dimensions(whole_grid(request, graph)?))),
};

pub(crate) static DIRECT: ClosedForm = ClosedForm {
    name: "direct",
    about: "Every rank sends to every other, in turn.",
    applies: |_, _| Ok(()),
    form: |request, graph| {
        use Collective::{AllToAll, Broadcast, Gather as ToRoot, Reduce, Scatter};
        let p = request.group(graph).len() as u32;
        Ok(match request.collective {
            AllToAll | Scatter | ToRoot => Form::Pairs,
            Broadcast | Reduce => Form::Trees(trees::star(p, request.root)),
            _ => Form::Gather(rotations(p)),
        })
    },
};

fn cyclic(request: &Request, graph: &Graph, ways: u32) -> Form {
    let cycle = cycle(graph, &request.group(graph));
    match request.collective {
        Collective::Broadcast | Collective::Reduce => Form::Trees(trees::chains(&cycle, request.root, ways)),
        _ => Form::Gather(around(&cycle, ways)),
    }
}

/// The grid that the ranks are the whole of.
pub(super) fn whole_grid<'a>(request: &Request, graph: &'a Graph) -> Result<&'a Grid, &'static str> {
    let whole = request.group(graph).len() == graph.nodes() as usize;
    graph.grid().filter(|_| whole).ok_or("it is for whole grids, tori and hypercubes")
}

/// Around one cycle, each of the `ways` (forward, then backward) with its part of every block.
fn around(cycle: &[u32], ways: u32) -> Gather {
    let p = cycle.len() as u32;
    let mut moves = Vec::with_capacity((p * (p - 1) * ways) as usize);
    for round in 0..p - 1 {
        for lane in 0..ways {
            let at = |i: u32| cycle[(if lane == 0 { i % p } else { p - 1 - i % p }) as usize];
            moves.extend((0..p).map(|i| {
                // The block that was at `i` in round 0 has moved on by one in each round.
                Move { from: at(i), to: at(i + 1), block: at(i + p - round) * ways + lane }
            }));
        }
    }
    Gather { owners: (0..p).collect(), lanes: ways, moves, folded: Vec::new() }
}

/// Every rank sends its own block to everybody, in turn `k` to the `k`-th after it.
fn rotations(p: u32) -> Gather {
    let moves = (1..p).flat_map(|k| (0..p).map(move |r| Move { from: r, to: (r + k) % p, block: r })).collect();
    Gather { owners: (0..p).collect(), lanes: 1, moves, folded: Vec::new() }
}

/// Rings along the lines of each dimension in turn; every lane begins with another dimension or goes the other way
/// round, so that all links are busy (BlueConnect, MLSys 2019; the "multi-ring" of 2-D and 3-D tori).
///
/// A line that does not wrap is folded into a ring (0, 2, 4, .., 5, 3, 1), whose neighbours are two links apart.
fn dimensions(grid: &Grid) -> Gather {
    let p: u32 = grid.extents.iter().product();
    let count = grid.extents.len();
    let ways: u32 = if grid.extents.iter().all(|&e| e == 2) { 1 } else { 2 };
    let lanes = count as u32 * ways;
    let mut moves = Vec::new();
    for lane in 0..lanes {
        let (first, back) = ((lane / ways) as usize, lane % ways == 1);
        let mut held: Vec<Vec<u32>> = (0..p).map(|r| vec![r]).collect();
        for dim in (0..count).map(|d| (first + d) % count) {
            let (extent, stride) = (grid.extents[dim], grid.extents[..dim].iter().product::<u32>());
            let mut line: Vec<u32> = if grid.wrap || extent == 2 {
                (0..extent).collect()
            } else {
                (0..extent).step_by(2).chain((0..extent).rev().filter(|i| i % 2 == 1)).collect()
            };
            if back {
                line.reverse();
            }
            let mut place = vec![0; extent as usize];
            for (index, &position) in line.iter().enumerate() {
                place[position as usize] = index as u32;
            }
            let along = |rank: u32, by: u32| {
                let position = rank / stride % extent;
                let to = line[((place[position as usize] + by) % extent) as usize];
                rank - position * stride + to * stride
            };
            for round in 0..extent - 1 {
                for rank in 0..p {
                    let (to, origin) = (along(rank, 1), along(rank, extent - round));
                    let block = |&owner: &u32| Move { from: rank, to, block: owner * lanes + lane };
                    moves.extend(held[origin as usize].iter().map(block));
                }
            }
            held = (0..p).map(|r| (0..extent).flat_map(|by| held[along(r, by) as usize].clone()).collect()).collect();
        }
    }
    Gather { owners: (0..p).collect(), lanes, moves: interleaved(&moves, lanes), folded: Vec::new() }
}

/// The moves of all lanes in turn rather than lane after lane.
pub(super) fn interleaved(moves: &[Move], lanes: u32) -> Vec<Move> {
    let each = moves.len() / lanes as usize;
    (0..each).flat_map(|i| (0..lanes as usize).map(move |lane| moves[lane * each + i])).collect()
}

/// An order of the ranks in which as many neighbours as possible have a direct link, by rank.
///
/// Tried are the order of the ranks, the Gray code, and on row-major grids the boustrophedon, also the one that
/// returns along a side.
fn cycle(graph: &Graph, members: &[u32]) -> Vec<u32> {
    let p = members.len() as u32;
    let natural: Vec<u32> = (0..p).collect();
    let gray = p.is_power_of_two().then(|| (0..p).map(|i| i ^ (i >> 1)).collect());
    let widths = || (2..p).filter(|w| p.is_multiple_of(*w));
    let closed = widths().filter(|w| (p / w).is_multiple_of(2)).map(|w| returning(w, p / w));
    let direct = |cycle: &Vec<u32>| {
        let node = |i: u32| members[cycle[(i % p) as usize] as usize];
        (0..p).filter(|&i| graph.between(node(i), node(i + 1)).is_some()).count()
    };
    let mut best = (0, Vec::new());
    for found in [natural].into_iter().chain(gray).chain(closed).chain(widths().map(|w| boustrophedon(w, p / w))) {
        let count = direct(&found);
        if best.1.is_empty() || count > best.0 {
            best = (count, found);
        }
        if best.0 == p as usize {
            break;
        }
    }
    best.1
}

/// Down the first column of a grid of `w` by `h`, then back through the others, row by row.
fn returning(w: u32, h: u32) -> Vec<u32> {
    let rows = (0..h).rev().flat_map(|row| {
        let columns: Vec<u32> = if (h - 1 - row).is_multiple_of(2) { (1..w).collect() } else { (1..w).rev().collect() };
        columns.into_iter().map(move |column| row * w + column)
    });
    (0..h).map(|row| row * w).chain(rows).collect()
}

/// Row by row, there and back.
fn boustrophedon(w: u32, h: u32) -> Vec<u32> {
    (0..w * h).map(|i| if (i / w).is_multiple_of(2) { i } else { (i / w + 1) * w - 1 - i % w }).collect()
}
