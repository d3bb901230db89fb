//! Execution plans whose ranks reduce and broadcast through a switch.

use serde_json::{Value, json};

/// The way in which a rank says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// One operation reduces and broadcasts.
    Fused,
    /// A reduction into the rank's own memory, and a broadcast from there.
    Apart,
}

/// A plan in place of `groups.len()` ranks with as many chunks: rounds of operations of each rank, which meet over memory
/// channels before and after every round. Switch 0 of a rank joins the inputs of its group.
pub(crate) fn in_rounds(collective: &str, groups: &[Vec<u32>], rounds: impl Fn(u32) -> Vec<Vec<Value>>) -> Value {
    let n = groups.len() as u32;
    let ids: Vec<u32> = (0..n - 1).collect();
    let channel = |name: &str| json!({"name": name, "channel_ids": ids, "channel_type": "memory"});
    let gpu = |rank: u32| {
        let meeting = || [channel("signal"), channel("wait")];
        let after = rounds(rank).into_iter().flat_map(|work| work.into_iter().chain(meeting()));
        let ops: Vec<Value> = meeting().into_iter().chain(after).collect();
        let others: Vec<u32> = (0..n).filter(|&other| other != rank).collect();
        let lists = json!([
            {"channel_type": "memory", "channel_ids": ids}, {"channel_type": "switch", "channel_ids": [0]},
        ]);
        let group = &groups[rank as usize];
        json!({
            "id": rank, "input_chunks": n, "output_chunks": n, "scratch_chunks": 0,
            "threadblocks": [{"id": 0, "ops": ops, "channels": lists, "remote_buffer_refs": []}],
            "channels": [
                {"channel_type": "memory", "connected_to": others},
                {"channel_type": "switch", "buffer_type": "i", "rank_groups": [{"size": group.len(), "ranks": group}]},
            ],
            "remote_buffers": [], "semaphores": [],
        })
    };
    let gpus: Vec<Value> = (0..n).map(gpu).collect();
    json!({
        "name": "nvls", "collective": collective, "protocol": "Simple", "inplace": true, "reuse_resources": false,
        "gpus": gpus,
    })
}

/// The operation on a chunk of a rank's group.
pub(crate) fn operation(name: &str, rank: u32, chunk: u32) -> Value {
    let everywhere = json!([{"switch_channel_id": 0, "index": chunk, "size": 1}]);
    let own = json!({"rank": rank, "type": "i", "index": chunk, "size": 1});
    match name {
        "glre" => json!({
            "name": name, "buffer_type": "i", "buffer_offset": chunk, "size": 1, "dst_chunk": own,
            "channel_ids": [0], "channel_type": "switch", "reduce_op": "sum",
        }),
        "gstore" => json!({"name": name, "src_buff": [own], "dst_buff": everywhere, "channel_type": "switch"}),
        _ => json!({
            "name": name, "src_buff": everywhere, "dst_buff": everywhere, "channel_type": "switch", "reduce_op": "sum",
        }),
    }
}

/// An all-reduce in place of `n` ranks: each reduces its chunk through the switch and broadcasts it.
pub(crate) fn all_reduce(n: u32, style: Style) -> Value {
    let names: &[&str] = match style {
        Style::Fused => &["glres"],
        Style::Apart => &["glre", "gstore"],
    };
    let work = |rank: u32| vec![names.iter().map(|name| operation(name, rank, rank)).collect()];
    in_rounds("allreduce", &vec![all(n); n as usize], work)
}

/// An all-gather in which every rank sends its input as packets to all scratches through the switch.
pub(crate) fn all_gather_packets(n: u32) -> Value {
    let gpu = |rank: u32| {
        let chunk = |space: &str, index: u32| json!({"type": space, "index": index, "size": 1});
        let everywhere = json!([{"switch_channel_id": 0, "index": rank, "size": 1}]);
        let mut ops = vec![
            json!({"name": "cpkt", "src_buff": [chunk("i", 0)], "dst_buff": [chunk("s", rank)]}),
            json!({
                "name": "gstorepkt", "src_buff": [{"rank": rank, "type": "s", "index": rank, "size": 1}],
                "dst_buff": everywhere, "channel_type": "switch",
            }),
        ];
        let unpack = |index| json!({"name": "upkt", "src_buff": [chunk("s", index)], "dst_buff": [chunk("o", index)]});
        ops.extend((0..n).map(unpack));
        json!({
            "id": rank, "input_chunks": 1, "output_chunks": n, "scratch_chunks": n,
            "threadblocks": [{
                "id": 0, "ops": ops, "channels": [{"channel_type": "switch", "channel_ids": [0]}],
                "remote_buffer_refs": [],
            }],
            "channels": [
                {"channel_type": "switch", "buffer_type": "s", "rank_groups": [{"size": n, "ranks": all(n)}]},
            ],
            "remote_buffers": [], "semaphores": [],
        })
    };
    let gpus: Vec<Value> = (0..n).map(gpu).collect();
    json!({
        "name": "gathered", "collective": "allgather", "protocol": "LL", "inplace": false, "reuse_resources": false,
        "use_double_scratch_buffer": true, "gpus": gpus,
    })
}

fn all(n: u32) -> Vec<u32> {
    (0..n).collect()
}
