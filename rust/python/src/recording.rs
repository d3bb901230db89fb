//! Jobs that were recorded under torch.distributed.

use crate::interrupt::interruptible;
use ahbm_findings::Diagnostic;
use ahbm_formats::chakra;
use ahbm_wire::chakra::NodeKind;
use ahbm_wire::store::store;
use pyo3::prelude::*;
use std::path::PathBuf;

/// The value of an attribute: a number, text, or numbers.
#[derive(FromPyObject)]
pub(crate) enum Fact {
    Number(i64),
    Text(String),
    Numbers(Vec<i64>),
}

/// Kind, name, numbers of the events it waits for, start and duration in ps, attributes.
pub(crate) type Event = (String, String, Vec<u64>, u64, u64, Vec<(String, Fact)>);

/// Writes what one of `ranks` ranks did as a Chakra trace, `PREFIX.<rank>.et`, and returns the path. With `alike` the rank
/// stands for all, which do the same: the file is `PREFIX.0.et`, and each entry has groups, as names and ranks, that
/// ranks have in each other's place.
///
/// An event is a kind of the schema (`"COMP_NODE"`, ...), a name, the numbers of the earlier events that it waits for,
/// its start and duration in ps, and attributes: pairs of a name and a number, a text or a list of numbers. Raises
/// `FormatError` for a file that cannot be written (AHBM-F102), beside a larger trace (AHBM-F139), or events that make
/// no trace (AHBM-F134 to F136).
#[pyfunction]
#[pyo3(signature = (prefix, rank, ranks, events, *, alike=None))]
pub(crate) fn write_recording(
    py: Python<'_>,
    prefix: PathBuf,
    rank: u32,
    ranks: u32,
    events: Vec<Event>,
    alike: Option<Vec<chakra::Family>>,
) -> PyResult<PathBuf> {
    let write = || {
        let events = events.into_iter().map(event).collect::<Result<_, _>>().map_err(|finding| vec![finding])?;
        let file = chakra::recorded(&prefix, rank, ranks, events, alike.as_deref())?;
        store(std::slice::from_ref(&file)).map_err(|finding| vec![finding])?;
        Ok(file.path)
    };
    interruptible(py, write)
}

fn event((kind, name, deps, start, duration, facts): Event) -> Result<chakra::Event, Diagnostic> {
    let known = NodeKind::ALL.into_iter().find(|known| known.name() == kind);
    let kind = known.ok_or_else(|| Diagnostic::new("AHBM-F136", format!("the schema has no {kind}")))?;
    let fact = |fact| match fact {
        Fact::Number(n) => chakra::Fact::Number(n),
        Fact::Text(text) => chakra::Fact::Text(text),
        Fact::Numbers(list) => chakra::Fact::Numbers(list),
    };
    let facts = facts.into_iter().map(|(name, said)| (name, fact(said))).collect();
    Ok(chakra::Event { kind, name, deps, start, duration, facts })
}
