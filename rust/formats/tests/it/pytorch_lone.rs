//! The trace of one rank alone, of a job that will have more.

use crate::support::kineto::{Profile, options};
use ahbm_formats::pytorch::{Kind, Options, parse};
use ahbm_workload::{Collective, Groups, Workload};

/// The job of the one rank of a profile, with so many replicas.
fn scaled(profile: &Profile, replicas: u32) -> Workload {
    let text = profile.text(0, 1);
    let files = [("rank0_trace.json", text.as_bytes())];
    let options = Options { scaled: true, ..options() };
    parse("step", Kind::Kineto, &files, &options, Groups::default()).unwrap().replicated(replicas).unwrap()
}

/// A collective of a group of one: what lies in it besides its record.
fn alone(profile: &mut Profile, operator: &str, facts: &str, within: impl FnOnce(&mut Profile)) {
    let facts = format!(r#""Group size":1,"dtype":"Float",{facts}"#);
    profile.operator(operator, "", |profile| profile.operator("record_param_comms", &facts, within));
}

fn reduce(profile: &mut Profile, elements: u64, group: &str) {
    let facts = format!(
        r#""Collective name":"allreduce","In msg nelems":{elements},"Out msg nelems":{elements},"Process Group Name":"{group}""#
    );
    alone(profile, "c10d::allreduce_", &facts, |profile| {
        profile.runtime("cudaEventRecord");
        profile.runtime("cudaStreamWaitEvent");
    });
}

/// Per node of rank 0 its name, and the names of what it waits for.
fn graph(job: &Workload) -> Vec<(String, Vec<String>)> {
    let graph = job.graph(0);
    let name = |at: u32| graph.name(at).to_owned();
    (0..graph.nodes().len() as u32)
        .map(|at| (name(at), graph.deps(at).iter().map(|&dep| name(dep)).collect()))
        .collect()
}

fn waits<const N: usize>(name: &str, on: [&str; N]) -> (String, Vec<String>) {
    (name.into(), on.map(str::to_owned).to_vec())
}

#[test]
fn a_reduction_without_a_kernel_runs_beside_what_follows_until_the_host_lets_a_stream_wait() {
    let mut profile = Profile::new();
    profile.gpu += 500.0; // The device lags behind its host.
    profile.kernel("first", 7, 10.0);
    reduce(&mut profile, 1000, "0");
    profile.kernel("second", 7, 10.0);
    reduce(&mut profile, 3000, "0");
    profile.kernel("third", 7, 10.0);
    profile.runtime("cudaStreamWaitEvent");
    profile.runtime("cudaStreamWaitEvent");
    profile.kernel("optimizer", 7, 10.0);
    let job = scaled(&profile, 4);
    assert_eq!(
        graph(&job),
        [
            waits("first", []),
            waits("all_reduce", ["first"]),
            waits("second", ["first"]),
            waits("all_reduce", ["all_reduce", "second"]),
            waits("third", ["second"]),
            waits("optimizer", ["all_reduce", "all_reduce", "third"]),
        ]
    );
    let bytes: Vec<u64> = job.graph(0).specs().iter().map(|spec| spec.bytes).collect();
    assert_eq!((job.ranks.len(), job.graphs.len(), bytes), (4, 1, vec![4000, 12000]), "a bucket keeps its size");
    assert_eq!(*job.groups[0].ranks, [0, 1, 2, 3]);
}

#[test]
fn a_copy_and_a_scaling_kernel_stand_for_the_collective() {
    let mut profile = Profile::new();
    profile.kernel("before", 7, 10.0);
    let gather = r#""Collective name":"_allgather_base","In msg nelems":1001,"Out msg nelems":1001"#;
    alone(&mut profile, "c10d::_allgather_base_", gather, |profile| {
        profile.runtime("cudaStreamWaitEvent");
        profile.kernel("Memcpy DtoD (Device -> Device)", 24, 3.0);
    });
    profile.runtime("cudaStreamWaitEvent");
    profile.kernel("between", 7, 10.0);
    let scatter = r#""Collective name":"_reduce_scatter_base","In msg nelems":1001,"Out msg nelems":1001"#;
    alone(&mut profile, "c10d::_reduce_scatter_base_", scatter, |profile| {
        profile.runtime("cudaStreamWaitEvent");
        profile.kernel("void (anonymous namespace)::oneRankReduce<float>", 24, 3.0);
    });
    let job = scaled(&profile, 4);
    let specs: Vec<_> = job.graph(0).specs().iter().map(|spec| (spec.collective, spec.bytes, spec.through)).collect();
    // 1,001 elements in four equal parts are 251 for each.
    let wanted = [(Collective::AllGather, 1004, None), (Collective::ReduceScatter, 4016, None)];
    assert_eq!(specs, wanted);
    let names: Vec<String> = graph(&job).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    let taken: u64 = job.graph(0).nodes().iter().map(|node| node.ps).sum();
    assert_eq!(taken, 20_000_000, "what stands for a collective is no computation");
}

#[test]
fn a_collective_on_the_stream_that_computes_is_in_its_order() {
    let mut profile = Profile::new();
    profile.kernel("before", 7, 10.0);
    let facts = r#""Collective name":"allreduce","In msg nelems":8,"Out msg nelems":8"#;
    alone(&mut profile, "c10d::allreduce_", facts, |_| {});
    profile.kernel("behind", 7, 10.0);
    assert_eq!(
        graph(&scaled(&profile, 2)),
        [waits("before", []), waits("all_reduce", ["before"]), waits("behind", ["all_reduce"])]
    );
}

#[test]
fn groups_of_other_dimensions_stay_alone() {
    let mut profile = Profile::new();
    profile.kernel("first", 7, 10.0);
    for (group, title) in [("1", "mesh_tp"), ("2", "mesh_dp"), ("3", "PIPELINE_MODEL_PARALLEL_GROUP")] {
        reduce(&mut profile, 1000, &format!(r#"{group}","Process Group Description":"{title}"#));
    }
    profile.kernel("last", 7, 10.0);
    let job = scaled(&profile, 2);
    let called: Vec<&str> = (0..job.graph(0).nodes().len() as u32)
        .filter_map(|at| job.graph(0).spec(at))
        .map(|spec| &*job.group(0, spec.group).name)
        .collect();
    assert_eq!(called, ["mesh_dp"]);
    assert!(job.notes.iter().any(|note| note.message.contains("groups of one rank are left out")));
    let one = scaled(&profile, 1);
    assert!((0..one.graph(0).nodes().len() as u32).all(|at| one.graph(0).spec(at).is_none()));
}

#[test]
fn what_the_trace_says_of_waits_holds_for_a_collective_without_a_kernel() {
    let mut profile = Profile::new();
    profile.kernel("before", 7, 10.0);
    let facts = r#""Collective name":"allreduce","In msg nelems":8,"Out msg nelems":8"#;
    let mut ended = 0;
    alone(&mut profile, "c10d::allreduce_", facts, |profile| {
        let mark = profile.runtime("cudaEventRecord");
        let wait = profile.runtime("cudaStreamWaitEvent");
        profile.stream_wait(24, 7, mark, wait);
        ended = profile.runtime("cudaEventRecord");
    });
    profile.kernel("beside", 7, 10.0);
    let wait = profile.runtime("cudaStreamWaitEvent");
    profile.stream_wait(7, 24, ended, wait);
    profile.kernel("behind", 7, 10.0);
    assert_eq!(
        graph(&scaled(&profile, 2)),
        [
            waits("before", []),
            waits("all_reduce", ["before"]),
            waits("beside", ["before"]),
            waits("behind", ["all_reduce", "beside"])
        ]
    );
}
