//! Collectives that wait for each other over ranks: groups that are entered in crossing orders.
//!
//! Only what is certain counts: dependencies, sends before their receives, and the order of the calls of a group.

use crate::calls::Call;
use crate::copies::Copies;
use crate::messages::Message;
use crate::one;
use crate::workload::Workload;
use ahbm_findings::Diagnostic;

/// Mark of a node that has ended.
const ENDED: u32 = u32::MAX;
/// No call, no message.
const NONE: u32 = u32::MAX;
/// Sides that a finding lists.
const LISTED: usize = 8;

/// Rank and node.
type At = (u32, u32);

/// What waits: a node of a rank, or a call of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Waits {
    Node(u32, u32),
    Call(u32),
}

struct Order<'a> {
    job: &'a Workload,
    calls: &'a [Call],
    /// Per rank and node, how many it waits for, or [`ENDED`].
    open: Vec<Box<[u32]>>,
    /// Per rank and node, its call, or the message that it receives.
    of: Vec<Box<[u32]>>,
    /// Per call, ranks and calls that it waits for, or [`ENDED`].
    missing: Vec<u32>,
    /// Per call, the one of the same group behind it.
    behind: Vec<u32>,
    ready: Vec<At>,
}

impl Workload {
    /// Finds collectives that wait for each other, in a time that grows as the number of nodes and dependencies.
    ///
    /// # Errors
    /// `AHBM-D102` a circle: its collectives, their groups, and the nodes that come in the other order.
    pub fn crossings(&self, calls: &[Call], messages: &[Message]) -> Result<(), Vec<Diagnostic>> {
        self.crossings_of(calls, messages, None)
    }

    /// The same of the nodes of ranks that lead; of all without copies.
    pub(crate) fn crossings_of(
        &self,
        calls: &[Call],
        messages: &[Message],
        copies: Option<Copies>,
    ) -> Result<(), Vec<Diagnostic>> {
        let leads = |rank: u32| copies.is_none_or(|copies| copies.leads(rank));
        let count = |rank: u32| if leads(rank) { self.graph(rank).nodes().len() } else { 0 };
        let waits = |rank: u32| (0..count(rank) as u32).map(move |at| (rank, at));
        let ranks = 0..self.ranks.len() as u32;
        let open = ranks.clone().map(|rank| waits(rank).map(|(r, at)| self.graph(r).deps(at).len() as u32).collect());
        let members = |call: &Call| self.groups[call.group as usize].ranks.iter();
        let parts = |call: &Call| members(call).filter(|rank| leads(**rank)).count() as u32;
        let mut order = Order {
            job: self,
            calls,
            open: open.collect(),
            of: ranks.clone().map(|rank| vec![NONE; count(rank)].into()).collect(),
            missing: calls.iter().map(|call| parts(call) + u32::from(call.after.is_some())).collect(),
            behind: vec![NONE; calls.len()],
            ready: Vec::new(),
        };
        for (number, call) in (0..).zip(calls) {
            for (&rank, &node) in members(call).zip(&call.nodes).filter(|(rank, _)| leads(**rank)) {
                order.of[rank as usize][node as usize] = number;
            }
            if let Some(after) = call.after {
                order.behind[after as usize] = number;
            }
        }
        let mut receivers: Vec<(At, At)> = Vec::with_capacity(messages.len());
        for (number, message) in (0..).zip(messages) {
            let (rank, node) = message.recv;
            order.of[rank as usize][node as usize] = number;
            order.open[rank as usize][node as usize] += 1;
            receivers.push((message.send, message.recv));
        }
        receivers.sort_unstable();
        for rank in ranks {
            let open = &order.open[rank as usize];
            order.ready.extend(waits(rank).filter(|&(_, at)| open[at as usize] == 0));
        }
        order.run(&receivers);
        match order.circle(messages) {
            Some(circle) => Err(one(order.finding(&circle))),
            None => Ok(()),
        }
    }
}

