//! From any format to any other, where the meaning survives: every way leads through a [`Plan`].
//!
//! A format has a way in ([`Document::to_plan`]) and a way out ([`render`]). What either cannot express is
//! `AHBM-U292`, which names it and where it was written; nothing is dropped.

use crate::chakra::{self, PlanOptions, Trace};
use crate::store::{Output, store};
use crate::{Collective, Document, Plan, Reading, msccl_xml, mscclpp};
use ahbm_machine::Diagnostic;
use std::path::{Path, PathBuf};

/// A format that can be read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// MSCCL-IR, `.xml`.
    Msccl,
    /// MSCCL++ execution plans, `.json`.
    Mscclpp,
    /// Chakra execution traces, `.et`.
    Chakra,
}

impl Format {
    /// The format of a file's name.
    ///
    /// # Errors
    /// `AHBM-U291` for an extension of no format.
    pub fn of(path: &Path) -> Result<Self, Diagnostic> {
        match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("xml") => Ok(Self::Msccl),
            Some("json") => Ok(Self::Mscclpp),
            Some("et") => Ok(Self::Chakra),
            _ => {
                let name = path.display();
                Err(Diagnostic::new("AHBM-U291", format!("{name} is of no format that is known"))
                    .hint("MSCCL-IR is .xml, MSCCL++ execution plans are .json, Chakra traces are .et"))
            }
        }
    }

    /// The name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Msccl => "MSCCL-IR",
            Self::Mscclpp => "an MSCCL++ execution plan",
            Self::Chakra => "a Chakra trace",
        }
    }

    /// `AHBM-U292`: something of the source that this format has no words for.
    pub fn cannot_express(self, what: impl std::fmt::Display) -> Diagnostic {
        Diagnostic::new("AHBM-U292", format!("{} cannot express {what}", self.title()))
    }
}

/// The files that hold `plan` in the format that `to` names: one, or one per rank.
///
/// `reading` says how many slots the queues of an execution plan have; `options` matter to traces only.
///
/// # Errors
/// `AHBM-U291` for an unknown format, `AHBM-U292` for what the format cannot express, and what
/// [`mscclpp::from_plan`], [`Trace::from_plan`] and [`chakra::render`] find.
pub fn render(
    plan: &Plan,
    to: &Path,
    reading: &Reading,
    options: &PlanOptions,
) -> Result<Vec<Output>, Vec<Diagnostic>> {
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
            let json = mscclpp::from_plan(plan, reading.slots, &reading.budget)?;
            Ok(one(mscclpp::write(&json)?))
        }
    }
}

/// MSCCL-IR roots collectives at rank 0 and sends to the next rank.
fn expressible(plan: &Plan) -> Result<(), Vec<Diagnostic>> {
    if plan.collective == Collective::parse(plan.collective.name()) {
        return Ok(());
    }
    let what = format!("{:?}: its {} is fixed", plan.collective, plan.collective.name());
    Err(vec![Format::Msccl.cannot_express(what).site("plan", plan.whole().to_string())])
}

/// Reads `from` and writes it as what the name of `to` says. Returns the files that were written.
///
/// # Errors
/// What reading `from` finds, what [`Document::to_plan`] and [`render`] cannot express, and `AHBM-F102`. Then
/// nothing was written.
pub fn convert(
    from: &Path,
    to: &Path,
    reading: &Reading,
    options: &PlanOptions,
) -> Result<Vec<PathBuf>, Vec<Diagnostic>> {
    let format = Format::of(to).map_err(|error| vec![error])?;
    let document = Document::read(from, reading)?;
    let files = match (&document, format) {
        // As it was written; a way through queues would change how it works.
        (Document::Mscclpp(plan), Format::Mscclpp) => {
            vec![Output { path: to.to_path_buf(), bytes: mscclpp::write(plan)? }]
        }
        // Nothing but its sizes is known; they are all that is written.
        (Document::Chakra { trace, plan: None, .. }, Format::Chakra) => {
            chakra::render(trace, to).map_err(|error| vec![error])?
        }
        _ => render(&*document.to_plan(reading)?, to, reading, options)?,
    };
    store(&files).map_err(|error| vec![error])?;
    Ok(files.into_iter().map(|file| file.path).collect())
}
