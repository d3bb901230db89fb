//! Which files are one job, and the public traces where they are at hand (`AHBM_CORPUS`).

use crate::support::kineto::Profile;
use ahbm_formats::chakra::{ReadOptions, Sort, read_workload};
use ahbm_formats::{jobs, pytorch};
use ahbm_workload::{Groups, Work, Workload};
use std::path::{Path, PathBuf};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("ahbm-pytorch-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Self(folder)
    }

    fn read(&self, name: &str) -> Result<Workload, &'static str> {
        read(&self.0.join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(path: &Path) -> Result<Workload, &'static str> {
    jobs::read(path, false, &pytorch::Options::default(), Groups::default()).map_err(|findings| findings[0].code)
}

fn text(rank: u32, world: u32) -> String {
    let mut profile = Profile::new();
    profile.all_reduce(1024, 5.0);
    profile.text(rank, world)
}

#[test]
fn a_file_brings_its_siblings_and_a_folder_all() {
    let (zero, one, alone) = (text(0, 2), text(1, 2), text(0, 1));
    let files = [("rank0_trace.json", &*zero), ("rank1_trace.json", &*one), ("readme.json", "{\"other\": 1}")];
    let folder = Folder::new("siblings", &files);
    assert_eq!(folder.read("rank1_trace.json").unwrap().ranks.len(), 2);
    assert_eq!(folder.read("").unwrap().ranks.len(), 2);
    std::fs::write(folder.0.join("other.0.json"), &alone).unwrap();
    assert_eq!(folder.read("rank1_trace.json").unwrap().ranks.len(), 2, "another prefix");
    assert_eq!(folder.read("other.0.json").unwrap().ranks.len(), 1);
    assert_eq!(folder.read(""), Err("AHBM-F185"), "two traces of rank 0");
    std::fs::write(folder.0.join("host.json"), r#"{"schema": "1.0.1", "pid": 1, "nodes": []}"#).unwrap();
    assert_eq!(folder.read(""), Err("AHBM-F185"), "of the profiler and of the host");
    assert_eq!(folder.read("none.json"), Err("AHBM-F139"));
}

#[test]
fn ranks_are_those_of_the_names_where_the_traces_say_none() {
    let silent = |rank| text(rank, 2).replace("\"rank\"", "\"none\"");
    let files = [("a.1.json", silent(0)), ("a.0.json", silent(1)), ("b.json", silent(0)), ("c.json", silent(1))];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, &**text)).collect();
    let folder = Folder::new("names", &files[..2]);
    assert!(folder.read("").unwrap().ranks[1].file.ends_with("a.1.json"));
    assert_eq!(Folder::new("nameless", &files[2..]).read(""), Err("AHBM-F185"));
}

/// Names of the files of ranks.
fn files(workload: &Workload) -> Vec<&str> {
    workload.ranks.iter().map(|rank| rank.file.rsplit('/').next().unwrap()).collect()
}

