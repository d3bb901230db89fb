//! Writes what the profiler of one rank would.

use ahbm_findings::Diagnostic;
use ahbm_formats::pytorch::{Kind, Options, parse};
use ahbm_workload::{CallSpec, Group, Groups, Workload};

pub(crate) struct Profile {
    events: Vec<String>,
    pub(crate) groups: String,
    /// Microseconds of the host, and of the accelerator.
    pub(crate) host: f64,
    pub(crate) gpu: f64,
    correlation: u64,
}

impl Profile {
    pub(crate) fn new() -> Self {
        Self { events: Vec::new(), groups: String::new(), host: 1000.0, gpu: 1000.0, correlation: 0 }
    }

    pub(crate) fn event(&mut self, fields: &str) {
        self.events.push(format!(r#"{{"ph":"X",{fields}}}"#));
    }

    /// A call of the runtime; gives its correlation.
    pub(crate) fn runtime(&mut self, name: &str) -> u64 {
        self.runtime_for(name, 2.0)
    }

    pub(crate) fn runtime_for(&mut self, name: &str, us: f64) -> u64 {
        self.correlation += 1;
        let (ts, correlation) = (self.host, self.correlation);
        self.event(&format!(
            r#""cat":"cuda_runtime","name":"{name}","pid":1,"tid":1,"ts":{ts},"dur":{us},"args":{{"correlation":{correlation}}}"#
        ));
        self.host += us;
        correlation
    }

    fn activity(&mut self, name: &str, stream: u32, us: f64, facts: &str) {
        let correlation = self.runtime("cudaLaunchKernel");
        self.gpu = self.gpu.max(self.host);
        let (ts, more) = (self.gpu, if facts.is_empty() { "" } else { "," });
        self.event(&format!(
            r#""cat":"kernel","name":"{name}","pid":0,"tid":{stream},"ts":{ts},"dur":{us},"args":{{"stream":{stream},"device":0,"correlation":{correlation}{more}{facts}}}"#
        ));
    }

    pub(crate) fn kernel(&mut self, name: &str, stream: u32, us: f64) {
        self.activity(name, stream, us, "");
        self.gpu += us;
    }

    /// A kernel that communicates, beside those of other streams.
    pub(crate) fn nccl(&mut self, name: &str, stream: u32, us: f64, facts: &str) {
        self.activity(name, stream, us, facts);
    }

    pub(crate) fn operator(&mut self, name: &str, facts: &str, within: impl FnOnce(&mut Self)) {
        let (start, at) = (self.host, self.events.len());
        self.host += 1.0;
        within(self);
        self.host += 1.0;
        let us = self.host - start;
        self.host += 1.0;
        let cat = if name.starts_with("nccl:") { "user_annotation" } else { "cpu_op" };
        let fields = format!(
            r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":1,"tid":1,"ts":{start},"dur":{us},"args":{{{facts}}}}}"#
        );
        self.events.insert(at, fields);
    }

    /// An all_reduce of f16 as PyTorch launches it, on stream 24.
    pub(crate) fn all_reduce(&mut self, elements: u64, us: f64) {
        let operator = format!(r#""Input Dims":[[[{elements}]],[]],"Input type":["TensorList",""]"#);
        let annotation = format!(r#""Input Dims":[[{elements}]],"Input type":["c10::Half"]"#);
        self.operator("c10d::allreduce_", &operator, |profile| {
            profile.runtime("cudaEventRecord");
            profile.runtime("cudaStreamWaitEvent");
            profile.operator("nccl:all_reduce", &annotation, |profile| {
                profile.nccl("ncclDevKernel_AllReduce_Sum_f16_RING_LL", 24, us, "");
            });
        });
    }

    pub(crate) fn step(&mut self, number: u64, within: impl FnOnce(&mut Self)) {
        let (start, at) = (self.host, self.events.len());
        within(self);
        let us = self.host - start;
        self.events.insert(at, format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{number}","pid":1,"tid":1,"ts":{start},"dur":{us}}}"#
        ));
    }

    /// `stream` waits for what stream `on` had at a mark.
    pub(crate) fn stream_wait(&mut self, stream: u32, on: u32, mark: u64, correlation: u64) {
        self.event(&format!(
            r#""cat":"cuda_sync","name":"Stream Wait Event","pid":0,"tid":0,"ts":0,"dur":0,"args":{{"stream":{stream},"wait_on_stream":{on},"wait_on_cuda_event_record_corr_id":{mark},"correlation":{correlation}}}"#
        ));
    }

    /// Leaves what the runtime did out.
    pub(crate) fn drop_host(&mut self) {
        self.events.retain(|event| !event.contains("cuda_runtime"));
        self.events.iter_mut().for_each(|event| *event = event.replace("\"correlation\"", "\"none\""));
    }

    pub(crate) fn text(&self, rank: u32, world: u32) -> String {
        let groups = if self.groups.is_empty() { String::new() } else { format!(r#","pg_config":{}"#, self.groups) };
        format!(
            r#"{{"schemaVersion":1,"distributedInfo":{{"backend":"nccl","rank":{rank},"world_size":{world}{groups}}},"traceEvents":[{}]}}"#,
            self.events.join(",\n")
        )
    }
}

pub(crate) fn options() -> Options {
    Options::default()
}

/// A job of these ranks.
pub(crate) fn read(ranks: &[&Profile]) -> Result<Workload, Vec<Diagnostic>> {
    let texts: Vec<(String, String)> = (0..)
        .zip(ranks)
        .map(|(rank, profile)| (format!("rank{rank}.json"), profile.text(rank, ranks.len() as u32)))
        .collect();
    let files: Vec<(&str, &[u8])> = texts.iter().map(|(name, text)| (&**name, text.as_bytes())).collect();
    parse("job", Kind::Kineto, &files, &options(), Groups::default())
}

/// Names of rank 0's nodes.
pub(crate) fn names(workload: &Workload) -> Vec<&str> {
    let graph = workload.graph(0);
    (0..graph.nodes().len() as u32).map(|at| graph.name(at)).collect()
}

/// Rank 0's call at a position, and its group.
pub(crate) fn call_of(workload: &Workload, at: u32) -> (&CallSpec, &Group) {
    let spec = workload.graph(0).spec(at).expect("a call");
    (spec, workload.group(0, spec.group))
}
