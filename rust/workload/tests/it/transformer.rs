//! Generated steps against the formulae of their sources.

use ahbm_workload::{Arithmetic, Collective, Kind, Linked, Recompute, Schedule, Transformer, Work, Workload};

pub(crate) fn small() -> Transformer {
    Transformer {
        layers: 4,
        hidden: 64,
        heads: 4,
        kv_heads: 4,
        ffn: 256,
        gated: false,
        sequence: 32,
        vocabulary: 100,
        micro_batch: 2,
        micro_batches: 3,
        dtype: ("bf16".into(), 2),
        arithmetic: Arithmetic::Half,
        tensor: 1,
        context: 1,
        pipeline: 1,
        virtual_stages: 1,
        end_layers: 0,
        data: 1,
        expert: 1,
        experts: 0,
        top_k: 2,
        skew: 100,
        schedule: Schedule::OneForwardOneBackward,
        zero: 0,
        shard: 0,
        prefetch: false,
        sequence_parallel: false,
        recompute: Recompute::None,
        recompute_layers: 0,
        materialized: false,
        unfused: false,
        bucket_bytes: 1,
    }
}

/// Operations of a rank's nodes whose names satisfy `of`.
fn operations(job: &Workload, rank: u32, of: impl Fn(&str) -> bool) -> u64 {
    let graph = job.graph(rank);
    (0..graph.nodes().len() as u32)
        .filter(|&at| of(graph.name(at)))
        .map(|at| match graph.node(at).work {
            Work::Compute(kernel) => kernel.operations,
            _ => 0,
        })
        .sum()
}

/// Number and bytes of a rank's calls, by collective and the beginning of the group's name.
fn called(job: &Workload, rank: u32, collective: Collective, group: &str) -> (u64, u64) {
    let graph = job.graph(rank);
    let of = |at| graph.spec(at).filter(|spec| spec.collective == collective);
    let in_group = |slot| job.group(rank, slot).name.trim_end_matches(|c: char| c.is_ascii_digit()) == group;
    (0..graph.nodes().len() as u32)
        .filter_map(of)
        .filter(|spec| in_group(spec.group))
        .fold((0, 0), |(n, bytes), spec| (n + 1, bytes + spec.bytes))
}

fn job(of: &Transformer) -> Workload {
    let job = of.workload("step").unwrap();
    Linked::new(job.clone()).unwrap();
    job
}

#[test]
fn a_layer_costs_what_the_papers_say() {
    let of = small();
    let (tokens, hidden) = (of.micro_batch * of.sequence, of.hidden);
    let steps = of.layers * of.micro_batches;
    let matrices = |name: &str| {
        name.starts_with("layer") && !["norm", "dgrad", "wgrad", "backward"].iter().any(|part| name.contains(part))
    };
    // 24 B s h^2 (1 + s / 6h), Narayanan et al. 2021.
    let forward = 24 * tokens * hidden * hidden + 4 * tokens * of.sequence * hidden;
    assert_eq!(operations(&job(&of), 0, matrices), steps * forward);
    let again = Transformer { recompute: Recompute::Full, ..of.clone() };
    assert_eq!(operations(&job(&again), 0, matrices), 2 * steps * forward);
    let backward = |name: &str| name.starts_with("layer") && (name.ends_with("grad") || name.contains("core.back"));
    let both = 2 * 24 * tokens * hidden * hidden + 10 * tokens * of.sequence * hidden;
    assert_eq!(operations(&job(&of), 0, backward), steps * both);
    // The same work, cut in four: nothing is lost and nothing is done twice.
    let cut = Transformer { tensor: 4, ..of.clone() };
    assert_eq!(4 * operations(&job(&cut), 3, |n| matrices(n) || backward(n)), steps * (forward + both));
    let staged = job(&Transformer { pipeline: 2, ..of });
    let sum: u64 = [0, 1].map(|rank| operations(&staged, rank, |n| matrices(n) || backward(n))).iter().sum();
    assert_eq!(sum, steps * (forward + both));
}

