//! Jobs on a grid of data-parallel and tensor-parallel ranks: what is folded, and that folding changes nothing.

use super::{Exposure, Lanes, Launch, Replayed, Terms, replay};
use crate::Options;
use crate::support::{npu_network, ring, ring_of};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Machine, Roofline, Sfr, SipNetwork};
use ahbm_program::Program;
use ahbm_workload::{
    Collective, Copies, Gather, Groups, Kernel, Linked, MessageSpec, NodeBuilder, RankBuilder, Work, Workload,
};
use proptest::prelude::*;
use std::sync::Arc;

/// A step of every rank.
#[derive(Debug, Clone, Copy)]
enum Step {
    Compute(u64),
    /// A collective of one of the groups of the rank: 0 the tensor-parallel one, 1 the data-parallel one, 2 all ranks.
    /// What comes next may not wait for it.
    Call {
        group: usize,
        bytes: u64,
        waited: bool,
    },
    /// A message to the next rank, and one from the rank before.
    Pass(u64),
}

/// Ranks `d * tp + t`.
#[derive(Debug, Clone)]
struct Grid {
    dp: u32,
    tp: u32,
    steps: Vec<Step>,
    /// A rank, and the picoseconds by which all its computations are longer.
    late: Option<(u32, u64)>,
}

impl Grid {
    fn ranks(&self) -> u32 {
        self.dp * self.tp
    }

    fn job(&self) -> Linked {
        Linked::new(self.workload()).expect("a job")
    }

    fn workload(&self) -> Workload {
        let mut gather = Gather::new("grid", self.ranks(), Groups::default());
        for rank in 0..self.ranks() {
            let (d, t) = (rank / self.tp, rank % self.tp);
            let groups: [Vec<u32>; 3] = [
                (0..self.tp).map(|t| d * self.tp + t).collect(),
                (0..self.dp).map(|d| d * self.tp + t).collect(),
                (0..self.ranks()).collect(),
            ];
            let mut builder = RankBuilder::new(rank, "grid.et");
            let mut after = Vec::new();
            for (id, step) in (0..).zip(&self.steps) {
                let id = 2 * id;
                let node = NodeBuilder::new(id, "step").after(&after);
                match *step {
                    Step::Compute(ps) => {
                        let late = self.late.filter(|late| late.0 == rank).map_or(0, |late| late.1);
                        builder.push(node.work(Work::Compute(Kernel::default())).ps(ps + late));
                        after = vec![id];
                    }
                    Step::Call { group, bytes, waited } => {
                        let listed = groups[group].clone();
                        let name = format!("{group}.{}", listed[0]);
                        let group = gather.group(rank, &name, Some(listed), String::new).expect("a group");
                        let work = builder.call(Collective::AllReduce, group, bytes);
                        builder.push(node.work(work));
                        if waited {
                            after = vec![id];
                        }
                    }
                    Step::Pass(bytes) => {
                        let [next, last] = [1, self.ranks() - 1].map(|by| (rank + by) % self.ranks());
                        let spec = |peer| MessageSpec { peer, group: None, bytes, tag: id as u32 };
                        let (next, last) = (builder.peer(next), builder.peer(last));
                        let recv = NodeBuilder::new(id + 1, "take").after(&after);
                        builder.push(node.work(Work::Send(spec(next))));
                        builder.push(recv.work(Work::Recv(spec(last))));
                        after = vec![id, id + 1];
                    }
                }
            }
            gather.add(builder.finish(false).expect("a graph"));
        }
        gather.finish()
    }
}

/// A ring all-reduce for a call, a send for a message.
fn program(job: &Linked, launch: u32, ranks: &[u32], machine: &Machine) -> Program {
    let shape = |sips| Sfr { network: SipNetwork::Ring, sips, ..machine.sfr().clone() };
    match job.calls.get(launch as usize) {
        Some(call) => {
            let size = ranks.len() as u32;
            let bytes = call.spec.bytes as u32 / size;
            ring_of(machine, shape(size), ranks, 2 * (size - 1), bytes, 2)
        }
        None => ring_of(machine, shape(2), ranks, 1, job.messages[launch as usize - job.calls.len()].bytes as u32, 2),
    }
}

fn replayed(job: &Linked, machine: &Machine, lanes: Lanes, fold: bool) -> Replayed {
    attempted(job, machine, lanes, fold).expect("the job ends")
}

