//! Greedy time-expanded synthesis of collectives in which every chunk goes to everybody.
//!
//! A link that is free takes a chunk its sender has and its receiver neither has nor is being sent; among the chunks
//! it meets first, starting at a random place, the one that the fewest NPUs have. Time advances from event to event,
//! so a chunk is never sent before it has arrived, whatever the bandwidths and latencies.
//!
//! `state` is who has what and what a link chooses; `rounds` and `events` are the two clocks; [`spread`] takes the best
//! of many starts. On networks that look the same from every NPU, [`translated`](crate::translated) searches for one share instead of all.

mod events;
mod rounds;
mod sets;
mod state;

use crate::list::arrange;
use crate::method::{Method, Task};
use crate::request::{AUTO, Request, refuse};
use crate::schedule::{Transfer, split};
use crate::translated::Translations;
use crate::{Collective, Graph, Schedule, Synthesis, bound};
use ahbm_findings::Diagnostic;
use ahbm_machine::Ps;
use events::in_time;
use rounds::in_rounds;
use state::Search;

/// Transfers that all starts together may try.
const WORK: u64 = 1_000_000;
const STARTS: u64 = 400;
/// From this many transfers on, the plain choice is the only one.
const PLAIN: u64 = 4_000_000;

/// The method.
pub(crate) struct Greedy;

impl Method for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    fn about(&self) -> &'static str {
        "A free link takes a chunk that its receiver lacks, the rarest of those it meets, and the best of many starts \
         counts."
    }

    fn applies(&self, request: &Request, graph: &Graph) -> Result<(), Diagnostic> {
        use Collective::{AllReduce, AllToAll, Gather, Scatter};
        let no = |why| Err(refuse(self.name(), request.collective, why));
        match request.collective {
            AllReduce if request.share_bytes / request.unit < request.group(graph).len() as u64 => {
                let text = "greedy cuts a share into as many parts as there are ranks, and it has fewer elements";
                Err(Diagnostic::new("AHBM-U407", text).hint("ask for more bytes"))
            }
            AllReduce if request.method == "auto" && graph.nodes() > AUTO && Translations::of(graph).is_none() => {
                no("it is slow on so large a network")
            }
            AllToAll | Gather | Scatter => no("every chunk has one destination; see routed"),
            _ => Ok(()),
        }
    }

    fn find(&self, task: &Task<'_>) -> Result<Synthesis, Diagnostic> {
        use Collective::{AllGather, AllReduce, Broadcast};
        let (graph, request) = (task.graph, task.request);
        let rounds = task.limit.rounds(request.chunks.into()).filter(|_| rounded(graph, request));
        match request.collective {
            AllReduce => {
                let shares = request.group(graph).len() as u64;
                let pieces = (request.share_bytes / request.unit / shares).min(u64::from(request.chunks)).max(1);
                Ok(task.found(composed(graph, request, self.name(), pieces as u32)))
            }
            // Its time is known already.
            AllGather | Broadcast if graph.switch().is_none() => {
                Ok(spread(graph, task.base(self), rounds, request.seed))
            }
            _ => {
                let spread = |graph: &Graph, base| Ok(spread(graph, base, rounds, request.seed).schedule);
                Ok(task.found(task.outwards(self, spread)?))
            }
        }
    }
}

/// The search goes by rounds: among all NPUs, or where ports, not ways, are what is scarce.
fn rounded(graph: &Graph, request: &Request) -> bool {
    request.members.is_empty() || graph.switch().is_some()
}

/// Reduce-scatter followed by all-gather, without a pause in between, each share in so many pieces.
pub(crate) fn composed(graph: &Graph, request: &Request, method: &'static str, pieces: u32) -> Schedule {
    let p = request.group(graph).len() as u32;
    let chunk_bytes = split(request.share_bytes, p * pieces, request.unit);
    let share = request.share_bytes / u64::from(p);
    // One size for all while searching; the true sizes differ by a unit at most.
    let base = |collective| Schedule {
        collective,
        shares: p,
        ..request.base(graph, method, vec![chunk_bytes[0]; pieces as usize])
    };
    let rounds = |graph: &Graph| {
        let limit = || bound(graph, Collective::AllGather, share, 0).rounds(pieces.into());
        rounded(graph, request).then(limit).flatten()
    };
    let forward = spread(graph, base(Collective::AllGather), rounds(graph), request.seed).schedule;
    // If every link has an equal one the other way, the sums can take the all-gather's ways back.
    let mirrored = graph.partners().filter(|partner| {
        let alike = |(l, &p): (usize, &u32)| {
            let (there, back) = (graph.link(l as u32), graph.link(p));
            (there.rate, there.latency_ps) == (back.rate, back.latency_ps)
        };
        partner.iter().enumerate().all(alike)
    });
    let backward = match mirrored {
        Some(partner) => {
            let turned = |t: &Transfer| Transfer::copy(partner[t.link as usize], t.chunk());
            Schedule { transfers: forward.transfers.iter().map(turned).collect(), ..forward.clone() }
        }
        None => {
            let back = graph.reversed();
            spread(&back, base(Collective::AllGather), rounds(&back), request.seed).schedule
        }
    };
    let mut schedule = backward.reversed(Collective::AllReduce, true);
    schedule.transfers.extend(forward.transfers);
    Schedule { shares: 1, chunk_bytes, ..schedule }
}

