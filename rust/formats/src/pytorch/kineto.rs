//! A profiler's trace (kineto) as the graph of a rank.
//!
//! What a stream has runs in its order. What one stream waits for of another is what the trace says
//! (`Stream Wait Event` with the mark it waits for), or else what the calls of the host tell: a communication waits for
//! what its launching stream had; that stream's next kernel waits for it where the host let it (`cudaStreamWaitEvent`
//! outside of an operator). No inferred dependency contradicts the recorded times.

use super::Options;
use super::comms::{At, Comms, note};
use super::events::{Activity, Clock, Doing, Recorded, Step, StreamWait};
use super::facts::{Facts, Kind, communicating, kind};
use crate::chakra::one;
use ahbm_findings::Diagnostic;
use ahbm_workload::{Gather, Kernel, NodeBuilder, RankGraph, Work};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Clocks of streams agree to about this.
const TOLERANCE: Clock = 1_000_000;

/// The graph of a rank, and how many kernels were launched before the recording began, which are left out.
pub(super) fn graph(
    gather: &mut Gather,
    rank: u32,
    file: &str,
    recorded: &Recorded,
    options: &Options,
) -> Result<(RankGraph, usize), Vec<Diagnostic>> {
    let step = chosen(gather, rank, file, &recorded.steps, options.step).map_err(one)?;
    let calls = calls(recorded);
    let early = early(recorded, &calls);
    let replayed = recorded.activities.iter().zip(&early).filter(|(_, early)| !**early).map(|(activity, _)| activity);
    let mut streams: Vec<u32> = replayed.filter(|a| a.facts.is_some()).map(|a| a.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    let comms = Comms::new(gather, rank, file, &recorded.groups, streams.len() <= 1, options.scaled);
    let mut walk = Walk::new(recorded, calls, comms, options.host_gaps);
    let moments = walk.moments(step, &early);
    if !moments.iter().any(|moment| matches!(moment, Moment::Launched(_))) {
        return Err(one(without_kernels(rank, file, recorded)));
    }
    for moment in moments {
        walk.take(moment)?;
    }
    if walk.operations.iter().any(|operation| !operation.launched) {
        let what = note("communications without a kernel are left out".into());
        walk.comms.gather.note(what.hint("a group of one rank needs none; the host's communication has none"));
    }
    let alone = communicating(
        recorded
            .activities
            .iter()
            .filter(|activity| activity.facts.is_none())
            .filter_map(|activity| recorded.names.get_index(activity.name as usize).map(|name| &**name)),
    );
    if !alone.is_empty() {
        let what = "kernels that communicate without a library of collectives are computations of their recorded time, \
                    in which they waited for other ranks";
        let listed: Vec<&str> = alone.iter().take(4).map(|name| &**name).collect();
        walk.comms.gather.note(note(format!("{what}: {}", listed.join(", "))));
    }
    let early = early.into_iter().filter(|early| *early).count();
    Ok((walk.comms.builder.finish(false)?, early))
}

/// The finding about a trace in which nothing ran that is known.
fn without_kernels(rank: u32, file: &str, recorded: &Recorded) -> Diagnostic {
    let seen: Vec<&str> = recorded.categories.iter().map(|category| &**category).filter(|c| !c.is_empty()).collect();
    let seen = if seen.is_empty() { "nothing that took time".to_owned() } else { seen.join(", ") };
    Diagnostic::new("AHBM-F184", format!("the trace has no kernels and no operators: it has {seen}"))
        .site(format!("rank {rank}"), file)
        .hint("record with ProfilerActivity.CUDA, or with ProfilerActivity.CPU where no device computes")
}

/// The call that launched what has a correlation, as a position in [`Recorded::host`].
fn calls(recorded: &Recorded) -> FxHashMap<u64, usize> {
    let calls = recorded.host.iter().enumerate().filter(|(_, event)| matches!(event.doing, Doing::Call));
    calls.filter_map(|(at, event)| Some((event.correlation?, at))).collect()
}

/// Which activities were launched before the recording began.
///
/// They have no launch, and stand before all on their stream that have one. Profilers also leave out whole ways to
/// launch (the driver's, in early versions): where a kernel ran after the first call of the host, its correlation must be
/// lower than all of theirs, or launches of its like must be recorded.
fn early(recorded: &Recorded, calls: &FxHashMap<u64, usize>) -> Vec<bool> {
    let Some((began, lowest)) = recorded.began.filter(|_| !calls.is_empty()) else {
        return vec![false; recorded.activities.len()];
    };
    let launched = |activity: &Activity| activity.correlation.is_some_and(|number| calls.contains_key(&number));
    // Communications are alike: the same library launches them.
    let like = |activity: &Activity| activity.facts.is_none().then_some(activity.name);
    let (mut firsts, mut likes) = (FxHashMap::default(), FxHashSet::default());
    for activity in recorded.activities.iter().filter(|activity| launched(activity)) {
        let first = firsts.entry(activity.stream).or_insert(activity.start);
        *first = activity.start.min(*first);
        likes.insert(like(activity));
    }
    let is_early = |activity: &Activity| {
        let known = || activity.correlation.filter(|&number| number > 0);
        !launched(activity)
            && firsts.get(&activity.stream).is_none_or(|&first| activity.start < first)
            && (activity.start < began
                || known().is_some_and(|number| number < lowest || likes.contains(&like(activity))))
    };
    recorded.activities.iter().map(is_early).collect()
}

/// The step that is asked for, none for all.
pub(super) fn chosen(
    gather: &mut Gather,
    rank: u32,
    file: &str,
    steps: &[Step],
    wanted: Option<u64>,
) -> Result<Option<Step>, Diagnostic> {
    let numbers: Vec<String> = steps.iter().map(|step| step.number.to_string()).collect();
    match wanted {
        None => {
            if steps.len() > 1 {
                let what = format!("the traces have {} steps, all are replayed: {}", steps.len(), numbers.join(", "));
                gather.note(note(what).hint(format!("--step {} takes one", numbers[numbers.len() - 1])));
            }
            Ok(None)
        }
        Some(wanted) => steps.iter().find(|step| step.number == wanted).copied().map(Some).ok_or_else(|| {
            let known = if numbers.is_empty() { "none".to_owned() } else { numbers.join(", ") };
            Diagnostic::new("AHBM-F187", format!("the trace of rank {rank} has no step {wanted}"))
                .site("trace", file)
                .hint(format!("steps in it: {known}"))
        }),
    }
}

/// Something that happens in the order of the host.
#[derive(Clone, Copy)]
enum Moment {
    /// A position in [`Recorded::host`].
    Host(usize),
    /// A position in [`Recorded::activities`].
    Launched(usize),
}

/// An operator that issues a communication, with all that is stated within it.
struct Operation {
    facts: Facts,
    launched: bool,
}

struct Walk<'a> {
    recorded: &'a Recorded,
    comms: Comms<'a>,
    host_gaps: bool,
    /// As [`calls`] gives them.
    calls: FxHashMap<u64, usize>,
    /// What a wait waits for, where the trace says so, by its correlation.
    waits: FxHashMap<u64, StreamWait>,
    /// How many activities there were at a mark, by its correlation.
    marks: FxHashMap<u64, usize>,
    /// The host's calls tell what waits for communications.
    waits_seen: bool,
    /// The activities of each stream, with how many there were before on all.
    streams: BTreeMap<u32, Vec<(usize, usize)>>,
    count: usize,
    /// Streams with activities that the host has not waited for, and the node that stands for what it has.
    busy: BTreeSet<u32>,
    synchronized: Option<u64>,
    /// What the next activity of a stream waits for.
    pending: BTreeMap<u32, Vec<usize>>,
    /// The stream on which a thread last computed, and any thread did.
    current: FxHashMap<u32, u32>,
    recent: Option<u32>,
    /// Communications that nothing waits for yet, by the stream that launched them where no host tells who waits. Those
    /// that were taken out of turn are still in it.
    unawaited: BTreeMap<Option<u32>, VecDeque<usize>>,
    awaited: Vec<bool>,
    /// The communication that a thread launched last, with nothing after it.
    fresh: FxHashMap<u32, usize>,
    operations: Vec<Operation>,
    /// Per thread the operators that are open: end, and position of the outermost that issues something.
    open: FxHashMap<u32, Vec<(Clock, Option<usize>)>>,
    /// Per thread its operations; those that launched nothing are what a kernel outside of them performs.
    issued: BTreeMap<u32, Vec<usize>>,
    /// The node whose end is that of an activity.
    nodes: Vec<Option<u64>>,
    next: u64,
    /// Where the host is: its last node and call, the time up to which it is told, and what it waited for.
    host: Host,
}

