//! Small execution plans that tests make.

use serde_json::{Value, json};

pub(crate) fn local(space: &str, index: u32) -> Value {
    json!({"type": space, "index": index, "size": 1})
}

pub(crate) fn remote(buffer: u32, index: u32) -> Value {
    json!({"buffer_id": buffer, "index": index, "size": 1})
}

/// Two ranks with `[input, output, scratch]` chunks, one memory channel and remote buffers i, o, s (0, 1, 2) of the
/// other; `ops(rank)` lists the operations of each thread block.
pub(crate) fn document(collective: &str, chunks: [u32; 3], ops: impl Fn(u32) -> Vec<Value>) -> Value {
    let gpu = |rank: u32| {
        let block = |(id, ops): (usize, Value)| {
            json!({
                "id": id, "ops": ops, "channels": [{"channel_type": "memory", "channel_ids": [0]}],
                "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0, 1, 2]}],
            })
        };
        let buffer = |space: &str| json!({"rank": 1 - rank, "type": space, "access_channel_types": ["memory"]});
        json!({
            "id": rank, "input_chunks": chunks[0], "output_chunks": chunks[1], "scratch_chunks": chunks[2],
            "threadblocks": ops(rank).into_iter().enumerate().map(block).collect::<Vec<_>>(),
            "channels": [{"channel_type": "memory", "connected_to": [1 - rank]}],
            "remote_buffers": [buffer("i"), buffer("o"), buffer("s")],
            "semaphores": [{"init_value": 0}, {"init_value": 1}],
        })
    };
    json!({
        "name": "small", "collective": collective, "protocol": "LL", "inplace": false, "reuse_resources": false,
        "gpus": [gpu(0), gpu(1)],
    })
}

/// Every rank sends its input as packets and adds what arrives to its own.
pub(crate) fn packets() -> Value {
    document("allreduce", [1, 1, 1], |_| {
        vec![json!([
            {"name": "ppkt", "src_buff": [local("i", 0)], "dst_buff": [remote(2, 0)], "channel_type": "memory"},
            {"name": "repkt", "src_buff": [local("i", 0), local("s", 0)], "dst_buff": [local("o", 0)], "reduce_op": "sum"},
        ])]
    })
}

/// Every rank puts its input into the other's scratch in a loop; a second block waits for it and adds.
pub(crate) fn pipeline() -> Value {
    let looped =
        |ops: Value| json!([{"name": "pipeline", "iter_context": {"unit_size": 4096, "num_chunks": 1}, "ops": ops}]);
    document("allreduce", [1, 1, 1], |_| {
        vec![
            looped(json!([
                {"name": "put", "src_buff": [local("i", 0)], "dst_buff": [remote(2, 0)], "channel_type": "memory"},
                {"name": "nop"},
                {"name": "signal", "channel_ids": [0], "channel_type": "memory"},
                {"name": "wait", "channel_ids": [0], "channel_type": "memory"},
                {"name": "sem_release", "semaphore_ids": [0]},
            ])),
            looped(json!([
                {"name": "sem_acquire", "semaphore_ids": [0]},
                {"name": "re", "src_buff": [local("i", 0), local("s", 0)], "dst_buff": [local("o", 0)], "reduce_op": "sum"},
            ])),
        ]
    })
}

/// Two ranks in place; `ops` lists what each does between the signals that begin and end the plan. Remote buffers 0, 1
/// and 2 are input, output and scratch, switch 0 joins both inputs.
pub(crate) fn in_place(ops: impl Fn(u32) -> Vec<Value>) -> Value {
    let channel = |name: &str| json!({"name": name, "channel_ids": [0], "channel_type": "memory"});
    let met = || [channel("signal"), channel("wait")];
    let mut document =
        document("allreduce", [2, 2, 0], |rank| vec![met().into_iter().chain(ops(rank)).chain(met()).collect()]);
    document["inplace"] = json!(true);
    for rank in 0..2 {
        let gpu = &mut document["gpus"][rank];
        let group =
            json!({"channel_type": "switch", "buffer_type": "i", "rank_groups": [{"size": 2, "ranks": [0, 1]}]});
        gpu["channels"].as_array_mut().unwrap().push(group);
        let ids = json!({"channel_type": "switch", "channel_ids": [0]});
        gpu["threadblocks"][0]["channels"].as_array_mut().unwrap().push(ids);
    }
    document
}

/// An all-reduce in which every rank reduces and broadcasts its half through the switch.
pub(crate) fn switched() -> Value {
    let switch = |index: u32| json!([{"switch_channel_id": 0, "index": index, "size": 1}]);
    in_place(|rank| {
        let (src, dst) = (switch(rank), switch(rank));
        vec![json!({"name": "glres", "src_buff": src, "dst_buff": dst, "channel_type": "switch", "reduce_op": "sum"})]
    })
}

/// An all-reduce in which every rank reads its half of the other's input, adds it and writes the sum back.
pub(crate) fn read_and_reduced() -> Value {
    in_place(|rank| {
        let (src, dst) = (json!([local("i", rank), remote(0, rank)]), json!([local("i", rank), remote(0, rank)]));
        vec![json!({"name": "rres", "src_buff": src, "dst_buff": dst, "channel_type": "memory", "reduce_op": "sum"})]
    })
}

/// A send and receive in which every rank gets the other's input.
pub(crate) fn got() -> Value {
    document("sendrecv", [2, 2, 0], |_| {
        let (src, dst) = (json!([remote(0, 0), remote(0, 1)]), json!([local("o", 0), local("o", 1)]));
        let get =
            json!({"name": "get", "src_buff": src, "dst_buff": dst, "channel_ids": [0], "channel_type": "memory"});
        let meet = |name: &str| json!({"name": name, "channel_ids": [0], "channel_type": "memory"});
        vec![json!([meet("signal"), meet("wait"), get, meet("signal"), meet("wait")])]
    })
}
