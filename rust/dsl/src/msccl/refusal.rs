//! What the language refuses.

use ahbm_findings::Diagnostic;

/// The family of built-in exceptions that the language's own compiler raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `AssertionError`
    Assertion,
    /// `AttributeError`
    Attribute,
    /// `IndexError`
    Index,
    /// `KeyError`
    Key,
    /// None in particular.
    Runtime,
    /// `TypeError`
    Type,
    /// `ValueError`
    Value,
    /// A call by the interface of 2021, which fails in several ways.
    Outdated,
}

impl Kind {
    /// The name under which the exception is found.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Assertion => "AssertionError",
            Self::Attribute => "AttributeError",
            Self::Index => "IndexError",
            Self::Key => "KeyError",
            Self::Runtime => "RuntimeError",
            Self::Type => "TypeError",
            Self::Value => "ValueError",
            Self::Outdated => "OutdatedError",
        }
    }
}

/// A program that cannot be recorded or lowered.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// How the language's own compiler fails.
    pub kind: Kind,
    /// What is wrong, and where: at least one.
    pub findings: Vec<Diagnostic>,
}

impl Refusal {
    /// One finding.
    pub fn new(kind: Kind, finding: Diagnostic) -> Box<Self> {
        Box::new(Self { kind, findings: vec![finding] })
    }
}

impl From<Diagnostic> for Box<Refusal> {
    fn from(finding: Diagnostic) -> Self {
        Refusal::new(Kind::Runtime, finding)
    }
}
