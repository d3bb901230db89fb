//! Communications of one rank alone, which a job of several replicas has with others.
//!
//! In a group of one a library launches no kernel, or a copy on the device, or a kernel that scales (`oneRankReduce`).
//! Where the job will be scaled, that is where the communication is. Without a kernel it comes behind what its launching
//! stream had: on a stream of its own, where the operator let one wait (`cudaStreamWaitEvent` in it), else on that stream.

use super::events::{Activity, Clock, Doing, HostEvent, Recorded};
use super::facts::{Facts, Kind};
use ahbm_workload::Collective;
use rustc_hash::FxHashMap;

/// An operator that no other one contains, and what is stated in it.
struct Outermost {
    thread: u32,
    start: Clock,
    end: Clock,
    facts: Facts,
    /// When the operator let a stream wait first, and the correlation of that call.
    wait: Option<(Clock, Option<u64>)>,
}

/// Gives every communication of a group of one an activity.
pub(super) fn keep(recorded: &mut Recorded) {
    let operators = outermost(recorded);
    if operators.is_empty() {
        return;
    }
    let calls: FxHashMap<u64, (u32, Clock)> = recorded
        .host
        .iter()
        .filter(|event| matches!(event.doing, Doing::Call))
        .filter_map(|event| Some((event.correlation?, (event.thread, event.start))))
        .collect();
    // Per thread, in the order of launches: when, and which activity.
    let mut launched: FxHashMap<u32, Vec<(Clock, usize)>> = FxHashMap::default();
    for (at, activity) in recorded.activities.iter().enumerate() {
        if let Some(&(thread, start)) = activity.correlation.and_then(|number| calls.get(&number)) {
            launched.entry(thread).or_default().push((start, at));
        }
    }
    launched.values_mut().for_each(|list| list.sort_unstable());
    // Another thread computes before one that only communicates.
    let mut all: Vec<(Clock, usize)> = launched.values().flatten().copied().collect();
    all.sort_unstable();
    let streams =
        recorded.activities.iter().map(|activity| activity.stream).max().map_or(0, |most| most.saturating_add(1));
    let mut correlation = recorded.activities.iter().filter_map(|activity| activity.correlation).max().unwrap_or(0);
    let told: FxHashMap<u64, u32> = recorded.waits.iter().map(|wait| (wait.correlation, wait.stream)).collect();
    let mut groups: Vec<Option<Box<str>>> = Vec::new();
    for Outermost { thread, start, end, facts, wait } in operators {
        let own = launched.get(&thread).map_or(&[][..], Vec::as_slice);
        let first = own.partition_point(|&(at, _)| at < start);
        let within = own[first..].iter().take_while(|&&(at, _)| at <= end).map(|&(_, at)| at);
        let within: Vec<usize> = within.collect();
        if within.iter().any(|&at| recorded.activities[at].facts.is_some()) {
            continue;
        }
        let stands_for = |at: &usize| {
            let name = recorded.names.get_index(recorded.activities[*at].name as usize).map_or("", |name| name);
            name.starts_with("Memcpy DtoD") || name.contains("oneRankReduce")
        };
        let copies: Vec<usize> = within.into_iter().filter(stands_for).collect();
        if !copies.is_empty() {
            for at in copies {
                recorded.activities[at].facts = Some(Box::new(facts.clone()));
            }
            continue;
        }
        let before = own[..first].last().or_else(|| all[..all.partition_point(|&(at, _)| at < start)].last());
        let Some(&(_, before)) = before else { continue };
        let before = &recorded.activities[before];
        let (ended, mut stream) = (before.end(), before.stream);
        let start = wait.map_or(start, |(at, _)| at);
        if let Some(&of) = wait.and_then(|(_, number)| told.get(&number?)) {
            stream = of;
        } else if wait.is_some() {
            let known = groups.iter().position(|group| *group == facts.group);
            stream = streams.saturating_add(known.unwrap_or(groups.len()) as u32);
            if known.is_none() {
                groups.push(facts.group.clone());
            }
        }
        let name = match facts.kind {
            Some(Kind::Collective(collective)) => collective.name(),
            _ => Collective::Barrier.name(),
        };
        correlation = correlation.wrapping_add(1);
        let name = recorded.names.insert_full(name.into()).0 as u32;
        let (correlation, facts) = (Some(correlation), Some(Box::new(facts)));
        recorded.activities.push(Activity { start: ended.max(start), ps: 0, stream, correlation, name, facts });
        recorded.host.push(HostEvent { start, end: start, thread, correlation, doing: Doing::Call });
    }
}

/// The operators that issue a collective of a group of one, in the order of the host.
fn outermost(recorded: &Recorded) -> Vec<Outermost> {
    let mut events: Vec<&HostEvent> =
        recorded.host.iter().filter(|event| matches!(event.doing, Doing::Issue(_) | Doing::Wait)).collect();
    events.sort_by_key(|event| (event.thread, event.start, -event.end));
    let mut found: Vec<Outermost> = Vec::new();
    for event in events {
        let inside = found.last_mut().filter(|last| last.thread == event.thread && event.end <= last.end);
        match (&event.doing, inside) {
            (Doing::Issue(facts), Some(outer)) => outer.facts = std::mem::take(&mut outer.facts).or(facts),
            (Doing::Issue(facts), None) => found.push(Outermost {
                thread: event.thread,
                start: event.start,
                end: event.end,
                facts: (**facts).clone(),
                wait: None,
            }),
            (_, Some(outer)) => outer.wait = outer.wait.or(Some((event.start, event.correlation))),
            (_, None) => {}
        }
    }
    let alone = |facts: &Facts| facts.group_size.or(recorded.world) == Some(1);
    found.retain(|of| matches!(of.facts.kind, Some(Kind::Collective(_))) && alone(&of.facts));
    found.sort_by_key(|of| of.start);
    found
}