fn attempted(job: &Linked, machine: &Machine, lanes: Lanes, fold: bool) -> Result<Replayed, Diagnostic> {
    let ascending = |launch: u32| {
        let mut ranks = job.ranks(launch).into_vec();
        ranks.sort_unstable();
        ranks
    };
    let size = |launch: u32| match job.calls.get(launch as usize) {
        Some(call) => (true, call.spec.bytes, call.nodes.len()),
        None => (false, job.messages[launch as usize - job.calls.len()].bytes, 2),
    };
    let mut made: Vec<(u32, Program)> = Vec::new();
    let mut of = Vec::new();
    for launch in 0..job.launches() as u32 {
        let ranks = ascending(launch);
        let fits = |&(known, _): &(u32, Program)| {
            size(known) == size(launch)
                && job.ranks(known).is_sorted() == job.ranks(launch).is_sorted()
                && machine.carries(&ascending(known), &ranks)
        };
        let at = made.iter().position(fits).unwrap_or_else(|| {
            made.push((launch, program(job, launch, &ranks, machine)));
            made.len() - 1
        });
        of.push(at);
    }
    let launches: Vec<Launch<'_>> =
        of.iter().map(|&at| Launch { program: Some(&made[at].1), made_for: made[at].0 }).collect();
    let terms = Terms { lanes, roofline: roofline(), compute: None, factors: Vec::new() };
    replay(job, &launches, &[], (machine, &terms), &Options::default(), fold)
}

/// One operation and one byte per ns.
fn roofline() -> Roofline {
    Roofline { operations_per_ns: 1.0, bytes_per_ns: 1.0, ..Roofline::default() }
}

fn network(name: &str, sips: u32) -> Machine {
    npu_network(name, sips, 500.0, 50.0, "cut_through")
}

const STEP: [Step; 4] = [
    Step::Compute(1_000_000),
    Step::Call { group: 0, bytes: 1 << 16, waited: true },
    Step::Compute(700_001),
    Step::Call { group: 1, bytes: 1 << 18, waited: false },
];

fn grid(dp: u32, tp: u32, late: Option<(u32, u64)>) -> Grid {
    let mut steps = [STEP, STEP].concat();
    steps.push(Step::Compute(300_000));
    Grid { dp, tp, steps, late }
}

/// How many ranks are simulated, after it was seen that all times are those of the whole run.
fn simulated(grid: &Grid, machine: &Machine, lanes: Lanes) -> usize {
    let job = grid.job();
    let (whole, folded) = (replayed(&job, machine, lanes, false), replayed(&job, machine, lanes, true));
    assert_eq!(folded.times.nodes, whole.times.nodes, "{grid:?}");
    assert_eq!((folded.times.messages, folded.times.bytes), (whole.times.messages, whole.times.bytes), "{grid:?}");
    assert_eq!(folded.answers, whole.answers, "{grid:?}");
    assert_eq!((folded.untimed, whole.simulated), (whole.untimed, grid.ranks() as usize));
    let thin = Linked::thin(grid.workload()).expect("a job");
    if thin.copies.is_some() {
        match attempted(&thin, machine, lanes, true) {
            Ok(replayed) => same(&thin, &replayed, &job, &folded),
            // The network tells copies apart.
            Err(finding) => assert_eq!(finding.code, "AHBM-V125"),
        }
    }
    folded.simulated
}

/// A thin job took what the whole one did.
fn same(thin: &Linked, found: &Replayed, job: &Linked, whole: &Replayed) {
    assert!(thin.nodes() < job.nodes());
    for place in 0..job.nodes() as u32 {
        let (rank, at) = job.node(place);
        assert_eq!(found.times.nodes[thin.place(rank, at) as usize], whole.times.nodes[place as usize]);
    }
    assert_eq!((found.times.messages, found.times.bytes), (whole.times.messages, whole.times.bytes));
    let sums = |of: &Replayed| -> Vec<(u64, u64)> {
        let sum = |rank: &Arc<[Exposure]>| rank.iter().fold((0, 0), |(a, b), e| (a + e.exposed, b + e.waiting));
        of.answers.exposures.iter().map(sum).collect()
    };
    assert_eq!((&found.answers.ends, &found.answers.computed), (&whole.answers.ends, &whole.answers.computed));
    assert_eq!((&found.answers.hosted, sums(found)), (&whole.answers.hosted, sums(whole)));
    let stretches = |of: &Replayed| of.answers.path.iter().map(|s| (s.start, s.end)).collect::<Vec<_>>();
    assert_eq!(stretches(found).last(), stretches(whole).last());
    let launches = |of: &Linked| (0..of.launches() as u32).map(|launch| of.times(launch)).sum::<u32>();
    assert_eq!(launches(thin), launches(job));
}

