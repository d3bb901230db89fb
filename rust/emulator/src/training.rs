//! A training job on a machine: every rank issues its nodes, takes its part in calls when it arrives, and goes on when
//! its own part is done.
//!
//! All launches are one program, so that what overlaps contends for links and engines. Their gates are opened by the
//! ranks' hosts ([`hosts`]), which keep a heap of ready nodes per lane; a host runs on no PE. The order in which nodes
//! were issued makes a program of fixed hosts ([`fixed`]), which takes the same times and which every view can show.
//! Of ranks that do the same one is simulated (`fold`).

mod answers;
mod bare;
mod fixed;
mod hosts;
mod kernel;
mod law;
mod merged;
mod order;

pub use answers::{Answers, Exposure, Segment, Why};
pub use merged::Merged;
pub use order::Lanes;

use crate::fold::{Fold, Parts, traffic};
use crate::timing::driven::simulate_driven;
use crate::timing::{Cover, LOG};
use crate::{Options, Span, simulate};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Compute, Machine, Ps, Roofline};
use ahbm_program::Program;
use ahbm_program::job::{Assembly, Share, Themselves, assemble};
use ahbm_program::marks::{Mark, Region, marked};
use ahbm_workload::Kernel;
use ahbm_workload::{Linked, Work};
use hosts::Hosts;
use indexmap::IndexMap;
use log::debug;
use order::Order;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// How nodes become times.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// Which nodes of a rank may run side by side.
    pub lanes: Lanes,
    /// What a rank's kernels take, where they state no duration.
    pub roofline: Roofline,
    /// What they take by their class and dimensions, where the machine says so.
    pub compute: Option<Compute>,
    /// Computations whose name contains the text take this many times as long; the first that fits counts.
    pub factors: Vec<(String, f64)>,
}

/// The times of a job, in picoseconds from its start.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Times {
    /// Per place of [`Linked`], when the node was issued and when it ended.
    pub nodes: Vec<Span>,
    /// Per place, a number that grows in the order of issue among the places of a rank.
    pub issued: Vec<u32>,
    /// Messages that were sent.
    pub messages: u64,
    /// Bytes that were sent.
    pub bytes: u64,
    /// Events of the simulation.
    pub events: u64,
}

/// A launch of [`Linked`].
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The program; none where nothing runs.
    pub program: Option<&'a Program>,
    /// The launch for whose ranks the program was made; others of as many ranks take those ranks' places in ascending
    /// order, where the machine allows it ([`Machine::carries`]).
    pub made_for: u32,
}

/// A job that was replayed.
#[derive(Debug)]
pub struct Replayed {
    /// Its times.
    pub times: Times,
    /// Where the time went.
    pub answers: Answers,
    /// Computations that state neither a duration nor operations.
    pub untimed: u64,
    /// Ranks that were simulated; the others do what one of these does.
    pub simulated: usize,
}

/// Replays a job. `launches` has one entry per launch, and `regions` one per chunk of [`Linked::chunks`]: the memory of
/// the launch's program that it is. Rank r is SIP r. With `fold`, of ranks that do the same one is simulated, where that
/// makes no difference.
///
/// # Errors
/// `AHBM-D102` ranks that wait for each other, with the calls they wait in; as [`crate::simulate`].
pub fn replay(
    job: &Linked,
    launches: &[Launch<'_>],
    regions: &[Vec<Region>],
    (machine, terms): (&Machine, &Terms),
    options: &Options,
    fold: bool,
) -> Result<Replayed, Diagnostic> {
    let done = |replay: Replay<'_>, times: Times| Replayed {
        answers: answers::answers(&replay, &times),
        times,
        untimed: replay.untimed,
        simulated: replay.ranks.len(),
    };
    if fold {
        // An error names ranks, so the whole job finds it.
        let attempt =
            Replay::folded(job, launches, machine, terms).and_then(|replay| match replay.run(machine, options) {
                Ok((times, None)) => Ok(done(replay, times)),
                Ok((_, Some(tie))) => Err(tie),
                Err(_) => Err("the job does not end"),
            });
        match attempt {
            Ok(replayed) => return Ok(replayed),
            Err(why) => debug!(target: LOG, "{}: every rank is simulated: {why}", job.workload.name),
        }
    }
    if job.copies.is_some() {
        return Err(Diagnostic::new("AHBM-V125", "the copies of ranks of a job are not there to be simulated"));
    }
    let replay = Replay::new(job, launches, regions, machine, terms);
    let (times, _) = replay.run(machine, options)?;
    Ok(done(replay, times))
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
    fold: Option<Fold>,
    /// The ranks that are simulated.
    ranks: Vec<u32>,
    /// Messages of all launches, and their bytes.
    traffic: (u64, u64),
    /// Computations that state neither a duration nor operations.
    untimed: u64,
}

