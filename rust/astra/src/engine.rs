//! The simulation: events of one moment run in the order in which they were posted.

mod call;
mod exchange;
mod mail;
mod network;
mod rank;
mod slab;
mod stated;
mod steps;
mod stream;
mod stuck;
mod tree;

pub(crate) use stated::{Cut, choices, chosen, chunks};

use crate::Options;
use crate::config::{Flags, Setup};
use crate::report::{CallKind, Report, Traffic};
use ahbm_engine::EventQueue;
use ahbm_engine::interrupt::spend;
use ahbm_findings::Diagnostic;
use ahbm_workload::{Collective, Workload};
use indexmap::IndexMap;
use mail::{Key, Mail, Then};
use network::{NONE, Network, Way};
use rank::Rank;
use rustc_hash::{FxBuildHasher, FxHashMap};
use slab::Slab;
use steps::Steps;
use stream::Stream;

/// Bytes of the message that asks for another.
const REQUEST_BYTES: u64 = 8192;
/// What tells the tags of collectives, and those of requests, from the tags of nodes.
const COLLECTIVE_TAGS: u32 = 500_000_000;
const REQUEST_TAGS: u32 = 1_000_000_000;
/// Most messages and streams at a time: a gigabyte or two, and a third of one.
const MAX_MESSAGES: usize = 1 << 24;
const MAX_STREAMS: usize = 1 << 20;
/// Steps of [`spend`] that an event takes.
const EVENT_STEPS: u64 = 64;

/// The kinds of events, in the three highest bits.
const ARRIVE: u32 = 0;
const PASS: u32 = 1 << 29;
const REDUCE: u32 = 2 << 29;
const FREE: u32 = 3 << 29;
const LATER: u32 = 4 << 29;
const KIND: u32 = 7 << 29;

/// A message on its way, or one that waits to be asked for.
#[derive(Debug, Clone, Copy)]
struct Message {
    key: Key,
    sent: Then,
    way: Way,
    /// The message behind it in the queue of a link.
    next: u32,
}

/// A simulation that runs.
pub(crate) struct Simulation<'a> {
    setup: &'a Setup,
    flags: Flags,
    job: &'a Workload,
    queue: EventQueue,
    now: u64,
    network: Network,
    mail: Mail,
    messages: Slab<Message>,
    later: Slab<Then>,
    streams: Slab<Stream>,
    steps: Slab<Steps>,
    ranks: Vec<Rank>,
    /// Per group, the place of each rank as listed.
    places: Vec<FxHashMap<u32, u32>>,
    /// Streams of a queue that run at a time.
    limit: u64,
    /// Delay before each send.
    endpoint_delay: u64,
    /// Start and end of every node, where they are recorded.
    times: Option<Vec<Vec<(u64, u64)>>>,
    traffic: Vec<Traffic>,
    kinds: IndexMap<(Collective, u64, u32), CallKind, FxBuildHasher>,
    /// What ends the run.
    fault: Option<Diagnostic>,
}

impl<'a> Simulation<'a> {
    /// # Errors
    /// `AHBM-B213` a network or queues that are too many.
    pub(crate) fn new(setup: &'a Setup, flags: Flags, options: &Options) -> Result<Self, Diagnostic> {
        let job = &setup.job;
        let network = Network::new(&setup.network, flags.backend)?;
        let places: Vec<FxHashMap<u32, u32>> =
            job.groups.iter().map(|group| group.ranks.iter().copied().zip(0..).collect()).collect();
        let queues = setup.network.len() as u64 * u64::from(flags.queues);
        if queues.saturating_mul(job.ranks.len() as u64) > stream::MAX_QUEUES {
            let what = format!("{} ranks with {queues} queues each are too many", job.ranks.len());
            return Err(Diagnostic::new("AHBM-B213", what));
        }
        let ranks = (0..job.ranks.len() as u32).map(|rank| Rank::new(setup, rank, queues as usize)).collect();
        let scaled = |delay: u64| (delay as f64 * flags.injection_scale) as u64;
        Ok(Self {
            setup,
            flags,
            job,
            queue: EventQueue::new(),
            now: 0,
            network,
            mail: Mail::default(),
            messages: Slab::default(),
            later: Slab::default(),
            streams: Slab::default(),
            steps: Slab::default(),
            ranks,
            places,
            limit: setup.system.active_chunks.div_ceil(flags.queues.into()),
            endpoint_delay: setup.system.endpoint_delay.map_or(stream::DEFAULT_DELAY, scaled),
            times: options.times.then(|| {
                let of = |rank| vec![(0, 0); job.graph(rank).nodes().len()];
                (0..job.ranks.len() as u32).map(of).collect()
            }),
            traffic: vec![Traffic::default(); setup.network.len()],
            kinds: IndexMap::default(),
            fault: None,
        })
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// `AHBM-B120` more events than `max_events`, `AHBM-U235` what stops ASTRA-sim.
    pub(crate) fn run(mut self, options: &Options) -> Result<Report, Diagnostic> {
        let mut instant = None;
        for rank in 0..self.ranks.len() as u32 {
            self.issue(rank);
            if instant.is_none() && self.queue.next_time() == Some(0) {
                instant = Some(self.instant(rank));
            }
        }
        let mut events = 0u64;
        while let Some((time, event)) = self.queue.pop() {
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
            self.now = time;
            events += 1;
            if events > options.max_events {
                let what = format!("no end after {} events ({} ns simulated)", options.max_events, self.now);
                return Err(Diagnostic::new("AHBM-B120", what));
            }
            spend(EVENT_STEPS);
            let at = event & !KIND;
            match event & KIND {
                ARRIVE => self.land(at),
                PASS => self.passed(at),
                REDUCE => self.reduce(at),
                FREE => self.free(at),
                _ => {
                    let then = self.later.remove(at);
                    self.resume(then);
                }
            }
        }
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => {
                let mut report = self.report(events);
                report.findings.extend(instant);
                Ok(report)
            }
        }
    }

