//! Jobs: launches that share a machine.

use crate::support::ring;
use crate::support::transfer;

use ahbm_emulator::job::{Launch, Schedule, schedule};
use ahbm_emulator::{Options, Span, simulate};
use ahbm_machine::{CallCosts, Machine};
use ahbm_program::job::{self, Step};
use ahbm_program::{Program, structure};
use proptest::prelude::*;
use std::sync::Arc;
use transfer::transfer;

fn machine() -> Machine {
    ring::npu_network("ring_1d", 8, 100.0, 50.0, "cut_through")
}

fn alone(machine: &Machine, program: &Program) -> u64 {
    simulate(program, machine, &Options::default()).expect("runs").latency
}

fn slices(hosts: &[Vec<Step>]) -> Vec<&[Step]> {
    hosts.iter().map(|steps| &steps[..]).collect()
}

/// Every rank computes for its time, enters its launch and waits for it.
fn times(machine: &Machine, programs: &[(&Program, [u32; 2])], delays: &[u64]) -> Schedule {
    let launches: Vec<Launch<'_>> =
        programs.iter().map(|(p, _)| Launch { program: Some((p, alone(machine, p))), after: None }).collect();
    let mut hosts = vec![Vec::new(); 8];
    for (launch, (_, ranks)) in (0..).zip(programs) {
        for &rank in ranks {
            hosts[rank as usize].extend([
                Step::Advance(delays[launch as usize]),
                Step::Arrive(launch),
                Step::Wait(launch),
            ]);
        }
    }
    schedule(&slices(&hosts), &launches, machine, &Options::default()).expect("a schedule")
}

#[test]
fn launches_on_other_links_do_not_disturb_each_other() {
    let machine = machine();
    let (a, b) = (transfer(&machine, 0, 1, 5, 4096), transfer(&machine, 4, 5, 5, 4096));
    let schedule = times(&machine, &[(&a, [0, 1]), (&b, [4, 5])], &[7, 1000]);
    let expected =
        [Span { start: 7, end: 7 + alone(&machine, &a) }, Span { start: 1000, end: 1000 + alone(&machine, &b) }];
    assert_eq!(schedule.launches, expected);
    assert_eq!(schedule.together, 2);
}

/// Two calls with other protocols at once, on links of their own, each as alone on the machine as it finds it; and a
/// program that names costs which nobody lists.
#[test]
fn calls_of_a_job_keep_the_costs_of_their_own() {
    let text = "system: {sips: {count: 8}}\nsip: {cube_mesh: {w: 1, h: 1}}\n\
                protocols:\n  ll: {step_ns: 600, max_gbs: 3}\n  simple: {step_ns: 3000, ramp_bytes: 4096}";
    let machine = Machine::from_yaml(text, "two protocols", &[]).expect("a machine");
    let call = |name: &str| CallCosts { protocol: Some(name.to_owned()), nbytes: 4096, ..CallCosts::default() };
    let (a, b) = (Arc::new(transfer(&machine, 0, 1, 5, 4096)), Arc::new(transfer(&machine, 4, 5, 5, 4096)));
    let plain = CallCosts::default();
    let calls = [(&a, &call("ll")), (&b, &call("simple")), (&a, &call("ll")), (&b, &plain)];
    let programs: Vec<_> = job::with_costs(calls.into_iter().map(Some).chain([None])).expect("programs");
    let programs: Vec<Arc<Program>> = programs.into_iter().flatten().collect();
    assert!(Arc::ptr_eq(&programs[0], &programs[2]) && Arc::ptr_eq(&programs[3], &b));
    assert_eq!(programs[0].costs.to_vec(), [call("ll"), call("simple")]);
    let took: Vec<u64> = programs.iter().map(|program| alone(&machine, program)).collect();
    for ((program, call), took) in calls.into_iter().zip(&took) {
        assert_eq!(alone(&machine.with_costs(call).expect("costs"), program), *took);
    }
    assert!(took[0] != took[1] && took[1] != took[3]);
    let schedule = times(&machine, &[(&programs[0], [0, 1]), (&programs[1], [4, 5])], &[0, 0]);
    assert_eq!(schedule.launches.iter().map(|span| span.end - span.start).collect::<Vec<_>>(), took[..2]);
    let unlisted = Program { costs: Arc::default(), ..Program::clone(&programs[0]) };
    assert_eq!(simulate(&unlisted, &machine, &Options::default()).unwrap_err().code, "AHBM-V125");
}

