//! What is said before a run: a planted mistake for each finding, and files that strangers wrote.

use crate::setups::{call, dimension, job, one_call, setup, system};
use ahbm_astra::config::{Native, Shape};
use ahbm_astra::{Files, Setup};
use ahbm_formats::chakra::ReadOptions;
use ahbm_workload::{Collective, Gather, MessageSpec, NodeBuilder, RankBuilder, Work};
use std::fs;
use std::path::PathBuf;

fn first(setup: &Setup) -> String {
    setup.findings().first().map(ToString::to_string).unwrap_or_default()
}

fn on_ring(native: Native, ranks: u32, collective: Collective, bytes: u64) -> Setup {
    setup(vec![dimension(Shape::Ring, ranks)], system(native, 1), one_call(ranks, collective, bytes))
}

#[test]
fn what_never_ends_there() {
    let single = job(4, &[("1", &[2])], &|rank, gather: &mut Gather, builder: &mut RankBuilder| {
        if rank == 2 {
            call(rank, gather, builder, 6, "1", Collective::AllReduce, 4096, &[]);
        }
    });
    let text = first(&setup(vec![dimension(Shape::Ring, 4)], system(Native::Ring, 1), single));
    assert!(text.starts_with("AHBM-D103 never ends there: all_reduce in group \"1\" of one rank"), "{text}");
    assert!(text.contains("job.2.et node 6"), "{text}");
    let mut tiny = on_ring(Native::Ring, 4, Collective::AllGather, 3);
    tiny.system.splits = 8;
    assert!(first(&tiny).contains("AHBM-D103 never ends there: all_gather of 3 bytes in 8 splits"));
}

#[test]
fn what_stops_astra_sim() {
    for collective in [Collective::Reduce, Collective::Gather, Collective::Scatter, Collective::Barrier] {
        assert!(first(&on_ring(Native::Ring, 4, collective, 4096)).starts_with("AHBM-U235"), "{collective:?}");
    }
    assert_eq!(first(&on_ring(Native::Ring, 4, Collective::Broadcast, 4096)), "");
    assert!(first(&on_ring(Native::HalvingDoubling, 4, Collective::AllToAll, 4096)).contains("AHBM-U235"));
    assert!(first(&on_ring(Native::DoubleBinaryTree, 6, Collective::AllReduce, 4096)).contains("no power of two"));
    let memory = job(4, &[], &|_, _, builder| {
        builder.push(NodeBuilder::new(0, "load").work(Work::Memory { store: false, bytes: 8 }));
    });
    let memory = setup(vec![dimension(Shape::Ring, 4)], system(Native::Ring, 1), memory);
    assert!(first(&memory).contains("NO_MEMORY_EXPANSION"), "{}", first(&memory));
    let host = job(4, &[], &|rank, gather, builder| {
        let group = gather.group(rank, "", None, String::new).unwrap();
        let work = builder.call(Collective::AllReduce, group, 64);
        builder.push(NodeBuilder::new(0, "host").work(work).cpu(true));
    });
    assert!(first(&setup(vec![dimension(Shape::Ring, 4)], system(Native::Ring, 1), host)).contains("on the host"));
}

#[test]
fn keys_that_a_collective_needs() {
    let mut lacking = on_ring(Native::Ring, 4, Collective::AllReduce, 4096);
    lacking.system.memory_bandwidth = 0.0;
    assert!(first(&lacking).contains("AHBM-C190 system.json: local-mem-bw"), "{}", first(&lacking));
    lacking.system.implementations[0].native = None;
    assert!(first(&lacking).contains("all-reduce-implementation is missing"), "{}", first(&lacking));
    lacking.system.splits = 0;
    assert!(first(&lacking).contains("preferred-dataset-splits"), "{}", first(&lacking));
    let mut gather = on_ring(Native::Ring, 4, Collective::AllGather, 4096);
    gather.system.memory_bandwidth = 0.0;
    assert_eq!(first(&gather), "", "all_gather reduces nothing");
}

