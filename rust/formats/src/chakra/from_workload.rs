//! A workload as a Chakra trace, rank by rank: everything that it holds, in the form that ASTRA-sim's feeder reads.
//!
//! | attribute | arm | of | meaning |
//! |---|---|---|---|
//! | `is_cpu_op` | `bool_val` | all | runs on the host |
//! | `duration_ns` | `double_val` | all | how long it takes, where whole microseconds do not say so |
//! | `num_ops`, `tensor_size` | `int64_val`, `uint64_val` | computations, memory | operations and bytes |
//! | `num_ops_dtype` | `string_val` | computations | the type of the operations, unless f16 |
//! | `host_copy` | `bool_val` | computations | copies between the device and its host |
//! | `kernel_kind`, `kernel_dims` | `string_val`, `int64_list` | computations | class and dimensions ([`Kind`]), unless plain |
//! | `comm_type`, `comm_size` | `int64_val` | collectives; messages too | as in ASTRA-sim |
//! | `comm_src`, `comm_dst`, `comm_tag` | `int32_val` | messages | both ends and the tag |
//! | `comm_priority` | `int32_val` | all | the priority, unless 0 |
//! | `pg_name` | `string_val` | collectives, messages | the group as a number; none for that of all ranks |
//! | `dtype`, `op`, `root`, `involved_dim`, `in_splits`, `out_splits`, `in_msg_nelems`, `out_msg_nelems` | | collectives | where stated |
//! | `stream` | `int64_val` | all | where stated |
//! | `start_ns` | `double_val` | all | when it started, of a job that was replayed |
//! | `part_of`, `part`, `part_input` | `int64_val` | parts of a call | node of the call, chunk, whether it is delivered |
//!
//! A node that does nothing, and a part of a call, are `INVALID_NODE`s, which ASTRA-sim skips. The metadata of rank 0
//! says which ranks and which name the groups have, in `process_groups`, as PyTorch does; `<prefix>.groups.json` says it
//! in ASTRA-sim's form.

use super::recorded::mark;
use ahbm_findings::Diagnostic;
use ahbm_wire::chakra::{Arm, Attribute, Metadata, Names, Node, NodeKind, Value, of_rank, prefix, refuse_foreign};
use ahbm_wire::protobuf::Writer;
use ahbm_wire::store::{Output, store};
use ahbm_workload::{Arithmetic, CallSpec, Collective, Graph, Group, Kernel, Kind, MessageSpec, Rank, Work, Workload};
use rustc_hash::FxHashSet;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes `<prefix>.<rank>.et`, and `<prefix>.groups.json` where calls name groups; `path` is the prefix, with or without
/// `.et`. Returns the files. Reading them gives the same workload. `starts` has per rank and node the picosecond in which
/// a replay started it, and may be empty.
///
/// # Errors
/// `AHBM-F102` what the file system reports, `AHBM-F139` where the file of a further rank is there already. In each case
/// nothing was written.
pub fn write_workload(workload: &Workload, path: &Path, starts: &[Vec<u64>]) -> Result<Vec<PathBuf>, Diagnostic> {
    refuse_foreign(path, workload.ranks.len())?;
    let numbers = numbers(&workload.groups);
    let mut encoder = Encoder { names: Names::default(), workload, numbers };
    let mut uses = vec![0u32; workload.graphs.len()];
    workload.ranks.iter().for_each(|rank| uses[rank.graph as usize] += 1);
    let mut forms: Vec<Option<Vec<Form>>> = vec![None; workload.graphs.len()];
    let groups = encoder.groups_file(path);
    let mut written: Vec<PathBuf> = (0..workload.ranks.len()).map(|rank| of_rank(path, rank)).collect();
    written.extend(groups.iter().map(|file| file.path.clone()));
    let ranks = (0..).zip(&workload.ranks).map(|(rank, bound)| {
        let graph = bound.graph as usize;
        let form = forms[graph].get_or_insert_with(|| encoder.forms(&workload.graphs[graph]));
        let bytes = encoder.rank(rank, bound, form, starts.get(rank as usize).map_or(&[], Vec::as_slice));
        uses[graph] -= 1;
        if uses[graph] == 0 {
            forms[graph] = None;
        }
        Output { path: of_rank(path, rank as usize), bytes }
    });
    store(ranks.chain(groups.clone()))?;
    Ok(written)
}

