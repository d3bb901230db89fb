//! A training job on a machine: every rank issues its nodes, takes its part in calls when it arrives, and goes on when
//! its own part is done.
//!
//! All launches are one program, so that what overlaps contends for links and engines. Their gates are opened by the
//! ranks' hosts ([`hosts`]), which keep a heap of ready nodes per lane; a host runs on no PE. The order in which nodes
//! were issued makes a program of fixed hosts ([`fixed`]), which takes the same times and which every view can show.

mod answers;
mod fixed;
mod hosts;
mod merged;
mod order;

pub use answers::{Answers, Exposure, Segment, Why};
pub use merged::Merged;
pub use order::Lanes;

use crate::timing::driven::simulate_driven;
use crate::{Options, Span, simulate};
use ahbm_machine::{Diagnostic, Machine, Ps};
use ahbm_program::Program;
use ahbm_program::job::{Assembly, Share, assemble};
use ahbm_program::marks::{Mark, Region, marked};
use ahbm_workload::{Linked, Work};
use hosts::Hosts;
use indexmap::IndexMap;
use order::Order;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// How nodes become times.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// Which nodes of a rank may run side by side.
    pub lanes: Lanes,
    /// What a rank computes at: arithmetic operations per nanosecond, for nodes that state operations and no duration.
    pub operations_per_ns: f64,
    /// Bytes per nanosecond that a rank's memory moves, for the same nodes and for those of memory.
    pub bytes_per_ns: f64,
    /// Computations whose name contains the text take this many times as long; the first that fits counts.
    pub factors: Vec<(String, f64)>,
}

/// The times of a job, in picoseconds from its start.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Times {
    /// Per place of [`Linked`], when the node was issued and when it ended.
    pub nodes: Vec<Span>,
    /// Per place, its number in the order of issue.
    pub issued: Vec<u32>,
    /// Messages that were sent.
    pub messages: u64,
    /// Bytes that were sent.
    pub bytes: u64,
    /// Events of the simulation.
    pub events: u64,
}

/// A job that is about to be replayed: its launches as one program, and what its nodes cost.
#[derive(Debug)]
pub struct Replay<'a> {
    job: &'a Linked,
    assembly: Assembly,
    orders: Vec<Order>,
    /// Per graph, the cost of every node.
    costs: Vec<Vec<Ps>>,
    /// The counter of every chunk of [`Linked::chunks`], and how many agents signal it.
    chunks: Vec<(u32, u32)>,
    given: FxHashMap<ahbm_workload::Share, Vec<u32>>,
    /// Computations that state neither a duration nor operations.
    pub untimed: u64,
}

impl<'a> Replay<'a> {
    /// Puts a job together. `programs` has one entry per launch, none where nothing runs, and `regions` one per chunk of
    /// [`Linked::chunks`]: the memory of the launch's program that it is. Rank r is SIP r.
    pub fn new(
        job: &'a Linked,
        programs: &[Option<&Program>],
        regions: &[Vec<Region>],
        machine: &Machine,
        terms: &Terms,
    ) -> Self {
        let empty = Program::default();
        let mut marks: IndexMap<u32, Vec<(usize, Mark)>, FxBuildHasher> = IndexMap::default();
        for (number, (chunk, regions)) in job.chunks.iter().zip(regions).enumerate() {
            let mark = Mark { regions: regions.clone(), completes: chunk.completes };
            marks.entry(chunk.share.launch).or_default().push((number, mark));
        }
        let changed: IndexMap<u32, (Program, Vec<u32>), FxBuildHasher> = marks
            .iter()
            .map(|(&launch, marks)| {
                let own: Vec<Mark> = marks.iter().map(|(_, mark)| mark.clone()).collect();
                (launch, marked(programs[launch as usize].unwrap_or(&empty), &own))
            })
            .collect();
        let ranks: Vec<Box<[u32]>> = (0..job.launches() as u32).map(|launch| job.ranks(launch)).collect();
        let of = |launch: u32| match changed.get(&launch) {
            Some((program, _)) => program,
            None => programs[launch as usize].unwrap_or(&empty),
        };
        let shares: Vec<Share<'_>> =
            (0..).zip(&ranks).map(|(launch, sips)| Share { program: of(launch), sips }).collect();
        let workload = &job.workload;
        let assembly = assemble(&workload.name, machine, &shares);
        let mut chunks = vec![(0, 0); job.chunks.len()];
        for (launch, marks) in &marks {
            let before = programs[*launch as usize].map_or(0, |program| program.counters);
            let first = assembly.counters[*launch as usize] + before;
            for (counter, ((number, _), count)) in (first..).zip(marks.iter().zip(&changed[launch].1)) {
                chunks[*number] = (counter, *count);
            }
        }
        let mut given: FxHashMap<_, Vec<u32>> = FxHashMap::default();
        for (chunk, (counter, signals)) in job.chunks.iter().zip(&chunks) {
            if chunk.completes && *signals == 0 {
                given.entry(chunk.share).or_default().push(*counter);
            }
        }
        let costs: Vec<Vec<Ps>> = workload.graphs.iter().map(|graph| terms.costs(graph)).collect();
        let untimed = workload.ranks.iter().map(|rank| {
            let (graph, costs) = (&workload.graphs[rank.graph as usize], &costs[rank.graph as usize]);
            let free =
                |(node, cost): &(&ahbm_workload::Node, &Ps)| **cost == 0 && matches!(node.work, Work::Compute { .. });
            graph.nodes().iter().zip(costs).filter(free).count() as u64
        });
        Self {
            job,
            assembly,
            orders: workload.graphs.iter().map(|graph| Order::new(graph, terms.lanes)).collect(),
            untimed: untimed.sum(),
            costs,
            chunks,
            given,
        }
    }