#[test]
fn launches_on_one_link_share_its_bandwidth() {
    let machine = machine();
    // 0 -> 2 and 1 -> 3 both need the link from 1 to 2.
    let (a, b) = (transfer(&machine, 0, 2, 50, 4096), transfer(&machine, 1, 3, 50, 4096));
    let schedule = times(&machine, &[(&a, [0, 2]), (&b, [1, 3])], &[0, 11]);
    let took: Vec<u64> = schedule.launches.iter().map(|span| span.end - span.start).collect();
    assert!(took[0] > alone(&machine, &a) && took[1] > alone(&machine, &b), "{took:?}");
    // 2 x 50 messages of 4 KiB over one link of 50 GB/s.
    let bound = 100 * 4096 * 20;
    let end = schedule.launches.iter().map(|span| span.end).max().expect("two");
    assert!(end >= bound && end < bound * 6 / 5, "{end} against {bound}");
}

#[test]
fn a_launch_that_follows_another_starts_at_its_end() {
    let machine = machine();
    let a = transfer(&machine, 0, 1, 3, 512);
    let took = alone(&machine, &a);
    let launch = |after| Launch { program: Some((&a, took)), after };
    let steps = |ps| vec![Step::Arrive(0), Step::Advance(ps), Step::Arrive(1), Step::Wait(1)];
    let hosts = [steps(10), steps(20)];
    let schedule =
        schedule(&slices(&hosts), &[launch(None), launch(Some(0))], &machine, &Options::default()).expect("runs");
    assert_eq!(schedule.launches, [Span { start: 0, end: took }, Span { start: took, end: 2 * took }]);
    assert_eq!((schedule.hosts, schedule.together), (vec![2 * took; 2], 0));
    assert_eq!(schedule.computed[1], [Span { start: 0, end: 20 }]);
    assert_eq!(schedule.entered[1], [0, 20]);
}

#[test]
fn a_job_that_cannot_go_on_says_where() {
    let machine = machine();
    let a = transfer(&machine, 0, 1, 1, 8);
    let launch = Launch { program: Some((&a, 1)), after: None };
    let hosts = [
        vec![Step::Arrive(0), Step::Wait(0), Step::Arrive(1), Step::Wait(1)],
        vec![Step::Arrive(1), Step::Wait(1), Step::Arrive(0), Step::Wait(0)],
    ];
    let error = schedule(&slices(&hosts), &[launch, launch], &machine, &Options::default()).expect_err("a deadlock");
    assert_eq!(error.code, "AHBM-D102");
}

/// A random job: (sender, distance, messages, size, pause before, whether each side waits at once) per launch.
type Plan = Vec<(u32, u32, u32, u32, u64, bool, bool)>;

fn plan() -> impl Strategy<Value = Plan> {
    let launch = (0u32..8, 1u32..8, 1u32..6, 1u32..3000, 0u64..400_000, any::<bool>(), any::<bool>());
    prop::collection::vec(launch, 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Cutting a job into stretches is an optimisation, not a model: all of it simulated together gives the same times.
    #[test]
    fn stretches_are_the_whole(plan in plan(), spread in 1u64..12) {
        let machine = machine();
        let mut hosts = vec![Vec::new(); 8];
        let mut programs = Vec::new();
        for (launch, &(src, distance, messages, size, pause, sender, receiver)) in (0u32..).zip(&plan) {
            let dst = (src + distance) % 8;
            // Odd sizes and pauses of many digits: no two heads meet at a link in one picosecond.
            programs.push(transfer(&machine, src, dst, messages, 2 * size + 1));
            for (rank, waits) in [(src, sender), (dst, receiver)] {
                let pause = pause * spread + u64::from(launch) * 1009 + u64::from(rank) * 13;
                hosts[rank as usize].extend([Step::Advance(pause), Step::Arrive(launch)]);
                if waits {
                    hosts[rank as usize].push(Step::Wait(launch));
                }
            }
        }
        let launches: Vec<Launch<'_>> =
            programs.iter().map(|p| Launch { program: Some((p, alone(&machine, p))), after: None }).collect();
        let cut = schedule(&slices(&hosts), &launches, &machine, &Options::default()).unwrap();
        prop_assert_eq!(&cut, &schedule(&slices(&hosts), &launches, &machine, &Options::default()).unwrap());
        let all: Vec<job::Launch<'_>> =
            programs.iter().map(|p| job::Launch { program: Some(p), after: None, not_before: 0 }).collect();
        let whole = job::compose("whole", &(0..).zip(hosts).collect::<Vec<_>>(), &all);
        prop_assert!(structure(&whole.program).is_empty());
        let timeline = simulate(&whole.program, &machine, &Options { detail: 1 << 20, ..Options::default() }).unwrap();
        for (agents, span) in whole.launches.iter().zip(&cut.launches) {
            let ends = &timeline.ends[agents.clone()];
            prop_assert_eq!(Span { start: ends[0], end: ends.iter().max().copied().unwrap_or(0) }, *span);
        }
        // Every agent's time is accounted for to the picosecond, the wait for its gate included.
        let detail = timeline.detail.as_deref().unwrap();
        for time in detail.agent_time() {
            prop_assert_eq!(time.iter().sum::<u64>(), timeline.latency);
        }
    }
}
