//! A replayed job as a program: hosts that issue their nodes in the order that was found.

use super::{Replay, Times};
use ahbm_program::{Control, Program};
use ahbm_workload::{Chains, Share};
use std::cmp::Reverse;

/// Every node follows what it waits for and the node before it in its lane. Chains of such nodes are hosts.
pub(super) fn program(replay: &Replay<'_>, times: &Times) -> Program {
    let job = replay.job;
    let mut assembly = replay.assembly.clone();
    for rank in 0..job.workload.ranks.len() as u32 {
        let (order, graph) = (replay.order(rank), job.workload.graph(rank));
        let count = order.lanes.len() as u32;
        let issued = |at: u32| times.issued[job.place(rank, at) as usize];
        let mut sequence: Vec<u32> = (0..count).collect();
        sequence.sort_unstable_by_key(|&at| issued(at));
        let mut last = [None; super::order::LANES];
        let mut before: Vec<Vec<u32>> = (0..count).map(|at| order.deps(at).to_vec()).collect();
        for &at in &sequence {
            if let Some(last) = last.get_mut(order.lanes[at as usize] as usize) {
                before[at as usize].extend(last.replace(at));
            }
        }
        // The dependency that ended last keeps its chain, where there is a choice.
        before.iter_mut().for_each(|deps| deps.sort_unstable_by_key(|&dep| Reverse(issued(dep))));
        let cover = Chains::of(&sequence, |at| &before[at as usize]);
        let posts = cover.posts();
        let first = assembly.program.counters;
        assembly.program.counters += cover.chains.len() as u32;
        for (number, chain) in (0..).zip(&cover.chains) {
            let mut taken = Vec::with_capacity(2 * chain.len());
            for &at in chain {
                let mut ops = Vec::new();
                ops.extend(cover.waits[at as usize].iter().map(|&link| Control::WaitCounter {
                    counter: first + link.chain,
                    at_least: posts[cover.node(link) as usize],
                }));
                let place = job.place(rank, at);
                let part = job.share(place);
                if let Some(number) = job.chunk(place) {
                    let (counter, signals) = replay.chunks[number];
                    ops.push(if job.chunks[number].completes {
                        Control::WaitCounter { counter, at_least: signals.max(1) }
                    } else {
                        Control::Signal { counter, add: 1, posted: false }
                    });
                }
                if let Some(share) = part {
                    ops.extend(replay.given(share).map(|counter| Control::Signal { counter, add: 1, posted: false }));
                }
                match part.map(|share| replay.assembly.parts[share.launch as usize][share.part as usize]) {
                    Some(part) if part.agents > 0 => ops.extend([
                        Control::Signal { counter: part.start, add: 1, posted: false },
                        Control::WaitCounter { counter: part.end, at_least: part.agents },
                    ]),
                    Some(_) => ops.extend(part.into_iter().flat_map(|share| meeting(replay, share))),
                    None => ops.push(Control::Delay { ps: replay.cost(rank, at) }),
                }
                if cover.awaited[at as usize] {
                    ops.push(Control::Signal { counter: first + number, add: 1, posted: false });
                }
                let id = graph.node(at).id;
                taken.extend(ops.into_iter().filter(|op| !matches!(op, Control::Delay { ps: 0 })).map(|op| (op, id)));
            }
            assembly.host(rank, &job.workload.ranks[rank as usize].file, &taken);
        }
    }
    assembly.program
}

/// A launch that has nothing to run: every rank says that it is there, and all but a sender wait for the others.
fn meeting(replay: &Replay<'_>, share: Share) -> impl Iterator<Item = Control> {
    let parts = &replay.assembly.parts[share.launch as usize];
    let message = replay.job.is_message(share.launch);
    let counter = parts[0].start;
    let here = Control::Signal { counter, add: 1, posted: false };
    let others = Control::WaitCounter { counter, at_least: parts.len() as u32 };
    let meets = replay.is_empty(share.launch);
    [meets.then_some(here), (meets && (!message || share.part > 0)).then_some(others)].into_iter().flatten()
}