#[test]
fn zero_moves_two_or_three_times_the_parameters() {
    // 12 L h^2 (1 + 13 / 12h) of the layers, Narayanan et al. 2021; embeddings and a head of its own.
    let of = Transformer { data: 4, micro_batches: 1, ..small() };
    let (hidden, layers) = (of.hidden, of.layers);
    let parameters =
        layers * (12 * hidden * hidden + 13 * hidden) + (2 * of.vocabulary + of.sequence) * hidden + 2 * hidden;
    let bytes = 2 * parameters;
    let moved = |zero, micro_batches| {
        let job = job(&Transformer { zero, micro_batches, ..of.clone() });
        let of = |collective| called(&job, 1, collective, "dp").1;
        (of(Collective::AllReduce), of(Collective::ReduceScatter), 4 * of(Collective::AllGather))
    };
    assert_eq!(moved(0, 1), (bytes, 0, 0));
    assert_eq!(moved(0, 5), (bytes, 0, 0), "gradients are added first");
    assert_eq!(moved(1, 5), (0, bytes, bytes));
    assert_eq!(moved(2, 5), (0, 5 * bytes, bytes));
    assert_eq!(moved(3, 1), (0, bytes, 2 * bytes));
    assert_eq!(moved(3, 2), (0, 2 * bytes, 4 * bytes));
}

#[test]
fn buckets_are_filled_before_they_are_reduced() {
    let of = Transformer { data: 2, ..small() };
    assert_eq!(called(&job(&of), 0, Collective::AllReduce, "dp").0, 6, "four layers, embedding, head");
    let whole = Transformer { bucket_bytes: 1 << 40, ..of };
    assert_eq!(called(&job(&whole), 0, Collective::AllReduce, "dp").0, 1);
}

#[test]
fn tensor_parallel_ranks_say_what_megatron_says() {
    let of = Transformer { tensor: 2, ..small() };
    let steps = of.layers * of.micro_batches;
    let activations = 2 * of.micro_batch * of.sequence * of.hidden;
    let plain = job(&of);
    // Two forward and two backward per layer; behind the embedding, behind the head's input, and three of numbers.
    let ends = of.micro_batches * (2 * activations + 3 * 4 * of.micro_batch * of.sequence);
    let expected = (4 * steps + 5 * of.micro_batches, 4 * steps * activations + ends);
    assert_eq!(called(&plain, 1, Collective::AllReduce, "tp"), expected);
    let split = job(&Transformer { sequence_parallel: true, ..of.clone() });
    let scattered = called(&split, 1, Collective::ReduceScatter, "tp");
    assert_eq!(scattered, (4 * steps + 2 * of.micro_batches, (4 * steps + 2 * of.micro_batches) * activations));
    // Two gathered inputs and two gathered gradients, and two inputs again.
    let gathered = called(&split, 1, Collective::AllGather, "tp");
    assert_eq!(gathered.0, 6 * steps + 3 * of.micro_batches);
    assert_eq!(2 * gathered.1, gathered.0 * activations);
}

