//! When the launches of a job start and end.
//!
//! A launch that overlaps no other takes its time alone, which is known, so nothing is simulated. Launches that overlap
//! are composed into one program ([`ahbm_program::job`]) and simulated together, from a moment at which none ran to the
//! next one. Which those are depends on the result, so a stretch grows until nothing starts before it has ended.

use crate::{Options, Span, simulate};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Machine, Ps};
use ahbm_program::Program;
use ahbm_program::job::{self, Step};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// A launch of a job.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The program that runs, and its latency alone; `None` is over as soon as it starts.
    pub program: Option<(&'a Program, Ps)>,
    /// The launch that must have ended before: an earlier one.
    pub after: Option<u32>,
}

/// The times of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    /// Per launch, the common start of its agents and the end of the last of them.
    pub launches: Vec<Span>,
    /// Per host, when its last step was over.
    pub hosts: Vec<Ps>,
    /// Per host, its time at each arrival.
    pub entered: Vec<Vec<Ps>>,
    /// Per host, the stretches of time it computed in.
    pub computed: Vec<Vec<Span>>,
    /// Launches that overlapped another one.
    pub together: usize,
}

/// Schedules a job: `hosts` take their steps in order, launches start as [`ahbm_program::job`] says.
///
/// # Errors
/// `AHBM-D102` when hosts wait for launches that can never start; as [`simulate`].
///
/// # Panics
/// When a step or an `after` names a launch that is not there.
pub fn schedule(
    hosts: &[&[Step]],
    launches: &[Launch<'_>],
    machine: &Machine,
    options: &Options,
) -> Result<Schedule, Diagnostic> {
    let mut state = State::new(hosts, launches);
    let mut schedule = Schedule { launches: vec![Span::default(); launches.len()], ..Schedule::default() };
    while !state.ready.is_empty() {
        let spans = stretch(&mut state, machine, options)?;
        let programs = spans.iter().filter(|(launch, _)| launches[*launch as usize].program.is_some()).count();
        schedule.together += if programs > 1 { programs } else { 0 };
        for (launch, span) in spans {
            schedule.launches[launch as usize] = span;
        }
    }
    state.check_end()?;
    schedule.hosts = state.at.iter().map(|host| host.clock).collect();
    for steps in hosts {
        let (entered, computed) = followed(steps, &schedule.launches);
        schedule.entered.push(entered);
        schedule.computed.push(computed);
    }
    Ok(schedule)
}

/// Times the launches from the state's first one on, until none of them runs and none has started since; the state is
/// then where they have ended.
fn stretch(state: &mut State<'_>, machine: &Machine, options: &Options) -> Result<Vec<(u32, Span)>, Diagnostic> {
    let mut known = FxHashMap::default();
    loop {
        state.journal.clear();
        let mut spans = state.walk(&known, 1);
        let alone = spans.iter().filter(|(launch, _)| state.alone(*launch) > 0).count() < 2;
        if alone || spans.iter().all(|(launch, _)| known.contains_key(launch)) {
            return Ok(spans);
        }
        state.rewind();
        if !known.is_empty() {
            // Every round takes at least twice as many as the one before, so that all cost little more than the last.
            spans = state.walk(&known, 2 * known.len());
            state.rewind();
        }
        known = together(state, &spans, machine, options)?;
    }
}

/// Simulates launches together, from the moment at which the first of them starts.
fn together(
    before: &State<'_>,
    spans: &[(u32, Span)],
    machine: &Machine,
    options: &Options,
) -> Result<FxHashMap<u32, Span>, Diagnostic> {
    let origin = spans[0].1.start;
    let index: FxHashMap<u32, u32> = (0..).zip(spans).map(|(at, (launch, _))| (*launch, at)).collect();
    let launches: Vec<job::Launch<'_>> = spans
        .iter()
        .map(|&(launch, _)| job::Launch {
            program: before.launches[launch as usize].program.map(|p| p.0),
            after: before.launches[launch as usize].after.and_then(|after| index.get(&after).copied()),
            not_before: before.latest[launch as usize].saturating_sub(origin),
        })
        .collect();
    let mut hosts: Vec<(u32, Vec<Step>)> = (0..)
        .zip(before.hosts.iter().zip(&before.at))
        .map(|(host, (steps, at))| {
            let mut taken = vec![Step::Advance(at.clock.saturating_sub(origin))];
            let mut last = 0;
            for step in &steps[at.step as usize..] {
                match *step {
                    Step::Advance(ps) => taken.push(Step::Advance(ps)),
                    Step::Arrive(launch) => {
                        if let Some(&launch) = index.get(&launch) {
                            taken.push(Step::Arrive(launch));
                            last = taken.len();
                        }
                    }
                    Step::Wait(launch) => match index.get(&launch) {
                        Some(&launch) => taken.push(Step::Wait(launch)),
                        // Ended before, or beyond the stretch.
                        None if before.ended[launch as usize].is_some() => {}
                        None => break,
                    },
                }
            }
            // The steps after the last arrival move nothing but the host's own clock.
            taken.truncate(last);
            (host, taken)
        })
        .collect();
    hosts.retain(|(_, steps)| !steps.is_empty());
    let composition = job::compose("job", &hosts, &launches);
    let timeline = simulate(&composition.program, machine, &Options { record: false, detail: 0, ..*options })?;
    let times = composition.launches.iter().map(|agents| {
        let ends = &timeline.ends[agents.clone()];
        Span { start: origin + ends[0], end: origin + ends.iter().max().copied().unwrap_or_default() }
    });
    Ok(spans.iter().map(|(launch, _)| *launch).zip(times).collect())
}

/// The position of a host.
#[derive(Debug, Clone, Copy, Default)]
struct At {
    step: u32,
    clock: Ps,
}

/// A change in a [`State`]: the part that changed, as it was before.
enum Change {
    At(u32, At),
    /// Somebody is there for the launch; its `latest`.
    Arrived(u32, Ps),
    Ended(u32),
    /// One more host waits for the launch.
    Waits(u32),
    /// They no longer wait for the launch.
    Woken(u32, Vec<u32>),
    Ready(Ps, u32),
    Started(Ps, u32),
}

/// How far a job has come: every host waits for a launch that has not ended, or has taken its last step.
struct State<'a> {
    hosts: &'a [&'a [Step]],
    launches: &'a [Launch<'a>],
    /// Per launch, the one that follows it.
    followers: FxHashMap<u32, Vec<u32>>,
    at: Vec<At>,
    /// Per launch, what it still waits for to start: hosts and the launch before.
    missing: Vec<u32>,
    /// Per launch, when the latest of them was there.
    latest: Vec<Ps>,
    ended: Vec<Option<Ps>>,
    /// Hosts that wait for each launch.
    waiting: FxHashMap<u32, Vec<u32>>,
    /// Launches that nothing keeps from starting, with their starts.
    ready: BTreeSet<(Ps, u32)>,
    /// The changes since it was last cleared.
    journal: Vec<Change>,
}