/// A node of a graph: what is the same on every rank that has the graph, and the slots that are not.
#[derive(Clone)]
struct Form {
    bytes: Vec<u8>,
    group: Option<u32>,
    peer: Option<(u32, End)>,
}

/// Which end of a message a node is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Sends,
    Receives,
}

struct Encoder<'a> {
    names: Names,
    workload: &'a Workload,
    /// Per group, what `pg_name` says.
    numbers: Vec<Box<str>>,
}

/// A number for every group: its name where that is one, else the next that no group has.
fn numbers(groups: &[Group]) -> Vec<Box<str>> {
    let own = |group: &Group| group.name.parse::<u32>().ok().filter(|n| *n > 0 && n.to_string() == *group.name);
    let mut taken = FxHashSet::default();
    let kept: Vec<Option<u32>> = groups.iter().map(|group| own(group).filter(|&n| taken.insert(n))).collect();
    let mut free = 1..;
    let mut next = || free.find(|n| !taken.contains(n)).unwrap_or(u32::MAX);
    kept.into_iter().map(|number| number.unwrap_or_else(&mut next).to_string().into()).collect()
}

/// In 64 bits with sign where it fits, which consumers read.
fn wide(n: u64) -> Arm {
    if i64::try_from(n).is_ok() { Arm::Int64 } else { Arm::Uint64 }
}

/// In 32 bits with sign where it fits, which consumers read.
fn narrow(n: u32) -> Arm {
    if i32::try_from(n).is_ok() { Arm::Int32 } else { Arm::Int64 }
}