    /// Runs the job.
    ///
    /// # Errors
    /// `AHBM-D102` ranks that wait for each other, with the calls they wait in; as [`crate::simulate`].
    pub fn run(&self, machine: &Machine, options: &Options) -> Result<Times, Diagnostic> {
        let mut hosts = Hosts::new(self);
        let watched = hosts.watched();
        let options = Options { record: false, detail: 0, ..*options };
        let outcome = simulate_driven(&self.assembly.program, machine, &options, &watched, &mut hosts);
        match outcome {
            Err(finding) if finding.code != "AHBM-D101" => Err(finding),
            outcome if !hosts.done() => Err(hosts.stuck(outcome.err())),
            Err(finding) => Err(finding),
            Ok(timeline) => Ok(hosts.times(&timeline)),
        }
    }

    /// The job as one program, whose hosts issue their nodes in the order of `times`.
    pub fn program(&self, times: &Times) -> Program {
        fixed::program(self, times)
    }

    /// The job with the operations of its calls in their places.
    ///
    /// # Errors
    /// `AHBM-U294` a call with a barrier between ranks; as [`crate::simulate`].
    pub fn merged(&self, times: &Times, machine: &Machine) -> Result<Merged, Vec<Diagnostic>> {
        let program = self.program(times);
        let timeline = simulate(&program, machine, &Options::default()).map_err(|finding| vec![finding])?;
        merged::merged(self.job, &program, machine, &timeline)
    }

    /// Where the time of every rank went, and the job's critical path.
    pub fn answers(&self, times: &Times) -> Answers {
        answers::answers(self, times)
    }

    /// The counters of the chunks of a rank's part in a launch that nobody writes: complete once the rank is there.
    fn given(&self, share: ahbm_workload::Share) -> impl Iterator<Item = u32> + '_ {
        self.given.get(&share).into_iter().flatten().copied()
    }

    /// Whether a launch has nothing to run.
    fn is_empty(&self, launch: u32) -> bool {
        self.assembly.parts[launch as usize].iter().all(|part| part.agents == 0)
    }

    fn order(&self, rank: u32) -> &Order {
        &self.orders[self.job.workload.ranks[rank as usize].graph as usize]
    }

    fn cost(&self, rank: u32, at: u32) -> Ps {
        self.costs[self.job.workload.ranks[rank as usize].graph as usize][at as usize]
    }
}

impl Terms {
    fn costs(&self, graph: &ahbm_workload::Graph) -> Vec<Ps> {
        (0..).zip(graph.nodes()).map(|(at, node)| self.cost(graph.name(at), node)).collect()
    }

    /// How long a node takes: what it states, else by the roofline (S. Williams et al., CACM 52(4), 2009): the longer of
    /// arithmetic at its peak and bytes at the bandwidth of the memory.
    pub fn cost(&self, name: &str, node: &ahbm_workload::Node) -> Ps {
        let (operations, bytes, scaled) = match node.work {
            Work::Compute { operations, bytes } => (operations, bytes, true),
            Work::Memory { bytes, .. } => (0, bytes, false),
            _ => return 0,
        };
        let ps = if node.ps > 0 {
            node.ps as f64
        } else {
            let arithmetic = operations as f64 / self.operations_per_ns;
            let memory = bytes as f64 / self.bytes_per_ns;
            (arithmetic.max(memory) * 1000.0).ceil()
        };
        let factor = self.factors.iter().find(|(text, _)| scaled && name.contains(text.as_str()));
        let ps = factor.map_or(ps, |(_, factor)| (ps * factor).round());
        // Eleven days: far below the end of simulated time.
        ps.clamp(0.0, 1e18) as Ps
    }
}
