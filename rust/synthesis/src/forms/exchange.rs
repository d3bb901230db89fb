//! All-gathers in which ranks exchange all they have with one partner after the other.

use super::rings::{interleaved, whole_grid};
use super::{ClosedForm, Form, Gather, Move, among_equals};
use crate::Collective;
use crate::graph::Grid;

pub(crate) static HALVING_DOUBLING: ClosedForm = ClosedForm {
    name: "halving_doubling",
    about: "Ranks exchange all they hold with partners whose numbers differ in one bit, one bit after the other.",
    applies: |request, graph| {
        among_equals(request.collective)?;
        let even = request.group(graph).len().is_power_of_two();
        let whole = even || request.collective == Collective::AllReduce;
        if whole { Ok(()) } else { Err("the number of ranks must be a power of two") }
    },
    form: |request, graph| Ok(Form::Gather(halving_doubling(request.group(graph).len() as u32))),
};

pub(crate) static SWING: ClosedForm = ClosedForm {
    name: "swing",
    about: "Ranks of a torus exchange all they hold with partners 1, 1, 3, 5, 11, ... apart, to alternate sides.",
    applies: |request, graph| {
        among_equals(request.collective)?;
        let grid = whole_grid(request, graph)?;
        let whole = grid.extents.iter().all(|e| e.is_power_of_two() && (grid.wrap || *e == 2));
        if whole { Ok(()) } else { Err("extents of a torus must be powers of two") }
    },
    form: |request, graph| Ok(Form::Gather(swing(whole_grid(request, graph)?))),
};

/// The all-gather of one lane: in reverse order of `steps`, rank `r` gives `peer(r, step)` what it has come to hold.
/// The partners must make up a hypercube, in whatever numbering.
fn exchange(p: u32, steps: u32, peer: impl Fn(u32, u32) -> u32, lane: u32, lanes: u32, moves: &mut Vec<Move>) {
    let mut held: Vec<Vec<u32>> = (0..p).map(|r| vec![r]).collect();
    for step in (0..steps).rev() {
        for from in 0..p {
            let to = peer(from, step);
            moves.extend(held[from as usize].iter().map(|owner| Move { from, to, block: owner * lanes + lane }));
        }
        held = (0..p).map(|r| [&held[r as usize][..], &held[peer(r, step) as usize]].concat()).collect();
    }
}

/// Recursive halving and doubling (Thakur, Rabenseifner, Gropp, IJHPCA 2005): partners differ in one bit of their
/// ranks, the most significant first in the halving. Beyond the greatest power of two in `p`, the first ranks work in
/// pairs, of which the first stands in for both.
fn halving_doubling(p: u32) -> Gather {
    let steps = p.ilog2();
    let core = 1 << steps;
    let extra = p - core;
    let owners: Vec<u32> = (0..core).map(|i| if i < extra { 2 * i } else { i + extra }).collect();
    let mut moves = Vec::new();
    exchange(core, steps, |r, step| r ^ (core >> (step + 1)), 0, 1, &mut moves);
    for step in &mut moves {
        (step.from, step.to) = (owners[step.from as usize], owners[step.to as usize]);
    }
    Gather { owners, lanes: 1, moves, folded: (0..extra).map(|i| (2 * i + 1, 2 * i)).collect() }
}

/// Swing (De Sensi et al., NSDI 2024) on a torus whose extents are powers of two: in step `s` of a dimension an even
/// position meets the one `rho(s) = (1 - (-2)^(s+1)) / 3` further on, an odd one the one as far back. There is a lane
/// for every dimension to begin with, and a mirrored one.
fn swing(grid: &Grid) -> Gather {
    let (p, count) = (grid.extents.iter().product::<u32>(), grid.extents.len());
    let lanes = 2 * count as u32;
    let mut moves = Vec::new();
    for lane in 0..lanes {
        let (first, mirrored) = ((lane / 2) as usize, lane % 2 == 1);
        // (dimension, step within it): the dimensions in turn while they last.
        let longest = grid.extents.iter().map(|e| e.ilog2()).max().unwrap_or(0);
        let turns = (0..longest).flat_map(|s| (0..count).map(move |d| ((first + d) % count, s)));
        let steps: Vec<(usize, u32)> = turns.filter(|&(dim, s)| s < grid.extents[dim].ilog2()).collect();
        let peer = |rank: u32, step: u32| {
            let (dim, s) = steps[step as usize];
            let (extent, stride) = (grid.extents[dim], grid.extents[..dim].iter().product::<u32>());
            let position = rank / stride % extent;
            let rho = (1 - (-2i64).pow(s + 1)) / 3;
            let ahead = position.is_multiple_of(2) != mirrored;
            let to = (i64::from(position) + if ahead { rho } else { -rho }).rem_euclid(i64::from(extent)) as u32;
            rank - position * stride + to * stride
        };
        exchange(p, steps.len() as u32, peer, lane, lanes, &mut moves);
    }
    Gather { owners: (0..p).collect(), lanes, moves: interleaved(&moves, lanes), folded: Vec::new() }
}