impl Encoder<'_> {
    /// Whether a group is that of all ranks, which needs no name.
    fn is_world(&self, group: &Group) -> bool {
        group.name.is_empty() && self.is_all(group)
    }

    fn is_all(&self, group: &Group) -> bool {
        group.ranks.len() == self.workload.ranks.len() && group.ranks.iter().copied().eq(0..group.ranks.len() as u32)
    }

    /// Every group with what `pg_name` says.
    fn groups(&self) -> impl Iterator<Item = (&Group, &str)> {
        self.workload.groups.iter().zip(self.numbers.iter().map(AsRef::as_ref))
    }

    fn groups_file(&self, path: &Path) -> Option<Output> {
        if self.groups().all(|(group, _)| self.is_world(group)) {
            return None;
        }
        let list = |(group, number): (&Group, &str)| format!("{:?}:{}", number, json!(group.ranks.as_ref()));
        let lists: Vec<String> = self.groups().map(list).collect();
        let path = path.with_file_name(format!("{}.groups.json", prefix(path, ".et")));
        Some(Output { path, bytes: format!("{{{}}}", lists.join(",")).into_bytes() })
    }

    fn metadata(&mut self, rank: u32) -> Metadata {
        let mut attributes = vec![
            Attribute::text(&self.names.intern("schema"), "1.0.2-chakra.0.0.4"),
            Attribute::integer(&self.names.intern("rank"), narrow(rank), rank),
            Attribute::integer(&self.names.intern("world_size"), Arm::Int32, self.workload.ranks.len() as u32),
        ];
        if self.workload.recorded {
            attributes.push(mark(&mut self.names));
        }
        if rank == 0 && !self.workload.groups.is_empty() {
            let entry = |(group, number): (&Group, &str)| {
                // As PyTorch writes it: no ranks are all ranks.
                let ranks: &[u32] = if self.is_all(group) { &[] } else { &group.ranks };
                let mut entry = json!({ "pg_name": number, "ranks": ranks });
                if &*group.name != number {
                    entry["name"] = json!(&*group.name);
                }
                entry
            };
            let list: Vec<Json> = self.groups().map(entry).collect();
            attributes.push(Attribute::text(&self.names.intern("process_groups"), Json::Array(list).to_string()));
        }
        Metadata { version: "0.0.4".into(), attributes }
    }

    fn rank(&mut self, rank: u32, bound: &Rank, forms: &[Form], starts: &[u64]) -> Vec<u8> {
        let mut out = Writer::default();
        out.delimited(&self.metadata(rank).encode());
        let attribute = |attributes: &[Attribute]| {
            let mut out = Writer::default();
            attributes.iter().for_each(|attribute| attribute.append_to(&mut out));
            out.bytes
        };
        let [name, src, dst, start] =
            ["pg_name", "comm_src", "comm_dst", "start_ns"].map(|name| self.names.intern(name));
        let number = |&group: &u32| attribute(&[Attribute::text(&name, self.numbers[group as usize].clone())]);
        let groups: Vec<Vec<u8>> = bound.groups.iter().map(number).collect();
        let ends = |from: u32, to: u32| {
            attribute(&[Attribute::integer(&src, narrow(from), from), Attribute::integer(&dst, narrow(to), to)])
        };
        let peers: Vec<[Vec<u8>; 2]> = bound.peers.iter().map(|&peer| [ends(rank, peer), ends(peer, rank)]).collect();
        let started = |&ps: &u64| {
            attribute(&[Attribute { name: Arc::clone(&start), value: Value::Double(nanoseconds(ps)), doc: None }])
        };
        for (at, form) in forms.iter().enumerate() {
            // The group of all ranks needs no name, except where a message states it.
            let named = |slot: &u32| {
                form.peer.is_some() || !self.is_world(&self.workload.groups[bound.groups[*slot as usize] as usize])
            };
            let group = form.group.filter(named).map_or(&[][..], |slot| &groups[slot as usize]);
            let peer = form.peer.map_or(&[][..], |(slot, end)| &peers[slot as usize][end as usize]);
            let start = starts.get(at).map(started).unwrap_or_default();
            out.raw_varint((form.bytes.len() + group.len() + peer.len() + start.len()) as u64);
            for part in [&form.bytes, group, peer, &start] {
                out.bytes.extend_from_slice(part);
            }
        }
        out.bytes
    }

    fn forms(&mut self, graph: &Graph) -> Vec<Form> {
        (0..graph.nodes().len() as u32).map(|at| self.form(graph, at)).collect()
    }

    fn form(&mut self, graph: &Graph, at: u32) -> Form {
        let known = graph.node(at);
        let (kind, group, peer) = match &known.work {
            Work::Compute(_) => (NodeKind::Comp, None, None),
            Work::Memory { store: true, .. } => (NodeKind::MemStore, None, None),
            Work::Memory { store: false, .. } => (NodeKind::MemLoad, None, None),
            Work::Call(_) => (NodeKind::Collective, graph.spec(at).map(|spec| spec.group), None),
            Work::Send(message) => (NodeKind::Send, message.group, Some((message.peer, End::Sends))),
            Work::Recv(message) => (NodeKind::Recv, message.group, Some((message.peer, End::Receives))),
            Work::Nothing | Work::Part(_) => (NodeKind::Other(0), None, None),
        };
        let mut node = Node::new(known.id, graph.name(at), kind);
        node.data_deps = graph.deps(at).iter().map(|&dep| graph.node(dep).id).collect();
        node.duration_micros = (known.ps + 500_000) / 1_000_000;
        let mut facts = Facts { names: &mut self.names, node };
        facts.number("is_cpu_op", Arm::Bool, known.cpu);
        if !known.ps.is_multiple_of(1_000_000) {
            facts.value("duration_ns", Value::Double(nanoseconds(known.ps)));
        }
        if let Some(stream) = known.stream {
            facts.number("stream", Arm::Int64, stream);
        }
        if known.priority != 0 {
            facts.number("comm_priority", Arm::Int32, known.priority);
        }
        match &known.work {
            Work::Compute(kernel) if *kernel != Kernel::default() => {
                facts.number("num_ops", wide(kernel.operations), kernel.operations);
                facts.number("tensor_size", Arm::Uint64, kernel.bytes);
                if kernel.arithmetic != Arithmetic::Half {
                    facts.value("num_ops_dtype", Value::Text(kernel.arithmetic.name().into()));
                }
                if kernel.host {
                    facts.number("host_copy", Arm::Bool, true);
                }
                if kernel.kind != Kind::Plain {
                    facts.value("kernel_kind", Value::Text(kernel.kind.name().into()));
                }
                if let Some(last) = kernel.dims.iter().rposition(|&n| n != 0) {
                    let dims: Vec<i128> = kernel.dims[..=last].iter().map(|&n| n.into()).collect();
                    facts.value("kernel_dims", Arm::Int64.list(&dims));
                }
            }
            Work::Memory { bytes, .. } => facts.number("tensor_size", Arm::Uint64, *bytes),
            Work::Send(message) | Work::Recv(message) => facts.message(message),
            Work::Call(_) => graph.spec(at).into_iter().for_each(|spec| facts.call(spec)),
            Work::Part(part) => {
                let call = graph.node(part.call).id;
                facts.number("part_of", wide(call), call);
                facts.number("part", Arm::Int64, part.chunk);
                facts.number("part_input", Arm::Int64, !part.completes);
            }
            Work::Compute(_) | Work::Nothing => {}
        }
        Form { bytes: facts.node.encode(), group, peer }
    }
}

