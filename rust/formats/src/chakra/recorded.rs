//! A job's rank as it was recorded: computation, collectives, sends and receives in the order of the program.

use super::{Graph, one};
use ahbm_findings::Diagnostic;
use ahbm_machine::Ps;
use ahbm_wire::chakra::{
    Arm, Attribute, COLLECTIVES, Metadata, Names, Node, NodeKind, Value, encode, of_rank, refuse_foreign,
};
use ahbm_wire::store::Output;
use ahbm_workload::Group;
use std::path::Path;

/// Something a rank did.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The kind of the event.
    pub kind: NodeKind,
    /// For people; the collective of a collective node, such as `all_reduce`.
    pub name: String,
    /// Numbers of the earlier events that it waits for.
    pub deps: Vec<u64>,
    /// Since the recording began.
    pub start: Ps,
    /// How long it took; 0 where that is for a replay to find out.
    pub duration: Ps,
    /// Its attributes by name. Where `is_cpu_op` is not 1 among them, it runs on the device.
    pub facts: Vec<(String, Fact)>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// A number.
    Number(i64),
    /// Text.
    Text(String),
    /// Numbers.
    Numbers(Vec<i64>),
}

/// The attribute of what runs on the host.
const HOST: &str = "is_cpu_op";

/// Attributes that consumers read from `int32_val` alone; other numbers are `int64_val`.
const NARROW: [&str; 4] = ["comm_src", "comm_dst", "comm_tag", "root"];

/// Groups that ranks have in each other's place, each a name and its ranks; together they are all ranks.
pub type Family = Vec<(String, Vec<u32>)>;

/// The file of one of `ranks` ranks; node ids are the events' numbers. With `families`, it stands for all of them, which
/// do the same in the groups of these, and is the only file.
///
/// # Errors
/// `AHBM-F136` a collective that the schema does not name, `AHBM-F134` and `AHBM-F135` for dependencies, `AHBM-F139`
/// where the file of a further rank lies at `prefix`.
pub fn recorded(
    prefix: &Path,
    rank: u32,
    ranks: u32,
    events: Vec<Event>,
    families: Option<&[Family]>,
) -> Result<Output, Vec<Diagnostic>> {
    let mut names = Names::default();
    let nodes = (0..).zip(events).map(|(id, event)| node(id, event, &mut names)).collect::<Result<_, _>>();
    let mut number = |name: &str, n: u32| Attribute::integer(&names.intern(name), Arm::Int32, n);
    let mut attributes = vec![number("rank", rank), number("world_size", ranks)];
    attributes.insert(0, Attribute::text(&names.intern("schema"), "1.0.2-chakra.0.0.4"));
    attributes.push(mark(&mut names));
    if let Some(families) = families {
        let text = serde_json::to_string(families).unwrap_or_default();
        attributes.push(Attribute::text(&names.intern(FAMILIES), text));
    }
    let metadata = Metadata { version: "0.0.4".into(), attributes };
    let (number, files) = if families.is_some() { (0, 1) } else { (rank, ranks) };
    let path = of_rank(prefix, number as usize);
    refuse_foreign(prefix, files as usize).map_err(one)?;
    let graph = Graph::new(rank, path.to_string_lossy().into(), metadata, nodes.map_err(one)?, false)?;
    Ok(Output { bytes: encode(&graph.metadata, &graph.nodes), path })
}

/// Metadata of a recording, by which a reader tells it from the jobs of others.
const RECORDER: (&str, &str) = ("recorder", "ahbm");

/// Metadata of a recording of one rank that stands for all: [`Family`] after family, as JSON.
const FAMILIES: &str = "alike";

/// A rank that stands for all.
pub(super) struct Alike {
    pub(super) rank: u32,
    /// How many ranks there are.
    pub(super) ranks: u32,
    /// The groups that ranks have in each other's place.
    pub(super) families: Vec<Vec<Group>>,
}

/// What a recording says of the rank that stands for all; none where it stands for itself.
///
/// # Errors
/// `AHBM-F136` metadata that do not say so.
pub(super) fn alike(metadata: &Metadata, file: &str) -> Result<Option<Alike>, Diagnostic> {
    let Some(text) = metadata.text(FAMILIES).filter(|_| is_recorded(metadata)) else { return Ok(None) };
    let number = |name: &str| metadata.integer(name).and_then(|n| u32::try_from(n).ok());
    let families = serde_json::from_str::<Vec<Family>>(text).ok();
    let (Some(rank), Some(ranks), Some(families)) = (number("rank"), number("world_size"), families) else {
        let what = "metadata of a rank that stands for all: rank, world_size or alike is wrong";
        return Err(Diagnostic::new("AHBM-F136", what).site("in", file));
    };
    let group = |(name, ranks): (String, Vec<u32>)| Group { name: name.into(), ranks: ranks.into() };
    let families = families.into_iter().map(|family| family.into_iter().map(group).collect()).collect();
    Ok(Some(Alike { rank, ranks, families }))
}

/// The attribute that marks a recording.
pub(super) fn mark(names: &mut Names) -> Attribute {
    Attribute::text(&names.intern(RECORDER.0), RECORDER.1)
}

/// Whether a rank's file is a recording.
pub(super) fn is_recorded(metadata: &Metadata) -> bool {
    metadata.text(RECORDER.0) == Some(RECORDER.1)
}

fn node(id: u64, event: Event, names: &mut Names) -> Result<Node, Diagnostic> {
    let mut node = Node::new(id, event.name, event.kind);
    node.ctrl_deps = event.deps;
    node.start_micros = event.start / 1_000_000;
    node.duration_micros = event.duration / 1_000_000;
    let host = event.facts.iter().any(|(name, fact)| &**name == HOST && matches!(fact, Fact::Number(1)));
    node.attributes.push(Attribute::integer(&names.intern(HOST), Arm::Bool, u64::from(host)));
    for (name, ps) in [("start_ns", event.start), ("duration_ns", event.duration)] {
        let value = Value::Double(ps as f64 / 1000.0);
        node.attributes.push(Attribute { name: names.intern(name), value, doc: None });
    }
    if event.kind == NodeKind::Collective {
        // The name may go on after a blank: with the line of the call.
        let kind = node.name.split(' ').next().unwrap_or_default();
        let number = COLLECTIVES.iter().position(|name| name.eq_ignore_ascii_case(kind)).ok_or_else(|| {
            Diagnostic::new("AHBM-F136", format!("the schema has no collective {:?}", node.name))
                .hint(COLLECTIVES.join(", ").to_lowercase())
        })?;
        node.attributes.push(Attribute::integer(&names.intern("comm_type"), Arm::Int64, number as u64));
    }
    for (name, fact) in event.facts.into_iter().filter(|(name, _)| &**name != HOST) {
        let arm = if NARROW.contains(&&*name) { Arm::Int32 } else { Arm::Int64 };
        let name = names.intern(&name);
        node.attributes.push(match fact {
            Fact::Number(n) => Attribute::integer(&name, arm, n),
            Fact::Text(text) => Attribute::text(&name, text),
            Fact::Numbers(list) => Attribute::integers(&name, &list),
        });
    }
    Ok(node)
}
