//! What a rank begins when, and what never ends.

use crate::setups::{call, compute, dimension, job, one_call, setup, system};
use ahbm_astra::config::{Expansion, Native, Shape};
use ahbm_astra::{Backend, Flags, Options, Report, Setup};
use ahbm_workload::{Collective, Kernel, MessageSpec, NodeBuilder, Work};

fn ran(setup: &Setup, backend: Backend) -> Report {
    assert_eq!(setup.findings(), []);
    let options = Options { times: true, ..Options::default() };
    setup.run(Flags { backend, ..Flags::default() }, &options).unwrap()
}

fn four(add: &crate::setups::Adds) -> Setup {
    setup(vec![dimension(Shape::Switch, 4)], system(Native::Ring, 1), job(4, &[], add))
}

#[test]
fn one_computation_at_a_time_by_ascending_id_and_none_takes_no_time() {
    let setup = four(&|_, _, builder| {
        compute(builder, 7, 0, &[]);
        compute(builder, 3, 2, &[]);
        compute(builder, 5, 1, &[]);
    });
    let report = ran(&setup, Backend::CongestionUnaware);
    assert_eq!(report.times.unwrap()[0], [(0, 2000), (2000, 3000), (3000, 3001)], "ids 3, 5, 7");
    assert_eq!((report.ranks[0].cycles, report.ranks[0].exposed), (Some(3001), Some(0)));
}

#[test]
fn forty_thousand_ready_nodes_are_not_looked_at_again_and_again() {
    let setup = four(&|_, _, builder| (0..40_000).for_each(|id| compute(builder, id, 1, &[])));
    let report = ran(&setup, Backend::CongestionUnaware);
    assert_eq!(report.ranks[0].cycles, Some(40_000_000));
    assert_eq!(report.events, 4 * 40_000);
}

#[test]
fn two_collectives_of_a_rank_follow_one_another() {
    let one = ran(
        &setup(vec![dimension(Shape::Switch, 4)], system(Native::Ring, 1), one_call(4, Collective::AllReduce, 1 << 20)),
        Backend::CongestionUnaware,
    );
    let two = ran(
        &four(&|rank, gather, builder| {
            call(rank, gather, builder, 0, "", Collective::AllReduce, 1 << 20, &[]);
            call(rank, gather, builder, 1, "", Collective::AllReduce, 1 << 20, &[]);
        }),
        Backend::CongestionUnaware,
    );
    assert_eq!(two.ranks[0].cycles.unwrap(), 2 * one.ranks[0].cycles.unwrap());
}

#[test]
fn ranks_that_choose_differently_never_end_and_the_finding_says_so() {
    // 0 computes until 1 is ready too; the others take 1 first.
    let setup = four(&|rank, gather, builder| {
        compute(builder, 0, if rank == 0 { 1 } else { 1000 }, &[]);
        call(rank, gather, builder, 1, "", Collective::AllGather, 1 << 20, &[0]);
        compute(builder, 2, 2, &[]);
        call(rank, gather, builder, 3, "", Collective::AllReduce, 4096, &[]);
        call(rank, gather, builder, 4, "", Collective::AllReduce, 4096, &[3]);
    });
    let report = ran(&setup, Backend::CongestionUnaware);
    let finding = &report.findings[0];
    if report.ranks.iter().any(|rank| rank.cycles.is_none()) {
        assert_eq!(finding.code, "AHBM-D103");
        assert!(finding.message.starts_with("never ends there: 4 ranks of 4, rank 0 in node "), "{finding}");
        assert!(finding.hint.as_ref().unwrap().contains("depends on time"), "{finding}");
    } else {
        panic!("all ended");
    }
}

fn message(peer: u32, bytes: u64, sends: bool) -> Work {
    let spec = MessageSpec { peer, group: None, bytes, tag: 5 };
    if sends { Work::Send(spec) } else { Work::Recv(spec) }
}

#[test]
fn a_message_that_nobody_receives_is_told_and_all_end() {
    let setup = four(&|rank, _, builder| {
        if rank == 0 {
            let peer = builder.peer(2);
            builder.push(NodeBuilder::new(9, "lost").work(message(peer, 4096, true)));
        }
    });
    let report = ran(&setup, Backend::CongestionUnaware);
    assert!(report.ranks.iter().all(|rank| rank.cycles.is_some()));
    assert_eq!(report.findings.len(), 1);
    let text = report.findings[0].to_string();
    assert!(text.contains("AHBM-F137 rank 0 sends 4096 bytes of tag 5 to rank 2") && text.contains("node 9"), "{text}");
}

#[test]
fn links_carry_one_message_at_a_time_where_they_are_shared() {
    // Ranks 1, 2, 3 send to rank 0 at once: the switch's link to it is the narrow place.
    let setup = four(&|rank, _, builder| {
        for other in 1..4u32 {
            if rank == 0 {
                let peer = builder.peer(other);
                builder.push(NodeBuilder::new(other.into(), "in").work(message(peer, 1 << 20, false)));
            } else if rank == other {
                let peer = builder.peer(0);
                builder.push(NodeBuilder::new(0, "out").work(message(peer, 1 << 20, true)));
            }
        }
    });
    let carried = ((1u64 << 20) as f64 / (50.0 * (1u64 << 30) as f64 / 1e9)) as u64;
    let delay = ran(&setup, Backend::CongestionUnaware);
    assert_eq!(delay.ranks[0].cycles, Some(1000 + carried), "two hops' latency");
    let shared = ran(&setup, Backend::CongestionAware);
    assert_eq!(shared.ranks[0].cycles, Some(1000 + 4 * carried), "up, and three down, one after the other");
    let down = shared.links.iter().find(|link| link.from == "switch").unwrap();
    assert_eq!((down.to.as_str(), down.bytes), ("0", 3 << 20));
}

