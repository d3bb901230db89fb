//! The profiler's traces: what waits for what, which communication a kernel is, which step, which files.

use crate::support::kineto::{Profile, call_of, names, options, read};
use ahbm_formats::pytorch::{Kind, Options, parse};
use ahbm_plan::{Budget, Limit};
use ahbm_workload::{Collective, Groups, Work, Workload};

/// Computes, reduces on a stream of its own, computes beside it, waits where `wait` stands, and computes.
fn overlapping(wait: usize) -> Profile {
    let mut profile = Profile::new();
    profile.kernel("before", 7, 10.0);
    profile.all_reduce(1024, 30.0);
    for number in 0..3 {
        if number == wait {
            profile.runtime("cudaStreamWaitEvent");
            // Behind the collective: no inferred wait contradicts the clock.
            profile.gpu += 100.0;
        }
        profile.kernel(&format!("after {number}"), 7, 10.0);
    }
    profile
}

/// Names of what a node waits for.
fn waits(workload: &Workload, name: &str) -> Vec<String> {
    let graph = workload.graph(0);
    let at = (0..graph.nodes().len() as u32).find(|&at| graph.name(at) == name).expect(name);
    graph.deps(at).iter().map(|&dep| graph.name(dep).to_owned()).collect()
}

const NCCL: &str = "ncclDevKernel_AllReduce_Sum_f16_RING_LL";

#[test]
fn a_stream_waits_for_a_collective_where_its_host_let_it() {
    let workload = read(&[&overlapping(1)]).unwrap();
    assert_eq!(waits(&workload, NCCL), ["before"]);
    assert_eq!(waits(&workload, "after 0"), ["before"]);
    assert_eq!(waits(&workload, "after 1"), [NCCL, "after 0"]);
    assert_eq!(waits(&workload, "after 2"), ["after 1"]);
    let at_once = read(&[&overlapping(0)]).unwrap();
    assert_eq!(waits(&at_once, "after 0"), ["before", NCCL]);
}