#[test]
fn halving_of_six_ranks_does_not_panic() {
    for ranks in [3, 5, 6, 7, 12] {
        for collective in [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter] {
            let setup = on_ring(Native::HalvingDoubling, ranks, collective, 1 << 16);
            match setup.run(Default::default(), &Default::default()) {
                Ok(report) => assert!(report.findings.iter().all(|finding| finding.code == "AHBM-D103")),
                Err(finding) => assert_eq!(finding.code, "AHBM-U235"),
            }
        }
    }
}

#[test]
fn algorithm_graphs_that_do_not_fit() {
    let graph = |bytes: u64| {
        job(2, &[], &|rank, _, builder| {
            for (id, sends) in [(0, true), (1, false)] {
                let spec = MessageSpec { peer: builder.peer(1 - rank), group: None, bytes, tag: 0 };
                builder.push(NodeBuilder::new(id, "step").work(if sends {
                    Work::Send(spec)
                } else {
                    Work::Recv(spec)
                }));
            }
        })
    };
    let with = |bytes: u64, splits: u64, ranks: u32| {
        let mut made = on_ring(Native::Ring, ranks, Collective::AllReduce, 1 << 20);
        (made.algorithms, made.custom[0], made.system.splits) = (vec![graph(bytes)], Some(0), splits);
        made
    };
    let sound = with(1 << 20, 1, 2);
    assert_eq!(first(&sound), "");
    let run = |setup: &Setup| setup.run(Default::default(), &Default::default()).unwrap();
    assert!(run(&sound).findings.is_empty());
    assert!(first(&with(1 << 20, 4, 2)).contains("preferred-dataset-splits must be 1"));
    assert!(first(&with(1 << 20, 1, 4)).contains("of 2 ranks for a group of 4"));
    let small = with(1 << 16, 1, 2);
    assert_eq!(first(&small), "");
    let report = run(&small);
    assert!(report.ranks[0].cycles.is_some(), "it runs there");
    assert!(report.findings[0].to_string().contains("AHBM-U232 algorithm graph job sends 131072 bytes"));
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ahbm-astra-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn read(&self, files: [&str; 4]) -> Result<Setup, String> {
        for (name, text) in ["system", "network", "memory", "groups"].into_iter().zip(files) {
            fs::write(self.0.join(name), text).unwrap();
        }
        for rank in 0..2 {
            // Metadata, and a node of nothing.
            fs::write(self.0.join(format!("et.{rank}.et")), b"\x07\x0a\x050.0.4\x02\x08\x01").unwrap();
        }
        let path = |name| self.0.join(name);
        let files = Files {
            workload: path("et"),
            system: path("system"),
            network: path("network"),
            memory: path("memory"),
            groups: Some(path("groups")),
        };
        Setup::read(&files, &ReadOptions::default()).map_err(|findings| findings[0].to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const NETWORK: &str = "topology: [Ring]\nnpus_count: [2]\nbandwidth: [50.0]\nlatency: [500.0]\n";
const MEMORY: &str = r#"{"memory-type": "NO_MEMORY_EXPANSION"}"#;

#[test]
fn keys_without_effect_are_told_and_unknown_values_refused() {
    let folder = Folder::new("keys");
    let read = |system: &str| folder.read([system, NETWORK, MEMORY, "{}"]);
    let setup = read(r#"{"boost-mode": 1, "scheduling-policy": "FIFO", "preferred-dataset-splits": 4}"#).unwrap();
    let told: Vec<&str> = setup.warnings.iter().map(|warning| &*warning.message).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].starts_with("boost-mode is not read") && told[1].starts_with("scheduling-policy changes no number")
    );
    for (system, key) in [
        (r#"{"scheduling-policy": "RANDOM"}"#, "scheduling-policy"),
        (r#"{"collective-optimization": "best"}"#, "collective-optimization"),
        (r#"{"all-reduce-implementation": ["rings"]}"#, "all-reduce-implementation"),
        (r#"{"all-reduce-implementation": ["direct0"]}"#, "all-reduce-implementation"),
        (r#"{"all-reduce-implementation": "ring"}"#, "all-reduce-implementation"),
        (r#"{"all-to-all-implementation": ["ring", "ring"]}"#, "all-to-all-implementation"),
        (r#"{"all-gather-implementation-custom": []}"#, "all-gather-implementation-custom"),
        (r#"{"preferred-dataset-splits": 1e300}"#, "preferred-dataset-splits"),
        (r#"{"preferred-dataset-splits": -1}"#, "preferred-dataset-splits"),
        (r#"{"endpoint-delay": "10"}"#, "endpoint-delay"),
        (r#"{"roofline-enabled": 1}"#, "roofline-enabled"),
        ("[]", "the file"),
        ("{", "the file"),
    ] {
        let text = read(system).unwrap_err();
        assert!(text.starts_with(&format!("AHBM-C190 {key}: ")) && text.contains("/system"), "{text}");
    }
    assert!(read(r#"{"model-shared-bus": 1}"#).unwrap_err().starts_with("AHBM-U235"));
    assert!(read(r#"{"all-reduce-implementation-custom": ["nowhere/et"]}"#).unwrap_err().contains("AHBM-F139"));
}

#[test]
fn networks_memories_and_groups_that_are_none() {
    let folder = Folder::new("files");
    let refused = |files: [&str; 4]| folder.read(files).map(|_| ()).unwrap_err();
    for network in [
        "topology: [Mesh]\nnpus_count: [2]\nbandwidth: [1]\nlatency: [1]\n",
        "topology: [Ring]\nnpus_count: [1]\nbandwidth: [1]\nlatency: [1]\n",
        "topology: [Ring]\nnpus_count: [2]\nbandwidth: [0]\nlatency: [1]\n",
        "topology: [Ring]\nnpus_count: [2]\nbandwidth: [1]\nlatency: [-1]\n",
        "topology: [Ring]\nnpus_count: [2]\nbandwidth: [.nan]\nlatency: [1]\n",
        "topology: [Ring, Ring]\nnpus_count: [2]\nbandwidth: [1]\nlatency: [1]\n",
        "topology: [Ring]\nbandwidth: [1]\nlatency: [1]\n",
        "topology: Ring\nnpus_count: 2\nbandwidth: 1\nlatency: 1\n",
        "topology: [Ring, Ring]\nnpus_count: [1000000, 1000000]\nbandwidth: [1, 1]\nlatency: [1, 1]\n",
        "",
    ] {
        let text = refused(["{}", network, MEMORY, "{}"]);
        assert!(text.starts_with("AHBM-C190"), "{network:?}: {text}");
    }
    assert!(refused(["{}", "a: [", MEMORY, "{}"]).starts_with("AHBM-T001"));
    for memory in [
        "{}",
        r#"{"memory-type": "SOME"}"#,
        r#"{"memory-type": "MEMORY_POOL"}"#,
        r#"{"memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-bw": 1, "num-nodes": 2, "num-npus-per-node": 0}"#,
    ] {
        assert!(refused(["{}", NETWORK, memory, "{}"]).starts_with("AHBM-C190"), "{memory}");
    }
    for groups in [r#"{"1": 3}"#, r#"{"0": [0, 1]}"#, r#"{"-4": [0, 1]}"#, r#"{"1": ["a"]}"#, "3"] {
        assert!(refused(["{}", NETWORK, MEMORY, groups]).starts_with("AHBM-C190"), "{groups}");
    }
    let more = NETWORK.replace("[2]", "[3]");
    assert!(refused(["{}", &more, MEMORY, "{}"]).contains("et.2.et"), "a network of more NPUs than files");
}
