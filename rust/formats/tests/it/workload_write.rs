//! Workloads written as traces: read again they are the same.

use ahbm_formats::chakra::{ReadOptions, parse_workload, read_workload, write_workload};
use ahbm_wire::chakra::of_rank;
use ahbm_workload::{
    Arithmetic, CallSpec, Collective, Gather, Groups, Kernel, Kind, MessageSpec, NodeBuilder, PartSpec, RankBuilder,
    Work, Workload,
};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

/// A folder of its own, gone with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ahbm-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Everything about a node that is random: kind, numbers, texts, dependencies.
type Facts = ((u8, u64, u32, u64), (Option<u32>, i32, bool, u8), Vec<u64>);

fn facts() -> impl Strategy<Value = Facts> {
    let sizes = prop_oneof![Just(0), 0..5000u64, Just(u64::MAX), Just(i64::MAX as u64)];
    let ps = prop_oneof![Just(0), 0..10_000_000u64, (0..1000u64).prop_map(|us| us * 1_000_000), 0..1u64 << 52];
    let own = (proptest::option::of(any::<u32>()), any::<i32>(), any::<bool>(), any::<u8>());
    ((0..8u8, sizes, any::<u32>(), ps), own, proptest::collection::vec(0..40u64, 0..4))
}

/// Groups of every kind of name: that of all ranks, a number, a word, one name twice, a number that is no plain one.
fn group(gather: &mut Gather, rank: u32, which: u8) -> u32 {
    let size = gather.size();
    let backwards = (0..size).rev().collect();
    let (name, ranks) = match which % 6 {
        0 => ("", None),
        1 => ("2", Some(backwards)),
        2 => ("tp", Some(vec![rank])),
        3 => ("tp", Some(backwards)),
        4 => ("", Some(backwards)),
        _ => ("02 \"\\", Some(vec![rank, (rank + 1) % size])),
    };
    gather.group(rank, name, ranks, || "here".into()).unwrap()
}

fn work(gather: &mut Gather, job: &mut RankBuilder, facts: &Facts, calls: &[u32]) -> Work {
    let ((kind, size, small, _), (_, _, flag, which), _) = facts;
    let (rank, which) = (job.rank(), *which);
    let message = |gather: &mut Gather, job: &mut RankBuilder| {
        let group = flag.then(|| group(gather, rank, which));
        let group = group.map(|group| job.group(group));
        MessageSpec { peer: job.peer((rank + 1 + small % 2) % gather.size()), group, bytes: *size, tag: *small }
    };
    match kind {
        0 => Work::Nothing,
        1 => {
            let arithmetic = Arithmetic::ALL[usize::from(which) % Arithmetic::ALL.len()];
            let kind = Kind::ALL[usize::from(which) % Kind::ALL.len()];
            // With zeros within and behind.
            let dims = std::array::from_fn(|at| if at % 3 == 1 || at > usize::from(which % 12) { 0 } else { *small });
            let bytes = u64::from(*small);
            Work::Compute(Kernel { operations: *size, arithmetic, bytes, host: *flag, kind, dims })
        }
        2 => Work::Memory { store: *flag, bytes: *size },
        3 => Work::Send(message(gather, job)),
        4 => Work::Recv(message(gather, job)),
        5 if !calls.is_empty() => {
            let call = calls[*small as usize % calls.len()];
            Work::Part(PartSpec { call, chunk: *small, completes: *flag })
        }
        _ => {
            let group = group(gather, rank, which);
            let group = job.group(group);
            let text = |bit: u8| (which & bit != 0).then(|| format!("t{bit}").into());
            job.call_of(CallSpec {
                collective: Collective::ALL[usize::from(which) % 10],
                group,
                bytes: *size,
                sends: flag.then(|| [u64::from(*small), 7].into()),
                receives: (which & 8 != 0).then(|| [u64::from(*small)].into()),
                through: (which & 4 != 0).then(|| [u64::from(*small), *size]),
                dtype: text(16),
                op: text(32),
                root: (which & 64 != 0).then_some(*small),
                dimensions: (which & 128 != 0).then(|| [true, *flag].into()),
            })
        }
    }
}

/// `ranks` by number of nodes: rank r has the nodes of list r modulo their number.
fn workload(path: &Path, ranks: u32, lists: &[Vec<Facts>]) -> Workload {
    let mut gather = Gather::new(path.file_name().unwrap().to_str().unwrap(), ranks, Groups::default());
    for rank in 0..ranks {
        let file = of_rank(path, rank as usize);
        let mut job = RankBuilder::new(rank, file.to_str().unwrap());
        let list = &lists[rank as usize % lists.len()];
        let is_call = |(at, facts): (u32, &Facts)| (facts.0.0 >= 6).then_some(at);
        let calls: Vec<u32> = (0..).zip(list).filter_map(is_call).collect();
        for (at, facts) in (0..).zip(list) {
            let ((_, _, _, ps), (stream, priority, cpu, _), after) = facts;
            let made =
                NodeBuilder::new(3 * at, format!("node {}", at % 3)).work(work(&mut gather, &mut job, facts, &calls));
            let after: Vec<u64> = after.iter().filter(|&&dep| dep < at).map(|dep| 3 * dep).collect();
            job.push(made.ps(*ps).cpu(*cpu).stream(*stream).priority(*priority).after(&after));
        }
        gather.add(job.finish(false).unwrap());
    }
    gather.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(
        ranks in 3..6u32,
        lists in proptest::collection::vec(proptest::collection::vec(facts(), 1..40), 1..4),
    ) {
        let folder = Folder::new("workload-write");
        let path = folder.0.join("job");
        let written = workload(&path, ranks, &lists);
        write_workload(&written, &path, &[]).unwrap();
        let read = read_workload(&path, &ReadOptions::default(), Groups::default()).unwrap();
        prop_assert_eq!(&read, &written);
    }
}