impl<'a> State<'a> {
    fn new(hosts: &'a [&'a [Step]], launches: &'a [Launch<'a>]) -> Self {
        let mut missing = vec![0; launches.len()];
        let mut followers: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for step in hosts.iter().copied().flatten() {
            if let Step::Arrive(launch) = step {
                missing[*launch as usize] += 1;
            }
        }
        for (index, launch) in (0..).zip(launches) {
            if let Some(after) = launch.after {
                missing[index as usize] += 1;
                followers.entry(after).or_default().push(index);
            }
        }
        let mut state = Self {
            hosts,
            launches,
            followers,
            at: vec![At::default(); hosts.len()],
            latest: vec![0; launches.len()],
            ended: vec![None; launches.len()],
            waiting: FxHashMap::default(),
            ready: (0..).zip(&missing).filter(|(_, n)| **n == 0).map(|(launch, _)| (0, launch)).collect(),
            missing,
            journal: Vec::new(),
        };
        (0..hosts.len() as u32).for_each(|host| state.proceed(host));
        state
    }

    /// The time a launch takes alone.
    fn alone(&self, launch: u32) -> Ps {
        self.launches[launch as usize].program.map_or(0, |program| program.1)
    }

    /// Takes launches in order of their starts, while any of those taken runs and `at_least` so many. Those that are
    /// not `known` take their time alone.
    fn walk(&mut self, known: &FxHashMap<u32, Span>, at_least: usize) -> Vec<(u32, Span)> {
        let mut spans = Vec::new();
        let mut end = 0;
        while let Some(&(start, launch)) = self.ready.first()
            && (start < end || spans.len() < at_least)
        {
            self.ready.pop_first();
            self.journal.push(Change::Started(start, launch));
            let span = known.get(&launch).copied().unwrap_or(Span { start, end: start + self.alone(launch) });
            debug_assert_eq!(span.start, start, "the simulation starts a launch when the hosts do");
            end = end.max(span.end);
            self.finish(launch, span.end);
            spans.push((launch, span));
        }
        spans
    }

    /// Takes all changes of the journal back.
    fn rewind(&mut self) {
        while let Some(change) = self.journal.pop() {
            match change {
                Change::At(host, at) => self.at[host as usize] = at,
                Change::Arrived(launch, latest) => {
                    self.latest[launch as usize] = latest;
                    self.missing[launch as usize] += 1;
                }
                Change::Ended(launch) => self.ended[launch as usize] = None,
                Change::Waits(launch) => drop(self.waiting.get_mut(&launch).map(Vec::pop)),
                Change::Woken(launch, hosts) => drop(self.waiting.insert(launch, hosts)),
                Change::Ready(start, launch) => drop(self.ready.remove(&(start, launch))),
                Change::Started(start, launch) => drop(self.ready.insert((start, launch))),
            }
        }
    }

    fn finish(&mut self, launch: u32, end: Ps) {
        self.ended[launch as usize] = Some(end);
        self.journal.push(Change::Ended(launch));
        for next in self.followers.get(&launch).cloned().unwrap_or_default() {
            self.arrive(next, end);
        }
        if let Some(hosts) = self.waiting.remove(&launch) {
            for &host in &hosts {
                self.proceed(host);
            }
            self.journal.push(Change::Woken(launch, hosts));
        }
    }

    fn arrive(&mut self, launch: u32, at: Ps) {
        let index = launch as usize;
        self.journal.push(Change::Arrived(launch, self.latest[index]));
        self.latest[index] = self.latest[index].max(at);
        self.missing[index] -= 1;
        if self.missing[index] == 0 {
            self.ready.insert((self.latest[index], launch));
            self.journal.push(Change::Ready(self.latest[index], launch));
        }
    }

    /// Lets a host take its steps until it must wait.
    fn proceed(&mut self, host: u32) {
        let At { mut step, mut clock } = self.at[host as usize];
        while let Some(&next) = self.hosts[host as usize].get(step as usize) {
            match next {
                Step::Advance(ps) => clock = clock.saturating_add(ps),
                Step::Arrive(launch) => self.arrive(launch, clock),
                Step::Wait(launch) => match self.ended[launch as usize] {
                    Some(end) => clock = clock.max(end),
                    None => {
                        self.waiting.entry(launch).or_default().push(host);
                        self.journal.push(Change::Waits(launch));
                        break;
                    }
                },
            }
            step += 1;
        }
        let before = std::mem::replace(&mut self.at[host as usize], At { step, clock });
        self.journal.push(Change::At(host, before));
    }

    fn check_end(&self) -> Result<(), Diagnostic> {
        let mut stuck = (0..self.hosts.len()).filter(|&host| (self.at[host].step as usize) < self.hosts[host].len());
        let Some(first) = stuck.next() else { return Ok(()) };
        let Some(Step::Wait(launch)) = self.hosts[first].get(self.at[first].step as usize) else { return Ok(()) };
        let others = stuck.count();
        let missing = self.missing[*launch as usize];
        Err(Diagnostic::new(
            "AHBM-D102",
            format!(
                "the job cannot go on: host {first} and {others} more wait; host {first} for launch {launch}, \
                 which waits for {missing} more arrivals"
            ),
        )
        .hint("ranks that are in several groups must enter their collectives in orders that fit together"))
    }
}

/// When a host arrived and when it computed, given the times of the launches.
fn followed(steps: &[Step], launches: &[Span]) -> (Vec<Ps>, Vec<Span>) {
    let (mut entered, mut computed) = (Vec::new(), Vec::new());
    let mut clock: Ps = 0;
    for step in steps {
        match *step {
            Step::Advance(ps) => {
                let end = clock.saturating_add(ps);
                computed.push(Span { start: clock, end });
                clock = end;
            }
            Step::Arrive(_) => entered.push(clock),
            Step::Wait(launch) => clock = clock.max(launches[launch as usize].end),
        }
    }
    (entered, computed)
}
