//! Traces of jobs as workloads: one rank after the other, so that what ranks share is held once.
//!
//! Attributes are those of ASTRA-sim's feeder, and beyond them `duration_ns`, `num_ops_dtype`, `host_copy`, `kernel_kind`
//! (a name of [`Kind`]), `kernel_dims` (its dimensions, at most [`DIMS`]), `dtype`, `op`, `root`, `ranks`, `in_splits`, `out_splits`, and of nodes that stand for a part of a collective `part_of`, `part` and `part_input`.

use super::decode::{inflate, messages, messages_until};
use super::files::{find, load_of, name_of};
use super::fold::{Facts, Patterns};
use super::recorded::{alike, is_recorded};
use super::summary::unknown_version;
use super::{Graph, ReadOptions, Trace, Usage, json, one};
use ahbm_findings::Diagnostic;
use ahbm_plan::Limit;
use ahbm_wire::chakra::{Metadata, Node, NodeKind, Value, of_rank, prefix};
use ahbm_workload::{
    Arithmetic, CallSpec, Collective, DIMS, Gather, Groups, Kernel, Kind, MessageSpec, NodeBuilder, PartSpec,
    RankBuilder, RankGraph, Work, Workload,
};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most that a node may take: eleven days, far below the end of simulated time.
const LONGEST_NS: f64 = 1e15;

/// Reads the job that `path` names: a prefix, one of its files, or a folder that holds one prefix. `groups` has the
/// ranks of process groups that nodes name without listing them.
///
/// # Errors
/// As [`find`] and [`super::parse`]; `AHBM-F136` an attribute that is missing or out of range, `AHBM-U234` a process
/// group of unknown ranks.
pub fn read_workload(path: &Path, options: &ReadOptions, groups: Groups) -> Result<Workload, Vec<Diagnostic>> {
    let files = find(path, options).map_err(one)?;
    read_files(name_of(path), &files, options, groups)
}

/// Reads the job of the first `ranks` files `<prefix>.<rank>.et`; others may be there.
///
/// # Errors
/// As [`read_workload`].
pub fn read_ranks(path: &Path, ranks: u32, options: &ReadOptions, groups: Groups) -> Result<Workload, Vec<Diagnostic>> {
    options.budget.check(Limit::Ranks, ranks.into()).map_err(one)?;
    let files: Vec<PathBuf> = (0..ranks).map(|rank| of_rank(path, rank as usize)).collect();
    read_files(prefix(path, ".et"), &files, options, groups)
}

fn read_files(
    name: &str,
    files: &[PathBuf],
    options: &ReadOptions,
    groups: Groups,
) -> Result<Workload, Vec<Diagnostic>> {
    let mut source = Source::new(name, files.len(), options, groups);
    for (rank, path) in (0..).zip(files) {
        let bytes = load_of(path, options, &mut source.usage)?;
        source.add(rank, path.to_string_lossy().into(), &bytes)?;
    }
    Ok(source.gather.finish())
}

/// Reads a job from memory: per rank its file name and its bytes.
///
/// # Errors
/// As [`read_workload`].
pub fn parse_workload(
    name: &str,
    files: &[(&str, &[u8])],
    options: &ReadOptions,
    groups: Groups,
) -> Result<Workload, Vec<Diagnostic>> {
    options.budget.check(Limit::Ranks, files.len() as u64).map_err(one)?;
    let mut source = Source::new(name, files.len(), options, groups);
    for (rank, (file, bytes)) in (0..).zip(files) {
        source.usage.file_bytes += bytes.len() as u64;
        options.budget.check(Limit::FileBytes, source.usage.file_bytes).map_err(one)?;
        source.add(rank, (*file).into(), bytes)?;
    }
    Ok(source.gather.finish())
}

/// A job that is being read.
struct Source<'a> {
    gather: Gather,
    usage: Usage,
    patterns: Patterns,
    options: &'a ReadOptions,
    /// A version of the schema that is not known has been told.
    told: bool,
}

