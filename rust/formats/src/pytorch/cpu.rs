//! A profiler's trace (kineto) in which no device computes, as the graph of a rank: operators of the host are what its rank
//! computes, and libraries of the host (gloo, MPI, UCC, AHBM's own backend) perform its communications.
//!
//! A communication is issued by an operator (`c10d::allreduce_`) and performed by an event of the library
//! (`gloo:all_reduce`), the k-th of a kind by the k-th. Its duration contains waiting for other ranks, so it is dropped, and
//! so is what issuing it took. An operator follows what had ended on any thread before it began, and so does a
//! communication: no dependency contradicts the recorded times.

use super::comms::{At, Comms, note};
use super::events::{Clock, Doing, Recorded, Step};
use super::facts::{Facts, Kind};
use super::kineto::chosen;
use super::{LONGEST_PS, Options};
use ahbm_findings::Diagnostic;
use ahbm_workload::{Gather, Kernel, NodeBuilder, RankGraph, Work};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Whether nothing ran on a device, and the host has operators or communications.
pub(super) fn is_all(recorded: &Recorded) -> bool {
    let communicates = || recorded.host.iter().any(|event| matches!(event.doing, Doing::Issue(_) | Doing::Perform(_)));
    recorded.activities.is_empty() && (!recorded.operators.is_empty() || communicates())
}

/// A communication: when its thread issued it, until when, and when it had ended.
struct Issued {
    thread: u32,
    start: Clock,
    until: Clock,
    end: Clock,
    facts: Facts,
}

/// A stretch of computing between communications.
struct Piece {
    thread: u32,
    start: Clock,
    end: Clock,
    name: u32,
}

/// The graph of a rank.
pub(super) fn graph(
    gather: &mut Gather,
    rank: u32,
    file: &str,
    recorded: &Recorded,
    options: &Options,
) -> Result<RankGraph, Vec<Diagnostic>> {
    let step = chosen(gather, rank, file, &recorded.steps, options.step).map_err(crate::chakra::one)?;
    gather.note(note("no device computes in the traces: operators of the host are what ranks compute".into()));
    let issued = issued(recorded);
    let pieces = pieces(recorded, &issued);
    let lone = recorded.groups.len() <= 1;
    let mut walk = Walk {
        comms: Comms::new(gather, rank, file, &recorded.groups, lone, options.scaled),
        host_gaps: options.host_gaps,
        threads: FxHashMap::default(),
        done: Vec::new(),
        ends: Vec::new(),
        calls: vec![None; issued.len()],
        next: 0,
    };
    let mut order: Vec<usize> = (0..issued.len()).collect();
    order.sort_by_key(|&at| (issued[at].end, at));
    walk.ends = order.into_iter().map(|at| (issued[at].end, at)).collect();
    let within = |at: Clock, step: Option<Step>| step.is_none_or(|step| (step.start..step.end).contains(&at));
    let mut moments: Vec<(Clock, bool, usize)> = Vec::with_capacity(pieces.len() + issued.len());
    moments.extend(issued.iter().enumerate().map(|(at, call)| (call.start, false, at)));
    moments.extend(pieces.iter().enumerate().map(|(at, piece)| (piece.start, true, at)));
    moments.sort_unstable();
    for (start, computes, at) in moments {
        if !within(start, step) {
            continue;
        }
        if computes {
            let name = recorded.names.get_index(pieces[at].name as usize).map_or("", |name| name);
            walk.compute(&pieces[at], name);
        } else {
            walk.issue(at, &issued[at])?;
        }
    }
    walk.comms.builder.finish(false)
}

/// What a thread has come to.
#[derive(Default)]
struct Thread {
    /// Per thread, how many of its pieces a node of this one follows.
    followed: Vec<usize>,
    /// How many communications it has waited for, in the order of their ends.
    waited: usize,
    /// Until when it was busy, or waited.
    busy: Option<Clock>,
}

struct Walk<'a> {
    comms: Comms<'a>,
    host_gaps: bool,
    threads: FxHashMap<u32, Thread>,
    /// Per thread, in the order in which threads begin, ends and nodes of its pieces.
    done: Vec<(u32, Vec<(Clock, u64)>)>,
    /// Communications in the order of their ends.
    ends: Vec<(Clock, usize)>,
    /// The node of each communication.
    calls: Vec<Option<u64>>,
    next: u64,
}

