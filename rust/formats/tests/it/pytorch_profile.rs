//! What one accelerator did, operation by operation.

use ahbm_formats::pytorch::profile;
use ahbm_plan::{Budget, Limit};
use std::path::PathBuf;

/// A file of its own, gone with its test.
struct Trace(PathBuf);

impl Trace {
    fn new(name: &str, events: &[&str], beside: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ahbm-profile-{name}-{}.json", std::process::id()));
        std::fs::write(&path, format!(r#"{{"schemaVersion": 1{beside}, "traceEvents": [{}]}}"#, events.join(",")))
            .unwrap();
        Self(path)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn op(name: &str, thread: u32, ts: f64, dur: f64, id: u32) -> String {
    format!(
        r#"{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": {thread}, "ts": {ts}, "dur": {dur},
            "args": {{"External id": {id}, "Ev Idx": {id}, "Input Dims": [[4, 8], []], "Input type": ["float", ""]}}}}"#
    )
}

fn kernel(name: &str, ts: f64, args: &str) -> String {
    format!(
        r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": {ts}, "dur": 2.5,
            "args": {{"device": 1, "stream": 7, {args}}}}}"#
    )
}

#[test]
fn kernels_belong_to_the_innermost_operation_that_launched_them() {
    let events = [
        op("aten::linear", 5, 10.0, 20.0, 1),
        op("aten::addmm", 5, 12.0, 10.0, 2),
        op("aten::add_", 6, 12.0, 10.0, 3),
        op("aten::relu", 5, 40.0, 5.0, 4),
        kernel("by id", 50.0, r#""External id": 2, "correlation": 90"#),
        kernel("by call", 60.0, r#""correlation": 91"#),
        kernel("after all", 70.0, r#""correlation": 92"#),
        r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 5, "ts": 25, "dur": 1,
            "args": {"correlation": 91}}"#
            .to_owned(),
        r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 5, "ts": 99, "dur": 1,
            "args": {"correlation": 92}}"#
            .to_owned(),
    ];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let devices = r#", "with_stack": 1, "deviceProperties": [{"id": 0, "name": "other"},
        {"id": 1, "name": "X1", "numSms": 4, "totalGlobalMem": 1024}]"#;
    let trace = Trace::new("joined", &events, devices);
    let found = profile(&trace.0, Budget::default()).unwrap();
    assert_eq!(
        (found.device.as_deref(), found.units, found.memory, found.stacks),
        (Some("X1"), Some(4), Some(1024), true)
    );
    let name = |at: u32| &*found.signatures[found.operations[at as usize].signature as usize].0;
    let launched: Vec<Option<&str>> = found.kernels.iter().map(|kernel| kernel.operation.map(name)).collect();
    assert_eq!(launched, [Some("aten::addmm"), Some("aten::linear"), None]);
    let parents: Vec<(&str, Option<&str>)> =
        (0..4).map(|at| (name(at), found.operations[at as usize].parent.map(name))).collect();
    assert_eq!(
        parents,
        [("aten::linear", None), ("aten::addmm", Some("aten::linear")), ("aten::relu", None), ("aten::add_", None)]
    );
    assert_eq!(
        (found.operations[1].start, found.kernels[0].start, found.kernels[0].ps),
        (2_000_000, 40_000_000, 2_500_000)
    );
    assert_eq!(&*found.signatures[0].1, r#"{"Input Dims":[[4,8],[]],"Input type":["float",""]}"#);
}

#[test]
fn what_is_no_profile_of_one_device_is_refused() {
    let code = |trace: &Trace, budget| profile(&trace.0, budget).unwrap_err().code;
    let two =
        [kernel("a", 1.0, r#""x": 1"#), kernel("b", 2.0, r#""x": 1"#).replace(r#""device": 1"#, r#""device": 2"#)];
    let two = Trace::new("two", &[&two[0], &two[1]], "");
    assert_eq!(code(&two, Budget::default()), "AHBM-F184");
    let endless = kernel("a", 1.0, r#""x": 1"#).replace("2.5", "1e300");
    assert_eq!(code(&Trace::new("endless", &[&endless], ""), Budget::default()), "AHBM-F183");
    assert_eq!(code(&Trace::new("words", &["7 8"], ""), Budget::default()), "AHBM-F183");
    let deep: Vec<String> =
        (0..600).map(|at| op("aten::mm", 5, f64::from(at), 2000.0 - 2.0 * f64::from(at), at)).collect();
    let deep: Vec<&str> = deep.iter().map(String::as_str).collect();
    assert_eq!(code(&Trace::new("deep", &deep, ""), Budget::default()), "AHBM-F183");
    assert_eq!(code(&two, Budget::default().with(Limit::Steps, 1)), "AHBM-B204");
}

#[test]
fn computations_of_the_first_rank_of_a_written_timeline_are_its_kernels() {
    let row = |pid: u32, tid: u32, name: &str| {
        format!(r#"{{"ph": "M", "pid": {pid}, "tid": {tid}, "name": "thread_name", "args": {{"name": "{name}"}}}}"#)
    };
    let begin = |pid: u32, tid: u32, ts: f64, name: &str| {
        format!(r#"{{"ph": "B", "pid": {pid}, "tid": {tid}, "ts": {ts}, "name": "{name}", "args": {{}}}}"#)
    };
    let end = |pid: u32, tid: u32, ts: f64| format!(r#"{{"ph": "E", "pid": {pid}, "tid": {tid}, "ts": {ts}}}"#);
    let events = [
        row(2, 3, "computing"),
        row(2, 4, "host"),
        row(5, 6, "computing"),
        begin(2, 4, 0.0, "host"),
        begin(2, 3, 1.0, "mm"),
        begin(5, 6, 1.0, "mm"),
        end(2, 4, 2.0),
        end(2, 3, 3.5),
        begin(2, 3, 3.5, "relu"),
        end(5, 6, 4.0),
        end(2, 3, 4.25),
        end(2, 3, 9.0),
    ];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let trace = Trace::new("written", &events, "");
    let found = profile(&trace.0, Budget::default()).unwrap();
    let kernels: Vec<(&str, u64, u64)> =
        found.kernels.iter().map(|of| (&*found.names[of.name as usize], of.start, of.ps)).collect();
    assert_eq!(kernels, [("mm", 0, 2_500_000), ("relu", 2_500_000, 750_000)]);
}