#[derive(Default)]
struct Host {
    node: Option<u64>,
    call: Option<usize>,
    cursor: Option<Clock>,
    busy: Clock,
    after: Vec<u64>,
}

impl<'a> Walk<'a> {
    fn new(recorded: &'a Recorded, calls: FxHashMap<u64, usize>, comms: Comms<'a>, host_gaps: bool) -> Self {
        Self {
            recorded,
            comms,
            host_gaps,
            calls,
            waits: recorded.waits.iter().map(|wait| (wait.correlation, *wait)).collect(),
            marks: FxHashMap::default(),
            waits_seen: recorded.host.iter().any(|event| matches!(event.doing, Doing::Wait)),
            streams: BTreeMap::new(),
            count: 0,
            busy: BTreeSet::new(),
            synchronized: None,
            pending: BTreeMap::new(),
            current: FxHashMap::default(),
            recent: None,
            unawaited: BTreeMap::new(),
            awaited: vec![false; recorded.activities.len()],
            fresh: FxHashMap::default(),
            operations: Vec::new(),
            open: FxHashMap::default(),
            issued: BTreeMap::new(),
            nodes: vec![None; recorded.activities.len()],
            next: 0,
            host: Host::default(),
        }
    }

    fn call_of(&self, activity: &Activity) -> Option<usize> {
        activity.correlation.and_then(|correlation| self.calls.get(&correlation).copied())
    }

