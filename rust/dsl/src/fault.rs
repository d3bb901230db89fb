//! What is wrong with a program, and as what Python raises it.

use ahbm_findings::Diagnostic;

/// The exception of Python that the language's own compiler raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raised {
    /// `RuntimeError`.
    Runtime,
    /// `ValueError`.
    Value,
    /// `TypeError`.
    Type,
    /// `AssertionError`.
    Assertion,
}

impl Raised {
    /// Its name in Python.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runtime => "RuntimeError",
            Self::Value => "ValueError",
            Self::Type => "TypeError",
            Self::Assertion => "AssertionError",
        }
    }
}

/// A statement that cannot be recorded, or a program that cannot be lowered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// As what it is raised.
    pub raised: Raised,
    /// At least one; without sites where the statement itself is the matter.
    pub findings: Vec<Diagnostic>,
}

impl Fault {
    /// One finding.
    pub fn new(raised: Raised, code: &'static str, message: impl Into<String>) -> Self {
        Self { raised, findings: vec![Diagnostic::new(code, message)] }
    }

    /// With a remedy.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(first) = self.findings.first_mut() {
            first.hint = Some(hint.into());
        }
        self
    }
}
