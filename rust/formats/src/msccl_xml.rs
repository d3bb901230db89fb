//! MSCCL-IR: thread-block plans as XML, in the dialects of the DSL compilers and the synthesizers.
//!
//! | element | attributes |
//! |---|---|
//! | `algo` | `name proto nchannels nchunksperloop ngpus coll inplace outofplace minBytes maxBytes nthreads redop` |
//! | `gpu` | `id i_chunks o_chunks s_chunks` |
//! | `copy` | `i_off o_off cnt`: input to output before (after) the thread blocks it precedes (follows) |
//! | `tb` | `id send recv chan`: -1 is no peer |
//! | `step` | `s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep` |
//! | `op` | `step type buf off cnt depid deps hasdep`: one location for source and destination |
//!
//! Steps count by position, as the runtimes count them. [`read()`] also says why a runtime would not load or
//! would misread the file; such warnings stop nothing here.
//!
//! | code | finding |
//! |---|---|
//! | `AHBM-F110` | not XML, or not text |
//! | `AHBM-F111` | missing element or attribute |
//! | `AHBM-F112` | attribute with an unusable value |
//! | `AHBM-F113` | unknown element |
//! | `AHBM-F114` | ranks or thread blocks that are not numbered 0, 1, 2, … |
//! | `AHBM-F115` | dependency on a step that does not exist |
//! | `AHBM-F116` | two thread blocks of a rank on one end of a queue |
//! | `AHBM-F117` | step outside its buffer |
//! | `AHBM-F118` | message to or from nobody |
//! | `AHBM-F119` | chunks that do not split into one block per rank |
//! | `AHBM-U201` | step type that exists nowhere or is not supported |

mod admit;
mod attributes;
mod facts;
mod limits;
mod read;
mod write;

pub use write::{Dialect, write, write_as};

use ahbm_findings::Diagnostic;
use ahbm_plan::{Budget, Plan};

/// Reads an MSCCL-IR file. `file` names it in findings and origins.
///
/// # Errors
/// `AHBM-B2xx` over the budget, `AHBM-F110` to `AHBM-F119` malformed, `AHBM-U201` an unsupported step; at most
/// one finding per thread block or rank.
pub fn read(bytes: &[u8], file: &str, budget: &Budget) -> Result<Plan, Vec<Diagnostic>> {
    let (mut plan, facts) = read::read(bytes, file, budget)?;
    plan.warnings = limits::warnings(&plan, &facts);
    Ok(plan)
}

/// Why a runtime would not load, or would misread, what [`write_as`] writes, at the places of the plan; the first of them
/// is the plan's own.
pub fn warnings_as(plan: &Plan, dialect: Dialect<'_>) -> Vec<Diagnostic> {
    limits::warnings(plan, &dialect.facts(plan))
}
