//! Bytes to a [`Graph`]: inflation, framing, metadata or not.

use super::graph::Graph;
use super::{ReadOptions, Usage, one};
use crate::packed::Packing;
use ahbm_findings::Diagnostic;
use ahbm_plan::Limit;
use ahbm_wire::chakra::{Metadata, Names, Node};
use ahbm_wire::protobuf::{Malformed, Payload, Reader};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::io::Read;
use std::sync::Arc;

/// The trace of one rank from the bytes of its file. `usage` counts against the budget over all ranks.
pub(super) fn graph(
    rank: u32,
    file: &Arc<str>,
    bytes: &[u8],
    options: &ReadOptions,
    usage: &mut Usage,
) -> Result<Graph, Vec<Diagnostic>> {
    let bytes = inflate(file, bytes, options, usage).map_err(one)?;
    let (metadata, nodes) = messages(file, &bytes, options, usage).map_err(one)?;
    Graph::new(rank, Arc::clone(file), metadata, nodes, options.lenient)
}

pub(super) fn inflate<'a>(
    file: &Arc<str>,
    bytes: &'a [u8],
    options: &ReadOptions,
    usage: &mut Usage,
) -> Result<Cow<'a, [u8]>, Diagnostic> {
    let Some(packing) = Packing::of(bytes) else {
        usage.inflated_bytes += bytes.len() as u64;
        options.budget.check(Limit::InflatedBytes, usage.inflated_bytes)?;
        return Ok(Cow::Borrowed(bytes));
    };
    let budget = &options.budget;
    let by_size = budget.get(Limit::InflatedBytes).saturating_sub(usage.inflated_bytes);
    let by_ratio = (bytes.len() as u64).saturating_mul(budget.get(Limit::InflationRatio));
    let most = by_size.min(by_ratio);
    let mut out = Vec::new();
    let inflating = packing.reader(bytes).take(most.saturating_add(1)).read_to_end(&mut out);
    inflating.map_err(|error| {
        Diagnostic::new("AHBM-F132", format!("broken {} stream: {error}", packing.name()))
            .site("after", format!("{file}, inflated byte {}", out.len()))
    })?;
    let inflated = out.len() as u64;
    if inflated > most && by_ratio < by_size {
        budget.check(Limit::InflationRatio, inflated.div_ceil(bytes.len() as u64))?;
    }
    usage.inflated_bytes += inflated;
    budget.check(Limit::InflatedBytes, usage.inflated_bytes)?;
    Ok(Cow::Owned(out))
}

pub(super) fn messages(
    file: &Arc<str>,
    bytes: &[u8],
    options: &ReadOptions,
    usage: &mut Usage,
) -> Result<(Metadata, Vec<Node>), Diagnostic> {
    messages_until(file, bytes, options, usage, |_, _| false)
}

/// As [`messages`], as far as `enough` wants to go on; it is told of the metadata and of every node.
pub(super) fn messages_until(
    file: &Arc<str>,
    bytes: &[u8],
    options: &ReadOptions,
    usage: &mut Usage,
    mut enough: impl FnMut(&Metadata, Option<&Node>) -> bool,
) -> Result<(Metadata, Vec<Node>), Diagnostic> {
    let malformed = |error: Malformed| {
        Diagnostic::new("AHBM-F131", format!("no execution trace: {}", error.what))
            .site("reading", format!("{file}, byte {}", error.at))
    };
    let mut reader = Reader::new(bytes);
    let mut names = Names::default();
    let mut metadata: Option<Metadata> = None;
    let none = Metadata::default();
    let mut nodes: Vec<Node> = Vec::new();
    // Places of the nodes, where ids do not ascend; what ascends is unique.
    let mut seen: FxHashMap<u64, usize> = FxHashMap::default();
    let mut starts: Vec<usize> = Vec::new();
    while !reader.is_empty() {
        let start = reader.at();
        let message = reader.message().map_err(malformed)?;
        if start == 0 && is_metadata(message.clone()).map_err(malformed)? {
            let read = metadata.insert(Metadata::read(message, &mut names).map_err(malformed)?);
            if enough(read, None) {
                break;
            }
            continue;
        }
        let node = Node::read(message, &mut names).map_err(malformed)?;
        usage.admit(&node, options)?;
        if seen.is_empty() && nodes.last().is_some_and(|last| last.id >= node.id) {
            seen = nodes.iter().map(|node| node.id).zip(starts.drain(..)).collect();
        }
        if seen.is_empty() {
            starts.push(start);
        } else if let Some(first) = seen.insert(node.id, start) {
            return Err(Diagnostic::new("AHBM-F133", format!("two nodes have the id {}", node.id))
                .site("first", format!("{file}, byte {first}"))
                .site("second", format!("{file}, byte {start}")));
        }
        let told = enough(metadata.as_ref().unwrap_or(&none), Some(&node));
        nodes.push(node);
        if told {
            break;
        }
    }
    if metadata.is_none() && nodes.is_empty() {
        return Err(malformed(Malformed { at: 0, what: "the file is empty" }));
    }
    Ok((metadata.unwrap_or_default(), nodes))
}

/// Some producers leave the metadata out. A node has a field that metadata has not: its type, or its id as a number.
fn is_metadata(mut message: Reader<'_>) -> Result<bool, Malformed> {
    while let Some((field, payload)) = message.field()? {
        if !matches!((field, payload), (1 | 2, Payload::Message(_))) {
            return Ok(false);
        }
    }
    Ok(true)
}
