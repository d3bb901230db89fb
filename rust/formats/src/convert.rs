//! From any format to any other, where the meaning survives: every way leads through a [`Plan`].
//!
//! The caller says how an algorithm becomes such a plan, since that may take a verdict on it. A format has a way out
//! ([`render`]). Anything that cannot be expressed is `AHBM-U292`, which names it and where it was written; nothing is
//! dropped.

use crate::chakra::{self, PlanOptions, Trace};
use crate::document::{Document, Reading, Source};
use crate::{Format, msccl_xml, mscclpp};
use ahbm_findings::Diagnostic;
use ahbm_plan::{Algorithm, Budget, Goal, Plan};
use ahbm_wire::store::{Output, store};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The files that hold `plan` in the format that `to` names: one, or one per rank.
///
/// The queues of an execution plan have `slots`; `options` matter to traces only.
///
/// # Errors
/// `AHBM-U291` for an unknown format, `AHBM-U292` for what the format cannot express, `AHBM-U293` for a plan with ranks
/// that only relay, and what
/// [`mscclpp::from_plan`], [`Trace::from_plan`] and [`chakra::render`] find.
pub fn render(
    plan: &Plan,
    to: &Path,
    slots: u32,
    budget: &Budget,
    options: &PlanOptions,
) -> Result<Vec<Output>, Vec<Diagnostic>> {
    if plan.relays > 0 {
        let text = format!("{} is among {} of {} ranks", plan.name, plan.members(), plan.ranks.len());
        return Err(vec![Diagnostic::new("AHBM-U293", text).hint("in a file every rank takes part")]);
    }
    let one = |bytes: Vec<u8>| vec![Output { path: to.to_path_buf(), bytes }];
    match Format::of(to).map_err(|error| vec![error])? {
        Format::Msccl => {
            expressible(plan)?;
            Ok(one(msccl_xml::write(plan).into_bytes()))
        }
        Format::Chakra => {
            let trace = Trace::from_plan(&plan.name, plan, options)?;
            chakra::render(&trace, to).map_err(|error| vec![error])
        }
        Format::Mscclpp => {
            let json = mscclpp::from_plan(plan, slots, budget)?;
            Ok(one(mscclpp::write(&json)?))
        }
    }
}

/// MSCCL-IR roots collectives at rank 0 and sends to the next rank.
fn expressible(plan: &Plan) -> Result<(), Vec<Diagnostic>> {
    if plan.goal == Goal::parse(plan.goal.name()) {
        return Ok(());
    }
    let what = format!("{}: its {} is fixed", plan.goal, plan.goal.name());
    Err(vec![Format::Msccl.cannot_express(what).site("plan", plan.whole().to_string())])
}

/// Reads `from` and writes it as what the name of `to` says; `blocks` makes a plan of what was read. Returns the files
/// that were written.
///
/// # Errors
/// The errors of reading `from`, those of `blocks` and [`render`] for anything that they cannot express, and
/// `AHBM-F102`. In each case nothing was written.
pub fn convert(
    from: &Path,
    to: &Path,
    reading: &Reading,
    slots: u32,
    options: &PlanOptions,
    blocks: impl FnOnce(&Algorithm) -> Result<Cow<'_, Plan>, Vec<Diagnostic>>,
) -> Result<Vec<PathBuf>, Vec<Diagnostic>> {
    let format = Format::of(to).map_err(|error| vec![error])?;
    let document = Document::read(from, reading)?;
    let files = match (&document.algorithm, &document.source, format) {
        // As it was written; a way through queues would change how it works.
        (Algorithm::Execution(plan), _, Format::Mscclpp) => {
            vec![Output { path: to.to_path_buf(), bytes: mscclpp::write(plan)? }]
        }
        // Nothing but its sizes is known; they are all that is written.
        (Algorithm::Messages(_), Source::Chakra(trace), Format::Chakra) => {
            chakra::render(trace, to).map_err(|error| vec![error])?
        }
        (algorithm, ..) => render(&*blocks(algorithm)?, to, slots, &reading.budget, options)?,
    };
    store(&files).map_err(|error| vec![error])?;
    Ok(files.into_iter().map(|file| file.path).collect())
}