/// Data-parallel ranks of a pipeline, too: whole, folded and thin.
#[test]
fn a_job_without_its_copies_takes_what_the_whole_one_takes() {
    for (name, dp, tp) in [("switch", 6, 4), ("fully_connected", 8, 2), ("ring_1d", 24, 1)] {
        let grid = grid(dp, tp, None);
        let thin = Linked::thin(grid.workload()).expect("a job");
        assert_eq!(thin.copies.map(Copies::count), Some(dp * tp), "{name}");
        assert!(attempted(&thin, &network(name, dp * tp), Lanes::Device, true).is_ok(), "{name}");
        simulated(&grid, &network(name, dp * tp), Lanes::Device);
    }
    let thin = Linked::thin(grid(4, 4, None).workload()).expect("a job");
    let lonely = attempted(&thin, &network("mesh_2d_no_wrap", 16), Lanes::Device, true);
    assert_eq!(lonely.expect_err("the corners of a mesh are no others").code, "AHBM-V125");
}

#[test]
fn equal_ranks_fold_to_one_for_each_place_in_the_network() {
    let ranks = |name: &str, dp, tp| simulated(&grid(dp, tp, None), &network(name, dp * tp), Lanes::Device);
    assert_eq!(ranks("switch", 6, 4), 1);
    assert_eq!(ranks("fully_connected", 6, 4), 1);
    // Neighbours on the ring are in one group or in two.
    assert_eq!(ranks("ring_1d", 6, 4), 4);
    assert_eq!(ranks("ring_1d", 24, 1), 1);
    assert_eq!(ranks("mesh_2d_no_wrap", 4, 4), 16);
}

#[test]
fn a_late_rank_is_no_other() {
    let machine = network("switch", 8);
    let late = simulated(&grid(4, 2, Some((5, 11))), &machine, Lanes::Device);
    assert!(late > 1, "rank 5 is on its own, and those that it keeps waiting are not like those that it does not");
    assert_eq!(simulated(&grid(4, 2, None), &machine, Lanes::Device), 1);
}

#[test]
fn a_ring_that_talks_to_itself_folds_to_one_rank_of_a_thousand() {
    let machine = network("ring_1d", 1000);
    let grid = Grid { dp: 1, tp: 1000, steps: vec![Step::Compute(5), STEP[1]], late: None };
    let job = grid.job();
    let program = ring(&machine, 20, 4096, 2);
    let launches = [Launch { program: Some(&program), made_for: 0 }];
    let terms = Terms { lanes: Lanes::Device, roofline: roofline(), compute: None, factors: Vec::new() };
    let of = |fold| replay(&job, &launches, &[], (&machine, &terms), &Options::default(), fold).expect("it ends");
    let (whole, folded) = (of(false), of(true));
    assert_eq!((folded.simulated, &folded.times.nodes), (1, &whole.times.nodes));
    assert!(folded.times.events * 100 < whole.times.events, "{} of {}", folded.times.events, whole.times.events);
}

/// Two calls that begin at one moment at every rank and share its links: their order is that of the whole run.
#[test]
fn what_the_order_of_events_decides_is_decided_as_in_the_whole_run() {
    let both = [(0, 1 << 16), (1, 1 << 16)].map(|(group, bytes)| Step::Call { group, bytes, waited: false });
    for name in ["switch", "ring_1d", "fully_connected", "torus_2d"] {
        // At time 0 agents start in the order of their numbers, later in that of their hosts.
        for first in [&[][..], &[Step::Compute(1000)]] {
            let steps = [first, &both, &[Step::Compute(0)], &both].concat();
            simulated(&Grid { dp: 4, tp: 4, steps, late: None }, &network(name, 16), Lanes::Unlimited);
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4u64).prop_map(|n| Step::Compute(n * 500_000)),
        (0..3usize, 1..4u64, any::<bool>()).prop_map(|(group, n, waited)| Step::Call { group, bytes: n << 14, waited }),
        (1..4u64).prop_map(|n| Step::Pass(n << 10)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Few sizes and times, so that events often meet at one moment.
    #[test]
    fn folding_changes_no_time(
        (dp, tp) in (2..5u32, 2..5u32),
        steps in prop::collection::vec(step(), 1..8),
        late in prop::option::weighted(0.2, (0..4u32, 1..3u64)),
        name in prop::sample::select(vec!["switch", "ring_1d", "fully_connected", "mesh_2d_no_wrap", "torus_2d"]),
        model in prop::sample::select(vec!["cut_through", "flit", "analytic"]),
        lanes in prop::sample::select(&Lanes::ALL[..]),
    ) {
        let (dp, tp) = if name.contains("2d") { (4, 4) } else { (dp, tp) };
        let machine = npu_network(name, dp * tp, 500.0, 50.0, model);
        let late = late.map(|(rank, by)| (rank, by * 500_000));
        simulated(&Grid { dp, tp, steps, late }, &machine, lanes);
    }
}