    /// Posts an event; `at` is a position in a slab, below 2^29 by the slab's own bound.
    fn post(&mut self, delay: u64, kind: u32, at: u32) {
        match self.now.checked_add(delay) {
            Some(time) => self.queue.push(time, kind | at),
            None => self.stop(Diagnostic::new("AHBM-B120", "the simulated time exceeds 584 years")),
        }
    }

    /// Ends the run with the first thing that does.
    fn stop(&mut self, fault: Diagnostic) {
        self.fault.get_or_insert(fault);
        // The loop looks at faults before each event.
        self.queue.push(self.now, FREE | (NONE & !KIND));
    }

    /// Goes on with something after `delay`.
    fn after(&mut self, delay: u64, then: Then) {
        let at = self.later.insert(then);
        self.post(delay, LATER, at);
    }

    fn resume(&mut self, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Node(rank, node) => self.end(rank, node),
            Then::Stream(stream) => self.received(stream),
            Then::Step(run, node) => self.step_ended(run, node),
            Then::Leave(message) => self.depart(message),
            Then::Post(message) => {
                let Message { key, sent, .. } = self.messages.remove(message);
                self.receive_now(key, sent);
            }
        }
    }

    /// A message leaves; `sent` goes on when it has arrived.
    fn send(&mut self, key: Key, sent: Then) {
        if key.src == key.dst {
            let what = format!("rank {} sends a message of {} bytes to itself", key.src, key.bytes);
            let fault = Diagnostic::new("AHBM-U235", what).hint("ASTRA-sim stops there at an assertion");
            return self.stop(fault);
        }
        if self.messages.held() >= MAX_MESSAGES {
            let what = format!("more than {MAX_MESSAGES} messages on their way at a time");
            return self.stop(Diagnostic::new("AHBM-B213", what));
        }
        let way = Way { at: key.src, switch: None };
        let message = self.messages.insert(Message { key, sent, way, next: NONE });
        if self.flags.rendezvous {
            self.receive_now(key.request(), Then::Leave(message));
        } else {
            self.depart(message);
        }
    }

    /// A receive is posted.
    fn receive(&mut self, key: Key, then: Then) {
        if self.flags.rendezvous {
            let way = Way { at: key.dst, switch: None };
            let wish = self.messages.insert(Message { key, sent: then, way, next: NONE });
            let request = Message { key: key.request(), sent: Then::Post(wish), way, next: NONE };
            let request = self.messages.insert(request);
            self.depart(request);
        } else {
            self.receive_now(key, then);
        }
    }

    fn receive_now(&mut self, key: Key, then: Then) {
        if self.mail.posted(key, then) {
            self.after(0, then);
        }
    }

    fn depart(&mut self, message: u32) {
        let Key { src, dst, bytes, .. } = self.messages[message].key;
        for dimension in self.network.differing(src, dst) {
            self.traffic[dimension].messages += 1;
            self.traffic[dimension].bytes += bytes;
        }
        if self.network.links.is_empty() {
            let delay = self.network.delay(src, dst, bytes);
            self.post(delay, ARRIVE, message);
        } else {
            self.land(message);
        }
    }

    /// A message is at a node of its way: it enters the next link, or has arrived.
    fn land(&mut self, message: u32) {
        let Message { key, sent, way, .. } = self.messages[message];
        let hop = if self.network.links.is_empty() { None } else { self.network.hop(way, key.dst) };
        let Some((link, next)) = hop else {
            self.messages.remove(message);
            let receiver = self.mail.arrived(key);
            self.resume(sent);
            if let Some(receiver) = receiver {
                self.resume(receiver);
            }
            return;
        };
        self.messages[message].way = next;
        let queue = &mut self.network.links[link as usize];
        if queue.busy {
            self.messages[message].next = NONE;
            if queue.head == NONE {
                queue.head = message;
            } else {
                self.messages[queue.tail].next = message;
            }
            queue.tail = message;
        } else {
            self.transmit(link, message);
        }
    }

    fn transmit(&mut self, link: u32, message: u32) {
        let bytes = self.messages[message].key.bytes;
        let (landed, free) = self.network.times(link, bytes);
        let queue = &mut self.network.links[link as usize];
        queue.busy = true;
        queue.bytes += bytes;
        self.post(landed, ARRIVE, message);
        self.post(free, FREE, link);
    }

    /// A link is free for the next message.
    fn free(&mut self, link: u32) {
        let queue = &mut self.network.links[link as usize];
        if queue.head == NONE {
            queue.busy = false;
            return;
        }
        let message = queue.head;
        queue.head = self.messages[message].next;
        self.transmit(link, message);
    }

    fn report(mut self, events: u64) -> Report {
        let findings = self.stuck().map_or_else(|| self.unreceived(), |finding| vec![finding]);
        let links = self.network.links.iter().zip(0..).filter(|(link, _)| link.bytes > 0).map(|(link, at)| {
            let (from, to) = self.network.name(at);
            crate::report::LinkTraffic { dimension: self.network.dimension_of(at), from, to, bytes: link.bytes }
        });
        Report {
            links: links.collect(),
            ranks: self.ranks.iter().map(Rank::times).collect(),
            times: self.times.take(),
            calls: self.kinds.into_values().collect(),
            traffic: self.traffic,
            events,
            findings,
        }
    }
}

impl Key {
    /// The message that asks for this one.
    fn request(self) -> Self {
        Self { src: self.dst, dst: self.src, tag: self.tag + REQUEST_TAGS, bytes: REQUEST_BYTES }
    }
}