fn nanoseconds(ps: u64) -> f64 {
    (ps / 1000) as f64 + (ps % 1000) as f64 / 1000.0
}

/// A node and the attributes that it gets.
struct Facts<'a> {
    names: &'a mut Names,
    node: Node,
}

impl Facts<'_> {
    fn value(&mut self, name: &str, value: Value) {
        let name: Arc<str> = self.names.intern(name);
        self.node.attributes.push(Attribute { name, value, doc: None });
    }

    fn number(&mut self, name: &str, arm: Arm, n: impl Into<i128>) {
        self.value(name, Value::Integer(arm, n.into()));
    }

    fn message(&mut self, message: &MessageSpec) {
        self.number("comm_size", wide(message.bytes), message.bytes);
        self.number("comm_tag", narrow(message.tag), message.tag);
    }

    fn call(&mut self, spec: &CallSpec) {
        let number = Collective::ALL.iter().position(|known| *known == spec.collective).unwrap_or(0);
        self.number("comm_type", Arm::Int64, number as u64);
        self.number("comm_size", wide(spec.bytes), spec.bytes);
        if let Some([own, out]) = spec.through {
            self.number("in_msg_nelems", wide(own), own);
            self.number("out_msg_nelems", wide(out), out);
        }
        for (name, list) in [("in_splits", &spec.sends), ("out_splits", &spec.receives)] {
            if let Some(list) = list {
                self.value(name, Arm::Int64.list(&list.iter().map(|&n| n.into()).collect::<Vec<i128>>()));
            }
        }
        for (name, text) in [("dtype", &spec.dtype), ("op", &spec.op)] {
            if let Some(text) = text {
                self.value(name, Value::Text(text.clone()));
            }
        }
        if let Some(root) = spec.root {
            self.number("root", narrow(root), root);
        }
        if let Some(dimensions) = &spec.dimensions {
            self.value("involved_dim", Arm::Bool.list(&dimensions.iter().map(|&d| d.into()).collect::<Vec<_>>()));
        }
    }
}
