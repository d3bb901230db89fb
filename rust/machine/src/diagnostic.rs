//! One shape for everything that can go wrong: a stable code, both sides with their origins, a hint.

use std::fmt;

/// A typed finding. `code` is stable across releases and is what scripts and tests match on.
///
/// Families: `C` configuration, `T` topology, `K` kernel capture, `L` lint, `D` deadlock, `V` wrong
/// data, `B` budget, `U` unsupported, `X` distributed front end, `I` interrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable code, e.g. `AHBM-D101`.
    pub code: &'static str,
    /// What happened, one sentence.
    pub message: String,
    /// Where: every side that took part, in a fixed order.
    pub sites: Vec<Site>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// One side of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Who and what, e.g. `sip 0 cube 3 pe 0 waits recv(dir="W")`.
    pub label: String,
    /// Where it was written, e.g. `ring.py:41`; empty when the side has no source text.
    pub origin: String,
}

impl Diagnostic {
    /// A finding without sites or hint.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), sites: Vec::new(), hint: None }
    }

    /// Adds one side.
    #[must_use]
    pub fn site(mut self, label: impl Into<String>, origin: impl Into<String>) -> Self {
        self.sites.push(Site { label: label.into(), origin: origin.into() });
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.message)?;
        for site in &self.sites {
            write!(f, "\n  {}", site.label)?;
            if !site.origin.is_empty() {
                write!(f, "  [{}]", site.origin)?;
            }
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}