impl<'a> Replay<'a> {
    /// Puts a job together; arguments as of [`replay`].
    pub fn new(
        job: &'a Linked,
        launches: &[Launch<'_>],
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
                (launch, marked(launches[launch as usize].program.unwrap_or(&empty), &own))
            })
            .collect();
        let groups = Groups::new(job);
        let shares =
            groups.shares(launches, |launch, program| changed.get(&launch).map_or(program, |(own, _)| own), &empty);
        let assembly = assemble(&job.workload.name, machine, &shares, &Themselves);
        let mut chunks = vec![(0, 0); job.chunks.len()];
        for (launch, marks) in &marks {
            let before = launches[*launch as usize].program.map_or(0, |program| program.counters);
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
        Self { chunks, given, ..Self::of(job, assembly, &shares, terms, None) }
    }

    /// The same with one rank for each class of ranks that do the same; the reason where there is no such class.
    fn folded(
        job: &'a Linked,
        launches: &[Launch<'_>],
        machine: &Machine,
        terms: &Terms,
    ) -> Result<Self, &'static str> {
        if !job.chunks.is_empty() {
            return Err("ranks wait for chunks, each for others");
        }
        let empty = Program::default();
        let groups = Groups::new(job);
        let shares = groups.shares(launches, |_, program| program, &empty);
        let fold = Fold::new(job, &shares, machine)?;
        let assembly = assemble(&job.workload.name, machine, &shares, &Parts { job, fold: &fold });
        Ok(Self::of(job, assembly, &shares, terms, Some(fold)))
    }

    fn of(job: &'a Linked, assembly: Assembly, shares: &[Share<'_>], terms: &Terms, fold: Option<Fold>) -> Self {
        let workload = &job.workload;
        let costs: Vec<Vec<Ps>> = workload.graphs.iter().map(|graph| terms.costs(graph)).collect();
        let free: Vec<u64> = workload
            .graphs
            .iter()
            .zip(&costs)
            .map(|(graph, costs)| {
                let free =
                    |(node, cost): &(&ahbm_workload::Node, &Ps)| **cost == 0 && matches!(node.work, Work::Compute(_));
                graph.nodes().iter().zip(costs).filter(free).count() as u64
            })
            .collect();
        let simulated = |rank: &u32| fold.as_ref().is_none_or(|fold| fold.stands[*rank as usize] == *rank);
        Self {
            job,
            assembly,
            orders: workload.graphs.iter().map(|graph| Order::new(graph, terms.lanes)).collect(),
            untimed: workload.ranks.iter().map(|rank| free[rank.graph as usize]).sum(),
            costs,
            chunks: Vec::new(),
            given: FxHashMap::default(),
            ranks: (0..workload.ranks.len() as u32).filter(simulated).collect(),
            traffic: traffic(shares, |launch| job.times(launch)),
            fold,
        }
    }

    /// Runs the job. Says where the order of two events at one moment could have mattered to a rank: ranks that are not
    /// simulated might then do something else than those that stand for them.
    ///
    /// # Errors
    /// `AHBM-D102` ranks that wait for each other, with the calls they wait in; as [`crate::simulate`].
    fn run(&self, machine: &Machine, options: &Options) -> Result<(Times, Option<&'static str>), Diagnostic> {
        let mut hosts = Hosts::new(self);
        let watched = hosts.watched();
        let options = Options { record: false, detail: 0, ..*options };
        let cover = self.fold.as_ref().map(|fold| Cover { towards: &self.assembly.towards, links: &fold.links });
        let outcome = simulate_driven(&self.assembly.program, machine, &options, cover, &watched, &mut hosts);
        match outcome {
            Err(finding) if finding.code != "AHBM-D101" => Err(finding),
            outcome if !hosts.done() => Err(hosts.stuck(outcome.err())),
            Err(finding) => Err(finding),
            Ok((timeline, tie)) => Ok((hosts.times(&timeline), tie)),
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

    /// The counters of the chunks of a rank's part in a launch that nobody writes: complete once the rank is there.
    fn given(&self, share: ahbm_workload::Share) -> impl Iterator<Item = u32> + '_ {
        self.given.get(&share).into_iter().flatten().copied()
    }

    /// Whether a launch has nothing to run.
    fn is_empty(&self, launch: u32) -> bool {
        self.assembly.parts[launch as usize].iter().all(|part| part.agents == 0)
    }

    /// The rank that is simulated for a rank.
    fn stand(&self, rank: u32) -> u32 {
        self.fold.as_ref().map_or(rank, |fold| fold.stands[rank as usize])
    }

    fn order(&self, rank: u32) -> &Order {
        &self.orders[self.job.workload.ranks[rank as usize].graph as usize]
    }

    fn cost(&self, rank: u32, at: u32) -> Ps {
        self.costs[self.job.workload.ranks[rank as usize].graph as usize][at as usize]
    }
}