#[test]
fn without_the_host_the_recorded_times_say_what_waits() {
    let mut profile = Profile::new();
    profile.kernel("before", 7, 10.0);
    profile.nccl(NCCL, 24, 30.0, r#""Collective name":"allreduce","In msg nelems":4,"dtype":"Half""#);
    profile.kernel("beside", 7, 10.0);
    profile.gpu += 100.0;
    profile.kernel("behind", 7, 10.0);
    profile.drop_host();
    let workload = read(&[&profile]).unwrap();
    assert_eq!(waits(&workload, NCCL), ["before"]);
    assert_eq!(waits(&workload, "beside"), ["before"]);
    assert_eq!(waits(&workload, "behind"), [NCCL, "beside"]);
}

#[test]
fn what_the_trace_says_of_waits_is_taken_and_nothing_inferred() {
    let mut profile = Profile::new();
    profile.kernel("producer", 20, 10.0);
    let mark = profile.runtime("cudaEventRecord");
    profile.kernel("later", 20, 10.0);
    let wait = profile.runtime("cudaStreamWaitEvent");
    profile.stream_wait(7, 20, mark, wait);
    profile.kernel("consumer", 7, 10.0);
    profile.all_reduce(1024, 30.0);
    let workload = read(&[&profile]).unwrap();
    assert_eq!(waits(&workload, "consumer"), ["producer"]);
    assert_eq!(waits(&workload, NCCL), [""; 0]);
}

#[test]
fn computing_keeps_its_picoseconds_and_communication_has_none() {
    let mut profile = Profile::new();
    profile.kernel("gemm", 7, 41.407);
    profile.event(r#""cat":"gpu_memset","name":"Memset (Device)","pid":0,"tid":7,"ts":1706850122846038.125,"dur":1.5,"args":{"stream":7,"device":0}"#);
    profile.all_reduce(1024, 2636.669);
    let workload = read(&[&profile]).unwrap();
    let found: Vec<(u64, Option<u32>)> = workload.graph(0).nodes().iter().map(|node| (node.ps, node.stream)).collect();
    assert_eq!(found.len(), 3);
    assert!(found.contains(&(41_407_000, Some(7))) && found.contains(&(1_500_000, Some(7))));
    assert!(found.contains(&(0, Some(24))));
}

#[test]
fn dimensions_of_the_operator_are_the_size_where_the_kernel_states_none() {
    let workload = read(&[&overlapping(0)]).unwrap();
    let calls = workload.calls().unwrap();
    assert_eq!(calls.len(), 1);
    let spec = &calls[0].spec;
    assert_eq!((spec.collective, spec.bytes, spec.dtype.as_deref()), (Collective::AllReduce, 2048, Some("f16")));
}

#[test]
fn facts_of_a_kernel_come_before_those_of_its_operator() {
    let facts = r#""Collective name":"_allgather_base","In msg nelems":10,"Out msg nelems":20,"Group size":2,"dtype":"BFloat16","Process Group Name":"tp","Process Group Ranks":"[0, 1]""#;
    let mut profile = Profile::new();
    profile.nccl("ncclDevKernel_AllGather_RING_LL", 24, 5.0, facts);
    let workload = read(&[&profile, &profile]).unwrap();
    let (spec, group) = call_of(&workload, 0);
    assert_eq!((spec.collective, spec.bytes, spec.dtype.as_deref()), (Collective::AllGather, 20, Some("bf16")));
    assert_eq!((&*group.name, &*group.ranks), ("tp", &[0, 1][..]));
}

#[test]
fn sizes_are_those_of_the_collective() {
    let size = |name: &str, facts: &str| {
        let mut profile = Profile::new();
        let facts = format!(r#""Collective name":"{name}","Group size":2,"dtype":"Float",{facts}"#);
        profile.nccl("ncclDevKernel_Generic", 24, 5.0, &facts);
        let workload = read(&[&profile, &profile]).unwrap();
        let spec = call_of(&workload, 0).0.clone();
        (spec.collective, spec.bytes, spec.longest())
    };
    assert_eq!(
        size("reduce_scatter", r#""In msg nelems":8,"Out msg nelems":4"#),
        (Collective::ReduceScatter, 32, None)
    );
    assert_eq!(size("_broadcast_oop", r#""In msg nelems":8"#), (Collective::Broadcast, 32, None));
    assert_eq!(size("barrier", r#""In msg nelems":0"#), (Collective::Barrier, 0, None));
    assert_eq!(size("scatter", r#""In msg nelems":0,"Out msg nelems":4"#), (Collective::Scatter, 32, None));
    // Splits are rows of the first dimension: here of two elements each.
    let uneven = r#""In msg nelems":8,"Out msg nelems":8,"In split size":"[1, 3]","Out split size":"[2, 2]""#;
    assert_eq!(size("all_to_allv", uneven), (Collective::AllToAll, 32, Some(6)));
}

#[test]
fn a_barrier_that_runs_as_an_all_reduce_is_a_barrier() {
    let mut profile = Profile::new();
    profile.operator("c10d::barrier", "", |profile| profile.nccl(NCCL, 24, 5.0, ""));
    assert_eq!(call_of(&read(&[&profile]).unwrap(), 0).0.collective, Collective::Barrier);
}

#[test]
fn groups_are_those_of_the_configuration_even_where_their_list_is_cut() {
    let facts = r#""Collective name":"allreduce","In msg nelems":4,"Group size":2,"dtype":"Float","Process Group Name":"dp","Process Group Ranks":"[1, ..., 3]""#;
    let mut quiet = Profile::new();
    quiet.kernel("gemm", 7, 1.0);
    let mut pair = Profile::new();
    pair.groups = r#"[{"pg_name":"0","ranks":[],"pg_size":4},{"pg_name":"dp","ranks":[1,3],"pg_size":2}]"#.into();
    pair.nccl(NCCL, 24, 5.0, facts);
    let workload = read(&[&quiet, &pair, &quiet, &pair]).unwrap();
    assert_eq!(*workload.calls().unwrap()[0].nodes, [0, 0]);
    assert_eq!(&*workload.groups[0].ranks, [1, 3]);
    // Without the configuration the list is unknown.
    pair.groups.clear();
    assert_eq!(codes(read(&[&quiet, &pair, &quiet, &pair])), ["AHBM-U234"]);
}

fn codes(read: Result<Workload, Vec<ahbm_findings::Diagnostic>>) -> Vec<&'static str> {
    read.unwrap_err().into_iter().map(|finding| finding.code).collect()
}

#[test]
fn several_communicators_without_groups_are_not_guessed() {
    let mut profile = Profile::new();
    profile.all_reduce(8, 1.0);
    profile.operator("c10d::allreduce_", DIMS, |profile| profile.nccl(NCCL, 30, 5.0, ""));
    assert_eq!(codes(read(&[&profile, &profile])), ["AHBM-U234"]);
    let named = Groups::from_iter([("unnamed".to_owned(), vec![0, 1])]);
    let texts = [profile.text(0, 2), profile.text(1, 2)];
    let files = [("rank0.json", texts[0].as_bytes()), ("rank1.json", texts[1].as_bytes())];
    assert!(parse("job", Kind::Kineto, &files, &Options::default(), named).is_ok());
}

const DIMS: &str = r#""Input Dims":[[[4]],[]],"Input type":["float",""],"Concrete Inputs":["","","1","0"]"#;

#[test]
fn messages_find_their_other_end() {
    let kernel = "ncclDevKernel_SendRecv";
    let end = |operator: &str, facts: &str| {
        let mut profile = Profile::new();
        profile.operator(operator, facts, |profile| profile.nccl(kernel, 24, 5.0, ""));
        profile
    };
    // By the operator's arguments: position 1 of the group is where it sends.
    let from_zero = DIMS.replace("\"1\",\"0\"", "\"0\",\"0\"");
    let workload = read(&[&end("c10d::send", DIMS), &end("c10d::recv_", &from_zero)]).unwrap();
    let message = workload.messages().unwrap()[0];
    assert_eq!((message.send.0, message.recv.0, message.bytes), (0, 1, 16));
    // By the annotation.
    let dims = r#""Input Dims":[[4]],"Input type":["float"]"#;
    let workload = read(&[&end("nccl:send 0->1", dims), &end("nccl:recv 1<-0", dims)]).unwrap();
    assert_eq!(workload.messages().unwrap().len(), 1);
    // By the facts of the kernel.
    let facts = |name: &str, more: &str| {
        let mut profile = Profile::new();
        profile.nccl(kernel, 24, 5.0, &format!(r#""Collective name":"{name}","dtype":"Int","In msg nelems":4{more}"#));
        profile
    };
    let ends = [facts("send", r#","Dst Rank":1"#), facts("recv", r#","Src Rank":0"#)];
    assert_eq!(read(&[&ends[0], &ends[1]]).unwrap().messages().unwrap().len(), 1);
    // In a group of two the other one is known, among three it is not.
    let (send, recv) = (facts("send", ""), facts("recv", ""));
    assert_eq!(read(&[&send, &recv]).unwrap().messages().unwrap().len(), 1);
    assert_eq!(codes(read(&[&send, &recv, &recv])), ["AHBM-F184"]);
}

#[test]
fn a_kernel_of_several_messages_is_all_of_them() {
    let mut both = [Profile::new(), Profile::new()];
    for (rank, profile) in both.iter_mut().enumerate() {
        let other = DIMS.replace("\"1\",\"0\"", &format!("\"{}\",\"0\"", 1 - rank));
        profile.kernel("before", 7, 1.0);
        profile.operator("c10d::send", &other, |_| {});
        profile.operator("c10d::recv_", &other, |_| {});
        profile.operator("nccl:coalesced", "", |profile| profile.nccl("ncclDevKernel_SendRecv", 24, 5.0, ""));
        profile.runtime("cudaStreamWaitEvent");
        profile.gpu += 10.0;
        profile.kernel("after", 7, 1.0);
    }
    let workload = read(&[&both[0], &both[1]]).unwrap();
    assert_eq!(workload.messages().unwrap().len(), 2);
    let graph = workload.graph(0);
    let kinds: Vec<_> = graph.nodes().iter().map(|node| std::mem::discriminant(&node.work)).collect();
    assert_eq!(kinds.len(), 5);
    assert_eq!(graph.node(3).work, Work::Nothing);
    assert_eq!(graph.deps(3), [1, 2], "both ends wait side by side, one node joins them");
    assert_eq!(graph.deps(4), [0, 3]);
    assert!(workload.notes.iter().all(|note| !note.message.contains("without a kernel")));
}

#[test]
fn an_operator_of_several_kernels_is_one_call_and_one_without_a_kernel_is_named() {
    let mut profile = Profile::new();
    profile.operator("c10d::allreduce_", DIMS, |profile| {
        profile.nccl(NCCL, 24, 5.0, "");
        profile.nccl(NCCL, 24, 5.0, "");
    });
    profile.operator("c10d::allreduce_", DIMS, |_| {});
    let workload = read(&[&profile]).unwrap();
    assert_eq!(workload.calls().unwrap().len(), 1);
    assert!(workload.notes.iter().any(|note| note.message.contains("without a kernel")));
}

#[test]
fn one_step_is_what_its_host_launched() {
    let mut profile = Profile::new();
    for step in 3..6 {
        profile.step(step, |profile| profile.kernel(&format!("step {step}"), 7, 500.0));
    }
    let read = |step| parse_one(&profile, &Options { step, ..Options::default() });
    assert_eq!(names(&read(Some(4)).unwrap()), ["step 4"]);
    let all = read(None).unwrap();
    assert_eq!(names(&all), ["step 3", "step 4", "step 5"]);
    assert!(all.notes[0].message.contains("3 steps, all are replayed: 3, 4, 5"), "{:?}", all.notes);
    let missing = read(Some(7)).unwrap_err();
    assert_eq!((missing[0].code, missing[0].hint.as_deref()), ("AHBM-F187", Some("steps in it: 3, 4, 5")));
}

fn parse_one(profile: &Profile, options: &Options) -> Result<Workload, Vec<ahbm_findings::Diagnostic>> {
    let text = profile.text(0, 1);
    parse("job", Kind::Kineto, &[("trace.json", text.as_bytes())], options, Groups::default())
}

#[test]
fn gaps_of_the_host_are_dropped_or_kept() {
    let mut profile = Profile::new();
    profile.kernel("first", 7, 10.0);
    profile.host += 250.0;
    profile.kernel("second", 7, 10.0);
    profile.runtime_for("cudaDeviceSynchronize", 1000.0);
    profile.kernel("third", 7, 10.0);
    assert_eq!(parse_one(&profile, &Options::default()).unwrap().nodes(), 4, "three kernels and the wait of the host");
    let kept = parse_one(&profile, &Options { host_gaps: true, ..Options::default() }).unwrap();
    let graph = kept.graph(0);
    let host: Vec<u64> =
        graph.nodes().iter().filter(|node| node.cpu && node.ps > 0).map(|node| node.ps / 1_000_000).collect();
    // A launch takes 2 us; waiting for the accelerator is no work of the host.
    assert_eq!(host, [2, 252, 2]);
    assert_eq!(waits(&kept, "second"), ["first", "host"]);
}

#[test]
fn all_ranks_are_there_once() {
    let mut profile = Profile::new();
    profile.all_reduce(1024, 5.0);
    let text = |rank| profile.text(rank, 4);
    let read = |ranks: &[u32], options: &Options| {
        let texts: Vec<(String, String)> = ranks.iter().map(|&r| (format!("rank{r}.json"), text(r))).collect();
        let files: Vec<(&str, &[u8])> = texts.iter().map(|(name, text)| (&**name, text.as_bytes())).collect();
        parse("job", Kind::Kineto, &files, options, Groups::default())
    };
    assert_eq!(read(&[3, 1, 0, 2], &Options::default()).unwrap().ranks.len(), 4, "in any order");
    assert_eq!(codes(read(&[0, 1, 3], &Options::default())), ["AHBM-F185"]);
    assert_eq!(codes(read(&[0, 1, 2, 2], &Options::default())), ["AHBM-F185"]);
    let symmetric = Options { symmetric: true, ..Options::default() };
    let found = read(&[2], &symmetric).unwrap();
    assert_eq!((found.ranks.len(), found.graphs.len()), (4, 1));
    assert!(found.notes.iter().any(|note| note.message.contains("all 4 ranks do what rank 2 did")));
    assert_eq!(codes(read(&[0, 1], &symmetric)), ["AHBM-F185"], "which of the two should others follow?");
}

/// A kernel without a launch, on a stream.
fn unlaunched(profile: &mut Profile, name: &str, (ts, stream, correlation): (u64, u32, u64)) {
    profile.event(&format!(
        r#""cat":"kernel","name":"{name}","pid":0,"tid":{stream},"ts":{ts},"dur":9,"args":{{"stream":{stream},"device":0,"correlation":{correlation}}}"#
    ));
}

#[test]
fn kernels_that_were_launched_before_the_recording_are_left_out() {
    const SEND: &str = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)";
    let step = |options: &Options, early: &[(&str, (u64, u32, u64))]| {
        let mut profile = Profile::new();
        profile.runtime("cudaEventRecord");
        profile.step(1, |profile| {
            profile.kernel("gemm", 7, 10.0);
            profile.gpu += 100.0;
            profile.all_reduce(1024, 30.0);
        });
        for &(name, at) in early {
            unlaunched(&mut profile, name, at);
        }
        parse_one(&profile, options)
    };
    let whole = Options::default();
    let one = Options { step: Some(1), ..whole };
    let expected = step(&whole, &[]).unwrap();
    // Before the first call, and later behind a long queue: by a lower number, or because launches of its like are known.
    let early = [(SEND, (995, 24, 900)), ("gemm", (998, 7, 901)), (SEND, (1004, 31, 902))];
    for options in [whole, one] {
        let read = step(&options, &early).unwrap();
        assert_eq!(names(&read), names(&expected));
        let told = read.notes.iter().any(|note| note.message.starts_with("3 kernels are left out: their launch"));
        assert_eq!(told, options.step.is_none(), "{:?}", read.notes);
    }
    // Early profilers leave out the driver's launches: in the middle nothing is dropped.
    let kept = step(&whole, &[("triton_", (5000, 7, 950)), ("triton_", (1010, 9, 951))]).unwrap();
    assert_eq!(names(&kept).iter().filter(|name| **name == "triton_").count(), 2);
    assert_eq!(codes(step(&whole, &[(SEND, (5000, 24, 950))])), ["AHBM-F184"], "a message of which nothing is known");
}

#[test]
fn what_a_profiler_writes_that_is_no_json_is_read() {
    let mut profile = Profile::new();
    profile.event(r#""cat":"gpu_memcpy","name":"Memcpy","pid":0,"tid":7,"ts":1,"dur":2,"args":{"stream":7,"memory bandwidth (GB/s)":inf,"x":-nan}"#);
    assert_eq!(read(&[&profile]).unwrap().nodes(), 1);
    let mut text = profile.text(0, 1).into_bytes();
    let at = text.windows(6).position(|window| window == b"Memcpy").unwrap();
    text[at] = 0xff;
    let read = parse("job", Kind::Kineto, &[("t.json", &text)], &options(), Groups::default());
    assert_eq!(read.unwrap().nodes(), 1);
}

#[test]
fn a_time_that_is_none_is_refused_with_its_place() {
    for (field, value) in [("dur", "NaN"), ("dur", "1e300"), ("dur", "-1"), ("dur", "[]"), ("ts", "\"soon\"")] {
        let mut profile = Profile::new();
        let (ts, dur) = if field == "ts" { (value, "1") } else { ("1", value) };
        profile.event(&format!(
            r#""cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":{dur},"args":{{"stream":7}}"#
        ));
        let findings = read(&[&profile]).unwrap_err();
        assert_eq!(findings[0].code, "AHBM-F183", "{field} {value}");
        assert!(findings[0].sites[0].origin.contains("byte"), "{:?}", findings[0]);
    }
}

#[test]
fn limits_are_looked_at_before_memory_is_taken() {
    let mut profile = Profile::new();
    profile.kernel("k", 7, 1.0);
    profile.kernel("k", 7, 1.0);
    let code = |text: &str, limit, value| {
        let options = Options { budget: Budget::default().with(limit, value), ..Options::default() };
        codes(parse("job", Kind::Kineto, &[("t.json", text.as_bytes())], &options, Groups::default()))[0]
    };
    let text = profile.text(0, 1);
    assert_eq!(code(&text, Limit::FileBytes, 10), "AHBM-B201");
    assert_eq!(code(&text, Limit::InflatedBytes, 10), "AHBM-B202");
    assert_eq!(code(&text, Limit::Steps, 2), "AHBM-B204");
    let deep = format!(r#"{{"traceEvents": [{}"#, "[".repeat(100_000));
    assert_eq!(code(&deep, Limit::Ranks, 8), "AHBM-B208");
    assert_eq!(code(&profile.text(0, 1 << 20), Limit::Ranks, 8), "AHBM-B206");
}

#[test]
fn what_the_host_waited_for_comes_before_what_it_launches_later() {
    let mut profile = Profile::new();
    profile.kernel("copy", 20, 10.0);
    profile.gpu += 5.0;
    profile.host = profile.gpu;
    profile.runtime("cudaDeviceSynchronize");
    profile.kernel("consumer", 7, 10.0);
    assert_eq!(waits(&read(&[&profile]).unwrap(), "consumer"), ["synchronize"]);
    assert_eq!(waits(&read(&[&profile]).unwrap(), "synchronize"), ["copy"]);
}

#[test]
fn others_do_the_same_only_where_every_group_is_that_of_all() {
    let symmetric = Options { symmetric: true, ..Options::default() };
    let read = |facts: &str, options: &Options| {
        let mut profile = Profile::new();
        profile.nccl(NCCL, 24, 5.0, facts);
        let text = profile.text(0, 4);
        parse("job", Kind::Kineto, &[("rank0.json", text.as_bytes())], options, Groups::default())
    };
    let pair = r#""Collective name":"allreduce","In msg nelems":4,"Group size":2,"dtype":"Float","Process Group Ranks":"[0, 1]""#;
    assert_eq!(codes(read(pair, &symmetric)), ["AHBM-F136"]);
    let all = r#""Collective name":"allreduce","In msg nelems":4,"Group size":4,"dtype":"Float""#;
    assert_eq!(read(all, &symmetric).unwrap().ranks.len(), 4);
    let tight = Options { budget: Budget::default().with(Limit::Steps, 3), ..symmetric };
    assert_eq!(codes(read(all, &tight)), ["AHBM-B204"]);
    let alone = r#""Collective name":"allreduce","In msg nelems":4,"Group size":1,"dtype":"Float""#;
    assert!(read(alone, &symmetric).unwrap().calls().unwrap().is_empty());
}

#[test]
fn a_trace_of_the_host_alone_has_no_kernels() {
    let mut profile = Profile::new();
    profile.runtime("cudaLaunchKernel");
    assert_eq!(codes(read(&[&profile])), ["AHBM-F184"]);
}