#[test]
fn the_profilers_own_names_say_no_rank_and_the_traces_do() {
    let (zero, one, three) = (text(0, 2), text(1, 2), text(2, 3));
    let (late_zero, late_one) = (text(0, 2), text(1, 2));
    let named = [
        ("node-a_4107.1700000000000000007.pt.trace.json", &*one),
        ("node-b_4100.1700000000000000017.pt.trace.json", &*zero),
        ("node-b_9.1700000000000000009.pt.trace.json", &*three),
        ("summary.json", r#"{"traceEvents": 3}"#),
    ];
    let folder = Folder::new("defaults", &named);
    let read = folder.read(named[0].0).unwrap();
    assert_eq!(files(&read), [named[1].0, named[0].0], "the third is of another job");
    assert!(!read.notes.iter().any(|note| note.message.contains("nearest")), "{:?}", read.notes);
    let later = [
        ("node-b_4100.1700000005000000020.pt.trace.json", &*late_zero),
        ("node-a_4107.1700000005000000001.pt.trace.json", &*late_one),
    ];
    for (name, text) in later {
        std::fs::write(folder.0.join(name), text).unwrap();
    }
    assert_eq!(files(&folder.read(named[0].0).unwrap()), [named[1].0, named[0].0], "the nearest in time");
    let read = folder.read(later[0].0).unwrap();
    assert_eq!(files(&read), [later[0].0, later[1].0]);
    assert!(read.notes.iter().any(|note| note.message.contains("nearest in time")), "{:?}", read.notes);
}

#[test]
fn a_number_that_is_no_rank_is_not_taken_for_one() {
    let (zero, one) = (text(0, 2), text(1, 2));
    let pids = [("host.4101.json", &*zero), ("host.4100.json", &*one)];
    assert_eq!(
        files(&Folder::new("pids", &pids).read("host.4100.json").unwrap()),
        ["host.4101.json", "host.4100.json"]
    );
    let times = [("rank-0.Jul_15.1074.pt.trace.json", &*zero), ("rank-1.Jul_15.1090.pt.trace.json", &*one)];
    let folder = Folder::new("times", &times);
    assert_eq!(files(&folder.read(times[1].0).unwrap()), [times[0].0, times[1].0]);
    std::fs::write(folder.0.join("rank-1.Jul_16.2000.pt.trace.json"), &one).unwrap();
    assert_eq!(folder.read(times[0].0), Err("AHBM-F185"), "which of two is meant?");
    // A date, where the trace says nothing of ranks.
    let mut profile = Profile::new();
    profile.kernel("gemm", 7, 5.0);
    let silent = profile.text(0, 1).replace("distributedInfo", "other");
    let folder = Folder::new("dates", &[("trace_2026-01-15.json", &silent), ("trace_2026-01-16.json", &silent)]);
    assert_eq!(folder.read("trace_2026-01-16.json").unwrap().ranks.len(), 1);
}

#[test]
fn a_file_alone_is_told_to_bring_its_folder() {
    let folder = Folder::new("alone", &[("host_1.1700000000007.pt.trace.json", &text(1, 2))]);
    let path = folder.0.join("host_1.1700000000007.pt.trace.json");
    let found = jobs::read(&path, false, &pytorch::Options::default(), Groups::default()).unwrap_err().remove(0);
    let hint = found.hint.as_deref().unwrap();
    assert!(found.code == "AHBM-F185" && hint.find("folder") < hint.find("--symmetric"), "{hint}");
}

#[test]
fn what_a_path_names_is_known_without_guessing() {
    let zero = text(0, 1);
    let plan = r#"{"name": "p", "collective": "allreduce", "gpus": []}"#;
    let chakra = r#"{"nodes": [{"id": 1, "name": "c", "node_type": "coll_comm_node", "comm_type": "ALL_REDUCE"}]}"#;
    let files = [
        ("k.json", &*zero),
        ("h.json", r#"{"schema":"1.1.0","pid":3,"nodes":[]}"#),
        ("p.json", plan),
        ("c.json", chakra),
        ("x.json", "[1]"),
    ];
    let folder = Folder::new("sorts", &files);
    let sort = |name: &str| jobs::sort(&folder.0.join(name), &ReadOptions::default()).unwrap();
    assert_eq!([sort("k.json"), sort("h.json"), sort("c.json")], [Some(Sort::Job); 3]);
    assert_eq!([sort("p.json"), sort("x.json"), sort("absent.json")], [None; 3]);
    assert_eq!(sort(""), Some(Sort::Job));
    let reading = ahbm_formats::Reading::default();
    for name in ["k.json", "h.json"] {
        let findings = ahbm_formats::Document::read(&folder.0.join(name), &reading).unwrap_err();
        assert_eq!(findings[0].code, "AHBM-U231", "an algorithm is asked for");
    }
    let step = pytorch::Options { step: Some(3), ..pytorch::Options::default() };
    let refused = jobs::read(&folder.0.join("c.json"), false, &step, Groups::default()).unwrap_err();
    assert_eq!(refused[0].code, "AHBM-C146");
}

fn corpus() -> Option<PathBuf> {
    std::env::var_os("AHBM_CORPUS").map(|corpus| PathBuf::from(corpus).join("real_traces"))
}

/// Picoseconds of computing of a rank.
fn computed(workload: &Workload, rank: u32) -> u64 {
    workload.graph(rank).nodes().iter().filter(|node| matches!(node.work, Work::Compute(_))).map(|node| node.ps).sum()
}

#[test]
fn a_recorded_step_is_the_job_that_was_made_of_it() {
    let Some(corpus) = corpus() else { return };
    let direct = read(&corpus.join("megatron_tp8_kineto")).unwrap();
    let made = read_workload(&corpus.join("megatron_tp8"), &ReadOptions::default(), Groups::default()).unwrap();
    let calls = |workload: &Workload| {
        let calls = workload.calls().unwrap();
        let facts = calls.iter().map(|call| (call.spec.collective, call.spec.bytes, call.nodes.len()));
        facts.collect::<Vec<_>>()
    };
    assert_eq!(calls(&direct).len(), 84);
    assert_eq!(calls(&direct), calls(&made));
    for rank in 0..8 {
        assert_eq!(computed(&direct, rank), computed(&made, rank), "rank {rank}");
    }
}

#[test]
fn every_public_trace_is_read_or_lacks_what_is_named() {
    let Some(corpus) = corpus() else { return };
    let alone = |name: &str| {
        let options = pytorch::Options { symmetric: true, ..pytorch::Options::default() };
        jobs::read(&corpus.join(name), false, &options, Groups::default()).unwrap()
    };
    assert_eq!(read(&corpus.join("dlrm_like_host.0.json.gz")).unwrap().calls().unwrap().len(), 7);
    for (name, ranks, calls) in [
        ("ddp_2gpu_kineto.0.json.gz", 2, 21),
        ("resnet_2gpu_host.1.json.gz", 2, 21),
        ("megatron_tp8_host.0.json.gz", 8, 84),
    ] {
        assert_eq!(read(&corpus.join(name)), Err("AHBM-F185"), "{name}");
        let workload = alone(name);
        assert_eq!((workload.ranks.len(), workload.calls().unwrap().len()), (ranks, calls), "{name}");
    }
}
