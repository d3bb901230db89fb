//! One door for the traces of training jobs, whoever wrote them.

use crate::chakra::{self, ReadOptions, Sort, one};
use crate::pytorch;
use ahbm_findings::Diagnostic;
use ahbm_workload::{Groups, Workload};
use std::path::Path;

/// Reads the job that `path` names: a Chakra trace, or traces of PyTorch. `lenient` is for Chakra traces, what `options`
/// has beside the budget for those of PyTorch.
///
/// # Errors
/// As [`chakra::read_workload`] and [`pytorch::read`]; `AHBM-C146` options that do not go with the trace.
pub fn read(
    path: &Path,
    lenient: bool,
    options: &pytorch::Options,
    groups: Groups,
) -> Result<Workload, Vec<Diagnostic>> {
    if pytorch::kind(path).is_some() {
        return pytorch::read(path, options, groups);
    }
    let budget = options.budget;
    if *options != (pytorch::Options { budget, scaled: options.scaled, ..pytorch::Options::default() }) {
        let what = format!("{} is no trace of PyTorch: no --step, --host-gaps or --symmetric", path.display());
        return Err(one(Diagnostic::new("AHBM-C146", what)));
    }
    chakra::read_workload(path, &ReadOptions { budget, lenient }, groups)
}

/// What the trace that a path names is; none where it names no trace.
///
/// # Errors
/// As [`chakra::sort`].
pub fn sort(path: &Path, options: &ReadOptions) -> Result<Option<Sort>, Vec<Diagnostic>> {
    if pytorch::kind(path).is_some() {
        return Ok(Some(Sort::Job));
    }
    let json = || path.extension().is_some_and(|e| e == "json") && chakra::is_json_trace(path);
    if !chakra::is_trace(path) && !json() {
        return Ok(None);
    }
    chakra::sort(path, options).map(Some)
}
