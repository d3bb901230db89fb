//! A host execution trace of PyTorch as the graph of a rank: the sizes, types and groups of its communications.
//!
//! Schemas 1.0.1 to 1.1.1. `record_param_comms` states a communication: its tensors `[id, storage, offset, elements,
//! bytes of an element, device]`, its process group, root or other end, its name, splits, and the size of the group.
//! Operators state no durations, so they are left out.

use super::comms::{At, Comms, note};
use super::events::groups_of;
use super::facts::{self, Facts, kind};
use super::stream::{Part, Stream, malformed, owned, parsed};
use crate::chakra::one;
use ahbm_findings::Diagnostic;
use ahbm_workload::{Gather, NodeBuilder, RankGraph};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// What the trace of a rank says.
#[derive(Debug, Default)]
pub(super) struct Hosted {
    pub(super) groups: Vec<(String, Vec<u32>)>,
    /// Id and statements, by ascending ids.
    pub(super) communications: Vec<(u64, Facts)>,
}

#[derive(Deserialize)]
struct Node<'a> {
    id: u64,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    inputs: Option<&'a RawValue>,
    #[serde(borrow)]
    outputs: Option<&'a RawValue>,
    #[serde(borrow)]
    input_types: Option<&'a RawValue>,
    #[serde(borrow)]
    attrs: Option<&'a RawValue>,
}

/// Reads the communications of a file.
pub(super) fn read(file: &str, stream: Stream<'_>) -> Result<Hosted, Diagnostic> {
    let mut hosted = Hosted::default();
    stream.each("nodes", |part, offset| {
        let Part::Element(bytes) = part else { return Ok(()) };
        let read = |bytes: &[u8]| {
            let node: Node<'_> = serde_json::from_slice(bytes)?;
            match &*node.name {
                "record_param_comms" => hosted.communications.extend(stated(&node)?.map(|facts| (node.id, facts))),
                "## process_group:init ##" => {
                    let (values, _) = arguments(&node)?;
                    let text = values.as_array().and_then(|list| list.first()).and_then(Json::as_str);
                    let list: Option<Json> = text.and_then(|text| owned(text.as_bytes()).ok());
                    hosted.groups.extend(list.iter().flat_map(|list| groups_of(list, None)));
                }
                _ => {}
            }
            Ok(())
        };
        parsed(bytes, read).map_err(|error| malformed(file, offset, &error.to_string()))
    })?;
    hosted.communications.sort_by_key(|(id, _)| *id);
    Ok(hosted)
}

/// Values of the inputs and their types, which stand beside them since schema 1.0.2.
fn arguments(node: &Node<'_>) -> Result<(Json, Json), serde_json::Error> {
    let read = |raw: Option<&RawValue>| raw.map_or(Ok(Json::Null), |raw| serde_json::from_str(raw.get()));
    let mut inputs: Json = read(node.inputs)?;
    if inputs.is_object() {
        return Ok((inputs["values"].take(), inputs["types"].take()));
    }
    Ok((inputs, read(node.input_types)?))
}

/// The communication of a node; none for what is none, as waiting for one.
fn stated(node: &Node<'_>) -> Result<Option<Facts>, serde_json::Error> {
    let (values, types) = arguments(node)?;
    let (values, types) = (values.as_array().map_or(&[][..], Vec::as_slice), types.as_array());
    let type_at = |at: usize| types.and_then(|types| types.get(at)).and_then(Json::as_str).unwrap_or_default();
    let Some(named) = (0..values.len()).find(|&at| type_at(at) == "String") else { return Ok(None) };
    let Some(kind) = values[named].as_str().and_then(kind) else { return Ok(None) };
    let mut facts = Facts { kind: Some(kind), ..Facts::default() };
    if named > 0 && type_at(0).contains("Tensor(") {
        facts.inputs = elements(&values[0]);
        facts.dtype = Some(type_at(0).into());
    }
    if let Some(outputs) = node.outputs {
        let outputs: Json = serde_json::from_str(outputs.get())?;
        let list = outputs.get("values").unwrap_or(&outputs);
        facts.outputs = elements(list).filter(|&n| n > 0);
    }
    if let Some(group) = values.iter().enumerate().find(|(at, _)| type_at(*at).starts_with("Tuple[String")) {
        let name = group.1[0].as_str().filter(|name| !name.is_empty());
        facts.group = name.map(Into::into);
    }
    facts.other = named.checked_sub(1).and_then(|at| facts::number(&values[at]));
    let split = |at: usize, elements: Option<u64>| facts::split(values.get(at)?, elements?);
    facts.splits = [split(named + 1, facts.inputs), split(named + 2, facts.outputs)];
    facts.group_size = values.last().and_then(facts::number).filter(|&size| size > 0);
    let attributes: Vec<Json> = node.attrs.map_or(Ok(Vec::new()), |raw| serde_json::from_str(raw.get()))?;
    for attribute in &attributes {
        let value = &attribute["value"];
        match attribute["name"].as_str() {
            Some("pg_name") if facts.group.is_none() => {
                facts.group = value.as_str().filter(|name| !name.is_empty()).map(Into::into);
            }
            Some("pg_size") => facts.group_size = facts::number(value).or(facts.group_size),
            Some("in_msg_nelems") => facts.inputs = facts.inputs.or_else(|| facts::number(value)),
            Some("out_msg_nelems") => facts.outputs = facts.outputs.or_else(|| facts::number(value)),
            Some("dtype") if facts.dtype.is_none() => facts.dtype = value.as_str().map(Into::into),
            _ => {}
        }
    }
    Ok(Some(facts))
}

/// Elements of a tensor `[id, storage, offset, elements, bytes of an element, device]`, or of all in a list.
fn elements(value: &Json) -> Option<u64> {
    let list = value.as_array()?;
    if let [_, _, _, count, width, Json::String(_)] = &list[..]
        && width.is_number()
    {
        return count.as_u64();
    }
    list.iter().filter(|inner| inner.is_array()).try_fold(0u64, |sum, inner| sum.checked_add(elements(inner)?))
}

/// The graph of a rank: the communications of a group, one after the other.
pub(super) fn graph(
    gather: &mut Gather,
    rank: u32,
    file: &str,
    hosted: &Hosted,
    scaled: bool,
) -> Result<RankGraph, Vec<Diagnostic>> {
    gather.note(
        note("host execution traces state no durations: operators are left out, computing takes no time".into())
            .hint("the profiler's trace of the same run has the durations: give that one"),
    );
    let mut comms = Comms::new(gather, rank, file, &hosted.groups, true, scaled);
    let mut last: FxHashMap<(Option<&str>, Option<u32>), u64> = FxHashMap::default();
    for (id, facts) in &hosted.communications {
        let name = "record_param_comms";
        let work = comms.work(facts, At { id: *id, name })?;
        let before = last.insert((facts.group.as_deref(), facts.group_size), *id);
        comms.builder.push(NodeBuilder::new(*id, name).work(work).after(before.as_slice()));
    }
    if hosted.communications.is_empty() {
        let finding = Diagnostic::new("AHBM-F184", "the trace has no communications and no durations");
        return Err(one(finding.site(format!("rank {rank}"), file)));
    }
    comms.builder.finish(false)
}
