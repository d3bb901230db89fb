//! Which formats there are, by the names of their files.

use ahbm_findings::Diagnostic;
use std::path::Path;

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
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Msccl, Self::Mscclpp, Self::Chakra];

    /// The ending of its files' names, without the dot.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Msccl => "xml",
            Self::Mscclpp => "json",
            Self::Chakra => "et",
        }
    }

    /// The format of a file's name, whatever the case of its suffix; None for a suffix of no format.
    pub fn named(path: &Path) -> Option<Self> {
        let suffix = path.extension()?.to_str()?;
        Self::ALL.into_iter().find(|format| suffix.eq_ignore_ascii_case(format.suffix()))
    }

    /// The format of a file's name.
    ///
    /// # Errors
    /// `AHBM-U291` for an extension of no format.
    pub fn of(path: &Path) -> Result<Self, Diagnostic> {
        Self::named(path).ok_or_else(|| {
            let name = path.display();
            Diagnostic::new("AHBM-U291", format!("{name} is of no format that is known"))
                .hint("MSCCL-IR is .xml, MSCCL++ execution plans are .json, Chakra traces are .et")
        })
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