/// The best schedule of many starts; `base` says which chunks there are and who has them. `rounds` is the bound at
/// which to stop, where links are equal.
///
/// If some NPUs take no part, chunks go to the others alone, to those on shortest ways between them, or to all;
/// transfers that turn out to lead to nobody are left out. At a switch all are neighbours, and transfers that share
/// ports are put in order.
fn spread(graph: &Graph, base: Schedule, rounds: Option<u64>, seed: u64) -> Synthesis {
    let n = graph.nodes() as usize;
    let mut open = vec![false; n];
    base.members.iter().for_each(|&v| open[v as usize] = true);
    if graph.switch().is_some() {
        return Synthesis::of(graph, arrange(graph, search(graph, base, open, rounds, seed).schedule));
    }
    let ordered = base.members.iter().copied().eq(0..graph.nodes());
    if let Some(translations) = Translations::of(graph).filter(|_| ordered && base.collective == Collective::AllGather)
    {
        return translations.spread(base, seed);
    }
    if base.members.len() == n {
        return search(graph, base, open, rounds, seed);
    }
    let mut between = open.clone();
    let back = graph.reversed();
    let from: Vec<Vec<u32>> = base.members.iter().map(|&v| graph.hops(v)).collect();
    for &to in &base.members {
        let away = back.hops(to);
        for (v, between) in between.iter_mut().enumerate() {
            *between |= from.iter().any(|hops| hops[v] + away[v] == hops[to as usize]);
        }
    }
    let tries = [open, between, vec![true; n]];
    let found = tries.into_iter().map(|open| pruned(graph, search(graph, base.clone(), open, rounds, seed).schedule));
    let complete = found.filter(|s| s.check(graph).is_ok()).map(|s| Synthesis::of(graph, s));
    complete.min_by_key(|s| s.time_ps).unwrap_or_else(|| Synthesis::of(graph, base))
}

/// Without the transfers that lead to no taker.
fn pruned(graph: &Graph, mut schedule: Schedule) -> Schedule {
    let (n, chunks) = (graph.nodes(), schedule.chunks());
    let mut needed = vec![false; schedule.registers(n)];
    for chunk in 0..chunks {
        for node in schedule.takers(chunk) {
            needed[schedule.register(n, chunks, node, chunk)] = true;
        }
    }
    let mut kept = Vec::with_capacity(schedule.transfers.len());
    for &transfer in schedule.transfers.iter().rev() {
        let ends = graph.link(transfer.link);
        if needed[schedule.register(n, chunks, ends.to, transfer.chunk())] {
            needed[schedule.register(n, chunks, ends.from, transfer.chunk())] = true;
            kept.push(transfer);
        }
    }
    kept.reverse();
    schedule.transfers = kept;
    schedule
}

fn search(graph: &Graph, base: Schedule, open: Vec<bool>, rounds: Option<u64>, seed: u64) -> Synthesis {
    let search = Search::new(graph, &base, open);
    let total = search.total;
    // A round at a switch looks at every pair of NPUs.
    let looks = if graph.switch().is_some() { graph.links().len() as u64 * rounds.unwrap_or(1) } else { total };
    let starts = (WORK / looks.max(1)).clamp(1, STARTS);
    let timed = |transfers| Synthesis::of(graph, Schedule { transfers, ..base.clone() });
    let mut found = None;
    if let Some(bound) = rounds {
        let mut best: Option<(u64, Vec<Transfer>)> = None;
        for turn in 0..starts {
            let limit = best.as_ref().map_or(u64::MAX, |b| b.0 - 1);
            // The plain choice is quicker and good enough on meshes; it is tried first.
            let rarest = turn > 0 || (starts == 1 && total < PLAIN && !is_mesh_like(graph));
            if let Some(found) = in_rounds(&search, seed.wrapping_add(turn), rarest, limit) {
                best = Some(found);
            }
            if best.as_ref().is_some_and(|b| b.0 <= bound) {
                break;
            }
        }
        let (_, transfers) = best.unwrap_or_default();
        let quick = timed(transfers);
        if total > WORK || graph.switch().is_some() {
            return quick;
        }
        // Rounds without a pause between them, within half a percent.
        let largest = base.chunk_bytes.iter().copied().max().unwrap_or(0);
        let floor = bound * graph.link(0).rate.ps(largest) + graph.min_latency_ps();
        if quick.time_ps <= floor + floor / 200 {
            return quick;
        }
        found = Some(quick);
    }
    // With latency, links that do not wait for a round to end may be quicker.
    let mut least = found.as_ref().map_or(Ps::MAX, |f| f.time_ps);
    let mut better = None;
    for turn in 0..starts.min(if rounds.is_some() { 1 } else { 64 }) {
        if let Some((end, transfers)) = in_time(&search, seed.wrapping_add(turn), turn > 0, least) {
            (least, better) = (end, Some(transfers));
        }
    }
    better.map(timed).or(found).unwrap_or_else(|| timed(Vec::new()))
}

/// Some NPU has fewer links than others: its ingress is the bottleneck and almost any order attains it.
fn is_mesh_like(graph: &Graph) -> bool {
    (1..graph.nodes()).any(|v| graph.incoming(v).len() != graph.incoming(0).len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{gather, grid, hypercube};

    fn rounds(graph: Graph) -> (u64, u64) {
        let limit = bound(&graph, Collective::AllGather, 1_000_000, 0).rounds(1);
        let found = spread(&graph, gather(graph.nodes()), limit, 1);
        found.schedule.check(&graph).unwrap();
        (found.rounds, limit.unwrap())
    }

    #[test]
    fn meshes_attain_the_integral_bound() {
        for graph in [grid(&[4, 4], false), grid(&[8, 8], false), grid(&[4, 4, 4], false), grid(&[4, 4, 4], true)] {
            let (found, bound) = rounds(graph);
            assert_eq!(found, bound);
        }
    }

    /// No grid is known, so the numbers form no group here.
    #[test]
    fn tori_of_unknown_shape_come_within_a_round() {
        for graph in [grid(&[8, 8], true), hypercube(6)] {
            let (found, bound) = rounds(graph);
            assert!(found <= bound + 1);
        }
    }
}