#[test]
fn rendezvous_costs_a_message_there_before_each() {
    let setup =
        setup(vec![dimension(Shape::Ring, 2)], system(Native::Ring, 1), one_call(2, Collective::AllGather, 4096));
    let plain = ran(&setup, Backend::CongestionUnaware).ranks[0].cycles.unwrap();
    let flags = Flags { rendezvous: true, ..Flags::default() };
    let asked = setup.run(flags, &Options::default()).unwrap().ranks[0].cycles.unwrap();
    assert_eq!(asked - plain, 500 + (8192.0 / (50.0 * (1u64 << 30) as f64 / 1e9)) as u64);
}

#[test]
fn a_skipped_node_loses_what_waits_for_it() {
    let mut setup = four(&|_, _, builder| {
        builder.push(NodeBuilder::new(0, "nothing").work(Work::Compute(Kernel::new(5, 0))));
        compute(builder, 1, 1, &[0]);
    });
    setup.system.roofline = Some(1e12);
    let report = ran(&setup, Backend::CongestionUnaware);
    assert!(report.ranks.iter().all(|rank| rank.cycles.is_none()));
    assert!(report.findings[0].to_string().contains("skipped"));
}

#[test]
fn a_roofline_is_the_lower_of_memory_and_peak() {
    let mut setup = four(&|_, _, builder| {
        builder.push(NodeBuilder::new(0, "memory").work(Work::Compute(Kernel::new(1000, 50_000))));
        builder.push(NodeBuilder::new(1, "peak").work(Work::Compute(Kernel::new(5_000_000, 1))));
    });
    setup.system.roofline = Some(1e12);
    let report = ran(&setup, Backend::CongestionUnaware);
    assert_eq!(report.times.unwrap()[0], [(0, 1000), (1000, 6000)], "50 kB at 50 GB/s, 5 M at 1 T/s");
}

#[test]
fn shared_remote_memory_serves_one_after_the_other() {
    let mut setup = four(&|_, _, builder| {
        builder.push(NodeBuilder::new(0, "load").work(Work::Memory { store: false, bytes: 1000 }));
    });
    (setup.memory.latency, setup.memory.bytes_per_ns) = (100, 2.0);
    let mut ends = |expansion| {
        setup.memory.expansion = expansion;
        let report = ran(&setup, Backend::CongestionUnaware);
        report.ranks.iter().map(|rank| rank.cycles.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ends(Expansion::PerNpu), [600; 4]);
    assert_eq!(ends(Expansion::PerNode(2)), [600, 1200, 600, 1200]);
    assert_eq!(ends(Expansion::Pool), [600, 1200, 1800, 2400]);
}

#[test]
fn more_events_than_allowed_end_the_run() {
    let setup = four(&|_, _, builder| compute(builder, 0, 1, &[]));
    let options = Options { max_events: 3, times: false };
    assert_eq!(setup.run(Flags::default(), &options).unwrap_err().code, "AHBM-B120");
    let setup = four(&|_, _, builder| {
        (0..30).for_each(|id| {
            let work = Work::Compute(Kernel::new(0, 0));
            builder.push(NodeBuilder::new(id, "long").work(work).ps(u64::MAX));
        })
    });
    assert!(setup.run(Flags::default(), &Options::default()).is_ok(), "30 times 213 days");
}

#[test]
fn what_takes_no_time_at_the_start_stops_astra_sim() {
    let mut setup = four(&|_, _, builder| {
        builder.push(NodeBuilder::new(4, "tiny").work(Work::Compute(Kernel::new(1, 1))));
    });
    setup.system.roofline = Some(1e12);
    let report = ran(&setup, Backend::CongestionUnaware);
    assert_eq!(report.ranks[0].cycles, Some(0));
    let text = report.findings[0].to_string();
    assert!(text.starts_with("AHBM-U235 rank 0 begins") && text.contains("job.0.et node 4"), "{text}");
}

#[test]
fn streams_are_bounded_before_they_are_made() {
    let mut made = setup(
        vec![dimension(Shape::Ring, 64)],
        system(Native::Ring, 1),
        one_call(64, Collective::AllReduce, (1 << 40) + 1),
    );
    made.system.splits = 1 << 20;
    assert_eq!(made.run(Flags::default(), &Options::default()).unwrap_err().code, "AHBM-B213");
}

#[test]
fn equal_runs_are_equal() {
    let mut system = system(Native::HalvingDoubling, 2);
    (system.splits, system.active_chunks) = (4, 2);
    let network = vec![dimension(Shape::FullyConnected, 4), dimension(Shape::Switch, 2)];
    let setup = setup(network, system, one_call(8, Collective::AllReduce, 1 << 20));
    let flags = Flags { backend: Backend::CongestionAware, queues: 2, ..Flags::default() };
    let run = || setup.run(flags, &Options { times: true, ..Options::default() }).unwrap();
    assert_eq!(run(), run());
}