    /// Everything that belongs to the step, in the order of the host; what has no launch, by its own start, unless it was
    /// launched before the recording began.
    fn moments(&self, step: Option<Step>, early: &[bool]) -> Vec<Moment> {
        let within = |at: Clock| step.is_none_or(|step| (step.start..step.end).contains(&at));
        let mut found: Vec<((Clock, u8, Clock, usize), Moment)> = Vec::new();
        for (at, event) in self.recorded.host.iter().enumerate() {
            if within(event.start) && !matches!(event.doing, Doing::Call | Doing::Perform(_)) {
                // An operator stands before what begins with it; of two, the longer one.
                let class = u8::from(!matches!(event.doing, Doing::Issue(_)));
                found.push(((event.start, class, -event.end, at), Moment::Host(at)));
            }
        }
        for (at, activity) in self.recorded.activities.iter().enumerate() {
            let key = self.call_of(activity).map_or(activity.start, |call| self.recorded.host[call].start);
            if within(key) && !early[at] {
                found.push(((key, 2, activity.start, at), Moment::Launched(at)));
            }
        }
        found.sort_unstable_by_key(|(key, _)| *key);
        found.into_iter().map(|(_, moment)| moment).collect()
    }

    fn take(&mut self, moment: Moment) -> Result<(), Vec<Diagnostic>> {
        match moment {
            Moment::Launched(at) => self.launched(at),
            Moment::Host(at) => {
                let event = &self.recorded.host[at];
                let operation = self.operation(event.thread, event.start);
                match &event.doing {
                    Doing::Call | Doing::Perform(_) => {}
                    Doing::Issue(facts) => self.issue(event.thread, event.end, operation, facts),
                    Doing::Record => self.record(event.correlation),
                    Doing::Wait => self.wait(event.thread, event.correlation, operation.is_some()),
                    Doing::Synchronize { all } => self.synchronize(event.thread, (event.start, event.end), *all),
                }
                Ok(())
            }
        }
    }

    /// The operation that a thread is in.
    fn operation(&mut self, thread: u32, now: Clock) -> Option<usize> {
        let open = self.open.entry(thread).or_default();
        while open.last().is_some_and(|(end, _)| *end < now) {
            open.pop();
        }
        open.last().and_then(|(_, operation)| *operation)
    }

    fn issue(&mut self, thread: u32, end: Clock, operation: Option<usize>, facts: &Facts) {
        let mut outermost = operation;
        match operation {
            Some(outer) => {
                let outer = &mut self.operations[outer];
                outer.facts = std::mem::take(&mut outer.facts).or(facts);
            }
            None if facts.kind.is_some() => {
                outermost = Some(self.operations.len());
                self.issued.entry(thread).or_default().push(self.operations.len());
                self.operations.push(Operation { facts: facts.clone(), launched: false });
            }
            None => {}
        }
        self.open.entry(thread).or_default().push((end, outermost));
    }

    fn record(&mut self, correlation: Option<u64>) {
        self.marks.extend(correlation.map(|mark| (mark, self.count)));
    }

