//! Algorithm graphs: nodes that are ready begin at once, whatever else runs.

use super::mail::{Key, Then};
use super::stated::stated;
use super::{COLLECTIVE_TAGS, Simulation};
use ahbm_workload::{CallSpec, MessageSpec, Work};

/// A graph that is carried out at a rank.
#[derive(Debug)]
pub(super) struct Steps {
    rank: u32,
    algorithm: u32,
    /// The rank's place among the sorted ranks of its group, which is its rank in the graph.
    place: u32,
    group: u32,
    open: Box<[u32]>,
    running: u32,
}

impl Simulation<'_> {
    /// A rank begins to follow an algorithm graph.
    pub(super) fn follow(&mut self, rank: u32, algorithm: u32, spec: &CallSpec) {
        if self.limit == 0 {
            return;
        }
        let group = self.job.ranks[rank as usize].groups[spec.group as usize];
        let ranks = &self.job.groups[group as usize].ranks;
        let place = ranks.iter().filter(|&&other| other < rank).count() as u32;
        let graph = self.setup.algorithms[algorithm as usize].graph(place);
        let open: Box<[u32]> = (0..graph.nodes().len() as u32).map(|at| graph.deps(at).len() as u32).collect();
        let ready: Vec<u32> = (0..).zip(&open).filter(|(_, open)| **open == 0).map(|(at, _)| at).collect();
        let run = self.steps.insert(Steps { rank, algorithm, place, group, open, running: 0 });
        for node in ready {
            self.step(run, node);
        }
    }

    fn step(&mut self, run: u32, node: u32) {
        let steps = &mut self.steps[run];
        steps.running += 1;
        let (rank, place, group) = (steps.rank, steps.place, &self.job.groups[steps.group as usize]);
        let algorithm = &self.setup.algorithms[steps.algorithm as usize];
        let work = &algorithm.graph(place).node(node).work;
        let key = |message: &MessageSpec, sends: bool| {
            // Whoever a graph calls rank k is the k-th as listed.
            let peer = group.ranks[algorithm.ranks[place as usize].peers[message.peer as usize] as usize];
            let (src, dst) = if sends { (rank, peer) } else { (peer, rank) };
            Key { src, dst, tag: message.tag % COLLECTIVE_TAGS, bytes: message.bytes }
        };
        match work {
            Work::Send(message) => self.send(key(message, true), Then::Step(run, node)),
            Work::Recv(message) => self.receive(key(message, false), Then::Step(run, node)),
            Work::Compute(_) => {
                let ns = stated(algorithm.graph(place).node(node));
                self.after(ns, Then::Step(run, node));
            }
            // Begins and never ends: refused before the run.
            Work::Nothing | Work::Memory { .. } | Work::Call(_) | Work::Part(_) => {}
        }
    }

    /// A node of a graph is over.
    pub(super) fn step_ended(&mut self, run: u32, node: u32) {
        let steps = &mut self.steps[run];
        let graph = self.setup.algorithms[steps.algorithm as usize].graph(steps.place);
        steps.running -= 1;
        let mut ready = Vec::new();
        for &user in graph.users(node) {
            let open = &mut steps.open[user as usize];
            *open -= 1;
            if *open == 0 {
                ready.push(user);
            }
        }
        for node in ready {
            self.step(run, node);
        }
        if self.steps[run].running == 0 {
            let rank = self.steps.remove(run).rank;
            self.stream_ended(rank);
        }
    }
}