impl<'a> Source<'a> {
    fn new(name: &str, ranks: usize, options: &'a ReadOptions, groups: Groups) -> Self {
        let gather = Gather::new(name, ranks as u32, groups);
        Self { gather, usage: Usage::default(), patterns: Patterns::default(), options, told: false }
    }

    /// Adds the next rank from the bytes of its file.
    fn add(&mut self, rank: u32, file: Arc<str>, bytes: &[u8]) -> Result<(), Vec<Diagnostic>> {
        let Self { gather, usage, patterns, options, told } = self;
        let mut tell = |gather: &mut Gather, metadata: &Metadata| {
            if let Some(finding) = unknown_version(metadata, rank, &file).filter(|_| !*told) {
                gather.note(finding);
                *told = true;
            }
        };
        if file.ends_with(".json") {
            let (metadata, nodes) = json::nodes(&file, bytes, options, usage)?;
            tell(gather, &metadata);
            return add_nodes(gather, rank, file, &metadata, nodes, options.lenient);
        }
        let bytes = inflate(&file, bytes, options, usage).map_err(one)?;
        if let Some((nodes, deps)) = patterns.repeat(gather, rank, &file, &bytes) {
            return usage.take(nodes, deps, options).map_err(one);
        }
        let (metadata, nodes) = messages(&file, &bytes, options, usage).map_err(one)?;
        tell(gather, &metadata);
        if let Some(all) = alike(&metadata, &file).map_err(one)?.filter(|_| gather.size() == 1) {
            options.budget.check(Limit::Ranks, all.ranks.into()).map_err(one)?;
            gather.resize(all.ranks);
            gather.recorded();
            let own = rank_of(gather, all.rank, file, nodes, options.lenient)?;
            return gather.add_alike(own, &all.families);
        }
        let facts: Vec<Facts> = nodes.iter().map(Facts::of).collect();
        add_nodes(gather, rank, file, &metadata, nodes, options.lenient)?;
        patterns.keep(gather, &bytes, &facts);
        Ok(())
    }
}

fn add_nodes(
    gather: &mut Gather,
    rank: u32,
    file: Arc<str>,
    metadata: &Metadata,
    nodes: Vec<Node>,
    lenient: bool,
) -> Result<(), Vec<Diagnostic>> {
    name_groups(gather, metadata, &nodes);
    if is_recorded(metadata) {
        gather.recorded();
    }
    let rank = rank_of(gather, rank, file, nodes, lenient)?;
    gather.add(rank);
    Ok(())
}

/// A rank by its nodes.
fn rank_of(
    gather: &mut Gather,
    rank: u32,
    file: Arc<str>,
    nodes: Vec<Node>,
    lenient: bool,
) -> Result<RankGraph, Vec<Diagnostic>> {
    let mut builder = RankBuilder::new(rank, Arc::clone(&file));
    let mut ids: Vec<u64> = Vec::new();
    if nodes.iter().any(|node| node.integer("part_of").is_some()) {
        ids = nodes.iter().map(|node| node.id).collect();
        ids.sort_unstable();
    }
    let (mut communicates, mut half) = (false, None);
    for node in nodes {
        let reader = Reader { rank, file: &file, node: &node, ids: &ids };
        let ps = reader.ps().map_err(one)?;
        let lacking = reader.half().map_err(one)?;
        let work = match lacking {
            None => reader.work(gather, &mut builder)?,
            Some(_) if ps == 0 => Work::Nothing,
            Some(_) => Work::Compute(Kernel::default()),
        };
        communicates |= matches!(work, Work::Call(_) | Work::Send(_) | Work::Recv(_));
        half = half.or_else(|| lacking.map(|name| reader.wrong(name, "is missing")));
        let cpu = reader.flag("is_cpu_op").map_err(one)?.unwrap_or(false);
        let stream = reader.typed("stream", Node::whole).map_err(one)?.and_then(|n| u32::try_from(n).ok());
        let priority = reader.typed("comm_priority", Node::whole).map_err(one)?;
        let priority = priority.and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
        let made = NodeBuilder::new(node.id, node.name.clone()).work(work).ps(ps).cpu(cpu);
        let made = made.stream(stream).priority(priority).after(&node.ctrl_deps).after(&node.data_deps);
        builder.push(made);
    }
    match half.filter(|_| !communicates) {
        Some(finding) => Err(one(finding.hint("no node of the rank's device says what it communicates"))),
        None => builder.finish(lenient),
    }
}

