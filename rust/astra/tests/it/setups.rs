//! Set-ups that need no files.

use ahbm_astra::Setup;
use ahbm_astra::config::{Choice, Dimension, Expansion, Implementation, Native, Policy, RemoteMemory, Shape, System};
use ahbm_workload::{Collective, Gather, Groups, Kernel, NodeBuilder, RankBuilder, Work, Workload};

/// A link of 50 GB/s (2^30 bytes) and 500 ns.
pub(crate) fn dimension(shape: Shape, npus: u32) -> Dimension {
    Dimension { shape, npus, bandwidth: 50.0, latency: 500.0 }
}

/// The same algorithm for every collective, in every dimension.
pub(crate) fn system(native: Native, dimensions: usize) -> System {
    let made = Implementation { native: Some(vec![Choice { native, one: false }; dimensions]), custom: None };
    System {
        file: "system.json".into(),
        policy: Policy::Lifo,
        local_bandwidth_aware: true,
        splits: 1,
        active_chunks: 1,
        endpoint_delay: Some(10),
        memory_bandwidth: 50.0,
        roofline: None,
        replay_only: false,
        implementations: [made.clone(), made.clone(), made.clone(), made],
        per_node: None,
    }
}

/// A set-up of a job.
pub(crate) fn setup(network: Vec<Dimension>, system: System, job: Workload) -> Setup {
    Setup {
        network,
        system,
        memory: RemoteMemory { expansion: Expansion::None, latency: 0, bytes_per_ns: 0.0 },
        groups: Default::default(),
        algorithms: Vec::new(),
        custom: [None; 4],
        per_node: Default::default(),
        job,
        warnings: Vec::new(),
    }
}

/// What a rank adds to a job.
pub(crate) type Adds<'a> = dyn Fn(u32, &mut Gather, &mut RankBuilder) + 'a;

/// A job of `ranks` ranks.
pub(crate) fn job(ranks: u32, named: &[(&str, &[u32])], add: &Adds) -> Workload {
    let named: Groups = named.iter().map(|(name, ranks)| ((*name).to_owned(), ranks.to_vec())).collect();
    let mut gather = Gather::new("job", ranks, named);
    for rank in 0..ranks {
        let mut builder = RankBuilder::new(rank, format!("job.{rank}.et"));
        add(rank, &mut gather, &mut builder);
        gather.add(builder.finish(false).unwrap());
    }
    gather.finish()
}

/// A job of one collective of all ranks.
pub(crate) fn one_call(ranks: u32, collective: Collective, bytes: u64) -> Workload {
    job(ranks, &[], &|rank, gather, builder| call(rank, gather, builder, 0, "", collective, bytes, &[]))
}

/// Adds a collective.
#[allow(clippy::too_many_arguments)]
pub(crate) fn call(
    rank: u32,
    gather: &mut Gather,
    builder: &mut RankBuilder,
    id: u64,
    group: &str,
    collective: Collective,
    bytes: u64,
    after: &[u64],
) {
    let group = gather.group(rank, group, None, || "here".into()).unwrap();
    let work = builder.call(collective, group, bytes);
    builder.push(NodeBuilder::new(id, collective.name()).work(work).after(after));
}

/// Adds a computation.
pub(crate) fn compute(builder: &mut RankBuilder, id: u64, micros: u64, after: &[u64]) {
    let work = Work::Compute(Kernel::default());
    builder.push(NodeBuilder::new(id, "compute").work(work).ps(micros * 1_000_000).after(after));
}