impl Walk<'_> {
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// What had ended before a thread did something at `now`, and until when the last of it took.
    fn after(&mut self, thread: u32, now: Clock) -> Vec<u64> {
        let mut after = Vec::new();
        let own = self.threads.entry(thread).or_default();
        own.followed.resize(self.done.len(), 0);
        for (followed, (_, pieces)) in own.followed.iter_mut().zip(&self.done) {
            let before = *followed;
            *followed += pieces[before..].iter().take_while(|(end, _)| *end <= now).count();
            if *followed > before {
                let (end, node) = pieces[*followed - 1];
                own.busy = own.busy.max(Some(end));
                after.push(node);
            }
        }
        while let Some(&(end, at)) = self.ends.get(own.waited).filter(|(end, _)| *end <= now) {
            own.waited += 1;
            if let Some(node) = self.calls[at] {
                own.busy = own.busy.max(Some(end));
                after.push(node);
            }
        }
        after
    }

    /// As [`Walk::after`], and the host's gap before it where that counts.
    fn ready(&mut self, thread: u32, now: Clock) -> Vec<u64> {
        let after = self.after(thread, now);
        let busy = self.threads.get(&thread).and_then(|own| own.busy);
        let gap = busy.map_or(0, |busy| now - busy);
        match u64::try_from(gap) {
            Ok(gap) if gap > 0 && self.host_gaps => {
                let node = self.id();
                let work = Work::Compute(Kernel::default());
                let gap = gap.min(LONGEST_PS);
                self.comms.builder.push(NodeBuilder::new(node, "host").work(work).ps(gap).cpu(true).after(&after));
                vec![node]
            }
            _ => after,
        }
    }

    fn compute(&mut self, piece: &Piece, name: &str) {
        let after = self.ready(piece.thread, piece.start);
        let ps = u64::try_from(piece.end - piece.start).unwrap_or(0).min(LONGEST_PS);
        let work = if ps == 0 { Work::Nothing } else { Work::Compute(Kernel::default()) };
        let id = self.id();
        let node = NodeBuilder::new(id, name).work(work).ps(ps).stream(Some(piece.thread)).after(&after);
        self.comms.builder.push(node);
        match self.done.iter_mut().find(|(thread, _)| *thread == piece.thread) {
            Some((_, pieces)) => pieces.push((piece.end, id)),
            None => self.done.push((piece.thread, vec![(piece.end, id)])),
        }
    }

    fn issue(&mut self, at: usize, call: &Issued) -> Result<(), Vec<Diagnostic>> {
        let after = self.ready(call.thread, call.start);
        let id = self.id();
        let name = match call.facts.kind {
            Some(Kind::Collective(collective)) => collective.name(),
            Some(Kind::Send) => "send",
            Some(Kind::Recv) => "recv",
            _ => "communication",
        };
        let work = self.comms.work(&call.facts, At { id, name })?;
        self.comms.builder.push(NodeBuilder::new(id, name).work(work).after(&after));
        self.calls[at] = Some(id);
        let own = self.threads.entry(call.thread).or_default();
        own.busy = own.busy.max(Some(call.until));
        Ok(())
    }
}

/// The communications of a rank, in the order in which they were issued.
fn issued(recorded: &Recorded) -> Vec<Issued> {
    let mut found: Vec<Issued> = Vec::new();
    let mut performed: Vec<Issued> = Vec::new();
    let mut events: Vec<_> = recorded.host.iter().collect();
    events.sort_by_key(|event| (event.thread, event.start, -event.end));
    for event in events {
        let call = |facts: &Facts| Issued {
            thread: event.thread,
            start: event.start,
            until: event.end,
            end: event.end,
            facts: facts.clone(),
        };
        match &event.doing {
            Doing::Issue(facts) => match found.last_mut() {
                Some(outer) if outer.thread == event.thread && event.end <= outer.until => {
                    outer.facts = std::mem::take(&mut outer.facts).or(facts);
                }
                _ => found.push(call(facts)),
            },
            Doing::Perform(facts) => performed.push(call(facts)),
            _ => {}
        }
    }
    found.retain(|call| call.facts.kind.is_some_and(|kind| kind != Kind::Coalesced));
    found.sort_by_key(|call| (call.start, call.thread));
    performed.sort_by_key(|call| (call.start, call.thread));
    let mut waiting: Vec<(Kind, VecDeque<Issued>)> = Vec::new();
    for call in performed {
        let Some(kind) = call.facts.kind else { continue };
        match waiting.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, calls)) => calls.push_back(call),
            None => waiting.push((kind, VecDeque::from([call]))),
        }
    }
    for call in &mut found {
        let of_kind = waiting.iter_mut().find(|(kind, _)| call.facts.kind == Some(*kind));
        let Some((_, calls)) = of_kind else { continue };
        // What was issued before the recording began.
        while calls.front().is_some_and(|performed| performed.end < call.start) {
            calls.pop_front();
        }
        if let Some(performed) = calls.pop_front() {
            call.facts = std::mem::take(&mut call.facts).or(&performed.facts);
            call.end = call.end.max(performed.end);
        }
    }
    // Early versions record no operator that issues.
    let kinds: Vec<Option<Kind>> = found.iter().map(|call| call.facts.kind).collect();
    let alone = waiting.into_iter().filter(|(kind, _)| !kinds.contains(&Some(*kind)));
    found.extend(alone.flat_map(|(_, calls)| calls).map(|call| Issued { until: call.start, ..call }));
    found.sort_by_key(|call| (call.start, call.thread));
    found
}

/// The outermost operators of every thread, without the stretches in which it issued communications.
fn pieces(recorded: &Recorded, issued: &[Issued]) -> Vec<Piece> {
    let mut operators = recorded.operators.clone();
    operators.sort_unstable_by_key(|of| (of.thread, of.start, std::cmp::Reverse(of.ps), of.name));
    let mut calls: FxHashMap<u32, VecDeque<(Clock, Clock)>> = FxHashMap::default();
    for call in issued {
        calls.entry(call.thread).or_default().push_back((call.start, call.until));
    }
    let mut found = Vec::new();
    let mut last: Option<(u32, Clock)> = None;
    for operator in operators {
        let (thread, end) = (operator.thread, operator.end());
        let mut start = match last {
            Some((of, until)) if of == thread => operator.start.max(until),
            _ => operator.start,
        };
        if start > end || (start == end && operator.ps > 0) {
            continue;
        }
        last = Some((thread, end));
        let mut push = |start: Clock, end: Clock| {
            if start < end {
                found.push(Piece { thread, start, end, name: operator.name });
            }
        };
        if let Some(calls) = calls.get_mut(&thread) {
            while let Some(&(from, until)) = calls.front().filter(|(from, _)| *from < end) {
                push(start, from.min(end));
                start = start.max(until);
                if until > end {
                    break;
                }
                calls.pop_front();
            }
        }
        push(start, end);
    }
    found
}