/// Takes the groups that metadata and METADATA nodes list, as PyTorch writes them: `[{"pg_name", "ranks"}, ...]`, where
/// an empty list of ranks means all. Where `pg_name` is a number that was given in writing, `name` has the group's own.
fn name_groups(gather: &mut Gather, metadata: &Metadata, nodes: &[Node]) {
    let own = metadata.attributes.iter();
    let of_nodes = nodes.iter().filter(|node| node.kind == NodeKind::Metadata);
    let texts = own.chain(of_nodes.clone().flat_map(|node| &node.attributes)).filter_map(|a| match &a.value {
        Value::Text(text) => Some(text.to_string()),
        _ => None,
    });
    let tensors = of_nodes.flat_map(|node| node.tensors.iter().flatten()).map(|t| String::from_utf8_lossy(t).into());
    for text in texts.chain(tensors) {
        // Behind escapes where the list is a string within a string.
        let text: String = if text.contains("\\\"pg_name") { text.replace("\\\"", "\"") } else { text };
        let Some(start) = text.find("[{").filter(|_| text.contains("pg_name")) else { continue };
        let Some(Ok(list)) = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Json>().next() else {
            continue;
        };
        for entry in list.as_array().into_iter().flatten() {
            let ranks = entry["ranks"].as_array().map(|ranks| {
                ranks.iter().map(|rank| rank.as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX))
            });
            let mut ranks: Vec<u32> = ranks.into_iter().flatten().collect();
            if ranks.is_empty() {
                ranks = (0..gather.size()).collect();
            }
            if let Some(number) = entry["pg_name"].as_str() {
                gather.name_group(number, ranks);
                if let Some(name) = entry["name"].as_str() {
                    gather.title_group(number, name);
                }
            }
        }
    }
}

/// A node that is being read.
struct Reader<'a> {
    rank: u32,
    file: &'a str,
    node: &'a Node,
    /// Ids of the file in ascending order, where a node refers to another one.
    ids: &'a [u64],
}

