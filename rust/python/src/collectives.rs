//! The meaning of collectives, for Python.

use crate::{errors, operand};
use ahbm_findings::Diagnostic;
use ahbm_plan::collective::{Relation, Run, facts, relation};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

/// Name; whether a buffer has one chunk per rank, whether it takes an operator, a root, a source and a destination.
type Facts = (&'static str, bool, bool, bool, bool);

/// Rank, first element and end, and of the first element the contributions: rank and element of its array.
type Elements = (u32, u64, u64, Vec<(u32, u64)>);

/// Facts about every collective: (name, chunked, reduces, rooted, paired), as `ahbm.collectives` describes them.
#[pyfunction]
pub(crate) fn collectives() -> Vec<Facts> {
    facts().into_iter().map(|f| (f.name, f.chunked, f.reduces, f.rooted, f.paired)).collect()
}

/// Which elements the ranks contribute to a collective: runs (rank, start, stop, [(rank, start)]).
///
/// Every rank has one array in the in-place layout: `ranks` chunks of `count` elements where the collective has chunks,
/// else one. `root` is that of rooted collectives, `src` and `dst` are those of paired ones. `rank` asks for the runs
/// of one rank only. Raises ConfigError (AHBM-C205 for another name, AHBM-C120 for ranks that do not exist).
#[pyfunction]
#[pyo3(signature = (collective, ranks, count, root=0, src=0, dst=1, *, rank=None),
       text_signature = "(collective, ranks, count, root=0, src=0, dst=1, *, rank=None)")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn held(
    py: Python<'_>,
    collective: &str,
    ranks: u32,
    count: u64,
    root: u32,
    src: u32,
    dst: u32,
    rank: Option<u32>,
) -> PyResult<Vec<Elements>> {
    let relation =
        known(collective, ranks, [root, src, dst], rank).map_err(|finding| errors::raise_one(py, *finding))?;
    each(ranks, count, rank, |rank| relation.in_place(rank, ranks, count).0.into_iter().collect())
}

/// The content that the ranks' arrays must have after a collective: runs (rank, start, stop, [(rank, start), …]).
///
/// Element start + i of the rank is the reduction of element start + i of the arrays that are listed, or that element
/// where one is listed. Elements in no run may end with anything. Arguments and errors are those of `held`.
#[pyfunction]
#[pyo3(signature = (collective, ranks, count, root=0, src=0, dst=1, *, rank=None),
       text_signature = "(collective, ranks, count, root=0, src=0, dst=1, *, rank=None)")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn expected(
    py: Python<'_>,
    collective: &str,
    ranks: u32,
    count: u64,
    root: u32,
    src: u32,
    dst: u32,
    rank: Option<u32>,
) -> PyResult<Vec<Elements>> {
    let relation =
        known(collective, ranks, [root, src, dst], rank).map_err(|finding| errors::raise_one(py, *finding))?;
    each(ranks, count, rank, |rank| relation.in_place(rank, ranks, count).1)
}

fn each(ranks: u32, count: u64, rank: Option<u32>, runs: impl Fn(u32) -> Vec<Run>) -> PyResult<Vec<Elements>> {
    if count.checked_mul(ranks.into()).is_none_or(|elements| elements > u64::MAX >> 1) {
        return Err(PyOverflowError::new_err("more elements than an array has"));
    }
    let asked = rank.map_or(0..ranks, |rank| rank..rank + 1);
    let row = |rank, run: Run| (rank, run.elements.start, run.elements.end, run.made_of);
    Ok(asked.flat_map(|rank| runs(rank).into_iter().map(move |run| row(rank, run))).collect())
}

fn known(name: &str, ranks: u32, [root, src, dst]: [u32; 3], rank: Option<u32>) -> Result<Relation, operand::Fault> {
    let facts = facts();
    let Some(fact) = facts.iter().find(|fact| fact.name == name) else {
        let names: Vec<&str> = facts.iter().map(|fact| fact.name).collect();
        return Err(operand::unknown("AHBM-C205", "collective", name, &names));
    };
    let given = [
        ("root", root, fact.rooted),
        ("src", src, fact.paired),
        ("dst", dst, fact.paired),
        ("rank", rank.unwrap_or(0), rank.is_some()),
    ];
    if let Some((what, n, _)) = given.into_iter().find(|&(_, n, matters)| matters && n >= ranks) {
        return Err(Diagnostic::new("AHBM-C120", format!("{what} {n} of {ranks} ranks")).into());
    }
    relation(name, root, src, dst).ok_or_else(|| operand::unknown("AHBM-C205", "collective", name, &[]))
}