#[test]
fn stages_and_experts_meet() {
    let of = Transformer { pipeline: 4, data: 4, tensor: 2, sequence_parallel: true, ..small() };
    let dense = of.workload("step").unwrap();
    assert_eq!((dense.ranks.len(), dense.graphs.len()), (32, 4));
    let linked = Linked::new(dense).unwrap();
    assert_eq!(linked.messages.len(), 2 * 3 * 8 * 3, "two ways over three borders of eight ranks");
    assert!(linked.messages.iter().all(|m| m.bytes == 2 * 2 * 32 * 64 / 2 && m.send.0.abs_diff(m.recv.0) == 8));
    let routed = Transformer { experts: 8, expert: 2, ffn: 32, ..of };
    let job = job(&routed);
    let (count, bytes) = called(&job, 5, Collective::AllToAll, "ep");
    assert_eq!(count, 4 * 3, "there and back, forward and backward, one layer, three micro-batches");
    assert_eq!(bytes, count * 2 * (2 * 2 * 32 * 64 / 2));
    let of_rank = |rank: u32, name: &str| {
        let groups = job.ranks[rank as usize].groups.iter().map(|&group| &job.groups[group as usize]);
        groups.filter(|group| group.name.starts_with(name)).map(|group| group.ranks.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(of_rank(5, "ep"), [[5, 7]]);
    assert_eq!(of_rank(5, "edp"), [[1, 5]]);
    assert_eq!(of_rank(13, "dp"), [[9, 11, 13, 15]]);
    assert_eq!(of_rank(13, "tp"), [[12, 13]]);
    assert!(called(&job, 5, Collective::AllReduce, "edp").1 > 0);
}

#[test]
fn parameters_are_gathered_while_the_layer_before_computes() {
    let of = Transformer { data: 2, zero: 3, micro_batches: 1, ..small() };
    let job = job(&of);
    let graph = job.graph(0);
    let at = |name: &str| (0..graph.nodes().len() as u32).find(|&at| graph.name(at) == name).unwrap();
    let gather = |at: u32| {
        let deps = graph.deps(at).iter().copied();
        deps.into_iter().find(|&dep| graph.name(dep) == "parameters").unwrap()
    };
    let second = gather(at("layer1.attention.norm"));
    assert_eq!(graph.deps(second), [at("embedding")], "two uses before");
    assert!(graph.deps(gather(at("embedding"))).is_empty());
}

#[test]
fn numbers_that_do_not_fit_are_refused_together() {
    let codes = |of: Transformer| {
        let findings = of.workload("step").unwrap_err();
        assert!(findings.iter().all(|finding| finding.code == "AHBM-C157"));
        findings.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(
        codes(Transformer { layers: 0, zero: 4, ..small() }),
        "layers is 0, it goes from 1 to 65536; zero is 4, it goes from 0 to 3"
    );
    let uncut = Transformer { pipeline: 3, tensor: 8, ..small() };
    assert_eq!(codes(uncut), "pp is 3, which does not divide layers, 4; tp is 8, which does not divide heads, 4");
    assert!(codes(Transformer { expert: 2, data: 2, ..small() }).contains("no experts"));
    assert!(codes(Transformer { experts: 2, tensor: 2, ..small() }).contains("sequence_parallel"));
    assert!(codes(Transformer { top_k: 5, experts: 4, ..small() }).contains("top_k is 5"));
    let wide = Transformer { data: 1 << 16, pipeline: 4, ..small() };
    assert!(codes(wide).contains("262144 ranks"));
    let long = Transformer { micro_batches: 1 << 16, ..small() };
    assert!(codes(long).contains("micro_batches, at most"));
    let many = Transformer { micro_batches: 1 << 11, data: 1 << 12, ..small() };
    assert!(codes(many).contains("over all ranks"));
    let huge = Transformer { hidden: 1 << 20, sequence: 1 << 24, micro_batch: 1 << 16, ffn: 1 << 24, ..small() };
    assert!(codes(huge).contains("too many to count"));
}

#[test]
fn the_largest_numbers_that_pass_do_not_overflow() {
    let of = Transformer { layers: 1, micro_batches: 1, ..small() };
    for exponent in 0..25u32 {
        for (sequence, micro_batch) in [(1 << exponent.min(24), 1), (1, 1 << exponent.min(16))] {
            for hidden in [64, 1 << 12, 1 << 20] {
                let wide =
                    Transformer { sequence, micro_batch, hidden, ffn: 1 << 24, vocabulary: 1 << 24, ..of.clone() };
                let _ = wide.workload("step");
                let routed = Transformer { experts: 1 << 16, top_k: 1 << 16, ..wide };
                let _ = routed.workload("step");
            }
        }
    }
}

fn computed(job: &Workload, rank: u32) -> u64 {
    operations(job, rank, |name| name.starts_with("layer"))
}

#[test]
fn fewer_heads_of_keys_and_a_gate_are_other_products() {
    let of = Transformer { heads: 8, kv_heads: 8, ..small() };
    let (tokens, hidden, ffn) = (of.micro_batch * of.sequence, of.hidden, of.ffn);
    let steps = of.layers * of.micro_batches;
    let grouped = Transformer { kv_heads: 2, ..of.clone() };
    let saved = 3 * 2 * tokens * hidden * (2 * (8 - 2) * hidden / 8);
    assert_eq!(computed(&job(&of), 0) - computed(&job(&grouped), 0), steps * saved);
    let gated = Transformer { gated: true, ..of.clone() };
    assert_eq!(computed(&job(&gated), 0) - computed(&job(&of), 0), steps * 3 * 2 * tokens * hidden * ffn);
    let bytes = |of: &Transformer| called(&job(of), 0, Collective::AllReduce, "dp").1;
    let two = |of: &Transformer| bytes(&Transformer { data: 2, ..of.clone() });
    assert_eq!(two(&gated) - two(&of), 2 * of.layers * (ffn * hidden + ffn), "parameters of the gate");
    assert_eq!(two(&of) - two(&grouped), 2 * of.layers * 2 * 6 * (hidden / 8) * (hidden + 1));
}

#[test]
fn every_kernel_has_the_dimensions_of_its_operations() {
    let of =
        Transformer { materialized: true, unfused: true, experts: 4, tensor: 2, sequence_parallel: true, ..small() };
    let job = job(&of);
    let graph = job.graph(0);
    for at in 0..graph.nodes().len() as u32 {
        let Work::Compute(kernel) = graph.node(at).work else { continue };
        assert_ne!(kernel.kind, Kind::Plain, "{}", graph.name(at));
        if kernel.kind == Kind::Product {
            let [copies, m, n, k, ..] = kernel.dims.map(u64::from);
            assert_eq!(2 * copies * m * n * k, kernel.operations, "{}", graph.name(at));
        }
    }
}

#[test]
fn what_is_computed_again_is_computed_twice() {
    let of = Transformer { materialized: true, ..small() };
    let scores = |name: &str| name.contains("attention.s") || name.contains("context") || name.contains("dropout");
    let once = |name: &str| scores(name) && !name.contains("backward");
    let (none, selective) = (job(&of), job(&Transformer { recompute: Recompute::Selective, ..of.clone() }));
    assert_eq!(operations(&selective, 0, once), 2 * operations(&none, 0, once));
    let more = computed(&selective, 0) - computed(&none, 0);
    assert_eq!(more, operations(&none, 0, once));
    // A fused attention computes its scores again by itself.
    let fused = Transformer { recompute: Recompute::Selective, ..small() };
    assert_eq!(job(&fused).graphs, job(&small()).graphs);
    let full = |recompute_layers| {
        computed(&job(&Transformer { recompute: Recompute::Full, recompute_layers, ..of.clone() }), 0)
    };
    assert_eq!(2 * (full(2) - computed(&none, 0)), full(0) - computed(&none, 0), "two of four layers");
}

#[test]
fn virtual_stages_divide_the_layers_and_lose_nothing() {
    let of = Transformer { layers: 8, micro_batches: 4, pipeline: 2, ..small() };
    let whole = job(&of);
    let cut = job(&Transformer { virtual_stages: 4, ..of.clone() });
    for rank in 0..2 {
        assert_eq!(computed(&cut, rank), computed(&whole, rank));
    }
    let linked = Linked::new(cut).unwrap();
    assert_eq!(linked.messages.len() as u64, 2 * of.micro_batches * (2 * 4 - 1), "every border, both ways");
    let layers = |rank: u32| -> Vec<u64> {
        let graph = linked.workload.graph(rank);
        let mut found: Vec<u64> = (0..graph.nodes().len() as u32)
            .filter_map(|at| graph.name(at).strip_prefix("layer")?.split('.').next()?.parse().ok())
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    assert_eq!((layers(0), layers(1)), (vec![0, 2, 4, 6], vec![1, 3, 5, 7]));
}

#[test]
fn every_schedule_computes_and_says_the_same() {
    let of = Transformer { layers: 8, micro_batches: 5, pipeline: 2, data: 2, tensor: 2, zero: 2, ..small() };
    let whole = job(&of);
    for schedule in Schedule::ALL {
        let v = schedule.is_v();
        let cut = job(&Transformer { schedule, virtual_stages: if v { 2 } else { 1 }, ..of.clone() });
        let all = |job: &Workload| [0, 4].map(|rank| computed(job, rank)).iter().sum::<u64>();
        assert_eq!(all(&cut), all(&whole), "{schedule:?}");
        let sums = |job: &Workload| {
            [0, 4].map(|rank| called(job, rank, Collective::ReduceScatter, "dp").1).iter().sum::<u64>()
        };
        assert_eq!(sums(&cut), sums(&whole), "{schedule:?}");
        let borders = if v { 2 * 2 - 2 } else { 1 };
        let linked = Linked::new(cut).unwrap();
        assert_eq!(linked.messages.len() as u64, 4 * 2 * of.micro_batches * borders, "{schedule:?}");
    }
}

#[test]
fn gradients_of_weights_that_wait_compute_after_those_that_stages_wait_for() {
    let of = Transformer { pipeline: 2, schedule: Schedule::ZeroBubble, ..small() };
    let job = job(&of);
    let named = |rank: u32, what: &str| -> Vec<u32> {
        let graph = job.graph(rank);
        (0..graph.nodes().len() as u32).filter(|&at| graph.name(at).contains(what)).collect()
    };
    for rank in 0..2 {
        let (inputs, weights) = (named(rank, "mlp.up.dgrad"), named(rank, "mlp.up.wgrad"));
        assert_eq!(inputs.len(), weights.len());
        // The second stage has computed the gradients of a second micro-batch before the first weights.
        let before = inputs.iter().filter(|&&at| at < weights[0]).count() as u64;
        assert_eq!(before, [1, 2][rank as usize] * of.layers / 2);
    }
}

#[test]
fn a_busy_expert_gets_what_the_others_do_not() {
    let of = Transformer {
        data: 4,
        expert: 4,
        experts: 8,
        tensor: 2,
        pipeline: 2,
        sequence_parallel: true,
        skew: 250,
        ..small()
    };
    let (even, job) = (job(&Transformer { skew: 100, ..of.clone() }), job(&of));
    let rows = |job: &Workload, rank| operations(job, rank, |name| name.contains("experts.up"));
    let all = |job: &Workload| (0..8).map(|rank| rows(job, rank)).sum::<u64>();
    assert_eq!(all(&job), all(&even), "tokens are neither lost nor made");
    assert!(rows(&job, 0) * 10 / rows(&even, 0) == 25 && rows(&job, 0) == rows(&job, 1), "2.5 times the mean");
    assert!((2..8).all(|rank| rows(&job, rank) == rows(&job, 2)) && rows(&job, 2) < rows(&even, 2));
    assert_eq!(job.graphs.len(), 2 * even.graphs.len());
    let all_to_all = |rank: u32| {
        let graph = job.graph(rank);
        let specs = (0..graph.nodes().len() as u32).filter_map(move |at| graph.spec(at).cloned());
        specs.filter(|spec| spec.collective == Collective::AllToAll).collect::<Vec<_>>()
    };
    let parts: Vec<_> = [0, 2, 4, 6].map(all_to_all).into();
    for call in 0..parts[0].len() {
        for (from, sender) in parts.iter().enumerate() {
            for (to, receiver) in parts.iter().enumerate() {
                let sent = sender[call].sends.as_ref().unwrap()[to];
                assert_eq!(sent, receiver[call].receives.as_ref().unwrap()[from]);
            }
        }
    }
}

#[test]
fn hybrid_shards_lie_within_a_group_and_gradients_are_added_over_groups() {
    let of = Transformer { data: 8, zero: 3, shard: 4, micro_batches: 1, ..small() };
    let whole = job(&Transformer { shard: 0, ..of.clone() });
    let job = job(&of);
    let (_, gathered) = called(&job, 0, Collective::AllGather, "shard");
    assert_eq!(gathered, 2 * called(&whole, 0, Collective::AllGather, "dp").1, "a shard is twice as large");
    let (count, scattered) = called(&job, 0, Collective::ReduceScatter, "shard");
    let (sums, added) = called(&job, 0, Collective::AllReduce, "replica");
    assert_eq!((sums, 4 * added), (count, scattered));
    let members = |rank: u32, of: &str| {
        (0..).map(|slot| job.group(rank, slot)).find(|group| group.name.starts_with(of)).unwrap().ranks.to_vec()
    };
    assert_eq!(members(5, "shard"), [4, 5, 6, 7]);
    assert_eq!(members(5, "replica"), [1, 5]);
}

#[test]
fn parameters_of_an_optimizer_of_shards_come_while_the_first_micro_batch_computes() {
    let of = Transformer { data: 4, zero: 1, prefetch: true, ..small() };
    let (early, late) = (job(&of), job(&Transformer { prefetch: false, ..of.clone() }));
    assert_eq!(called(&early, 0, Collective::AllGather, "dp"), called(&late, 0, Collective::AllGather, "dp"));
    let places = |job: &Workload| -> Vec<u32> {
        let graph = job.graph(0);
        (0..graph.nodes().len() as u32).filter(|&at| graph.name(at) == "parameters").collect()
    };
    assert_eq!(places(&early)[0], 0);
    let first = (0..).find(|&at| early.graph(0).name(at) == "layer3.mlp.up").unwrap();
    assert!(places(&early).iter().all(|&at| at < first) && places(&late).iter().all(|&at| at > first));
}

#[test]
fn stages_are_uneven_where_embedding_and_head_count() {
    let of = Transformer { layers: 6, pipeline: 4, end_layers: 1, ..small() };
    let layers = |rank: u32, job: &Workload| {
        operations(job, rank, |name| name.ends_with("mlp.up")) / (2 * 64 * 64 * 256 * of.micro_batches)
    };
    let made = job(&of);
    assert_eq!([0, 1, 2, 3].map(|rank| layers(rank, &made)), [1, 2, 2, 1]);
    let more = job(&Transformer { layers: 7, ..of.clone() });
    assert_eq!([0, 1, 2, 3].map(|rank| layers(rank, &more)), [2, 2, 2, 1]);
}

#[test]
fn a_ring_of_context_parallel_ranks_shares_every_sequence() {
    let of = Transformer { context: 4, data: 2, tensor: 2, ..small() };
    let made = of.workload("step").unwrap();
    assert_eq!(made.ranks.len(), 16);
    let alone = job(&Transformer { tensor: 2, ..small() });
    assert_eq!(4 * computed(&made, 5), computed(&alone, 0));
    let peers = |rank: usize| made.ranks[rank].peers.to_vec();
    assert_eq!((peers(0), peers(5), peers(15)), (vec![2, 6], vec![7, 3], vec![9, 13]));
    let linked = Linked::new(made).unwrap();
    let (forward, backward) = (3, 3);
    assert_eq!(linked.messages.len() as u64, 16 * of.layers * of.micro_batches * (forward + backward));
    let bytes: Vec<u64> = linked.messages.iter().map(|message| message.bytes).collect();
    // Keys and values of 16 tokens, half of the heads; with their gradients in the backward pass.
    assert_eq!((*bytes.iter().min().unwrap(), *bytes.iter().max().unwrap()), (2 * 2 * 16 * 32, 4 * 2 * 16 * 32));
    let all = linked.workload.groups.iter().find(|group| &*group.name == "dp0").unwrap();
    assert_eq!(*all.ranks, [0, 2, 4, 6, 8, 10, 12, 14]);
}