impl Reader<'_> {
    fn origin(&self) -> String {
        format!("{} node {}", self.file, self.node.id)
    }

    fn wrong(&self, name: &str, how: &str) -> Diagnostic {
        let label = format!("rank {}: {} {}", self.rank, self.node.kind.name(), self.node.name);
        Diagnostic::new("AHBM-F136", format!("attribute {name} {how}")).site(label, self.origin())
    }

    /// What `get` reads of an attribute; none where it is absent.
    fn typed<'n, T>(
        &'n self,
        name: &str,
        get: impl FnOnce(&'n Node, &str) -> Result<Option<T>, String>,
    ) -> Result<Option<T>, Diagnostic> {
        get(self.node, name).map_err(|other| self.wrong(name, &other))
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, Diagnostic> {
        Ok(self.typed(name, Node::whole)?.map(|flag| flag != 0))
    }

    /// A non-negative attribute; none where it is absent.
    fn number(&self, name: &str) -> Result<Option<u64>, Diagnostic> {
        let Some(number) = self.typed(name, Node::whole)? else { return Ok(None) };
        u64::try_from(number).map(Some).map_err(|_| self.wrong(name, &format!("is {number}")))
    }

    fn small(&self, name: &str) -> Result<Option<u32>, Diagnostic> {
        let Some(number) = self.number(name)? else { return Ok(None) };
        u32::try_from(number).map(Some).map_err(|_| self.wrong(name, &format!("is {number}, above {}", u32::MAX)))
    }

    /// How long the node takes: `duration_ns` where it has it, else whole microseconds.
    fn ps(&self) -> Result<u64, Diagnostic> {
        let ns = self.typed("duration_ns", Node::number)?.unwrap_or(self.node.duration_micros as f64 * 1e3);
        if (0.0..LONGEST_NS).contains(&ns) {
            // Apart, so that whole nanoseconds stay exact at any length.
            Ok(ns.trunc() as u64 * 1000 + (ns.fract() * 1000.0).round() as u64)
        } else {
            Err(self.wrong("duration", &format!("is {ns} ns")))
        }
    }

    /// The attribute that the host's half of a communication lacks: converters of what PyTorch recorded write the
    /// operation of the host as a communication, too, and state what is communicated at the device's kernel alone.
    fn half(&self) -> Result<Option<&'static str>, Diagnostic> {
        let lacking = match self.node.kind {
            NodeKind::Collective => "comm_type",
            NodeKind::Send | NodeKind::Recv => "comm_size",
            _ => return Ok(None),
        };
        let host = self.flag("is_cpu_op")?.unwrap_or(false);
        Ok((host && self.number(lacking)?.is_none()).then_some(lacking))
    }

    fn work(&self, gather: &mut Gather, builder: &mut RankBuilder) -> Result<Work, Vec<Diagnostic>> {
        let bytes = || self.number("tensor_size").map_err(one).map(Option::unwrap_or_default);
        Ok(match self.node.kind {
            NodeKind::Comp => {
                let operations = self.number("num_ops").map_err(one)?.unwrap_or_default();
                let host = self.flag("host_copy").map_err(one)?.unwrap_or(false);
                let arithmetic = self.named("num_ops_dtype", &Arithmetic::ALL, Arithmetic::name).map_err(one)?;
                let kind = self.named("kernel_kind", &Kind::ALL, Kind::name).map_err(one)?;
                let dims = self.dims().map_err(one)?;
                Work::Compute(Kernel { operations, arithmetic, bytes: bytes()?, host, kind, dims })
            }
            NodeKind::MemLoad => Work::Memory { store: false, bytes: bytes()? },
            NodeKind::MemStore => Work::Memory { store: true, bytes: bytes()? },
            NodeKind::Send => Work::Send(self.message("comm_dst", gather, builder)?),
            NodeKind::Recv => Work::Recv(self.message("comm_src", gather, builder)?),
            NodeKind::Collective => self.call(gather, builder)?,
            NodeKind::Metadata | NodeKind::Other(_) => match self.number("part_of").map_err(one)? {
                None => Work::Nothing,
                Some(call) => Work::Part(PartSpec {
                    call: self.ids.binary_search(&call).map_or(u32::MAX, |at| at as u32),
                    chunk: self.small("part").map_err(one)?.unwrap_or_default(),
                    completes: !self.flag("part_input").map_err(one)?.unwrap_or(false),
                }),
            },
        })
    }

    /// What an attribute names of `all`, the default where it is absent.
    fn named<T: Copy + Default>(
        &self,
        attribute: &str,
        all: &[T],
        name: fn(T) -> &'static str,
    ) -> Result<T, Diagnostic> {
        let Some(given) = self.typed(attribute, Node::word)? else { return Ok(T::default()) };
        all.iter().copied().find(|&known| name(known) == given).ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|&known| name(known)).collect();
            self.wrong(attribute, &format!("is {given:?}")).hint(format!("one of {}", known.join(", ")))
        })
    }

    /// The dimensions of a kernel, 0 where it states fewer.
    fn dims(&self) -> Result<[u32; DIMS], Diagnostic> {
        let mut dims = [0; DIMS];
        let Some(list) = self.typed("kernel_dims", Node::list)? else { return Ok(dims) };
        if list.len() > DIMS {
            return Err(self.wrong("kernel_dims", &format!("has {} numbers, more than {DIMS}", list.len())));
        }
        for (slot, n) in dims.iter_mut().zip(list) {
            let wide = |_| self.wrong("kernel_dims", &format!("has {n}, which is not 0 to {}", u32::MAX));
            *slot = u32::try_from(n).map_err(wide)?;
        }
        Ok(dims)
    }

    fn group(&self, gather: &mut Gather) -> Result<u32, Vec<Diagnostic>> {
        let name = self.typed("pg_name", Node::title).map_err(one)?.unwrap_or_default();
        let listed = self.typed("ranks", Node::list).map_err(one)?;
        let listed = listed.map(|ranks| ranks.iter().map(|&n| u32::try_from(n).unwrap_or(u32::MAX)).collect());
        gather.group(self.rank, &name, listed, || self.origin())
    }

    fn message(
        &self,
        other: &str,
        gather: &mut Gather,
        builder: &mut RankBuilder,
    ) -> Result<MessageSpec, Vec<Diagnostic>> {
        self.typed("pg_name", Node::title).map_err(one)?;
        let named = self.node.text("pg_name").is_some_and(|name| !name.is_empty());
        let group = if named { Some(self.group(gather)?) } else { None };
        let stated = self.number(other).map_err(one)?;
        let of_two = || group.and_then(|group| gather.other_of_two(group, self.rank)).map(u64::from);
        let peer = match stated.or_else(of_two) {
            None => return Err(one(self.wrong(other, "is missing").hint("only in a group of two is the peer known"))),
            Some(peer) if peer >= gather.size().into() => {
                return Err(one(self.wrong(other, &format!("is {peer}, the trace has {} ranks", gather.size()))));
            }
            Some(peer) if peer == u64::from(self.rank) => return Err(one(self.wrong(other, "is the rank itself"))),
            Some(peer) => builder.peer(peer as u32),
        };
        let bytes = self.number("comm_size").map_err(one)?.ok_or_else(|| one(self.wrong("comm_size", "is missing")))?;
        let tag = self.small("comm_tag").map_err(one)?.unwrap_or_default();
        Ok(MessageSpec { peer, group: group.map(|group| builder.group(group)), bytes, tag })
    }

    fn call(&self, gather: &mut Gather, builder: &mut RankBuilder) -> Result<Work, Vec<Diagnostic>> {
        let kind = self.number("comm_type").map_err(one)?;
        let kind = kind.ok_or_else(|| one(self.wrong("comm_type", "is missing")))?;
        let collective = usize::try_from(kind).ok().and_then(|n| Collective::ALL.get(n).copied());
        let collective = collective.ok_or_else(|| one(self.wrong("comm_type", &format!("is {kind}"))))?;
        let group = self.group(gather)?;
        let bytes = match self.number("comm_size").map_err(one)? {
            Some(bytes) => bytes,
            None if collective == Collective::Barrier => 0,
            None => return Err(one(self.wrong("comm_size", "is missing"))),
        };
        let list = |name| self.typed(name, Node::list).map_err(one);
        let elements = |list: Vec<i64>| list.into_iter().map(|n| u64::try_from(n).unwrap_or(0)).collect();
        let [sends, receives] = [list("in_splits")?, list("out_splits")?].map(|found| found.map(elements));
        let own = self.number("in_msg_nelems").map_err(one)?;
        let out = self.number("out_msg_nelems").map_err(one)?;
        let dimensions = list("involved_dim")?.map(|flags| flags.into_iter().map(|n| n != 0).collect());
        let group = builder.group(group);
        Ok(builder.call_of(CallSpec {
            collective,
            group,
            bytes,
            sends,
            receives,
            through: own.zip(out).map(|(own, out)| [own, out]),
            dtype: self.typed("dtype", Node::word).map_err(one)?.map(Into::into),
            op: self.typed("op", Node::word).map_err(one)?.map(Into::into),
            root: self.small("root").map_err(one)?,
            dimensions,
        }))
    }
}

