//! A collective at one rank: which algorithm carries it out, and into which streams of which phases it is cut.

use super::exchange::{Members, Op, Ring, result};
use super::stated::{Plan, chunks, is_stated, plan, stated};
use super::stream::{Half, Machine, Phase, Stream};
use super::{COLLECTIVE_TAGS, MAX_STREAMS, Simulation};
use crate::config::{Choice, Native, place};
use ahbm_findings::Diagnostic;
use ahbm_workload::{CallSpec, Collective};

/// A dimension as a rank sees it.
#[derive(Debug, Clone, Copy)]
struct Axis {
    /// Position among the dimensions, which chooses queues.
    at: usize,
    native: Native,
    ring: Ring,
    local: bool,
}

impl Simulation<'_> {
    /// A rank begins a collective.
    pub(super) fn call(&mut self, rank: u32, node: u32) {
        let (job, setup) = (self.job, self.setup);
        let graph = job.graph(rank);
        let (Some(spec), Some(group)) = (graph.spec(node), graph.spec(node).map(|spec| job.group(rank, spec.group)))
        else {
            return;
        };
        let state = &mut self.ranks[rank as usize];
        state.taking = super::rank::Taking { node, started: self.now, streams: u64::MAX, ended: 0 };
        if is_stated(spec.collective) {
            return self.after(stated(graph.node(node)), super::mail::Then::Node(rank, node));
        }
        let Some(kind) = place(spec.collective) else { return };
        let anonymous = matches!(&*group.name, "" | "0");
        let id = graph.node(node).id;
        let plan = match &state.plans[spec.group as usize][kind] {
            Some(plan) if !anonymous => plan.clone(),
            _ => {
                let plan = plan(setup, spec.collective, id, group.ranks.len() as u32);
                state.plans[spec.group as usize][kind] = Some(plan.clone());
                plan
            }
        };
        let priority = match setup.system.policy {
            crate::config::Policy::Lifo => state.priority + 1,
            crate::config::Policy::Fifo => state.priority - 1,
            crate::config::Policy::Explicit => graph.node(node).priority.into(),
        };
        state.priority = priority;
        let world = setup.world();
        let cut = chunks(setup, spec.collective, spec.bytes, world);
        match plan {
            Plan::Graph(algorithm) => {
                state.number(spec.group, anonymous, 1);
                state.taking.streams = cut.streams;
                self.follow(rank, algorithm, spec);
            }
            Plan::Native { choices, world: whole } => {
                let axes = self.axes(rank, spec, &choices, whole);
                if axes.is_empty() || cut.streams == 0 {
                    // ASTRA-sim waits for streams that it never made.
                    return;
                }
                if self.streams.held() as u64 + cut.streams > MAX_STREAMS as u64 {
                    let what = format!("more than {MAX_STREAMS} streams at a time");
                    return self.stop(Diagnostic::new("AHBM-B213", what).hint("fewer preferred-dataset-splits"));
                }
                let state = &mut self.ranks[rank as usize];
                let first = state.number(spec.group, anonymous, cut.streams);
                state.taking.streams = cut.streams;
                for number in first..first + cut.streams {
                    let mut phases = self.phases(rank, spec.collective, kind, cut.bytes, &axes);
                    let Some(phase) = phases.pop() else { return };
                    let tag = COLLECTIVE_TAGS + (number % u64::from(COLLECTIVE_TAGS)) as u32;
                    let stream = Stream { rank, tag, priority, phase, rest: phases, machine: Machine::Waits };
                    let stream = self.streams.insert(stream);
                    self.enter(stream);
                }
            }
        }
    }

    /// The dimensions of more than one rank that take part.
    fn axes(&self, rank: u32, spec: &CallSpec, choices: &[Choice], whole: bool) -> Vec<Axis> {
        let group = self.job.ranks[rank as usize].groups[spec.group as usize];
        let members = &self.job.groups[group as usize];
        if !whole {
            let size = members.ranks.len() as u32;
            let place = self.places[group as usize].get(&rank).copied().unwrap_or(0);
            let ring = Ring { size, place, members: Members::Group(group) };
            let axis = |choice: &Choice| Axis { at: 0, native: choice.native, ring, local: true };
            return if size > 1 { choices.iter().take(1).map(axis).collect() } else { Vec::new() };
        }
        let anonymous = matches!(&*members.name, "" | "0");
        let involved = |at: usize| match &spec.dimensions {
            Some(flags) if anonymous => flags.get(at).copied().unwrap_or(true),
            _ => true,
        };
        let mut stride = 1;
        let mut axes = Vec::new();
        for (at, (choice, dimension)) in choices.iter().zip(&self.setup.network).enumerate() {
            let ring = if choice.one {
                Ring { size: self.setup.world(), place: rank, members: Members::Strided { first: 0, stride: 1 } }
            } else {
                let place = rank / stride % dimension.npus;
                let members = Members::Strided { first: rank - place * stride, stride };
                Ring { size: dimension.npus, place, members }
            };
            if involved(at) {
                axes.push(Axis { at, native: choice.native, ring, local: false });
            }
            if choice.one {
                break;
            }
            stride *= dimension.npus;
        }
        axes
    }

    /// The phases of a stream, the last one first.
    fn phases(&mut self, rank: u32, collective: Collective, kind: usize, bytes: u64, axes: &[Axis]) -> Vec<Phase> {
        let aware = self.setup.system.local_bandwidth_aware && collective == Collective::AllReduce;
        let op = match collective {
            Collective::AllGather => Op::AllGather,
            Collective::ReduceScatter => Op::ReduceScatter,
            Collective::AllToAll => Op::AllToAll,
            _ => Op::AllReduce,
        };
        let steps: Vec<(&Axis, Op, Half)> = if let (true, Some((turn, before))) = (aware, axes.split_last()) {
            let scatter = before.iter().map(|axis| (axis, Op::ReduceScatter, Half::First));
            let gather = before.iter().rev().map(|axis| (axis, Op::AllGather, Half::Last));
            scatter.chain([(turn, Op::AllReduce, Half::First)]).chain(gather).collect()
        } else if collective == Collective::AllGather {
            axes.iter().rev().map(|axis| (axis, op, Half::Both)).collect()
        } else {
            axes.iter().map(|axis| (axis, op, Half::Both)).collect()
        };
        let mut bytes = bytes;
        let queues = self.flags.queues;
        let dimensions = self.setup.network.len();
        let state = &mut self.ranks[rank as usize];
        let mut phases = Vec::with_capacity(steps.len());
        for (axis, op, half) in steps {
            let (queue, forth) = state.levels[axis.at].next(half, queues);
            let mut root_first = false;
            if axis.native == Native::DoubleBinaryTree {
                let taken = &mut state.trees[kind * dimensions + axis.at];
                root_first = *taken % 2 == 1;
                *taken += 1;
            }
            let Axis { at, native, ring, local } = *axis;
            let queue = at as u32 * queues + queue;
            phases.push(Phase { native, op, bytes, queue, forth, ring, local, root_first });
            bytes = result(axis.native, op, axis.ring.size, bytes);
        }
        phases.reverse();
        phases
    }
}