impl Order<'_> {
    fn is_call(&self, rank: u32, at: u32) -> bool {
        self.job.graph(rank).spec(at).is_some()
    }

    /// Ends what can end.
    fn run(&mut self, receivers: &[(At, At)]) {
        while let Some((rank, at)) = self.ready.pop() {
            if self.is_call(rank, at) {
                self.arrive(self.of[rank as usize][at as usize]);
            } else {
                self.end(rank, at);
                let first = receivers.partition_point(|(send, _)| *send < (rank, at));
                let sent = receivers[first..].iter().take_while(|(send, _)| *send == (rank, at));
                sent.for_each(|(_, (rank, at))| self.close(*rank, *at));
            }
        }
    }

    fn end(&mut self, rank: u32, at: u32) {
        self.open[rank as usize][at as usize] = ENDED;
        let job = self.job;
        job.graph(rank).users(at).iter().for_each(|&user| self.close(rank, user));
    }

    fn close(&mut self, rank: u32, at: u32) {
        let open = &mut self.open[rank as usize][at as usize];
        *open -= 1;
        if *open == 0 {
            self.ready.push((rank, at));
        }
    }

    /// A rank has arrived at a call, or the call before it has ended.
    fn arrive(&mut self, mut call: u32) {
        while call != NONE {
            let missing = &mut self.missing[call as usize];
            *missing -= 1;
            if *missing > 0 {
                return;
            }
            *missing = ENDED;
            let (job, Call { group, nodes, .. }) = (self.job, &self.calls[call as usize]);
            for (&rank, &node) in job.groups[*group as usize].ranks.iter().zip(nodes) {
                if !self.open[rank as usize].is_empty() {
                    self.end(rank, node);
                }
            }
            call = self.behind[call as usize];
        }
    }

    /// A circle among what has not ended, each waiting for the next.
    fn circle(&self, messages: &[Message]) -> Option<Vec<Waits>> {
        let call = self.missing.iter().position(|missing| *missing != ENDED).map(|call| Waits::Call(call as u32));
        let node = || {
            let open = |rank: u32| self.open[rank as usize].iter().position(|open| *open != ENDED);
            (0..self.open.len() as u32).find_map(|rank| open(rank).map(|at| Waits::Node(rank, at as u32)))
        };
        let first = call.or_else(node)?;
        let mut seen = rustc_hash::FxHashMap::default();
        let mut path = Vec::new();
        let mut at = first;
        while !seen.contains_key(&at) {
            seen.insert(at, path.len());
            path.push(at);
            at = self.cause(at, messages)?;
        }
        Some(path.split_off(seen[&at]))
    }

    /// Something that has not ended and that another waits for.
    fn cause(&self, waits: Waits, messages: &[Message]) -> Option<Waits> {
        let place = |rank: u32, at: u32| {
            let call = self.of[rank as usize][at as usize];
            if self.is_call(rank, at) && self.open[rank as usize][at as usize] == 0 {
                Waits::Call(call)
            } else {
                Waits::Node(rank, at)
            }
        };
        match waits {
            Waits::Call(call) => {
                let Call { group, nodes, after, .. } = &self.calls[call as usize];
                let ranks = self.job.groups[*group as usize].ranks.iter().copied();
                let waits =
                    |rank: u32, node: u32| self.open[rank as usize].get(node as usize).is_some_and(|open| *open > 0);
                let late = ranks.zip(nodes).find(|(rank, node)| waits(*rank, **node));
                late.map(|(rank, &node)| Waits::Node(rank, node)).or(after.map(Waits::Call))
            }
            Waits::Node(rank, at) => {
                let deps = self.job.graph(rank).deps(at);
                let open = |dep: &&u32| self.open[rank as usize][**dep as usize] != ENDED;
                let late = deps.iter().find(open).map(|&dep| place(rank, dep));
                late.or_else(|| {
                    let message = messages.get(self.of[rank as usize][at as usize] as usize)?;
                    Some(place(message.send.0, message.send.1))
                })
            }
        }
    }

    fn finding(&self, circle: &[Waits]) -> Diagnostic {
        let mut groups: Vec<&str> = Vec::new();
        for waits in circle {
            let Some(call) = self.call_of(*waits) else { continue };
            let name = &*self.job.groups[self.calls[call as usize].group as usize].name;
            if !groups.contains(&name) {
                groups.push(name);
            }
        }
        let named: Vec<String> = groups.iter().take(LISTED).map(|name| format!("{name:?}")).collect();
        let what = match &named[..] {
            [] => "nodes of several ranks wait for each other".to_owned(),
            [one] => format!("collectives of group {one} wait for each other"),
            many => format!("groups {} are entered in crossing orders", many.join(", ")),
        };
        let mut finding = Diagnostic::new("AHBM-D102", what);
        for waits in circle.iter().filter(|waits| matches!(waits, Waits::Node(..))).take(LISTED) {
            let Waits::Node(rank, at) = *waits else { continue };
            let of_group = self.call_of(*waits).map(|call| {
                let group = self.calls[call as usize].group;
                format!(" of group {:?}", self.job.groups[group as usize].name)
            });
            let label = format!("{}{}", self.job.label(rank, at), of_group.unwrap_or_default());
            let place = circle.iter().position(|other| other == waits).unwrap_or(0);
            let next = circle[(place + 1) % circle.len()];
            let behind = match (next, self.call_of(next)) {
                (_, Some(call)) => {
                    let Call { group, nodes, .. } = &self.calls[call as usize];
                    let group = &self.job.groups[*group as usize];
                    let own = group.ranks.iter().zip(nodes).find(|(member, _)| **member == rank);
                    let node = own.map(|(_, &node)| format!(" node {}", self.job.graph(rank).node(node).id));
                    format!(" waits for{} of group {:?}", node.unwrap_or_default(), group.name)
                }
                (Waits::Node(other, node), None) => {
                    format!(" waits for rank {other} node {}", self.job.graph(other).node(node).id)
                }
                (Waits::Call(_), None) => String::new(),
            };
            finding = finding.site(format!("{label}{behind}"), self.job.origin(rank, at));
        }
        finding.hint("all ranks must enter the collectives of their groups in one order")
    }

    fn call_of(&self, waits: Waits) -> Option<u32> {
        match waits {
            Waits::Call(call) => Some(call),
            Waits::Node(rank, at) => self.is_call(rank, at).then(|| self.of[rank as usize][at as usize]),
        }
    }
}