/// Whether a trace is that of a job, as far as it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// It has collectives, groups, costs without durations, memory, or says that it was recorded.
    Job,
    /// It says which chunks it moves, or which collective it computes.
    Algorithm,
    /// Sends, receives and computation only: either.
    Either,
}

/// What the trace that `path` names is. Reads until a node tells.
///
/// # Errors
/// As [`super::read`], as far as it reads.
pub fn sort(path: &Path, options: &ReadOptions) -> Result<Sort, Vec<Diagnostic>> {
    let mut usage = Usage::default();
    for path in find(path, options).map_err(one)? {
        let bytes = load_of(&path, options, &mut usage)?;
        let file: Arc<str> = path.to_string_lossy().into();
        let told = if file.ends_with(".json") {
            let (metadata, nodes) = json::nodes(&file, &bytes, options, &mut usage)?;
            sort_of(&metadata, &nodes)
        } else {
            let bytes = inflate(&file, &bytes, options, &mut usage).map_err(one)?;
            let mut teller = Teller::default();
            messages_until(&file, &bytes, options, &mut usage, |metadata, node| {
                match node {
                    None => teller.metadata(metadata),
                    Some(node) => drop(teller.node(node)),
                }
                teller.told.is_some()
            })
            .map_err(one)?;
            teller.end()
        };
        if told != Sort::Either {
            return Ok(told);
        }
    }
    Ok(Sort::Either)
}