/// The place of a file in words that do not depend on where it was read.
fn without_files(mut workload: Workload) -> Workload {
    workload.ranks.iter_mut().for_each(|rank| rank.file = "".into());
    workload.name = String::new();
    workload
}

#[test]
fn the_order_of_a_file_and_the_names_of_its_groups_do_not_matter() {
    let line = |id: u32, group: &str, ranks: &str| {
        format!(
            r#"{{"id":{id},"name":"n{id}","type":"COMM_COLL_NODE","attr":[{{"name":"comm_type","int64Val":0}},
            {{"name":"comm_size","int64Val":{id}}},{{"name":"pg_name","stringVal":"{group}"}},
            {{"name":"ranks","int64List":{{"values":{ranks}}}}}]}}"#
        )
    };
    let head = r#"{"version":"0.0.4"}"#;
    let (first, second) = (line(1, "dp", "[0]"), line(2, "7", "[0]"));
    let read = |texts: [&str; 3]| {
        let text = texts.join("\n");
        let files = [("job.0.json", text.as_bytes())];
        parse_workload("job", &files, &ReadOptions::default(), Groups::default()).unwrap()
    };
    let straight = read([head, &first, &second]);
    assert_eq!(straight, read([head, &second, &first]));
    let folder = Folder::new("workload-order");
    let path = folder.0.join("job.et");
    let files = write_workload(&straight, &path, &[]).unwrap();
    assert_eq!(files, ["job.0.et", "job.groups.json"].map(|name| folder.0.join(name)));
    assert_eq!(std::fs::read_to_string(&files[1]).unwrap(), r#"{"1":[0],"7":[0]}"#);
    let again = read_workload(&path, &ReadOptions::default(), Groups::default()).unwrap();
    assert_eq!(again.groups.iter().map(|group| &*group.name).collect::<Vec<_>>(), ["dp", "7"]);
    assert_eq!(without_files(again), without_files(straight));
}

#[test]
fn a_recording_stays_one() {
    let folder = Folder::new("workload-recorded");
    let path = folder.0.join("job");
    for recorded in [false, true] {
        let mut made = workload(&path, 2, &[Vec::new()]);
        made.recorded = recorded;
        write_workload(&made, &path, &[]).unwrap();
        assert_eq!(read_workload(&path, &ReadOptions::default(), Groups::default()).unwrap(), made);
    }
}

#[test]
fn a_longer_trace_is_not_mixed_with() {
    let folder = Folder::new("workload-foreign");
    let path = folder.0.join("job");
    std::fs::write(of_rank(&path, 3), "").unwrap();
    let made = workload(&path, 3, &[Vec::new()]);
    assert_eq!(write_workload(&made, &path, &[]).unwrap_err().code, "AHBM-F139");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn jobs_of_the_corpus_are_written_and_read() {
    let Some(corpus) = std::env::var_os("AHBM_CORPUS").map(PathBuf::from) else { return };
    let folder = Folder::new("workload-corpus");
    let index = std::fs::read_to_string(corpus.join("astra_sim/index.json")).unwrap();
    let mut index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let runs = index["cases"].as_array_mut().unwrap();
    for job in ["real_traces/megatron_tp8/et", "chakra/workload/single_allreduce_8/workload"] {
        runs.push(serde_json::json!({ "workload": format!("../{job}") }));
    }
    let (mut seen, mut known) = (std::collections::BTreeSet::new(), 0);
    for run in runs {
        let text = |name: &str| run[name].as_str().map(|path| corpus.join("astra_sim").join(path));
        let Some(path) = text("workload").filter(|path| seen.insert(path.clone())) else { continue };
        let groups: Groups = text("groups")
            .and_then(|path| std::fs::read(path).ok())
            .map(|bytes| serde_json::from_slice(&bytes).unwrap())
            .unwrap_or_default();
        let Ok(first) = read_workload(&path, &ReadOptions::default(), groups) else { continue };
        let copy = folder.0.join(format!("copy{known}"));
        write_workload(&first, &copy, &[]).unwrap();
        let second = read_workload(&copy, &ReadOptions::default(), Groups::default()).unwrap();
        assert_eq!(without_files(second), without_files(first), "{}", path.display());
        known += 1;
    }
    assert!(known >= 45, "{known} of {}", seen.len());
}