    fn wait(&mut self, thread: u32, correlation: Option<u64>, in_operation: bool) {
        if !self.waits.is_empty() {
            let Some(wait) = correlation.and_then(|correlation| self.waits.get(&correlation)) else { return };
            let (Some(&mark), Some(on)) = (self.marks.get(&wait.mark), self.streams.get(&wait.on)) else { return };
            if let Some(last) = on.partition_point(|(before, _)| *before < mark).checked_sub(1) {
                self.pending.entry(wait.stream).or_default().push(on[last].1);
            }
            return;
        }
        let Some(stream) = self.current.get(&thread).copied().or(self.recent).filter(|_| !in_operation) else { return };
        let mut found = self.fresh.remove(&thread).filter(|&fresh| !self.awaited[fresh]);
        let oldest = self.unawaited.entry(None).or_default();
        while found.is_none() {
            let Some(at) = oldest.pop_front() else { return };
            found = Some(at).filter(|&at| !self.awaited[at]);
        }
        if let Some(at) = found {
            self.awaited[at] = true;
            self.pending.entry(stream).or_default().push(at);
        }
    }

    fn last(&self, stream: u32) -> Option<usize> {
        self.streams.get(&stream)?.last().map(|(_, at)| *at)
    }

    /// What the host waited for has ended before anything that it launches later.
    fn synchronize(&mut self, thread: u32, (start, end): (Clock, Clock), all: bool) {
        let stream = self.current.get(&thread).copied().or(self.recent);
        let busy = if all {
            std::mem::take(&mut self.busy)
        } else {
            stream.and_then(|s| self.busy.take(&s)).into_iter().collect()
        };
        let ended = |at: &usize| self.recorded.activities[*at].end() <= end + TOLERANCE;
        let (done, still): (Vec<u32>, Vec<u32>) =
            busy.into_iter().partition(|&s| self.last(s).as_ref().is_some_and(ended));
        let mut after: Vec<u64> =
            done.iter().filter_map(|&stream| self.nodes[self.last(stream)?]).chain(self.synchronized).collect();
        self.busy.extend(still);
        if !done.is_empty() {
            let node = self.id();
            self.comms.builder.push(NodeBuilder::new(node, "synchronize").cpu(true).after(&after));
            self.synchronized = Some(node);
            after = vec![node];
        }
        self.host.after = after;
        self.passed(start);
        self.host.cursor = self.host.cursor.max(Some(end));
    }

    /// The host was busy until `now`.
    fn passed(&mut self, now: Clock) {
        let cursor = self.host.cursor.unwrap_or(now);
        self.host.busy += (now - cursor).max(0);
        self.host.cursor = Some(cursor.max(now));
    }

    fn launched(&mut self, at: usize) -> Result<(), Vec<Diagnostic>> {
        let recorded = self.recorded;
        let activity = &recorded.activities[at];
        let call = self.call_of(activity).map(|call| (call, &recorded.host[call]));
        let thread = call.map(|(_, event)| event.thread);
        let operation = call.and_then(|(_, event)| self.operation(event.thread, event.start));
        let mut after: Vec<usize> = self.last(activity.stream).into_iter().collect();
        let told = !self.waits.is_empty();
        for awaited in self.pending.remove(&activity.stream).unwrap_or_default() {
            if told || recorded.activities[awaited].end() <= activity.start + TOLERANCE {
                after.push(awaited);
            } else if recorded.activities[awaited].facts.is_some() {
                // The wait was for something else.
                self.awaited[awaited] = false;
                self.unawaited.entry(None).or_default().push_front(awaited);
            }
        }
        if activity.facts.is_some() {
            let launching = thread.and_then(|thread| self.current.get(&thread).copied()).or(self.recent);
            let had = launching.and_then(|stream| self.last(stream));
            let ended = |&had: &usize| recorded.activities[had].end() <= activity.start + TOLERANCE;
            after.extend(had.filter(ended).filter(|_| !told));
            self.unawaited.entry(launching.filter(|_| !self.waits_seen)).or_default().push_back(at);
        } else {
            self.recent = Some(activity.stream);
            if let Some(thread) = thread {
                self.current.insert(thread, activity.stream);
            }
            if !told && !self.waits_seen {
                let ready = |at: &usize| recorded.activities[*at].end() <= activity.start + TOLERANCE;
                for launching in [Some(activity.stream), None] {
                    let Some(queue) = self.unawaited.get_mut(&launching) else { continue };
                    while queue.front().is_some_and(ready) {
                        after.extend(queue.pop_front());
                    }
                }
            }
        }
        if let Some(thread) = thread {
            match &activity.facts {
                Some(_) => self.fresh.insert(thread, at),
                None => self.fresh.remove(&thread),
            };
        }
        self.streams.entry(activity.stream).or_default().push((self.count, at));
        self.count += 1;
        self.busy.insert(activity.stream);
        let mut ids: Vec<u64> = after.iter().filter_map(|&at| self.nodes[at]).chain(self.synchronized).collect();
        if let Some((call, event)) = call.filter(|_| self.host_gaps) {
            ids.push(self.host_node(call, (event.start, event.end)));
        }
        self.nodes[at] = Some(self.node(activity, operation, thread, &ids)?);
        Ok(())
    }

