//! Thread-block plans that tests make: correct algorithms of several shapes.

use ahbm_plan::blocks::{Action, Block, Dep, Places, Precopy, Rank, Slot, Step};
use ahbm_plan::{Collective, Plan, Protocol, Space};

/// An algorithm for `ranks` ranks whose messages have `width` chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// All-gather around a ring, with the own block copied beforehand.
    Gather,
    /// Fused ring all-reduce in place.
    Ring,
    /// All-reduce up and down a binary tree, one thread block per direction.
    Tree,
    /// All-reduce by reduce-scatter and all-gather with everybody, through scratch.
    Direct,
    /// All-to-all, everybody to everybody.
    Exchange,
}

impl Shape {
    pub(crate) const ALL: [Shape; 5] = [Self::Gather, Self::Ring, Self::Tree, Self::Direct, Self::Exchange];

    pub(crate) fn plan(self, ranks: u32, width: u32) -> Plan {
        let collective = match self {
            Self::Gather => Collective::AllGather,
            Self::Exchange => Collective::AllToAll,
            _ => Collective::AllReduce,
        };
        let in_place = matches!(self, Self::Ring | Self::Tree);
        let make = match self {
            Self::Gather => gather,
            Self::Ring => ring,
            Self::Tree => tree,
            Self::Direct => direct,
            Self::Exchange => exchange,
        };
        let mut plan = Plan {
            name: format!("{self:?}").to_lowercase(),
            file: "made.xml".into(),
            places: Places::Lines(1),
            goal: collective.into(),
            in_place,
            out_of_place: !in_place,
            protocol: Protocol::Simple,
            channels: 1,
            chunks: if matches!(self, Self::Tree) { width } else { ranks * width },
            min_bytes: None,
            max_bytes: None,
            ranks: (0..ranks).map(|rank| make(rank, ranks, width)).collect(),
            relays: 0,
            warnings: Vec::new(),
        };
        let mut line = 0;
        for step in plan.ranks.iter_mut().flat_map(|r| &mut r.blocks).flat_map(|b| &mut b.steps) {
            line += 1;
            step.line = line;
        }
        plan
    }
}

pub(crate) fn at(space: Space, chunk: u32) -> Slot {
    Slot { space, chunk }
}

pub(crate) fn step(action: Action, src: Slot, dst: Slot, count: u32) -> Step {
    Step { action, src, dst, count, wait: None, posts: false, line: 0 }
}

fn after(block: u32, step: u32, what: Step) -> Step {
    Step { wait: Some(Dep { block, step }), ..what }
}

fn posting(what: Step) -> Step {
    Step { posts: true, ..what }
}

fn block(send: Option<u32>, recv: Option<u32>, steps: Vec<Step>) -> Block {
    Block { send, recv, channel: 0, steps, line: 0 }
}

fn gather(rank: u32, n: u32, w: u32) -> Rank {
    let chunk = |k: u32| at(Space::Output, (rank + n - k) % n * w);
    let steps = (0..n).map(|k| match k {
        0 => step(Action::Send, chunk(0), chunk(0), w),
        k if k + 1 < n => step(Action::RecvCopySend, chunk(k), chunk(k), w),
        k => step(Action::Recv, chunk(k), chunk(k), w),
    });
    Rank {
        declared: [w, n * w, 0],
        before: vec![Precopy { input: 0, output: rank * w, count: w, line: 1 }],
        blocks: vec![block(Some((rank + 1) % n), Some((rank + n - 1) % n), steps.collect())],
        ..Rank::default()
    }
}

fn ring(rank: u32, n: u32, w: u32) -> Rank {
    let steps = (0..2 * n - 1).map(|k| {
        let action = match k {
            0 => Action::Send,
            k if k < n - 1 => Action::RecvReduceSend,
            k if k == n - 1 => Action::RecvReduceCopySend,
            k if k < 2 * n - 2 => Action::RecvCopySend,
            _ => Action::Recv,
        };
        let chunk = at(Space::Input, (rank + 2 * n - k) % n * w);
        step(action, chunk, chunk, w)
    });
    let blocks = vec![block(Some((rank + 1) % n), Some((rank + n - 1) % n), steps.collect())];
    Rank { declared: [n * w, n * w, 0], blocks, ..Rank::default() }
}

fn tree(rank: u32, n: u32, w: u32) -> Rank {
    let data = at(Space::Input, 0);
    let parent = (rank > 0).then(|| (rank - 1) / 2);
    let children: Vec<u32> = (2 * rank + 1..(2 * rank + 3).min(n)).collect();
    let mut blocks: Vec<Block> = Vec::new();
    // Thread block 0 talks to the parent, 1 + i to child i. Sums go up one after the other, results down at once.
    let last = children.len() as u32;
    let up = step(Action::Send, data, data, w);
    let down = posting(step(Action::Recv, data, data, w));
    let up = if last > 0 { after(last, 0, up) } else { up };
    blocks.push(match parent {
        Some(parent) => block(Some(parent), Some(parent), vec![up, down]),
        None => block(None, None, vec![]),
    });
    for (i, &child) in (0u32..).zip(&children) {
        let sum = posting(step(Action::RecvReduceCopy, data, data, w));
        let sum = if i > 0 { after(i, 0, sum) } else { sum };
        let send = step(Action::Send, data, data, w);
        let send = match parent {
            Some(_) => after(0, 1, send),
            None if i + 1 < last => after(last, 0, send),
            None => send,
        };
        blocks.push(block(Some(child), Some(child), vec![sum, send]));
    }
    Rank { declared: [w, w, 0], blocks, ..Rank::default() }
}

fn direct(rank: u32, n: u32, w: u32) -> Rank {
    let (input, output) = (|c: u32| at(Space::Input, c * w), |c: u32| at(Space::Output, c * w));
    let scratch = |p: u32| at(Space::Scratch, p * w);
    let peers: Vec<u32> = (1..n).map(|d| (rank + d) % n).collect();
    let mut blocks = Vec::new();
    // Block i of the peers scatters and gathers; the last one reduces.
    let reducer = peers.len() as u32;
    for &peer in &peers {
        let steps = vec![
            step(Action::Send, input(peer), input(peer), w),
            posting(step(Action::Recv, scratch(peer), scratch(peer), w)),
            after(reducer, reducer, step(Action::Send, output(rank), output(rank), w)),
            step(Action::Recv, output(peer), output(peer), w),
        ];
        blocks.push(block(Some(peer), Some(peer), steps));
    }
    let mut steps = vec![step(Action::Copy, input(rank), output(rank), w)];
    for (i, &peer) in (0u32..).zip(&peers) {
        let sum = after(i, 1, step(Action::Reduce, scratch(peer), output(rank), w));
        steps.push(if i + 1 == reducer { posting(sum) } else { sum });
    }
    blocks.push(block(None, None, steps));
    Rank { declared: [n * w, n * w, n * w], blocks, ..Rank::default() }
}

fn exchange(rank: u32, n: u32, w: u32) -> Rank {
    let (input, output) = (|c: u32| at(Space::Input, c * w), |c: u32| at(Space::Output, c * w));
    let mut blocks: Vec<Block> = (1..n)
        .map(|d| {
            let (to, from) = ((rank + d) % n, (rank + n - d) % n);
            let send = step(Action::Send, input(to), input(to), w);
            block(Some(to), Some(from), vec![send, step(Action::Recv, output(from), output(from), w)])
        })
        .collect();
    blocks.push(block(None, None, vec![step(Action::Copy, input(rank), output(rank), w)]));
    Rank { declared: [n * w, n * w, 0], blocks, ..Rank::default() }
}