/// The ranks of all launches: in the order of their parts, and ascending.
struct Groups {
    parts: Vec<Box<[u32]>>,
    ascending: Vec<Box<[u32]>>,
}

impl Groups {
    fn new(job: &Linked) -> Self {
        let parts: Vec<Box<[u32]>> = (0..job.launches() as u32).map(|launch| job.ranks(launch)).collect();
        let mut ascending = parts.clone();
        ascending.iter_mut().for_each(|ranks| ranks.sort_unstable());
        Self { parts, ascending }
    }

    /// Launches where they run; `program` may replace their programs, `empty` runs where nothing does.
    fn shares<'s>(
        &'s self,
        launches: &[Launch<'s>],
        program: impl Fn(u32, &'s Program) -> &'s Program,
        empty: &'s Program,
    ) -> Vec<Share<'s>> {
        let share = |(number, launch): (u32, &Launch<'s>)| Share {
            program: program(number, launch.program.unwrap_or(empty)),
            home: &self.ascending[launch.made_for as usize],
            there: &self.ascending[number as usize],
            sips: &self.parts[number as usize],
        };
        (0..).zip(launches).map(share).collect()
    }
}

impl Terms {
    /// Those of a machine.
    pub fn of(machine: &Machine, lanes: Lanes, factors: Vec<(String, f64)>) -> Self {
        Self { lanes, roofline: *machine.roofline(), compute: machine.compute().copied(), factors }
    }

    fn costs(&self, graph: &ahbm_workload::Graph) -> Vec<Ps> {
        (0..).zip(graph.nodes()).map(|(at, node)| self.cost(graph.name(at), node)).collect()
    }

    /// How long a node takes: what it states, else what a kernel does.
    pub fn cost(&self, name: &str, node: &ahbm_workload::Node) -> Ps {
        match node.work {
            Work::Compute(_) if node.ps > 0 => self.scaled(name, node.ps as f64),
            Work::Compute(kernel) => self.kernel(name, &kernel),
            Work::Memory { .. } if node.ps > 0 => within(node.ps as f64),
            Work::Memory { bytes, .. } => {
                within(kernel::ps(&Roofline { launch: 0, ..self.roofline }, None, &Kernel::new(0, bytes)))
            }
            _ => 0,
        }
    }

    /// How long a kernel of this name takes.
    pub fn kernel(&self, name: &str, kernel: &Kernel) -> Ps {
        self.scaled(name, kernel::ps(&self.roofline, self.compute.as_ref(), kernel))
    }

    fn scaled(&self, name: &str, ps: f64) -> Ps {
        let factor = self.factors.iter().find(|(text, _)| name.contains(text.as_str()));
        within(factor.map_or(ps, |(_, factor)| (ps * factor).round()))
    }
}

/// Whole picoseconds, at most eleven days: far below the end of simulated time.
fn within(ps: f64) -> Ps {
    ps.clamp(0.0, 1e18) as Ps
}

#[cfg(test)]
mod tests;