    /// The host's computation that ends with a call.
    fn host_node(&mut self, call: usize, (start, end): (Clock, Clock)) -> u64 {
        if self.host.call == Some(call)
            && let Some(node) = self.host.node
        {
            return node;
        }
        self.passed(start);
        self.passed(end);
        let busy = u64::try_from(std::mem::take(&mut self.host.busy)).unwrap_or(0).min(super::LONGEST_PS);
        let work = if busy == 0 { Work::Nothing } else { Work::Compute(Kernel::default()) };
        let mut after = std::mem::take(&mut self.host.after);
        after.extend(self.host.node);
        let node = self.id();
        self.comms.builder.push(NodeBuilder::new(node, "host").work(work).ps(busy).cpu(true).after(&after));
        (self.host.node, self.host.call) = (Some(node), Some(call));
        node
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The nodes of an activity; gives the one that ends it.
    fn node(
        &mut self,
        activity: &Activity,
        operation: Option<usize>,
        thread: Option<u32>,
        after: &[u64],
    ) -> Result<u64, Vec<Diagnostic>> {
        let recorded = self.recorded;
        let name = recorded.names.get_index(activity.name as usize).map_or("", |name| name);
        let stream = Some(activity.stream);
        let id = self.id();
        let Some(facts) = &activity.facts else {
            // Below the resolution of the profiler's clock.
            let work = if activity.ps == 0 { Work::Nothing } else { Work::Compute(Kernel::default()) };
            self.comms.builder.push(NodeBuilder::new(id, name).work(work).ps(activity.ps).stream(stream).after(after));
            return Ok(id);
        };
        let parts = self.parts(facts, operation, thread);
        let mut ends = Vec::with_capacity(parts.len());
        for (number, mut facts) in parts.into_iter().enumerate() {
            // A barrier is a small all_reduce: a kernel's name is the last word, not the first.
            facts.kind = facts.kind.or_else(|| kind(name));
            let id = if number == 0 { id } else { self.id() };
            let work = self.comms.work(&facts, At { id, name })?;
            self.comms.builder.push(NodeBuilder::new(id, name).work(work).stream(stream).after(after));
            ends.push(id);
        }
        if let [only] = ends[..] {
            return Ok(only);
        }
        let (id, after) = if ends.is_empty() { (id, after) } else { (self.id(), &ends[..]) };
        self.comms.builder.push(NodeBuilder::new(id, name).stream(stream).after(after));
        Ok(id)
    }

    /// The communications that a kernel performs; none for a further kernel of an operation.
    fn parts(&mut self, kernel: &Facts, operation: Option<usize>, thread: Option<u32>) -> Vec<Facts> {
        let coalesced = |facts: &Facts| facts.kind == Some(Kind::Coalesced);
        if let Some(at) = operation.filter(|&at| !coalesced(&self.operations[at].facts)) {
            let operation = &mut self.operations[at];
            if std::mem::replace(&mut operation.launched, true) {
                return Vec::new();
            }
            return vec![kernel.clone().or(&self.operations[at].facts)];
        }
        let whole = matches!(kernel.kind, Some(Kind::Collective(_))) && kernel.inputs.is_some();
        let issued = thread.filter(|_| !whole).and_then(|thread| self.issued.remove(&thread)).unwrap_or_default();
        let mut joined = Vec::new();
        for at in issued {
            let operation = &mut self.operations[at];
            if !std::mem::replace(&mut operation.launched, true) && !coalesced(&operation.facts) {
                joined.push(operation.facts.clone());
            }
        }
        if joined.is_empty() { vec![kernel.clone()] } else { joined }
    }
}