impl Trace {
    /// True for the trace of a job.
    pub fn is_workload(&self) -> bool {
        self.sort() == Sort::Job
    }

    /// What the trace is.
    pub fn sort(&self) -> Sort {
        let told = self.graphs.iter().map(|graph| sort_of(&graph.metadata, &graph.nodes));
        told.into_iter().find(|sort| *sort != Sort::Either).unwrap_or(Sort::Either)
    }
}

fn sort_of(metadata: &Metadata, nodes: &[Node]) -> Sort {
    let mut teller = Teller::default();
    teller.metadata(metadata);
    nodes.iter().take_while(|node| teller.node(node).is_none()).for_each(drop);
    teller.end()
}

/// Tells what a rank's trace is, node by node.
#[derive(Default)]
struct Teller {
    told: Option<Sort>,
    messages: bool,
    nodes: bool,
}

impl Teller {
    fn metadata(&mut self, metadata: &Metadata) {
        if metadata.integer("world_size").is_some() {
            self.told = Some(Sort::Job);
        } else if metadata.text("collective").is_some() {
            self.told = Some(Sort::Algorithm);
        }
    }

    fn node(&mut self, node: &Node) -> Option<Sort> {
        self.nodes = true;
        self.told = self.told.or_else(|| match node.kind {
            NodeKind::Send | NodeKind::Recv if node.integer("msg_chunk_cnt").is_some() => Some(Sort::Algorithm),
            _ if node.text("pg_name").is_some() || node.integer("is_cpu_op").is_some_and(|flag| flag != 0) => {
                Some(Sort::Job)
            }
            NodeKind::Send | NodeKind::Recv => {
                self.messages = true;
                None
            }
            NodeKind::Comp if node.integer("num_ops").is_none() => None,
            // A run that was recorded has memory with its time.
            NodeKind::MemLoad | NodeKind::MemStore if Graph::is_local(node) => None,
            NodeKind::Other(_) => None,
            _ => Some(Sort::Job),
        });
        self.told
    }

    fn end(self) -> Sort {
        self.told.unwrap_or(if self.messages || !self.nodes { Sort::Either } else { Sort::Job })
    }
}
